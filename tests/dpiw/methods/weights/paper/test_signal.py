"""The one test of a ratio's weights, "no more than chance": its law, its size and its power.

Seeds are fixed, and bounds four standard errors wide: a right formula would fail about once in
16,000 fresh seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.diagnostics import Signal, Verdict
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaRatio
from dpiw.methods.weights.paper.ratio import simulated_errors, simulated_noise, weigh
from dpiw.methods.weights.paper.regression import (
    FitFacts,
    LinearMap,
    Regression,
    sampling_covariance,
    solve,
)
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw


@pytest.mark.parametrize("kind", NoiseKind)
def test_simulated_noise_has_its_law(kind):
    """KS of 4,000 draws of three coordinates; false alarm 1e-3, a law of half the scale is seen."""
    law = NoiseLaw(kind=kind, scale=0.3, dimension=3)
    drawn = simulated_noise(law, 4000, np.random.default_rng(70))
    assert drawn.shape == (4000, 3)
    if kind is NoiseKind.SPHERICAL:
        values, reference = np.linalg.norm(drawn, axis=1), stats.gamma(3).cdf
        cosines = drawn / values[:, None]  # on a sphere each is uniform
        assert stats.kstest(cosines[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    else:
        values = drawn.ravel()
        reference = stats.norm.cdf if kind is NoiseKind.GAUSSIAN else stats.laplace.cdf
    assert stats.kstest(values / 0.3, reference).pvalue > 1e-3
    assert stats.kstest(values / 0.15, reference).pvalue < 1e-9


def test_simulated_errors_have_their_covariance():
    """Also a singular one; 100,000 draws, within 2%."""
    root = np.array([[1.0, 0.0], [0.5, 0.2], [1.5, 0.2]])  # of rank two
    drawn = simulated_errors(root @ root.T, 100_000, np.random.default_rng(75))
    np.testing.assert_allclose(np.cov(drawn.T), root @ root.T, atol=0.05)
    np.testing.assert_allclose(drawn[:, 2], drawn[:, 0] + drawn[:, 1], atol=1e-6)


def test_numbers_by_hand():
    null = np.array([1.0, 4.0, 5.0])
    signal = Signal.of(np.array([2.0, -2.0]), null)
    assert (signal.spread, signal.chance, signal.p_value) == (4.0, pytest.approx(10 / 3), 3 / 4)
    assert Signal.of(np.array([9.0, -9.0]), null).p_value == 1 / 4
    assert Signal.of(np.ones(5), np.zeros(9)).p_value == 1.0  # constant features


@pytest.mark.parametrize("kind", NoiseKind)
def test_size_under_pure_noise(kind, numeric, rows):
    """P(p <= level) is the level: 300 released vectors of noise and error, within 4 errors."""
    schema, rng = numeric(4), np.random.default_rng(71)
    table = SyntheticTable(schema=schema, scaled=rows(schema, 200, rng))
    law = NoiseLaw(kind=kind, scale=0.2, dimension=5)
    fit = FitFacts(penalty=20.0, nominal_rows=500, synthetic_rows=500)
    map_ = LinearMap(schema)
    drawn = simulated_noise(law, 300, rng)
    drawn += simulated_errors(sampling_covariance(map_.matrix(table.scaled), fit), 300, rng)
    ratios = [BetaRatio(law=law, coefficients=b, map=map_, fit=fit) for b in drawn]
    p = np.array([ratio.signal(table).p_value for ratio in ratios])
    for level in (0.03, 0.2, 0.5):
        assert abs(np.mean(p <= level) - level) < 4 * math.sqrt(level * (1 - level) / 300)
    assert ratios[0].signal(table) == ratios[0].signal(table)
    assert BetaRatio(law=law, coefficients=drawn[0], map=map_).signal(table) is None


def test_sampling_covariance_is_that_of_fits_to_one_law(numeric, rows, unit):
    """200 noise-free fits of uniform rows against uniform rows: variance of b.x within 25%."""
    schema, rng = numeric(3), np.random.default_rng(72)
    estimator = BetaDebiased().calibrate(rho=0.1, schema=schema, unit=unit, nominal_rows=400)
    features = estimator.feature_map(schema)
    penalty = estimator.calibrated.penalty
    fits = [
        solve(
            Regression(
                private=features.matrix(rows(schema, 400, rng)),
                synthetic=features.matrix(rows(schema, 800, rng)),
                synthetic_weight=0.5,
                penalty=penalty,
            ),
            tolerance=1e-6,
        )
        for _ in range(200)
    ]
    x = features.matrix(rows(schema, 4000, rng))
    fit = FitFacts(penalty=penalty, nominal_rows=400, synthetic_rows=800)
    stated = sampling_covariance(x, fit)
    spread = np.cov(x.T)
    variance = np.mean([b @ spread @ b for b in fits])
    assert variance == pytest.approx(np.trace(spread @ stated), rel=0.25)
    np.testing.assert_allclose(stated, stated.T, atol=1e-15)


def verdicts(schema, rows, unit, *, power, private=1500, count=100):
    rng = np.random.default_rng(73)
    estimator = BetaDebiased().calibrate(rho=0.1, schema=schema, unit=unit, nominal_rows=1500)
    diagnoses = []
    for seed in range(count):
        table = PrivateTable(schema=schema, scaled=rows(schema, private, rng, power=power))
        fitting, published = (
            SyntheticTable(schema=schema, scaled=rows(schema, 1500, rng)) for _ in range(2)
        )
        measured = estimator.measure(table, fitting, noise=SeededNoise(seed))
        ratio = estimator.ratio(measured, schema=schema)
        diagnoses.append(weigh(ratio, published, debias=True, resolution=0.9).diagnostics)
    return diagnoses


def test_a_ratio_of_one_is_not_to_be_used(numeric, rows, unit):
    """Few escape the verdict: at a rate of 3%, more than 11 of 100 once in 20,000 seeds."""
    diagnoses = verdicts(numeric(3), rows, unit, power=1.0)
    escaped = [d for d in diagnoses if d.verdict is not Verdict.DO_NOT_USE]
    assert len(escaped) <= 11
    # Without the test nearly all of them would have been recommended.
    assert sum(d.effective_sample_size > 0.9 * d.rows and (d.noise < 0.25) for d in diagnoses) > 90


def test_a_strong_tilt_is_seen_and_a_reference_implementation_stays_with_care(numeric, rows, unit):
    diagnoses = verdicts(numeric(3), rows, unit, power=1.6, count=30)
    assert all(d.verdict is Verdict.CARE for d in diagnoses)
    assert all(d.signal.p_value == 1 / 1000 for d in diagnoses)
    assert all(len(d.reasons) == 1 and "measured" in d.reasons[0] for d in diagnoses)


def test_more_rows_than_nominal_are_no_signal(numeric, rows, unit):
    """The intercept takes a private table twice the nominal size; it is no spread."""
    diagnoses = verdicts(numeric(3), rows, unit, power=1.0, private=3000, count=60)
    assert sum(d.verdict is not Verdict.DO_NOT_USE for d in diagnoses) <= 8
