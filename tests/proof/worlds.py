"""White-box worlds for the hockey-stick tests: what two neighbouring tables release, noise aside.

Every fit is solved once and kept; only the noise is drawn again and again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpiw.data.schema.discretisation import Domain
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.gan.teachers import Teachers
from dpiw.methods.generators.gan.training import PublicRandom
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.neural.clipping import ClipRule, Logistic, clipped_sum
from dpiw.methods.neural.dp_sgd import PrivateTraining
from dpiw.methods.neural.networks import Architecture, Network
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.output import OutputNoised
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.privacy import mechanisms
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit
from tests.proof import neighbours
from tests.support.draws import Still
from tests.support.worlds import ADD, REPLACE, numbers, uniform_rows, unit_of

RHO = 0.5
"""Effort of every mechanism here: one Gaussian of multiplier 1, or epsilon 1."""


@dataclass(frozen=True)
class Additive:
    """Exact values of both worlds, shape (2, d), plus noise of one law; and events as declared."""

    exact: neighbours.Array
    law: NoiseLaw
    events: Sequence[PrivacyEvent]
    counts: bool = False

    def losses(self, world: int, size: int, seed: int) -> neighbours.Array:
        """log(p0/p1) at `size` releases of a world, by the mechanism itself."""
        drawn = self._released(self.exact[world], size, seed)
        return self._log_density(drawn - self.exact[0]) - self._log_density(drawn - self.exact[1])

    def _released(self, exact: neighbours.Array, size: int, seed: int) -> neighbours.Array:
        if self.law.kind is NoiseKind.SPHERICAL:  # SeededNoise draws one vector at a time
            rng = np.random.default_rng(seed)
            direction = rng.standard_normal((size, exact.size))
            direction /= np.linalg.norm(direction, axis=1)[:, None]
            return exact + direction * rng.gamma(exact.size, self.law.scale, size)[:, None]
        law = replace(self.law, dimension=size * exact.size)
        release = mechanisms.noisy_counts if self.counts else mechanisms.noisy_vector
        values = np.tile(exact, size)
        values = values.astype(np.int64) if self.counts else values
        return release(values, law=law, noise=SeededNoise(seed)).reshape(size, exact.size)

    def _log_density(self, gaps: neighbours.Array) -> neighbours.Array:
        if self.law.kind is NoiseKind.GAUSSIAN:
            return -(gaps**2).sum(axis=1) / (2 * self.law.scale**2)
        order = 1 if self.law.kind is NoiseKind.LAPLACE else 2
        return -np.linalg.norm(gaps, ord=order, axis=1) / self.law.scale


@dataclass(frozen=True)
class Lots:
    """Some lots of DP-SGD on tables of few rows, at fixed parameters; drawn by the secure source.

    `gradients` are the rows' clipped ones in both worlds, in the plane they span.
    """

    gradients: tuple[neighbours.Array, neighbours.Array]
    training: PrivateTraining
    events: Sequence[PrivacyEvent]

    def losses(self, world: int, size: int, seed: int) -> neighbours.Array:
        """The sum over the lots of the log ratio of two mixtures of normals."""
        noise, gradients = SecureNoise(), self.gradients[world]
        total = np.zeros(size)
        for _ in range(self.training.steps):
            exact = np.zeros((size, gradients.shape[1]))
            for gradient in gradients:
                lot = noise.poisson_sample(rows=size, probability=self.training.sampling_rate)
                exact[lot] += gradient
            drawn = mechanisms.noisy_sum(exact.ravel(), scale=self.training.scale, noise=noise)
            drawn = drawn.reshape(exact.shape)
            total += self._log_mixture(drawn, 0) - self._log_mixture(drawn, 1)
        return total

    def _log_mixture(self, drawn: neighbours.Array, world: int) -> neighbours.Array:
        rows, rate = self.gradients[world], self.training.sampling_rate
        powers = []
        for chosen in np.ndindex(*(2,) * len(rows)):
            taken = np.array(chosen, dtype=float)
            centre = taken @ rows if len(rows) else np.zeros(drawn.shape[1])
            weight = taken.sum() * math.log(rate) + (1 - taken).sum() * math.log1p(-rate)
            gaps = ((drawn - centre) ** 2).sum(axis=1)
            powers.append(weight - gaps / (2 * self.training.scale**2))
        return np.logaddexp.reduce(powers, axis=0)


Pair = Additive | Lots
Maker = Callable[[PrivacyUnit, bool, np.random.Generator], Pair]
"""A pair under a unit's relation: adversarial (tight) or random."""


def regression(noise: NoiseKind, columns: int) -> Maker:
    def make(unit, adversarial, rng):
        schema, penalty = numbers(columns), 400.0
        estimator = BetaDebiased(noise=noise, penalty=penalty).calibrate(
            rho=RHO, schema=schema, unit=unit, nominal_rows=100
        )
        pool = LinearMap(schema).matrix(neighbours.extreme_rows(schema, 300, rng))
        pair = None
        while adversarial and pair is None:
            order = 1 if noise is NoiseKind.LAPLACE else 2
            pair = neighbours.adversarial_pair(unit, pool, rng, penalty=penalty, order=order)
        pair = pair or neighbours.random_pair(unit, pool, rng)
        events = estimator.events(schema=schema, unit=unit)
        return Additive(pair.solved(estimator), estimator.calibrated.law, events)

    return make


def _tables(unit: PrivacyUnit, schema: Any, adversarial: bool, rng: np.random.Generator) -> Any:
    tables = neighbours.neighbouring_tables(unit, schema, rng, adversarial=adversarial)
    return [PrivateTable(schema=schema, scaled=table) for table in tables]


def output(unit: PrivacyUnit, adversarial: bool, rng: np.random.Generator) -> Pair:
    schema, penalty = numbers(8), 100.0
    nominal = math.ceil(penalty * 60 * math.exp(15)) if adversarial else 50
    estimator = OutputNoised(rows=3, penalty=penalty).calibrate(
        rho=RHO, schema=schema, unit=unit, nominal_rows=nominal
    )
    rows = uniform_rows(schema, 3, rng, power=0.01 if adversarial else 1.0)
    estimator = estimator.for_rows(SyntheticTable(schema=schema, scaled=rows))
    pile = uniform_rows(schema, 1, rng)
    for values in pile.columns.values():
        values[:] = 0.5
    public = SyntheticTable(schema=schema, scaled=pile)
    measurements = [
        estimator.measure(table, public, noise=Still())
        for table in _tables(unit, schema, adversarial, rng)
    ]
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=measurements[0].facts["scale"], dimension=3)
    exact = np.array([measurement.arrays["log_ratio"] for measurement in measurements])
    return Additive(exact, law, estimator.events(schema=schema, unit=unit))


def measured(features: dict[str, float], frequencies: int = 1) -> Maker:
    """Without slack where a row comes at a corner, or, if sines and cosines alone, anywhere."""

    def make(unit, adversarial, rng):
        schema = numbers(4)
        estimator = Measured(features=features, frequencies=frequencies, omega_seed=1).calibrate(
            rho=RHO, schema=schema, unit=unit, nominal_rows=100
        )
        public = SyntheticTable(schema=schema, scaled=uniform_rows(schema, 1, rng))
        exact = [
            estimator.measure(table, public, noise=Still()).arrays["sum"]
            for table in _tables(unit, schema, adversarial, rng)
        ]
        law = estimator.calibrated.law
        return Additive(np.array(exact), law, estimator.events(schema=schema, unit=unit))

    return make


def histogram(unit: PrivacyUnit, adversarial: bool, rng: np.random.Generator) -> Pair:
    """All marginals together; any row that comes or goes is as bad as any other."""
    schema = numbers(3)
    generator = Histogram(bins=4).calibrate(rho=RHO, schema=schema, unit=unit, nominal_rows=500)
    domain = Domain.from_schema(schema, bins=generator.calibrated.bins)
    exact = []
    for table in _tables(unit, schema, adversarial, rng):
        counter = ContingencyCounter.of(table, domain)
        exact.append(np.concatenate([counter.count((j,)) for j in range(len(domain.sizes))]))
    facts = generator.measure(table, noise=Still()).facts
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=facts["scale"], dimension=exact[0].size)
    return Additive(np.array(exact), law, generator.events(schema=schema, unit=unit), counts=True)


def votes(unit: PrivacyUnit, adversarial: bool, rng: np.random.Generator) -> Pair:
    """Six queries after the teachers were taught; the deal is the coupled one."""
    schema = numbers(2)
    # What is reserved for resuming is not drawn here, and would leave the claim loose.
    generator = PATEGAN(
        noise=NoiseKind.LAPLACE, teachers=4, rounds=1, queries=6, resumes=0, marginals_share=0.0
    ).calibrate(rho=RHO, schema=schema, unit=unit, nominal_rows=100)
    best, chance = None, PublicRandom.of({"test": 1})
    for _ in range(60 if adversarial else 1):
        rows, dealt = 3 * rng.normal(size=(6, 2)), rng.integers(0, 4, 6)
        neighbour_rows, neighbour_dealt = rows[1:], dealt[1:]
        if unit.relation is REPLACE:
            neighbour_rows, neighbour_dealt = np.vstack([-rows[:1], rows[1:]]), dealt
        generated, queries = rng.normal(size=(5, 2)), rows[0] + rng.normal(scale=0.5, size=(6, 2))
        exact = np.array([
            Teachers.start(table, deal, count=4, hidden=2, rate=0.5, chance=chance)
            .taught(generated, steps=3, lot=3)
            .votes(queries)
            for table, deal in ((rows, dealt), (neighbour_rows, neighbour_dealt))
        ])  # fmt: skip
        if best is None or np.abs(exact[0] - exact[1]).sum() > np.abs(best[0] - best[1]).sum():
            best = exact
    law = NoiseLaw(kind=NoiseKind.LAPLACE, scale=generator.calibrated.scale, dimension=6)
    return Additive(best, law, generator.events(schema=schema, unit=unit), counts=True)


def lots(unit: PrivacyUnit, adversarial: bool, rng: np.random.Generator) -> Pair:
    """Add/remove alone; beside the row that goes none, or two that may be opposite to it."""
    training = PrivateTraining(
        sampling_rate=0.2, steps=8, clip=0.7, divisor=10.0, unit=unit, rule=ClipRule.LOSS,
        noise_multiplier=1.0,
    )  # fmt: skip
    architecture = Architecture(widths=(3, 4, 1), activation="tanh")
    network = Network(architecture=architecture, parameters=rng.normal(size=architecture.size))
    rows = 5 * rng.normal(size=(1 if adversarial else 3, 3))
    clipped = np.array([
        clipped_sum(network, row[None], Logistic(label=1), clip=0.7, rule=ClipRule.LOSS)
        for row in network.backend.array(rows)
    ])  # fmt: skip
    _, _, basis = np.linalg.svd(clipped, full_matrices=False)
    plane = clipped @ basis.T  # isotropic noise is the same in any orthonormal basis
    return Lots((plane, plane[1:]), training, training.events())


@dataclass(frozen=True)
class Mechanism:
    """One mechanism of the hockey-stick test."""

    make: Maker
    seen: float = 1.15
    """A factor by which less noise than stated is sure to be found."""
    replaces: bool = True

    def pairs(self, rng: np.random.Generator) -> list[Pair]:
        """Six: tight and random ones under each relation there is."""
        relations = (ADD, REPLACE) if self.replaces else (ADD, ADD)
        kinds = [(relation, tight) for relation in relations for tight in (True, False, False)]
        return [self.make(unit_of(relation), tight, rng) for relation, tight in kinds]


MECHANISMS: dict[str, Mechanism] = {
    "beta regression, Gaussian, linear": Mechanism(regression(NoiseKind.GAUSSIAN, 6)),
    "beta regression, Laplace, linear": Mechanism(regression(NoiseKind.LAPLACE, 3), seen=2.0),
    "beta regression, spherical, linear": Mechanism(regression(NoiseKind.SPHERICAL, 2), seen=2.0),
    "output_noised": Mechanism(output, seen=1.3),
    "measured sum, stack": Mechanism(
        measured({"linear": 1.0, "squares": 0.3, "products": 0.3})),
    "measured sum, Fourier": Mechanism(measured({"fourier": 1.0}, 3)),
    "histogram": Mechanism(histogram),
    "PATE votes, Laplace": Mechanism(votes),
    "DP-SGD lots": Mechanism(lots, replaces=False),
}  # fmt: skip
