"""The game of generator and discriminator: order of play, and state. All public."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.gan.settings import GANSettings
from dpiw.methods.generators.gan.training import (
    LEVELLING_EVERY,
    Array,
    GeneratorTraining,
    gradient_penalty,
)
from dpiw.methods.neural.backend import Array as AnyArray
from dpiw.methods.neural.backend import Backend
from dpiw.methods.neural.checkpoints import NetworkState, TrainingState, read_checkpoint
from dpiw.methods.neural.dp_sgd import PublicGradient
from dpiw.methods.neural.networks import Network
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.resumption import UNWATCHED, TrainingWatch, interval

_KIND = "game_state"


@dataclass(frozen=True, kw_only=True, eq=False)
class GameState:
    """Both players between two discriminator steps: functions of noisy sums and public values.

    Attributes:
        proportions: shares of the labels' levels, public or noised, shape (levels,).
        marginals: the histogram drawn before training, or None.
        settings: digest of the run's public facts; states of other facts are refused.
    """

    discriminator: TrainingState
    generator: NetworkState
    settings: str
    proportions: Array
    marginals: Measurement | None

    def to_bytes(self) -> bytes:
        """The same bytes for the same state, for a checkpoint in the confidential workspace."""
        return Measurement(
            kind=_KIND,
            arrays={
                **packed(self.marginals),
                **self.generator.arrays,
                "discriminator": np.frombuffer(self.discriminator.to_bytes(), dtype=np.uint8),
                "proportions": self.proportions,
            },
            facts={"step": self.generator.step, "settings": self.settings},
            publishable=self.discriminator.publishable,
        ).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> GameState:
        """Read what `to_bytes` wrote; PrivacyError for other bytes."""
        stored = read_checkpoint(data, kind=_KIND)
        return cls(
            discriminator=TrainingState.from_bytes(stored.arrays["discriminator"].tobytes()),
            generator=NetworkState.stored(stored),
            settings=str(stored.facts.get("settings")),  # of earlier versions: of no settings
            proportions=stored.arrays["proportions"],
            marginals=unpacked(stored.arrays),
        )


def packed(marginals: Measurement | None) -> dict[str, NDArray[Any]]:
    """A histogram as an array of a checkpoint; empty without one."""
    if marginals is None:
        return {}
    return {"marginals": np.frombuffer(marginals.to_bytes(), dtype=np.uint8)}


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> Measurement | None:
    """The histogram of a checkpoint, if it has one."""
    data = arrays.get("marginals")
    return None if data is None else Measurement.from_bytes(data.tobytes())


@dataclass(frozen=True, kw_only=True)
class Game:
    """The order of play; public.

    Attributes:
        training: the generator's.
        backend: device of the discriminator.
        public_sum: network and synthetic rows to the gradient, in the unit of the private sum.
        unit: factor from a mean over rows to that unit.
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
        advance: Callable[[TrainingState, PublicGradient], TrainingState],
        *,
        resumed: GameState | None = None,
        watch: TrainingWatch = UNWATCHED,
    ) -> tuple[Array, Array]:
        """Play the game; return the final parameters of generator and discriminator.

        Args:
            state: the discriminator's, before its first step.
            advance: one accounted discriminator step, given the gradient of public rows.
            resumed: both players at the checkpoint of `watch`, or None.
            watch: receives the state before the first step and after every twentieth of the steps.
        """
        settings, player, resting = self.settings, self.training.start(), self.resting
        training, shape = self.training, self.training.design.discriminator_architecture
        if resumed is None:
            self._show(watch, state, player)
        else:
            state, player = resumed.discriminator, resumed.generator
        first, every = state.step, interval(settings.steps)
        for step in range(first, settings.steps):
            if step == resting:
                player = replace(player, parameters=player.average)
            if step == max(first, resting):
                training = training.levelled(player.parameters, self.proportions)
            elif step < resting and (step % LEVELLING_EVERY == 0 or step % every == 0):
                training = training.levelled(player.parameters, self.proportions, step)
            rows = training.rows(player.parameters, self.proportions, step)
            state = self._bounded(advance(state, partial(self._public, self.backend.array(rows))))
            if step < resting:
                judge = shape.network(self.backend.array(state.parameters))
                player = training.update(player, judge, self.proportions)
            if state.step % every == 0 or state.step == settings.steps:
                self._show(watch, state, player)
        final = player.average if resting == settings.steps else player.parameters
        return final, self._bounded(replace(state, parameters=state.average)).parameters

    def _bounded(self, state: TrainingState) -> TrainingState:
        """A critic's parameters inside the bound that keeps it Lipschitz (Arjovsky et al. 2017)."""
        if self.settings.loss != "wasserstein":
            return state
        bound = self.settings.weight_bound
        return replace(state, parameters=np.clip(state.parameters, -bound, bound))

    def _show(self, watch: TrainingWatch, state: TrainingState, player: NetworkState) -> None:
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
        """Drops the penalty while the generator rests: it would flatten the log ratio."""
        gradient = self.public_sum(network, rows)
        if self.settings.penalty == 0 or step >= self.resting:
            return gradient
        return gradient + gradient_penalty(network, rows) * (self.unit * self.settings.penalty)
