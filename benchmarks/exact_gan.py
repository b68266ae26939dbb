"""Generative adversarial networks without privacy, `gan` and `cgan`, for comparisons alone.

The settings and the order of play are those of `dpgan` and `dpcgan`
(`dpiw.methods.generators.gan.dpgan`), so that a comparison shows only what privacy costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import UncalibratedError
from dpiw.methods.base import StatedNoise, check_effort
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.game import Game
from dpiw.methods.generators.gan.marginals import BINS, with_distributions
from dpiw.methods.generators.gan.model import game_measurement
from dpiw.methods.generators.gan.settings import GANSettings
from dpiw.methods.generators.gan.training import Array, PublicRandom, loss_of
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.marginal_noise import useful_bins
from dpiw.methods.neural.backend import CPU, library
from dpiw.methods.neural.checkpoints import TrainingState
from dpiw.methods.neural.dp_sgd import PublicGradient
from dpiw.methods.neural.networks import Network
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import PrivacyUnit


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _ExactPlayer:
    """A discriminator that learns from exact gradients of private rows (hot)."""

    settings: GANSettings
    design: Design
    rows: Array
    chance: PublicRandom

    def start(self) -> TrainingState:
        initial = self.design.discriminator_architecture.initial(self.chance.rng("discriminator"))
        moments = self.settings.discriminator_optimiser.start(initial.size)
        return TrainingState(
            step=0, parameters=initial, moments=moments, average=initial, settings="",
            publishable=False,
        )  # fmt: skip

    def mean_gradient(self, network: Network, rows: Array, *, real: bool) -> Array:
        learning = network.learning()
        outputs = learning.outputs(rows)
        slopes = loss_of(self.settings.loss, real=real).slopes(outputs.detach()) / max(1, len(rows))
        return library().autograd.grad(outputs, learning.parameters, slopes)[0]

    def advance(self, state: TrainingState, public: PublicGradient) -> TrainingState:
        network = Network(
            architecture=self.design.discriminator_architecture, parameters=state.parameters
        )
        count = len(self.rows)
        lot = self.chance.rng("lot", state.step).permutation(count)[: self.settings.lot]
        real = self.mean_gradient(network, CPU.array(self.rows[lot]), real=True)
        gradient = CPU.to_numpy(real + public(network, state.step))
        step = state.step + 1
        parameters, moments = self.settings.discriminator_optimiser.update(
            state.parameters, gradient, state.moments, step
        )
        return replace(state, step=step, parameters=parameters, moments=moments, average=parameters)


def exact_histogram(table: PrivateTable) -> Measurement:
    """The exact counts of every column, as known marginals ask for them; not publishable.

    Privacy:
        None. Unit: none. Event: none.
    """
    bins = useful_bins(BINS, table.confidential().rows)
    domain = Domain.from_schema(table.schema, bins=bins)
    counts = ContingencyCounter.of(table, domain).one_way()
    names = [column.name for column in table.schema.released]
    return Measurement(
        kind=Histogram.method,
        arrays={f"one_way_{j}": marginal.astype(float) for j, marginal in enumerate(counts)},
        facts={
            "bins": bins, "columns": names, "sizes": list(domain.sizes), "noise": "gaussian",
            "scale": 1e-6,
        },
        publishable=False,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GAN(GANSettings):
    """A GAN trained on the exact rows. Not private: its measurement is not publishable."""

    calibrated: Any = None  # the schema

    method: ClassVar[str] = "gan"
    private: ClassVar[bool] = False

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Nothing to calibrate: no noise is drawn; the schema is noted."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        self.design(schema)
        return replace(self, calibrated=schema)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """None that an accountant could compose."""
        return ()

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Return nothing: no noise is drawn."""
        return ()

    def parameters(self) -> Mapping[str, Any]:
        """Settings, JSON values."""
        return self.settings()

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Train on the exact rows.

        Privacy:
            None. Unit: none. Event: none. The measurement is marked as not publishable.

        Raises:
            UncalibratedError: before `calibrate`, or for another schema.
        """
        if self.calibrated != table.schema:
            raise UncalibratedError(f"{self.method}: calibrated for another schema, or not at all")
        design, chance = self.design(table.schema), PublicRandom.of(self.settings())
        scaled = table.confidential()
        exact = None if self.marginals_share == 0 else exact_histogram(table)
        design = with_distributions(design, exact)
        player = _ExactPlayer(
            settings=self, design=design, rows=design.encode(scaled), chance=chance
        )
        labels = design.given.encode(scaled).sum(axis=0) + 1e-9
        game = Game(
            settings=self,
            training=self.generator_training(design, chance, loss=self.loss),
            proportions=labels / max(1e-9, labels.sum()),
            backend=CPU,
            public_sum=lambda network, rows: player.mean_gradient(network, rows, real=False),
            unit=1.0,
        )
        generator, discriminator = game.play(player.start(), player.advance)
        return game_measurement(
            game.training.levelled(generator, game.proportions).design,
            (generator, discriminator, game.proportions), marginals=exact, kind=self.method,
            facts={"ratio": self.loss == "logistic"}, publishable=False,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CGAN(GAN):
    """A GAN that is given the target and makes the other columns; shares of labels are exact."""

    conditional: ClassVar[bool] = True
    method: ClassVar[str] = "cgan"


EXACT = {"gan": GAN, "cgan": CGAN}
