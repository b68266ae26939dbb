"""A differentially private GAN, `dpgan`, and conditional on the target's level, `dpcgan`.

Only the discriminator reads private rows: Poisson lots of a public rate, clipped row by row, one
draw of noise per lot, a public divisor (`neural.dp_sgd`). Synthetic rows need no noise. Every step
is accounted and none depends on a result; the generator is post-processing; both networks are
released. Histograms are events of their own, drawn first. The logit is a log ratio only with the
logistic loss and a clip rule that treats both classes alike (`ClipRule.OUTPUT`).
Source: Xie et al. (2018), Torkzadehmahani et al. (2019), corrected in docs/method.md section 12.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.errors import PrivacyError, SpecError, setting_error
from dpiw.methods.base import Running, StatedNoise, calibrated_for, check_effort, real, whole
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.counting import noisy_marginal
from dpiw.methods.generators.estimation import distribution
from dpiw.methods.generators.gan.design import IMAGE_LAYOUT, Design
from dpiw.methods.generators.gan.game import Game, GameState
from dpiw.methods.generators.gan.marginals import label_law, plan_marginals, with_distributions
from dpiw.methods.generators.gan.model import PUBLIC_PROPORTIONS, game_measurement
from dpiw.methods.generators.gan.settings import GameNoise, GANSettings
from dpiw.methods.generators.gan.training import Array, PublicRandom, loss_of
from dpiw.methods.generators.marginal_noise import noise_scale, released_counts
from dpiw.methods.neural.backend import check_installed, computing, make_backend
from dpiw.methods.neural.checkpoints import OTHER_SETTINGS, check_resumable
from dpiw.methods.neural.clipping import ClipRule, clipped_sum
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining
from dpiw.privacy.events import GaussianEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, Resumption, TrainingWatch
from dpiw.privacy.units import NoiseKind, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class DPGANNoise(GameNoise):
    """Calibrated DP-SGD, and the multiplier of the labels' histogram (None if not drawn)."""

    training: PrivateTraining
    histogram: float | None


@dataclass(frozen=True, kw_only=True)
class DPGAN(GANSettings):
    """A differentially private GAN before it has seen data.

    Attributes:
        clip: C, bound on the norm of one private row's gradient.
        resumes: checkpoints to resume from; each is charged a twentieth of the steps in advance.
        proportions: `dpcgan` only: public shares of the target's levels, in the schema's order,
            missing last if nullable; empty uses a noisy histogram.
        proportions_share: `dpcgan` only: share of the effort for the target's histogram if
            `marginals_share` is 0.
    """

    clip: float = 2.0
    resumes: int = 1
    proportions: tuple[float, ...] = ()
    proportions_share: float | None = None
    calibrated: DPGANNoise | None = None

    method: ClassVar[str] = "dpgan"
    private: ClassVar[bool] = True

    above_zero = GANSettings.above_zero | {"clip": 1e6}

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("generator.settings.resumes", self.resumes, low=0, high=20)
        if self.conditional:
            self._check_proportions()
        elif self.proportions != () or self.proportions_share is not None:
            raise SpecError(
                "method dpgan has no such settings, because it generates the target as any column",
                field="generator.settings.proportions, proportions_share",
                allowed="generator.method: dpcgan, or a spec without these settings",
            )

    def _check_proportions(self) -> None:
        share = 0.05 if self.proportions_share is None else self.proportions_share
        share = real("generator.settings.proportions_share", share, above=0, at_most=0.9)
        object.__setattr__(self, "proportions_share", share)
        if not isinstance(self.proportions, list | tuple):
            raise setting_error(self, "generator.settings.proportions", "a list of numbers")
        shares = tuple(
            real("generator.settings.proportions", share, above=-1e-300, at_most=1e300)
            for share in self.proportions
        )
        if shares and not sum(shares) > 0:
            raise SpecError(
                "all are 0",
                field="generator.settings.proportions",
                allowed="at least one number > 0, or [] to measure them",
            )
        object.__setattr__(self, "proportions", shares)

    def design(self, schema: PublicSchema) -> Design:
        """As `GANSettings.design`; SpecError for another number of public proportions."""
        design = super().design(schema)
        if self.proportions and len(self.proportions) != design.given.width:
            raise setting_error(
                self,
                "generator.settings.proportions",
                f"{design.given.width} numbers, one per level of the target (and"
                " one for missing, if nullable)",
            )
        return design

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and, once calibrated, every constant of the training; JSON values."""
        parameters = self.settings() | {"clip": self.clip, "resumes": self.resumes}
        if self.conditional:
            parameters["proportions"] = list(self.proportions)
            parameters["proportions_share"] = self.proportions_share
        if self.calibrated is not None:
            parameters["training"] = self.calibrated.training.parameters()
            parameters["histogram_multiplier"] = self.calibrated.histogram
            parameters |= self.calibrated.marginals_parameters()
        return parameters

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set rate and divisor from the public size, and the noise for effort `rho`."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows, width=schema.width)
        check_installed(f"generator.method={self.method}")
        self.design(schema)
        marginals, rest = plan_marginals(
            self.marginals_share, noise=NoiseKind.GAUSSIAN, rho=rho, schema=schema, unit=unit,
            nominal_rows=nominal_rows,
        )  # fmt: skip
        known = self.proportions or self.marginals_share != 0
        share = 0.0 if known else self.proportions_share or 0.0
        lot = min(self.lot, nominal_rows)
        training = PrivateTraining(
            sampling_rate=lot / nominal_rows,
            steps=self.steps,
            clip=self.clip,
            divisor=float(lot),
            unit=unit,
            rule=ClipRule.OUTPUT,
            optimiser=self.discriminator_optimiser,
            averaged=math.floor(self.settle * self.steps) / self.steps,
            resumes=self.resumes,
        )
        multiplier = training.multiplier_for(rho * rest * (1 - share))
        noise = DPGANNoise(
            schema=schema,
            unit=unit,
            training=replace(training, noise_multiplier=multiplier),
            histogram=1 / math.sqrt(2 * rho * share) if share else None,
            marginals=marginals,
        )
        return replace(self, calibrated=noise)

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running | None:
        """As of `Method`; None for images, and where a GPU may compute."""
        if self.image or self.device != "cpu":
            return None
        design = self.design(schema)
        architectures = (design.generator_architecture, design.discriminator_architecture)
        width = design.made.width + design.given.width
        rows = min(self.lot, nominal_rows) + 2 * self.batch
        parameters = sum(architecture.size for architecture in architectures)
        return self.forecast(
            width, steps=self.steps, products=self.steps * rows * parameters,
            numbers=width * (self.steps * rows + 2 * nominal_rows), nominal_rows=nominal_rows,
        )  # fmt: skip

    @property
    def resumption(self) -> Resumption | None:
        """The terms of resuming a killed training; None: it is lost."""
        return Resumption.of(steps=self.steps, resumes=self.resumes)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """The histogram of every column or of the labels, and every step of the discriminator."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        labels = ready.histogram
        first = () if labels is None else (GaussianEvent(noise_multiplier=labels),)
        return (*ready.marginals_events(), *first, *ready.training.events())

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Noise of the first histogram, and of every step's sum of gradients."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        first = ready.marginals_noise()
        if ready.histogram is not None:
            multiplier, kind = ready.histogram, NoiseKind.GAUSSIAN
            first = (released_counts("histogram", kind, multiplier=multiplier, unit=unit, event=0),)
        before = len(self.events(schema=schema, unit=unit)) - 1
        return (*first, ready.training.released_noise(event=before))

    @computing()
    def measure(
        self, table: PrivateTable, *, noise: NoiseSource, watch: TrainingWatch = UNWATCHED
    ) -> Measurement:
        """Draw the discriminator's steps, and train the generator on them.

        Privacy:
            Unit: `training.unit`, add/remove. L2: max_rows C for a lot's sum, max_rows for a
                histogram.
            Event: `events`. Networks are functions of noisy sums, noisy histograms and public
                facts. Ranks of a private row depend on that row and noisy counts, before clipping.
                A resumed run repeats only steps that `events` counts, and no histogram.

        Raises:
            PrivacyError: a checkpoint of other settings, or `resumes` is 0.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        training, design = ready.training, self.design(table.schema)
        chance, scaled = self._chance(table.schema), table.confidential()
        checkpoint, resumed = watch.resumed(), None
        if checkpoint is None:
            first = ready.marginals
            marginals = None if first is None else first.measure(table, noise=noise)
            proportions = self._proportions(design, marginals, scaled, noise)
        else:
            resumed = self.resumed_state(checkpoint, schema=table.schema)
            marginals, proportions = resumed.marginals, resumed.proportions
        design = with_distributions(design, marginals)
        architecture = design.discriminator_architecture
        backend = make_backend(self.device)
        lots = PrivateLots(
            architecture=architecture, backend=backend, loss=loss_of(self.loss, real=True),
            rows=design.encode(scaled),
        )  # fmt: skip
        game = Game(
            settings=self,
            training=self.generator_training(design, chance, loss=self.loss),
            proportions=proportions,
            marginals=marginals,
            backend=backend,
            public_sum=self._public_sum(training),
            unit=training.divisor,
        )
        initial = architecture.initial(chance.rng("discriminator"))
        generator, discriminator = game.play(
            training.start(initial, publishable=noise.publishable),
            lambda state, public: training.private_step(state, lots, noise=noise, public=public),
            resumed=resumed,
            watch=watch,
        )
        return game_measurement(
            game.training.levelled(generator, proportions).design,
            (generator, discriminator, proportions),
            marginals=marginals,
            kind=self.method,
            facts=self._facts(ready),
            noise=self.released_noise(schema=table.schema, unit=ready.unit),
            publishable=noise.publishable
            and (resumed is None or resumed.discriminator.publishable),
        )

    def _chance(self, schema: PublicSchema) -> PublicRandom:
        facts = {"own": self.parameters(), "schema": schema.published_mapping()}
        layout = {"layout": IMAGE_LAYOUT} if self.image else {}  # others keep their own
        return PublicRandom.of(facts | layout)

    def resumed_state(self, data: bytes, *, schema: PublicSchema) -> GameState:
        """Read both players from the checkpoint; PrivacyError if it may not be resumed."""
        ready = ready_for(self.calibrated, schema, method=self.method)
        check_resumable(self.resumes)
        state = GameState.from_bytes(data)
        ready.training.check_settings(state.discriminator)
        same_marginals = (state.marginals is None) == (ready.marginals is None)
        if state.settings != self._chance(schema).facts or not same_marginals:
            raise PrivacyError(OTHER_SETTINGS, field="training")
        return state

    def _public_sum(self, training: PrivateTraining) -> Any:
        """Synthetic rows' clipped gradients, scaled to the expected private rows of a lot."""
        loss, factor = loss_of(self.loss, real=False), training.divisor / self.batch
        clipped = partial(clipped_sum, loss=loss, clip=training.clip, rule=training.rule)
        return lambda network, rows: factor * clipped(network, rows)

    def _proportions(
        self, design: Design, marginals: Measurement | None, scaled: ScaledTable, noise: NoiseSource
    ) -> Array:
        """Shares of the labels' levels, shape (levels,); empty without a label."""
        if not self.conditional:
            return np.zeros(0)
        if self.proportions:
            return np.array(self.proportions) / sum(self.proportions)
        if marginals is not None:
            return label_law(design, marginals)
        counts = design.given.encode(scaled).sum(axis=0).astype(np.int64)
        kind, scale = NoiseKind.GAUSSIAN, self._histogram_scale
        return distribution(noisy_marginal(counts, kind=kind, scale=scale, noise=noise))

    def _facts(self, ready: DPGANNoise) -> dict[str, Any]:
        facts = {
            "loss": self.loss,
            "ratio": self.loss == "logistic",
            "steps": ready.training.steps,
            "noise": NoiseKind.GAUSSIAN.value,
            "gradient_scale": ready.training.scale,
        }
        if ready.histogram is not None:
            facts["histogram_scale"] = self._histogram_scale
        if self.proportions:
            facts[PUBLIC_PROPORTIONS] = True
        return facts

    @property
    def _histogram_scale(self) -> float:
        ready = calibrated_for(self.calibrated, method=self.method)
        assert ready.histogram is not None  # as one is drawn
        return noise_scale(NoiseKind.GAUSSIAN, multiplier=ready.histogram, unit=ready.unit)


@dataclass(frozen=True, kw_only=True)
class DPCGAN(DPGAN):
    """`DPGAN` with the target given to both networks."""

    method: ClassVar[str] = "dpcgan"
    conditional: ClassVar[bool] = True
