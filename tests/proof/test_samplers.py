"""S1: every sampler a release can use has its stated scale, and not one that is 3% off.

A sample is accepted when every p-value is above 1e-9, so each p-value's false alarm is 1e-9; a
wrong scale must bring one below it. What the tests would miss is computed from the laws of the
statistics: below 1e-13 for each wrong scale at full figures; in the slice below 1e-6 for scales 2/3
and 3/2, of seeded noise too. Shapes of DP-SGD's noise: tests/dpiw/methods/neural/test_keystream.py.
"""

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
from dpiw.privacy.randomness import NoiseSource, SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.support.noise import integer_mass
from tests.support.worlds import ADD, numbers, uniform_rows, unit_of

FALSE_ALARM = 1e-9

Sample = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """How to draw, and to judge a sample if the scale were `factor` times the stated one.

    `missed` is the chance that a sample of the stated law passes for that.
    """

    draw: Callable[[NoiseSource, int], Sample]
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


def vector(kind: NoiseKind) -> Callable[[NoiseSource, int], Sample]:
    """Noise of a released vector, in units of its scale."""

    def draw(noise, size):
        noisy = noisy_vector(np.full(size, 1 / 3), law=law(kind, 0.37, size), noise=noise)
        return (noisy - 1 / 3) / 0.37

    return draw


def measured_sum(noise: NoiseSource, size: int) -> Sample:
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
        estimator.measure(private, public, noise=noise).arrays["sum"] - exact
        for _ in range(-(-size // exact.size))
    ]
    return np.concatenate(drawn)[:size] / (3 * math.sqrt(1.25))


def counts(kind: NoiseKind) -> Callable[[NoiseSource, int], Sample]:
    def draw(noise, size):
        table = np.full(size, 12)
        return (noisy_counts(table, law=law(kind, 4.0, size), noise=noise) - 12) / 4.0

    return draw


def spherical(dimension: int, full: int) -> Sampler:
    """The norm of a vector is Gamma(d'); a vector tells as much of the scale as d' draws."""
    noise_law = law(NoiseKind.SPHERICAL, 0.2, dimension)

    def draw(noise, size):
        vectors = [
            noisy_vector(np.zeros(dimension), law=noise_law, noise=noise) for _ in range(size)
        ]
        return np.linalg.norm(vectors, axis=1) / 0.2

    return scaled(
        stats.gamma(dimension), draw, size=np.abs,
        total=lambda count: stats.gamma(count * dimension), full=full, fast=1_500 // dimension,
    )  # fmt: skip


def lattice(kind: NoiseKind, scale: float) -> Sampler:
    """Small scales, where the discrete law shows."""
    reach = int(2.2 * scale) + 1
    name = {NoiseKind.GAUSSIAN: "discrete_gaussian", NoiseKind.LAPLACE: "discrete_laplace"}[kind]

    def draw(noise, size):
        return np.clip(getattr(noise, name)(scale=scale, size=size), -reach, reach) + reach

    return counted(draw, lambda factor: integer_mass(kind, factor * scale, reach))


SCORES = np.array([0.0, 3.0, 6.0, 9.5, 12.0])


def selection_masses(factor: float) -> NDArray[np.float64]:
    powers = np.exp(factor * 1.6 * SCORES / (2 * 2.0))
    return powers / powers.sum()


def selections(noise: NoiseSource, size: int) -> Sample:
    return np.array(
        [select(SCORES, epsilon=1.6, sensitivity=2.0, noise=noise) for _ in range(size)]
    )


RATE, LONGEST = 0.02, 200


def gap_masses(factor: float) -> NDArray[np.float64]:
    """Of the gap between two drawn rows, at least 1: geometric; longer ones together."""
    rate = RATE * factor
    mass = rate * (1 - rate) ** np.arange(LONGEST)
    return np.append(mass, 1 - mass.sum())


def gaps(noise: NoiseSource, size: int) -> Sample:
    """As many gaps as fit among 1.2 times the rows they need; fewer never."""
    chosen = noise.poisson_sample(rows=int(1.2 * size / RATE) + 10_000, probability=RATE)
    return np.minimum(np.diff(chosen)[:size] - 1, LONGEST)


def tilted(factor: float) -> NDArray[np.float64]:
    """Seven equal cells, of which the first three weigh `factor`."""
    mass = np.where(np.arange(7) < 3, factor, 1.0)
    return mass / mass.sum()


SAMPLERS: dict[str, Sampler] = {
    "Gaussian vector on its lattice": scaled(
        stats.norm, vector(NoiseKind.GAUSSIAN), size=np.square, total=stats.chi2),
    "Laplace vector on its lattice": scaled(
        stats.laplace, vector(NoiseKind.LAPLACE), size=np.abs, total=stats.gamma),
    "measured sum": scaled(stats.norm, measured_sum, size=np.square, total=stats.chi2),
    "Gaussian counts": scaled(
        stats.norm, counts(NoiseKind.GAUSSIAN), size=np.square, total=stats.chi2),
    "Laplace counts": scaled(
        stats.laplace, counts(NoiseKind.LAPLACE), size=np.abs, total=stats.gamma),
    **{f"discrete {kind.value}, scale {scale}": lattice(kind, scale)
       for kind in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE) for scale in (0.7, 4.0)},
    **{f"spherical Laplace, d' = {d}": spherical(d, 333_334 // d) for d in (1, 3, 14)},
    "ChaCha20 Gaussian of DP-SGD": scaled(
        stats.norm, lambda noise, size: noise.gaussian_vector(scale=3.0, size=size) / 3.0,
        size=np.square, total=stats.chi2),
    "noisy sum of DP-SGD": scaled(
        stats.norm,
        lambda noise, size: (noisy_sum(np.full(size, 7.3), scale=2.5, noise=noise) - 7.3) / 2.5,
        size=np.square, total=stats.chi2),
    "exponential mechanism": counted(selections, selection_masses, full=333_333, fast=1_600),
    "Poisson lots": counted(gaps, gap_masses),
    "uniform deals": counted(
        lambda noise, size: np.array([noise.whole_below(7) for _ in range(size)]), tilted),
}  # fmt: skip

SOURCES = {"secure": SecureNoise, "seeded": lambda: SeededNoise(20240101)}
TIERS = [
    (False, "secure"), (False, "seeded"), pytest.param(True, "secure", marks=pytest.mark.proof),
]  # fmt: skip
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("full", "source"), TIERS, ids=["fast", "seeded", "full"])
@pytest.mark.slow
def test_a_sampler_has_its_scale_and_no_other(full, source, name, prove):
    sampler = SAMPLERS[name]
    size = sampler.full if full else sampler.fast
    factors = (0.97, 1.03) if full else (2 / 3, 3 / 2)
    sample = sampler.draw(SOURCES[source](), size)
    assert len(sample) == size
    accepted = min(sampler.p_values(sample, 1.0))
    assert accepted > FALSE_ALARM
    missed = max(sampler.missed(size, factor) for factor in factors)
    assert missed < (1e-13 if full else 1e-6)
    rejected = max(min(sampler.p_values(sample, factor)) for factor in factors)
    assert rejected < FALSE_ALARM
    prove(
        f"S1: {name}",
        f"{size:,} draws: least p {accepted:.2g}; of scales 3% off at most {rejected:.0e},"
        f" missed with {missed:.0e}",
    )


# Shapes
@pytest.mark.nightly_cases("secure")
@sources
@pytest.mark.parametrize("dimension", [1, 3, 14])
def test_spherical_noise_has_no_direction(source, dimension):
    noise_law, noise = law(NoiseKind.SPHERICAL, 0.2, dimension), source()
    draws = np.array([
        noisy_vector(np.zeros(dimension), law=noise_law, noise=noise) for _ in range(3000)
    ])  # fmt: skip
    norms = np.linalg.norm(draws, axis=1)
    check_isotropy(draws / norms[:, None])
    if dimension > 1:  # independent Laplace noise of the same scale has another norm
        wrong = np.random.default_rng(1).laplace(scale=0.2, size=draws.shape)
        gamma = stats.gamma(dimension, scale=0.2)
        assert stats.kstest(np.linalg.norm(wrong, axis=1), gamma.cdf).pvalue < FALSE_ALARM
        assert stats.spearmanr(norms, np.abs(draws[:, 0]) / norms).pvalue > FALSE_ALARM


def check_isotropy(directions: NDArray[np.float64]) -> None:
    """Along any axis, (1 + cosine)/2 of a uniform direction is Beta((d-1)/2, (d-1)/2)."""
    dimension = directions.shape[1]
    axes = np.vstack([np.eye(dimension), np.ones(dimension) / math.sqrt(dimension)])
    for axis in axes:
        cosine = directions @ axis
        if dimension == 1:
            assert stats.binomtest(int(np.sum(cosine > 0)), cosine.size).pvalue > FALSE_ALARM
        else:
            law = stats.beta((dimension - 1) / 2, (dimension - 1) / 2, loc=-1, scale=2)
            assert stats.kstest(cosine, law.cdf).pvalue > FALSE_ALARM


def test_the_isotropy_check_sees_a_preferred_direction():
    directions = np.random.default_rng(1).normal(size=(3000, 3)) * [1.0, 1.0, 1.5]
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    with pytest.raises(AssertionError):
        check_isotropy(directions)


@sources
@pytest.mark.parametrize("bound", [7, 64, 3 * 2**200])
def test_whole_numbers_are_uniform(source, bound):
    noise, size = source(), 6_000
    draws = [noise.whole_below(bound) for _ in range(size)]
    assert min(draws) >= 0
    assert max(draws) < bound
    cells = min(bound, 12)  # equal cells where the bound has as many values

    def p_value(values):
        counts = np.bincount([value * cells // bound for value in values], minlength=cells)
        shares = (
            np.bincount([v * cells // bound for v in range(bound)], minlength=cells)
            if bound < 100
            else np.ones(cells)
        )
        return float(stats.chisquare(counts, size * shares / shares.sum()).pvalue)

    assert p_value(draws) > FALSE_ALARM
    # The classic slip: random bits modulo the bound, 3 bits for 7 values, 202 for 3 * 2^200.
    wide = 2 ** bound.bit_length()
    folded = [noise.whole_below(wide) % bound for _ in range(size)]
    assert wide % bound == 0 or p_value(folded) < FALSE_ALARM
