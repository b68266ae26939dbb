"""The order of play between a generator and a discriminator, public, and where a game stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.adversarial import (
    LEVELLING_EVERY,
    Array,
    GeneratorState,
    GeneratorTraining,
    gradient_penalty,
)
from dpiw.methods.generators.gan_settings import GANSettings
from dpiw.methods.neural.backend import Array as AnyArray
from dpiw.methods.neural.backend import Backend
from dpiw.methods.neural.checkpoints import TrainingState, read_checkpoint
from dpiw.methods.neural.networks import Network
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.resumption import UNWATCHED, TrainingWatch, interval

PublicGradient = Callable[[Network, int], AnyArray]
"""Gradient of public rows at a network and a step, in the unit of the private sum."""

Advance = Callable[[TrainingState, PublicGradient], TrainingState]
"""One step of the discriminator: on private rows as its owner sees fit, and on public ones."""


_KIND = "game_state"


@dataclass(frozen=True, kw_only=True, eq=False)
class GameState:
    """Both players between two steps of the discriminator.

    Attributes:
        discriminator: a function of noisy sums and public values.
        generator: learns from the discriminator alone.
        proportions: shares of the labels' levels, public or noised, shape (levels,).
        marginals: the histogram that was drawn before the training, if one was.
        settings: digest of the public facts of the run; a state of other ones is refused.
    """

    discriminator: TrainingState
    generator: GeneratorState
    settings: str
    proportions: Array = field(default_factory=lambda: np.zeros(0))
    marginals: Measurement | None = None

    def to_bytes(self) -> bytes:
        """The same bytes for the same state; a checkpoint belongs in the confidential workspace."""
        player = self.generator
        return Measurement(
            kind=_KIND,
            arrays=packed(self.marginals)
            | {
                "discriminator": np.frombuffer(self.discriminator.to_bytes(), dtype=np.uint8),
                "parameters": player.parameters,
                "moments": player.moments,
                "average": player.average,
                "proportions": self.proportions,
            },
            facts={"step": player.step, "settings": self.settings},
            publishable=self.discriminator.publishable,
        ).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> GameState:
        """Read what `to_bytes` wrote.

        Raises:
            PrivacyError: the bytes are no state.
        """
        stored = read_checkpoint(data, kind=_KIND)
        arrays: dict[str, NDArray[np.float64]] = dict(stored.arrays)
        return cls(
            discriminator=TrainingState.from_bytes(stored.arrays["discriminator"].tobytes()),
            generator=GeneratorState(
                step=stored.facts["step"],
                parameters=arrays["parameters"],
                moments=arrays["moments"],
                average=arrays["average"],
            ),
            settings=str(stored.facts.get("settings")),  # of earlier versions: of no settings
            proportions=arrays["proportions"],
            marginals=unpacked(stored.arrays),
        )


def packed(marginals: Measurement | None) -> dict[str, NDArray[Any]]:
    """A histogram as an array of a checkpoint; nothing where there is none."""
    if marginals is None:
        return {}
    return {"marginals": np.frombuffer(marginals.to_bytes(), dtype=np.uint8)}


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> Measurement | None:
    """The histogram of a checkpoint, if it has one."""
    data = arrays.get("marginals")
    return None if data is None else Measurement.from_bytes(data.tobytes())


@dataclass(frozen=True, kw_only=True)
class Game:
    """The order of play; everything in it is public.

    Attributes:
        settings: of both players.
        training: the generator's.
        proportions: of the labels, shape (levels,).
        marginals: the measured histogram that marginals are known by, if one was drawn.
        backend: where the discriminator lives.
        public_sum: from network and synthetic rows to the discriminator's gradient, in the unit of
            the private sum.
        unit: what a mean over rows is multiplied by to be in that unit.
    """

    settings: GANSettings
    training: GeneratorTraining
    proportions: Array
    backend: Backend
    public_sum: Callable[[Network, AnyArray], AnyArray]
    unit: float
    marginals: Measurement | None = None

    def play(
        self,
        state: TrainingState,
        advance: Advance,
        *,
        resumed: GameState | None = None,
        watch: TrainingWatch = UNWATCHED,
    ) -> tuple[Array, Array]:
        """Parameters of generator and discriminator at the end.

        Args:
            state: the discriminator's, before its first step.
            advance: one accounted step of the discriminator, given the gradient of public rows.
            resumed: both players at the checkpoint that `watch` holds, if it holds one.
            watch: told both players' state before the first step and every twentieth of the steps.
        """
        settings, player, resting = self.settings, self.training.start(), self.resting
        training = self.training
        if resumed is None:
            self._show(watch, state, player)
        else:
            state, player = resumed.discriminator, resumed.generator
        first = state.step
        for step in range(first, settings.steps):
            if step == resting:
                player = replace(player, parameters=player.average)
            if step == max(first, resting):
                training = training.settled(player.parameters, self.proportions)
            elif self._levels(step):
                training = training.levelled(player.parameters, self.proportions, step)
            rows = training.rows(player.parameters, self.proportions, step)
            state = self._bounded(advance(state, partial(self._public, self.backend.array(rows))))
            if step < resting and (step + 1) % settings.discriminator_steps == 0:
                judge = self._network(state.parameters)
                for _ in range(settings.generator_steps):
                    player = training.update(player, judge, self.proportions)
            if state.step % interval(settings.steps) == 0 or state.step == settings.steps:
                self._show(watch, state, player)
        final = player.average if resting == settings.steps else player.parameters
        return final, self._bounded(replace(state, parameters=state.average)).parameters

    def _levels(self, step: int) -> bool:
        """Whether marginals are levelled before a step: where a resumed game begins, they are."""
        settings = self.settings
        often = LEVELLING_EVERY * settings.discriminator_steps
        return step < self.resting and (step % often == 0 or step % interval(settings.steps) == 0)

    def _show(self, watch: TrainingWatch, state: TrainingState, player: GeneratorState) -> None:
        stands = GameState(
            discriminator=state, generator=player, proportions=self.proportions,
            marginals=self.marginals, settings=self.training.chance.facts,
        )  # fmt: skip
        watch.at(state.step, self.settings.steps, stands.to_bytes)

    @property
    def resting(self) -> int:
        """The step from which the generator rests."""
        return self.settings.steps - math.floor(self.settings.settle * self.settings.steps)

    def _public(self, rows: AnyArray, network: Network, step: int) -> AnyArray:
        """Without the penalty once the generator rests: it would flatten the log ratio."""
        gradient = self.public_sum(network, rows)
        if self.settings.penalty == 0 or step >= self.resting:
            return gradient
        return gradient + gradient_penalty(network, rows) * (self.unit * self.settings.penalty)

    def _network(self, parameters: Array) -> Network:
        architecture = self.training.design.discriminator_architecture
        return architecture.network(self.backend.array(parameters))

    def _bounded(self, state: TrainingState) -> TrainingState:
        """A critic's parameters inside the bound that keeps it Lipschitz (Arjovsky et al. 2017)."""
        if self.settings.loss != "wasserstein":
            return state
        bound = self.settings.weight_bound
        return replace(state, parameters=np.clip(state.parameters, -bound, bound))
