"""S1: every sampler a release can use has its stated scale, and not one that is 3% off.

Draws are the operating system's. A sample is accepted when every p-value is above 1e-9, so each
p-value's false alarm is 1e-9; a wrong scale must bring one below it. What the tests would miss is
computed from the laws of the statistics and is below 1e-6 for each wrong scale in the full tier.
The fast tier repeats it at small sizes for scales 2/3 and 3/2. Shapes, independence and seeded
noise: `tests/proof/test_sampler_laws.py` and `tests/dpiw/methods/neural/test_keystream.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.sums import exact_sum
from dpiw.privacy.mechanisms import noisy_counts, noisy_sum, noisy_vector, select
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.proof.figures import tiers
from tests.support.noise import integer_mass
from tests.support.worlds import ADD, numbers, uniform_rows, unit_of

FALSE_ALARM = 1e-9
MISSED = 1e-6
NOISE = SecureNoise()

Sample = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """One configuration.

    Attributes:
        draw: that many draws.
        p_values: of a sample, if the scale were `factor` times the stated one.
        missed: chance that a sample of the stated law passes for one that is `factor` times it.
        full, fast: draws in either tier.
    """

    draw: Callable[[int], Sample]
    p_values: Callable[[Sample, float], list[float]]
    missed: Callable[[int, float], float]
    full: int = 10**6
    fast: int = 10_000


def two_sided(law, value) -> float:
    return float(2 * min(law.cdf(value), law.sf(value)))


def escapes(total, factor) -> float:
    """Chance that `total / factor`, of the law `total`, lies where its p-value is above 1e-9."""
    low, high = total.ppf(FALSE_ALARM / 2), total.isf(FALSE_ALARM / 2)
    return float(total.cdf(factor * high) - total.cdf(factor * low))


def scaled(law, draw, *, size: Callable[[Sample], Sample], total, **sizes) -> Sampler:
    """A continuous law: its sufficient statistic for the scale, and Kolmogorov and Smirnov's."""

    def p_values(sample, factor):
        statistic = size(sample / factor).sum()
        shape = stats.kstest((sample / factor).ravel(), law.cdf).pvalue
        return [two_sided(total(sample.size), statistic), float(shape)]

    def missed(count, factor):
        # Relative to the truth; the square of a Gaussian's scale is what its statistic measures.
        return escapes(total(count), factor ** (2 if size is np.square else 1))

    return Sampler(draw=draw, p_values=p_values, missed=missed, **sizes)


def counted(draw, masses: Callable[[float], NDArray[np.float64]], **sizes) -> Sampler:
    """A discrete law: chi-square on cells, whose probabilities `masses` gives for a factor."""

    def p_values(sample, factor):
        expected = sample.size * masses(factor)
        counts = np.bincount(sample, minlength=expected.size)
        return [float(stats.chisquare(counts, expected).pvalue)]

    def missed(count, factor):
        true, stated = masses(1.0), masses(factor)
        shift = count * ((true - stated) ** 2 / stated).sum()
        cells = true.size - 1
        return float(stats.ncx2.cdf(stats.chi2.isf(FALSE_ALARM, cells), cells, shift))

    return Sampler(draw=draw, p_values=p_values, missed=missed, **sizes)


def law(kind: NoiseKind, scale: float, dimension: int) -> NoiseLaw:
    return NoiseLaw(kind=kind, scale=scale, dimension=dimension)


def vector(kind: NoiseKind) -> Callable[[int], Sample]:
    """Noise of a released vector, in units of its scale."""

    def draw(size):
        noisy = noisy_vector(np.full(size, 1 / 3), law=law(kind, 0.37, size), noise=NOISE)
        return (noisy - 1 / 3) / 0.37

    return draw


def measured_sum(size: int) -> Sample:
    """Noise of whole calls of `measure`, in units of the scale that is due.

    Multiplier 1; three rows a person, each of norm 1 beside a count of 1/2. The claim is from the
    numbers here, not from what the mechanism states.
    """
    schema = numbers(2)
    unit = unit_of(ADD, 3)
    estimator = Measured(features={"fourier": 1.0}, frequencies=2048, omega_seed=1).calibrate(
        rho=0.5, schema=schema, unit=unit, nominal_rows=100
    )
    rows = uniform_rows(schema, 5, np.random.default_rng(0))
    private = PrivateTable(schema=schema, scaled=rows)
    public = SyntheticTable(schema=schema, scaled=rows)
    exact = exact_sum(estimator.stack(schema), [rows], constant=0.5)
    drawn = [
        estimator.measure(private, public, noise=NOISE).arrays["sum"] - exact
        for _ in range(-(-size // exact.size))
    ]
    return np.concatenate(drawn)[:size] / (3 * math.sqrt(1.25))


def counts(kind: NoiseKind) -> Callable[[int], Sample]:
    def draw(size):
        table = np.full(size, 12)
        return (noisy_counts(table, law=law(kind, 4.0, size), noise=NOISE) - 12) / 4.0

    return draw


def spherical(dimension: int, full: int) -> Sampler:
    """The norm of a vector is Gamma(d'); a vector tells as much of the scale as d' draws."""
    noise_law = law(NoiseKind.SPHERICAL, 0.2, dimension)

    def draw(size):
        vectors = [
            noisy_vector(np.zeros(dimension), law=noise_law, noise=NOISE) for _ in range(size)
        ]
        return np.linalg.norm(vectors, axis=1) / 0.2

    return scaled(
        stats.gamma(dimension), draw, size=np.abs,
        total=lambda count: stats.gamma(count * dimension), full=full, fast=1_500 // dimension,
    )  # fmt: skip


def lattice(kind: NoiseKind, scale: float) -> Sampler:
    """Small scales, where the discrete law shows."""
    reach = int(2.2 * scale) + 1
    sampler = NOISE.discrete_gaussian if kind is NoiseKind.GAUSSIAN else NOISE.discrete_laplace
    return counted(
        lambda size: np.clip(sampler(scale=scale, size=size), -reach, reach) + reach,
        lambda factor: integer_mass(kind, factor * scale, reach),
    )


SCORES = np.array([0.0, 3.0, 6.0, 9.5, 12.0])


def selection_masses(factor: float) -> NDArray[np.float64]:
    powers = np.exp(factor * 1.6 * SCORES / (2 * 2.0))
    return powers / powers.sum()


def selections(size: int) -> Sample:
    return np.array(
        [select(SCORES, epsilon=1.6, sensitivity=2.0, noise=NOISE) for _ in range(size)]
    )


RATE, LONGEST = 0.02, 200


def gap_masses(factor: float) -> NDArray[np.float64]:
    """Of the gap between two drawn rows, at least 1: geometric; longer ones together."""
    rate = RATE * factor
    mass = rate * (1 - rate) ** np.arange(LONGEST)
    return np.append(mass, 1 - mass.sum())


def gaps(size: int) -> Sample:
    """As many gaps as fit among 1.2 times the rows they need; fewer never."""
    chosen = NOISE.poisson_sample(rows=int(1.2 * size / RATE) + 10_000, probability=RATE)
    return np.minimum(np.diff(chosen)[:size] - 1, LONGEST)


def tilted(factor: float) -> NDArray[np.float64]:
    """Seven equal cells, of which the first three weigh `factor`."""
    mass = np.where(np.arange(7) < 3, factor, 1.0)
    return mass / mass.sum()


def chi2(count):
    return stats.chi2(count)


SAMPLERS: dict[str, Sampler] = {
    "Gaussian vector on its lattice": scaled(
        stats.norm, vector(NoiseKind.GAUSSIAN), size=np.square, total=chi2),
    "Laplace vector on its lattice": scaled(
        stats.laplace, vector(NoiseKind.LAPLACE), size=np.abs, total=stats.gamma),
    "measured sum": scaled(stats.norm, measured_sum, size=np.square, total=chi2),
    "Gaussian counts": scaled(stats.norm, counts(NoiseKind.GAUSSIAN), size=np.square, total=chi2),
    "Laplace counts": scaled(stats.laplace, counts(NoiseKind.LAPLACE), size=np.abs,
                             total=stats.gamma),
    "discrete Gaussian, scale 4": lattice(NoiseKind.GAUSSIAN, 4.0),
    "discrete Laplace (geometric), scale 4": lattice(NoiseKind.LAPLACE, 4.0),
    "spherical Laplace, d' = 3": spherical(3, 333_334),
    "spherical Laplace, d' = 14": spherical(14, 71_429),
    "ChaCha20 Gaussian of DP-SGD": scaled(
        stats.norm, lambda size: NOISE.gaussian_vector(scale=3.0, size=size) / 3.0,
        size=np.square, total=chi2, full=10**7),
    "noisy sum of DP-SGD": scaled(
        stats.norm,
        lambda size: (noisy_sum(np.full(size, 7.3), scale=2.5, noise=NOISE) - 7.3) / 2.5,
        size=np.square, total=chi2),
    "exponential mechanism": counted(selections, selection_masses, fast=1_600),
    "Poisson lots": counted(gaps, gap_masses),
    "uniform deals": counted(
        lambda size: np.array([NOISE.whole_below(7) for _ in range(size)]), tilted),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLERS)
@tiers("full", fast=False, full=True)
def test_a_sampler_has_its_scale_and_no_other(full, name, prove):
    sampler = SAMPLERS[name]
    size = sampler.full if full else sampler.fast
    factors = (0.97, 1.03) if full else (2 / 3, 3 / 2)
    sample = sampler.draw(size)
    assert len(sample) == size
    accepted = min(sampler.p_values(sample, 1.0))
    assert accepted > FALSE_ALARM
    missed = max(sampler.missed(size, factor) for factor in factors)
    assert missed < MISSED
    rejected = max(min(sampler.p_values(sample, factor)) for factor in factors)
    assert rejected < FALSE_ALARM
    prove(
        f"S1: {name}",
        f"{size:,} draws: accepted (least p {accepted:.2g}), both wrong ones rejected (largest p {rejected:.0e})",
    )
