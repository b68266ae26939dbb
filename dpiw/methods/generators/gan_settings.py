"""Public settings of a game between a generator and a discriminator, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.base import CriticKind
from dpiw.methods.generators.adversarial import LOSSES, GeneratorTraining, PublicRandom
from dpiw.methods.generators.design import Design
from dpiw.methods.generators.marginals_stage import check_share
from dpiw.methods.neural.backend import DEVICES
from dpiw.methods.neural.checkpoints import Adam
from dpiw.methods.neural.dp_sgd import IMAGE_ASSUMPTION


def check_whole(name: str, value: object, *, low: int, high: int) -> None:
    """SpecError unless a setting is a whole number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpecError(f"generator.settings.{name}: expected a whole number from {low} to {high}")


def check_real(name: str, value: object, *, above: float, at_most: float) -> float:
    """A setting as a float in (above, at_most], or SpecError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"generator.settings.{name}: expected a number")
    if not above < value <= at_most:
        raise SpecError(f"generator.settings.{name}: expected above {above:g}, at most {at_most:g}")
    return float(value)


def check_widths(name: str, value: object) -> tuple[int, ...]:
    """A setting as the widths of hidden layers, or SpecError."""
    if not isinstance(value, list | tuple) or len(value) > 8:
        raise SpecError(f"generator.settings.{name}: expected a list of at most 8 whole numbers")
    for width in value:
        check_whole(name, width, low=1, high=4096)
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class GANSettings:
    """Public settings of a game of generator and discriminator.

    Attributes:
        loss: `logistic` (default): the discriminator's logit is a log ratio; or `wasserstein`:
            its critic is none (docs/method.md section 12).
        steps: discriminator steps, each on a lot of private rows.
        marginals_share: share of the effort for a noisy histogram, drawn first, whose marginals the
            rows then have (`generators.column_distributions`); None (default): by public facts
            (`dpiw.methods.generators.marginals_stage.share_of`), and 0 for images; 0: no histogram,
            the networks learn marginals, too.
        lot: expected private rows in a lot, at the public nominal size.
        batch: synthetic rows in a step, of the discriminator's and of the generator's.
        latent: normal inputs of the generator.
        generator, discriminator: widths of the hidden layers. A generator without any (default) is
            linear, a factor copula where marginals are known: under noise, and on many levels even
            without, deeper ones learnt less on four tables. Where they are not known it wants
            layers, as [64, 64].
        learning_rate, discriminator_rate: of the two Adams.
        generator_steps: generator steps after every `discriminator_steps` steps; they cost nothing.
        discriminator_steps: see there.
        settle: share of the steps, at the end, in which the generator rests and the discriminator
            learns to tell its final rows; the discriminator's parameters are averaged over them.
        penalty: weight of the discriminator's gradient penalty at synthetic rows; it costs nothing,
            and ends when the generator rests.
        weight_bound: largest absolute parameter of a Wasserstein critic.
        temperature: of the relaxed draws of levels.
        label_scale: what a conditional method multiplies the one-hot label by where the
            discriminator sees it. A row of many columns drowns the label: its share of the
            gradient, and so of what clipping leaves and noise spares, goes down with their number.
            For images the square root of the number of pixels does well.
        start: which of the public starts: first parameters, and the synthetic rows of every step,
            follow from it and the other public settings. A training depends on its start, so a
            study should vary it; no privacy noise follows from it.
        device: `cpu`, `cuda` or `auto`, for the discriminator.
        image: lines of an image and pixels in each, [28, 28]: the columns beside the target are its
            pixels, line by line, `generator` and `discriminator` the channels of convolutions, each
            of which doubles or halves the image. Empty (default): none.
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

    if TYPE_CHECKING:  # an annotation would make them settings
        method: ClassVar[str]
        private: ClassVar[bool]
    conditional: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; the noise is Gaussian, and needs a delta."""
        if pure:
            raise SpecError(
                f"delta: expected more than 0 with {cls.method}, whose noise is Gaussian"
            )
        return cls(**settings)

    @property
    def critic(self) -> CriticKind:
        """Of the logistic loss, a log ratio."""
        return CriticKind.LOG_RATIO if self.loss == "logistic" else CriticKind.NONE

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        if self.loss not in LOSSES:
            raise SpecError(f"generator.settings.loss: expected one of {', '.join(LOSSES)}")
        if self.device not in DEVICES:
            raise SpecError(f"generator.settings.device: expected one of {', '.join(DEVICES)}")
        for name, high in (
            ("steps", 10**6), ("lot", 10**7), ("batch", 10**5), ("latent", 4096),
            ("generator_steps", 100), ("discriminator_steps", 100),
        ):  # fmt: skip
            check_whole(name, getattr(self, name), low=1, high=high)
        check_whole("start", self.start, low=0, high=2**63 - 1)
        for name, most in (
            ("learning_rate", 1.0), ("discriminator_rate", 1.0), ("weight_bound", 100.0),
            ("temperature", 10.0), ("label_scale", 1e3),
        ):  # fmt: skip
            value = check_real(name, getattr(self, name), above=0, at_most=most)
            object.__setattr__(self, name, value)
        for name, most in (("settle", 0.9), ("penalty", 1e3)):
            value = check_real(name, getattr(self, name), above=-1e-9, at_most=most)
            object.__setattr__(self, name, max(0.0, value))
        for name in ("generator", "discriminator"):
            object.__setattr__(self, name, check_widths(name, getattr(self, name)))
        object.__setattr__(self, "image", check_widths("image", self.image))
        if len(self.image) not in (0, 2):
            raise SpecError("generator.settings.image: expected two sides, as in [28, 28]")
        share = check_share(self.marginals_share)
        if self.image and share:
            raise SpecError("generator.settings.marginals_share: expected none with an image")
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
            del settings["marginals_share"]  # likewise
        return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """As `dpiw.methods.generators.base.own_assumptions`: what images' norms rest on."""
        return (IMAGE_ASSUMPTION,) if self.image else ()

    @property
    def libraries(self) -> tuple[str, ...]:
        """As `dpiw.methods.generators.base.own_libraries`: what finds norms."""
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
