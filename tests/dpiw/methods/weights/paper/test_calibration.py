from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import PrivacyError, UncalibratedError, WeightError
from dpiw.methods.weights.base import SampledRows, Weighing
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaRatio
from dpiw.methods.weights.paper.ratio import weigh
from dpiw.methods.weights.paper.regression import FitFacts, LinearMap
from dpiw.methods.weights.paper.steps import (
    BetaCalibrate,
    PostProcessing,
    Temper,
    calibrated,
    calibration_features,
    calibration_slope,
    fit_calibration,
    to_coefficients,
    to_map,
)
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw


def tilt(schema, rows, rng, slope, count):
    """Rows of the law with log ratio slope (x0 - 1/2) + constant against uniform rows."""
    table = rows(schema, count, rng)
    table.columns["x0"][:] = np.log1p(table.columns["x0"] * np.expm1(slope)) / slope
    return table


def ratio_of(schema, slope, scale=0.0):
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=scale, dimension=3)
    return BetaRatio(law=law, coefficients=np.array([slope, 0.0, 0.0]), map=LinearMap(schema))


def fitted(ratio, real, synthetic):
    return fit_calibration(ratio.log_ratio(real), ratio.log_ratio(synthetic), limit=5.0)


@pytest.fixture
def tables(numeric, rows):
    schema, rng = numeric(2), np.random.default_rng(91)
    private = PrivateTable(schema=schema, scaled=tilt(schema, rows, rng, 2.0, 2000))
    return schema, private, SyntheticTable(schema=schema, scaled=rows(schema, 2000, rng))


def test_the_map_is_kulls():
    u = np.linspace(-4, 4, 9)
    s = 1 / (1 + np.exp(-u))
    for a, b, c in ((1.0, 1.0, 0.0), (1.7, 0.4, -0.3)):
        found = calibration_features(u, 5.0) @ to_coefficients((a, b, c), 5.0)
        np.testing.assert_allclose(found, a * np.log(s) - b * np.log1p(-s) + c, atol=1e-12)
        assert to_map(to_coefficients((a, b, c), 5.0), 5.0) == pytest.approx((a, b, c))
    np.testing.assert_allclose(
        calibration_features(u, 5.0) @ to_coefficients((1.0, 1.0, 0.0), 5.0), u, atol=1e-12
    )
    far = calibration_features(np.array([-900.0, -5.0, 5.0, 900.0]), 5.0)
    np.testing.assert_array_equal(far[0], far[1])
    np.testing.assert_array_equal(far[2], far[3])


def test_public_rows_repair_a_misscaled_ratio(numeric, rows):
    """A ratio whose log is half the true one comes back: slope 2 from 1, within 10%."""
    schema, rng = numeric(2), np.random.default_rng(92)
    real = SyntheticTable(schema=schema, scaled=tilt(schema, rows, rng, 2.0, 40_000))
    synthetic = SyntheticTable(schema=schema, scaled=rows(schema, 40_000, rng))
    ratio = ratio_of(schema, 1.0)
    a, b, c = fitted(ratio, real, synthetic)
    step = BetaCalibrate(a=a, b=b, c=c, declared="a public survey")
    weights = weigh(ratio, synthetic, debias=True, post_processing=PostProcessing(steps=(step,)))
    x = synthetic.scaled.columns["x0"] - 0.5
    slope = np.polyfit(x, weights.log_weights, 1)[0]
    assert slope == pytest.approx(2.0, rel=0.1)
    assert weights.steps == (step.text, "self-normalise")


def test_public_fit_keeps_the_order_of_rows(numeric, rows):
    """A ratio that points the wrong way: a and b stop at zero, the weights become equal."""
    schema, rng = numeric(2), np.random.default_rng(93)
    real = SyntheticTable(schema=schema, scaled=tilt(schema, rows, rng, 2.0, 5000))
    synthetic = SyntheticTable(schema=schema, scaled=rows(schema, 5000, rng))
    ratio = ratio_of(schema, -1.0)
    found = fitted(ratio, real, synthetic)
    assert min(found[:2]) == 0.0
    # What is left was fitted again: the intercept's own gradient vanishes.
    shares = []
    for table, sign in ((real, 1.0), (synthetic, -1.0)):
        logits = calibrated(0.5 - table.scaled.columns["x0"], found, 5.0)
        shares.append(float(np.mean(1 / (1 + np.exp(sign * logits)))))
    assert shares[0] == pytest.approx(shares[1], abs=1e-3)
    assert calibration_slope(ratio.log_ratio(synthetic), found, 5.0).min() >= -1e-12


def test_no_free_calibration_on_private_rows(tables, rows, unit):
    schema, private, synthetic = tables
    step = BetaCalibrate(rows="survey.csv", declared="a survey")
    weighing = Weighing(rows=10, post_processing=PostProcessing(steps=(step,)), public=private)
    estimator = BetaDebiased().calibrate(rho=1.0, schema=schema, unit=unit, nominal_rows=2000)
    measured = estimator.measure(private, synthetic, noise=SeededNoise(1))
    sampled = SampledRows(weighed=synthetic, fitting=synthetic)
    with pytest.raises(PrivacyError):
        estimator.weigh(measured, sampled, weighing, rng=np.random.default_rng(1))
    public = replace(weighing, public=synthetic)
    assert estimator.weigh(measured, sampled, public, rng=np.random.default_rng(1)).rows == 2000
    with pytest.raises(WeightError):
        fit_calibration(np.zeros(0), np.zeros(5), limit=5.0)


def test_noise_passes_through_the_slope(tables):
    """Noise of the base through the map, by differences; the map has none of its own."""
    schema, _, synthetic = tables
    base = ratio_of(schema, 1.0, scale=0.01)
    step = BetaCalibrate(a=1.6, b=0.7, c=0.1, declared="a public survey")
    u, small = base.log_ratio(synthetic), 1e-5
    slope = calibration_slope(u, step.map, 5.0)
    moved = [calibrated(u + sign * small, step.map, 5.0) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * small), rtol=1e-6)
    assert np.all(calibration_slope(u, step.map, 0.2)[np.abs(u) > 0.2] == 0)
    steps = PostProcessing(steps=(step, Temper(alpha=0.5)))
    weights = weigh(base, synthetic, debias=True, post_processing=steps)
    p = np.exp(0.5 * calibrated(u, step.map, 5.0))
    p /= p.sum()
    f = 0.5 * slope[:, None] * base.features(synthetic)
    np.testing.assert_allclose(weights.noise, 0.01 * np.linalg.norm(f - p @ f, axis=1))
    assert weights.steps == (
        *(step.text for step in steps.steps),
        "self-normalise",
    )  # and no factor
    # The signal is asked of the base.
    fit = FitFacts(penalty=10.0, nominal_rows=2000, synthetic_rows=2000)
    known = replace(base, fit=fit)
    weights = weigh(known, synthetic, debias=True, post_processing=steps)
    assert weights.diagnostics.signal == known.signal(synthetic)


def test_a_calibration_that_was_not_fitted_weighs_nothing(tables):
    schema, _, synthetic = tables
    asked = PostProcessing(steps=(BetaCalibrate(rows="survey.csv", declared="a survey"),))
    with pytest.raises(UncalibratedError, match="has not been fitted"):
        weigh(ratio_of(schema, 1.0), synthetic, debias=True, post_processing=asked)
