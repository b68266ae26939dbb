"""Settings that all games of a generator and a discriminator have. All public."""

import abc
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError, setting_error
from dpiw.methods.base import (
    BELOW_ZERO,
    MULTIPLY_SECONDS,
    NUMBER_SECONDS,
    STEP_SECONDS,
    CriticKind,
    Running,
    calibrated_for,
    real,
    whole,
)
from dpiw.methods.generators.base import CalibratedNoise, Synthesizer
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.heads import TEMPERATURE
from dpiw.methods.generators.gan.model import GANModel, gan_model
from dpiw.methods.generators.gan.training import (
    LOSSES,
    SETTLING_ROWS,
    GeneratorTraining,
    PublicRandom,
)
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.neural.backend import DEVICES
from dpiw.methods.neural.checkpoints import Adam
from dpiw.methods.neural.clipping import check_computes
from dpiw.methods.neural.dp_sgd import IMAGE_ASSUMPTION
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise

_SETTING = "generator.settings."


def _check_widths(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > 8:
        raise SpecError(field=_SETTING + name, allowed="a list of at most 8 whole numbers")
    return tuple(whole(_SETTING + name, width, low=1, high=4096) for width in value)


@dataclass(frozen=True, kw_only=True)
class GameNoise(CalibratedNoise):
    """Calibrated constants of a game; `marginals` is None if no histogram is drawn first."""

    marginals: Histogram | None

    def marginals_events(self) -> tuple[PrivacyEvent, ...]:
        """One single-draw event per column: `Resumption` must tell these from steps."""
        if self.marginals is None:
            return ()
        (all_columns,) = self.marginals.events(schema=self.schema, unit=self.unit)
        return (replace(all_columns, count=1),) * all_columns.count

    def marginals_noise(self) -> tuple[ReleasedNoise, ...]:
        """Noise of the histogram's equal events; empty without one."""
        if self.marginals is None:
            return ()
        noise = self.marginals.released_noise(schema=self.schema, unit=self.unit)
        return tuple(replace(law, values="marginals") for law in noise)

    def marginals_parameters(self) -> dict[str, Any]:
        """The histogram's settings and noise, for the plan and the certificate."""
        return {} if self.marginals is None else {"marginals": dict(self.marginals.parameters())}


@dataclass(frozen=True, kw_only=True)
class GameSettings(Synthesizer):
    """Public settings of a generator that learns from a discriminator.

    Attributes:
        marginals_share: share of the effort for a noisy histogram, whose marginals the rows then
            have. None (default): by public facts (`marginals.share_of`), 0 for images. 0: no
            histogram.
        batch: synthetic rows in a step of either player.
        latent: normal inputs of the generator.
        generator: widths of its hidden layers. Empty (default): linear, best with known marginals;
            without them use layers, as [64, 64].
        learning_rate: of the generator's Adam.
        penalty: weight of the discriminator's gradient penalty at synthetic rows; free.
        start: seed of public randomness, not of privacy noise; studies should vary it.
    """

    marginals_share: float | None = None
    batch: int = 512
    latent: int = 16
    generator: tuple[int, ...] = ()
    learning_rate: float = 5e-3
    penalty: float = 0.2
    start: int = 0
    calibrated: GameNoise | None = None

    from_one: ClassVar[dict[str, int]] = {"batch": 10**5, "latent": 4096}
    """Settings that are whole numbers from 1, and their largest values."""
    above_zero: ClassVar[dict[str, float]] = {"learning_rate": 1.0}
    """Settings that are numbers above 0, and their largest values."""
    from_zero: ClassVar[dict[str, float]] = {"penalty": 1e3, "marginals_share": 0.95}
    """Settings that are numbers from 0, and their largest values."""
    widths: ClassVar[tuple[str, ...]] = ("generator",)
    """Settings that are widths of hidden layers."""
    conditional: ClassVar[bool] = False
    retired: ClassVar[dict[str, tuple[Any, ...]]] = {"temperature": (TEMPERATURE,)}

    def __post_init__(self) -> None:
        whole(f"{_SETTING}start", self.start, low=0, high=2**63 - 1)
        for name, most in self.from_one.items():
            whole(_SETTING + name, getattr(self, name), low=1, high=most)
        checked: dict[str, Any] = {}
        for name, high in self.above_zero.items():
            checked[name] = real(_SETTING + name, getattr(self, name), above=0, at_most=high)
        for name, high in self.from_zero.items():
            if name != "marginals_share" or self.marginals_share is not None:
                value = real(_SETTING + name, getattr(self, name), above=BELOW_ZERO, at_most=high)
                checked[name] = max(0.0, value)
        for name in self.widths:
            checked[name] = _check_widths(name, getattr(self, name))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def stated(self, settings: type[Any]) -> dict[str, Any]:
        """The fields of a class and what it retired, as JSON values, without `calibrated`."""
        values = {field.name: getattr(self, field.name) for field in fields(settings)}
        values |= {name: old for name, (old,) in self.retired.items()}
        del values["calibrated"]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @abc.abstractmethod
    def design(self, schema: PublicSchema) -> Design:
        """The networks' shapes on a schema; SpecError where a label is needed and there is none."""

    def generator_training(
        self, design: Design, chance: PublicRandom, *, loss: str = "logistic"
    ) -> GeneratorTraining:
        """The generator's side of the game."""
        return GeneratorTraining(
            design=design, loss=loss, batch=self.batch, learning_rate=self.learning_rate,
            chance=chance,
        )  # fmt: skip

    def forecast(
        self, width: int, *, steps: float, products: float, numbers: float, nominal_rows: int
    ) -> Running:
        """Forecast of steps, products of parameters and rows, and numbers of rows made or read."""
        return Running(
            seconds=STEP_SECONDS * steps + MULTIPLY_SECONDS * products + NUMBER_SECONDS * numbers,
            held_bytes=width * (12 * nominal_rows + 19 * SETTLING_ROWS) + (40 << 20),
        )

    @property
    def libraries(self) -> tuple[str, ...]:
        """See `Method`."""
        return ("torch",)

    def check_fits(self) -> None:
        """See `Method`: its networks need torch."""
        schema = calibrated_for(self.calibrated, method=self.method).schema
        check_computes("fit_generator", lambda: self.design(schema).discriminator_architecture)

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> GANModel:
        """The fitted networks; SpecError for a measurement of another method or schema."""
        return gan_model(measurement, kind=self.method, schema=schema)


@dataclass(frozen=True, kw_only=True)
class GANSettings(GameSettings):
    """Public settings of a game whose discriminator sees rows.

    Attributes:
        loss: `logistic` (default; the logit is a log ratio) or `wasserstein` (it is not).
        steps: discriminator steps, each on a lot of private rows.
        lot: expected private rows in a lot, at the public nominal size.
        discriminator: widths of its hidden layers.
        discriminator_rate: of its Adam.
        settle: share of the last steps in which the generator rests, without a penalty, and the
            discriminator is averaged.
        weight_bound: largest absolute parameter of a Wasserstein critic.
        label_scale: factor on the one-hot label that the discriminator sees. Many columns drown the
            label's gradient; for images use about the square root of the number of pixels.
        device: `cpu`, `cuda` or `auto`, for the discriminator.
        image: lines and pixels per line, as [28, 28]; all columns but the target are pixels, and
            widths are channels of convolutions. Empty (default): none.
    """

    loss: str = "logistic"
    steps: int = 800
    lot: int = 256
    discriminator: tuple[int, ...] = (32,)
    discriminator_rate: float = 1e-2
    settle: float = 0.3
    weight_bound: float = 1.0
    label_scale: float = 1.0
    device: str = "cpu"
    image: tuple[int, ...] = ()

    needs_delta: ClassVar[str] = "its noise is Gaussian"
    from_one = GameSettings.from_one | {"steps": 10**6, "lot": 10**7}
    above_zero = GameSettings.above_zero | {
        "discriminator_rate": 1.0, "weight_bound": 100.0, "label_scale": 1e3,
    }  # fmt: skip
    from_zero = GameSettings.from_zero | {"settle": 0.9}
    widths = ("generator", "discriminator", "image")
    retired = GameSettings.retired | {"generator_steps": (1,), "discriminator_steps": (1,)}

    @property
    def critic(self) -> CriticKind:
        """Of the logistic loss, a log ratio."""
        return CriticKind.LOG_RATIO if self.loss == "logistic" else CriticKind.NONE

    def __post_init__(self) -> None:
        for name, words in (("loss", LOSSES), ("device", DEVICES)):
            if getattr(self, name) not in words:
                raise setting_error(self, _SETTING + name, f"one of {', '.join(words)}")
        super().__post_init__()
        if len(self.image) not in (0, 2):
            raise setting_error(self, f"{_SETTING}image", "two sides, as in [28, 28]")
        if self.image:
            if self.marginals_share:
                raise setting_error(self, f"{_SETTING}marginals_share", "0 with `image`")
            object.__setattr__(self, "marginals_share", 0.0)

    def design(self, schema: PublicSchema) -> Design:
        """As `GameSettings.design`."""
        return Design(
            schema=schema,
            conditional=self.conditional,
            latent=self.latent,
            generator=self.generator,
            discriminator=self.discriminator,
            label_scale=self.label_scale,
            image=self.image,
        )

    def settings(self) -> dict[str, Any]:
        """Public settings, JSON values; without an image, and a share of 0, where there is none."""
        settings = self.stated(GANSettings) | {"conditional": self.conditional}
        if not self.image:
            del settings["image"]  # a run is what it was before there were images
        if self.marginals_share == 0:
            del settings["marginals_share"]  # the same
        return settings

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
