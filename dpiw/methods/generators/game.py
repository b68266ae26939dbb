"""The order of play between a generator and a discriminator: public, whoever plays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpiw.methods.generators.adversarial import (
    LEVELLING_EVERY,
    Array,
    GeneratorState,
    GeneratorTraining,
    gradient_penalty,
)
from dpiw.methods.generators.game_state import GameState
from dpiw.methods.generators.gan_settings import GANSettings
from dpiw.methods.neural.backend import Array as AnyArray
from dpiw.methods.neural.backend import Backend
from dpiw.methods.neural.networks import Network
from dpiw.methods.neural.training_state import TrainingState
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.resumption import UNWATCHED, TrainingWatch, interval

PublicGradient = Callable[[Network, int], AnyArray]
"""Gradient of public rows at a network and a step, in the unit of the private sum."""

Advance = Callable[[TrainingState, PublicGradient], TrainingState]
"""One step of the discriminator: on private rows as its owner sees fit, and on public ones."""


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
