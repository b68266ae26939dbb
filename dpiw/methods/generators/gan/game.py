"""The game of generator and discriminator: settings, order of play, and state. All public."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError, setting_error
from dpiw.methods.base import CriticKind, real, whole
from dpiw.methods.generators.base import Synthesizer
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.marginals import check_share
from dpiw.methods.generators.gan.training import (
    LEVELLING_EVERY,
    LOSSES,
    Array,
    GeneratorState,
    GeneratorTraining,
    PublicRandom,
    gradient_penalty,
)
from dpiw.methods.neural.backend import DEVICES, Backend
from dpiw.methods.neural.backend import Array as AnyArray
from dpiw.methods.neural.checkpoints import Adam, TrainingState, read_checkpoint
from dpiw.methods.neural.dp_sgd import IMAGE_ASSUMPTION
from dpiw.methods.neural.networks import Network
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.resumption import UNWATCHED, TrainingWatch, interval


def check_widths(name: str, value: object) -> tuple[int, ...]:
    """A setting as the widths of hidden layers, or SpecError."""
    if not isinstance(value, list | tuple) or len(value) > 8:
        raise SpecError(
            field=f"generator.settings.{name}", allowed="a list of at most 8 whole numbers"
        )
    for width in value:
        whole(f"generator.settings.{name}", width, low=1, high=4096)
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class GANSettings(Synthesizer):
    """Public settings of a game of generator and discriminator.

    Attributes:
        loss: `logistic` (default; the logit is a log ratio) or `wasserstein` (it is not).
        steps: discriminator steps, each on a lot of private rows.
        marginals_share: share of the effort for a noisy histogram, whose marginals the rows then
            have. None (default): by public facts (`marginals.share_of`), 0 for images. 0: no
            histogram.
        lot: expected private rows in a lot, at the public nominal size.
        batch: synthetic rows in a step of either player.
        latent: normal inputs of the generator.
        generator, discriminator: widths of the hidden layers. Empty (default) is a linear
            generator, best with known marginals; without them use layers, as [64, 64].
        learning_rate, discriminator_rate: of the two Adams.
        generator_steps: generator steps after every `discriminator_steps` steps; free.
        settle: share of the last steps in which the generator rests and the discriminator is
            averaged.
        penalty: weight of the gradient penalty at synthetic rows until the generator rests; free.
        weight_bound: largest absolute parameter of a Wasserstein critic.
        temperature: of the relaxed draws of levels.
        label_scale: factor on the one-hot label that the discriminator sees. Many columns drown the
            label's gradient; for images use about the square root of the number of pixels.
        start: seed of public randomness, not of privacy noise; studies should vary it.
        device: `cpu`, `cuda` or `auto`, for the discriminator.
        image: lines and pixels per line, as [28, 28]; all columns but the target are pixels, and
            widths are channels of convolutions. Empty (default): none.
    """

    loss: str = "logistic"
    marginals_share: float | None = None
    steps: int = 800
    lot: int = 256
    batch: int = 512
    latent: int = 16
    generator: tuple[int, ...] = ()
    discriminator: tuple[int, ...] = (32,)
    learning_rate: float = 5e-3
    discriminator_rate: float = 1e-2
    generator_steps: int = 1
    discriminator_steps: int = 1
    settle: float = 0.3
    penalty: float = 0.2
    weight_bound: float = 1.0
    temperature: float = 2 / 3
    label_scale: float = 1.0
    start: int = 0
    device: str = "cpu"
    image: tuple[int, ...] = ()

    conditional: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; the noise is Gaussian, and needs a delta."""
        if pure:
            raise SpecError(
                field="delta", allowed=f"more than 0 with {cls.method}, whose noise is Gaussian"
            )
        return cls(**settings)

    @property
    def critic(self) -> CriticKind:
        """Of the logistic loss, a log ratio."""
        return CriticKind.LOG_RATIO if self.loss == "logistic" else CriticKind.NONE

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise setting_error(self, "generator.settings.loss", f"one of {', '.join(LOSSES)}")
        if self.device not in DEVICES:
            raise setting_error(self, "generator.settings.device", f"one of {', '.join(DEVICES)}")
        for name, high in (
            ("steps", 10**6), ("lot", 10**7), ("batch", 10**5), ("latent", 4096),
            ("generator_steps", 100), ("discriminator_steps", 100),
        ):  # fmt: skip
            whole(f"generator.settings.{name}", getattr(self, name), low=1, high=high)
        whole("generator.settings.start", self.start, low=0, high=2**63 - 1)
        for name, most in (
            ("learning_rate", 1.0), ("discriminator_rate", 1.0), ("weight_bound", 100.0),
            ("temperature", 10.0), ("label_scale", 1e3),
        ):  # fmt: skip
            value = real(f"generator.settings.{name}", getattr(self, name), above=0, at_most=most)
            object.__setattr__(self, name, value)
        for name, most in (("settle", 0.9), ("penalty", 1e3)):
            value = real(
                f"generator.settings.{name}", getattr(self, name), above=-1e-9, at_most=most
            )
            object.__setattr__(self, name, max(0.0, value))
        for name in ("generator", "discriminator"):
            object.__setattr__(self, name, check_widths(name, getattr(self, name)))
        object.__setattr__(self, "image", check_widths("image", self.image))
        if len(self.image) not in (0, 2):
            raise setting_error(self, "generator.settings.image", "two sides, as in [28, 28]")
        share = check_share(self.marginals_share)
        if self.image and share:
            raise setting_error(self, "generator.settings.marginals_share", "none with an image")
        object.__setattr__(self, "marginals_share", 0.0 if self.image else share)

    def design(self, schema: PublicSchema) -> Design:
        """The networks' shapes on a schema; SpecError where a label is needed and there is none."""
        return Design(
            schema=schema,
            conditional=self.conditional,
            latent=self.latent,
            generator=self.generator,
            discriminator=self.discriminator,
            temperature=self.temperature,
            label_scale=self.label_scale,
            image=self.image,
        )

    def settings(self) -> dict[str, Any]:
        """Public settings, JSON values; without an image, and a share of 0, where there is none."""
        settings = {name: getattr(self, name) for name in GANSettings.__dataclass_fields__}
        if not self.image:
            del settings["image"]  # a run is what it was before there were images
        if self.marginals_share == 0:
            del settings["marginals_share"]  # the same
        return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What images' norms rest on."""
        return (IMAGE_ASSUMPTION,) if self.image else ()

    @property
    def libraries(self) -> tuple[str, ...]:
        """See `Method`."""
        return ("opacus", "torch") if self.image else ("torch",)

    @property
    def discriminator_optimiser(self) -> Adam:
        """Little momentum: with more the two players chase each other in circles."""
        return Adam(learning_rate=self.discriminator_rate, first=0.5, second=0.99)

    def generator_training(self, design: Design, chance: PublicRandom) -> GeneratorTraining:
        """The generator's side of the game."""
        return GeneratorTraining(
            design=design,
            loss=self.loss,
            batch=self.batch,
            learning_rate=self.learning_rate,
            chance=chance,
        )


PublicGradient = Callable[[Network, int], AnyArray]
"""Gradient of public rows at a network and a step, in the unit of the private sum."""

Advance = Callable[[TrainingState, PublicGradient], TrainingState]
"""One step of the discriminator, on private and public rows."""


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
    generator: GeneratorState
    settings: str
    proportions: Array = field(default_factory=lambda: np.zeros(0))
    marginals: Measurement | None = None

    def to_bytes(self) -> bytes:
        """The same bytes for the same state, for a checkpoint in the confidential workspace."""
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
        """Read what `to_bytes` wrote; PrivacyError for other bytes."""
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
        advance: Advance,
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
        """Drops the penalty while the generator rests: it would flatten the log ratio."""
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
