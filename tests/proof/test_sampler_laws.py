"""The laws of the samplers: accept the stated scale, reject 2/3 and 3/2 of it.

A test accepts when p > 1e-9 and rejects when p < 1e-9. For the secure source, whose draws differ on
each run, the false-alarm rate of each check is therefore 1e-9; the seeded checks are deterministic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpiw.privacy.mechanisms import noisy_counts, noisy_vector, select
from dpiw.privacy.randomness import NoiseSource, SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.support.noise import integer_mass

FALSE_ALARM = 1e-9
FACTORS = [2 / 3, 3 / 2]
SEEDED = functools.partial(SeededNoise, 20240101)
SOURCES: list[Callable[[], NoiseSource]] = [SecureNoise, SEEDED]
LAWS = {NoiseKind.GAUSSIAN: stats.norm, NoiseKind.LAPLACE: stats.laplace}
sources = pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])


@pytest.mark.nightly_cases("4.0-NoiseKind.GAUSSIAN-secure", "4.0-NoiseKind.LAPLACE-secure")
@sources
@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_small_scales_have_the_discrete_law(source, kind, scale):
    noise, size = source(), 20_000
    draw = noise.discrete_gaussian if kind is NoiseKind.GAUSSIAN else noise.discrete_laplace
    reach = math.ceil(2.2 * scale)
    counts = np.bincount(
        np.clip(draw(scale=scale, size=size), -reach, reach) + reach, minlength=2 * reach + 1
    )

    def p_value(stated):
        return float(stats.chisquare(counts, size * integer_mass(kind, stated, reach)).pvalue)

    assert p_value(scale) > FALSE_ALARM
    for factor in FACTORS:
        assert p_value(factor * scale) < FALSE_ALARM


@pytest.mark.parametrize("kind", LAWS)
def test_released_vectors_of_rehearsals_have_their_law(kind):
    """Seeded noise; that of releases: `test_samplers.py`."""
    size, scale, value = 20_000, 0.37, 1 / 3
    law = NoiseLaw(kind=kind, scale=scale, dimension=size)
    errors = noisy_vector(np.full(size, value), law=law, noise=SEEDED()) - value
    counts = noisy_counts(np.full(size, 12), law=law, noise=SEEDED()) - 12
    for sample in (errors, counts):
        assert stats.kstest(sample, LAWS[kind](scale=scale).cdf).pvalue > FALSE_ALARM
        for factor in FACTORS:
            stated = LAWS[kind](scale=factor * scale)
            assert stats.kstest(sample, stated.cdf).pvalue < FALSE_ALARM


@pytest.mark.nightly_cases("secure")
@sources
@pytest.mark.parametrize("dimension", [1, 3, 14])
def test_spherical_noise_has_a_gamma_norm_and_no_direction(source, dimension):
    noise, scale, size = source(), 0.2, 3000
    law = NoiseLaw(kind=NoiseKind.SPHERICAL, scale=scale, dimension=dimension)
    draws = np.array([noisy_vector(np.zeros(dimension), law=law, noise=noise) for _ in range(size)])
    norms = np.linalg.norm(draws, axis=1)
    assert stats.kstest(norms, stats.gamma(dimension, scale=scale).cdf).pvalue > FALSE_ALARM
    for factor in FACTORS:
        stated = stats.gamma(dimension, scale=factor * scale)
        assert stats.kstest(norms, stated.cdf).pvalue < FALSE_ALARM
    # Independent Laplace noise of the same scale has another norm: the control.
    if dimension > 1:
        wrong = np.linalg.norm(
            np.random.default_rng(1).laplace(scale=scale, size=draws.shape), axis=1
        )
        assert stats.kstest(wrong, stats.gamma(dimension, scale=scale).cdf).pvalue < FALSE_ALARM
    check_isotropy(draws / norms[:, None])


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


@pytest.mark.nightly_cases("secure")
@sources
def test_norm_and_direction_are_independent(source):
    noise = source()
    draws = np.array([noise.spherical_laplace(scale=2.0**30, dimension=3) for _ in range(3000)])
    norms = np.linalg.norm(draws, axis=1)
    assert stats.spearmanr(norms, np.abs(draws[:, 0]) / norms).pvalue > FALSE_ALARM


def test_selections_of_rehearsals_have_the_exponential_mechanism_s_frequencies():
    """Seeded noise; that of releases: `test_samplers.py`."""
    noise, size = SEEDED(), 6000
    scores, epsilon, sensitivity = np.array([0.0, 1.5, 3.0, 4.0, 4.0]), 1.6, 2.0
    chosen = [
        select(scores, epsilon=epsilon, sensitivity=sensitivity, noise=noise) for _ in range(size)
    ]
    counts = np.bincount(chosen, minlength=scores.size)

    def p_value(stated):
        expected = np.exp(stated * scores / (2 * sensitivity))
        return float(stats.chisquare(counts, size * expected / expected.sum()).pvalue)

    assert p_value(epsilon) > FALSE_ALARM
    for factor in FACTORS:
        assert p_value(factor * epsilon) < FALSE_ALARM


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
