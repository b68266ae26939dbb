from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from scipy import stats

from dpiw.errors import PrivacyError, SpecError, UncalibratedError, WeightError
from dpiw.measurement import Measurement
from dpiw.privacy import GaussianEvent, LaplaceEvent, NoiseKind, NoiseLaw
from dpiw.randomness import SecureNoise, SeededNoise
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weighting import PostProcessing, weigh
from dpiw.weights.beta import BetaRatio
from dpiw.weights.beta_calibration import (
    BOUNDS,
    BetaCalibration,
    PublicRows,
    calibrate_on_public_rows,
)
from dpiw.weights.beta_map import (
    CalibratedRatio,
    TemperedRatio,
    calibration_features,
    identity,
    to_coefficients,
    to_map,
)
from dpiw.weights.features import LinearMap
from dpiw.weights.post_processing import BetaCalibrate, Clip, Temper
from dpiw.weights.solver import Regression, solve

NO_NOISE = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.0, dimension=3)


def tilt(schema, rows, rng, slope, count):
    """Rows of the law with log ratio slope (x0 - 1/2) + constant against uniform rows."""
    table = rows(schema, count, rng)
    table.columns["x0"][:] = np.log1p(table.columns["x0"] * np.expm1(slope)) / slope
    return table


def ratio_of(schema, slope, scale=0.0):
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=scale, dimension=3)
    return BetaRatio(law=law, coefficients=np.array([slope, 0.0, 0.0]), map=LinearMap(schema))


def made(schema, unit, *, rho=0.1, nominal_rows=2000, **settings):
    return BetaCalibration(**{"limit": 5.0, **settings}).calibrate(
        rho=rho, schema=schema, unit=unit, nominal_rows=nominal_rows
    )


@pytest.fixture
def tables(numeric, rows):
    schema, rng = numeric(2), np.random.default_rng(91)
    private = PrivateTable(schema=schema, scaled=tilt(schema, rows, rng, 2.0, 2000))
    return schema, private, SyntheticTable(schema=schema, scaled=rows(schema, 2000, rng))


def test_the_map_is_kulls():
    u = np.linspace(-4, 4, 9)
    s = 1 / (1 + np.exp(-u))
    for a, b, c in ((1.0, 1.0, 0.0), (1.7, 0.4, -0.3)):
        found = calibration_features(u, 5.0) @ to_coefficients(a, b, c, 5.0)
        np.testing.assert_allclose(found, a * np.log(s) - b * np.log1p(-s) + c, atol=1e-12)
        assert to_map(to_coefficients(a, b, c, 5.0), 5.0) == pytest.approx((a, b, c))
    np.testing.assert_allclose(calibration_features(u, 5.0) @ identity(5.0), u, atol=1e-12)
    far = calibration_features(np.array([-900.0, -5.0, 5.0, 900.0]), 5.0)
    np.testing.assert_array_equal(far[0], far[1])
    np.testing.assert_array_equal(far[2], far[3])


@pytest.mark.parametrize("limit", [0.1, 5.0, 50.0])
def test_public_bounds_hold_for_every_ratio_and_are_attained(limit):
    g = calibration_features(np.r_[np.linspace(-2 * limit, 2 * limit, 801), -1e9, 1e9], limit)
    norms = np.linalg.norm(g, axis=1)
    assert norms.max() == pytest.approx(BOUNDS.norm)
    assert np.linalg.norm(g[0] - g[-1]) == pytest.approx(BOUNDS.diameter)
    gaps = np.linalg.norm(g[::20, None] - g[None, ::20], axis=2)
    assert gaps.max() <= BOUNDS.diameter + 1e-12
    assert np.abs(g).max() == pytest.approx(BOUNDS.coordinate)
    assert np.abs(g).sum(axis=1).max() == pytest.approx(BOUNDS.l1_norm)
    assert np.abs(g[0] - g[-1]).sum() == pytest.approx(BOUNDS.l1_diameter)


def test_public_rows_repair_a_misscaled_ratio(numeric, rows):
    """A ratio whose log is half the true one comes back: slope 2 from 1, within 10%."""
    schema, rng = numeric(2), np.random.default_rng(92)
    real = SyntheticTable(schema=schema, scaled=tilt(schema, rows, rng, 2.0, 40_000))
    synthetic = SyntheticTable(schema=schema, scaled=rows(schema, 40_000, rng))
    ratio = ratio_of(schema, 1.0)
    step = calibrate_on_public_rows(
        ratio, PublicRows(table=real, declared="a public survey"), synthetic
    )
    assert (step.source, step.declared) == ("public", "a public survey")
    weights = weigh(ratio, synthetic, debias=True, post_processing=PostProcessing(steps=(step,)))
    x = synthetic.scaled.columns["x0"] - 0.5
    slope = np.polyfit(x, weights.log_weights, 1)[0]
    assert slope == pytest.approx(2.0, rel=0.1)
    assert weights.steps == (step.text, "self-normalise")
    assert weights.law is None


def test_public_fit_keeps_the_order_of_rows(numeric, rows):
    """A ratio that points the wrong way: a and b stop at zero, the weights become equal."""
    schema, rng = numeric(2), np.random.default_rng(93)
    real = SyntheticTable(schema=schema, scaled=tilt(schema, rows, rng, 2.0, 5000))
    synthetic = SyntheticTable(schema=schema, scaled=rows(schema, 5000, rng))
    step = calibrate_on_public_rows(
        ratio_of(schema, -1.0), PublicRows(table=real, declared="public"), synthetic
    )
    assert min(step.a, step.b) == 0.0
    # What is left was fitted again: the intercept's own gradient vanishes.
    coefficients = to_coefficients(*step.map, step.limit)
    shares = []
    for table, sign in ((real, 1.0), (synthetic, -1.0)):
        fitted = calibration_features(0.5 - table.scaled.columns["x0"], 5.0) @ coefficients
        shares.append(float(np.mean(1 / (1 + np.exp(sign * fitted)))))
    assert shares[0] == pytest.approx(shares[1], abs=1e-3)
    slope = CalibratedRatio(
        base=ratio_of(schema, -1.0),
        coefficients=to_coefficients(*step.map, step.limit),
        limit=step.limit,
    ).slope(synthetic)
    assert slope.min() >= -1e-12


def test_no_free_calibration_on_private_rows(tables, rows):
    schema, private, synthetic = tables
    with pytest.raises(PrivacyError, match="only public rows are free"):
        PublicRows(table=private, declared="a small private validation set")
    with pytest.raises(SpecError, match="declare where the public rows come from"):
        PublicRows(table=synthetic, declared=" ")
    empty = SyntheticTable(schema=schema, scaled=rows(schema, 0, np.random.default_rng(0)))
    with pytest.raises(WeightError, match="rows of both classes"):
        calibrate_on_public_rows(
            ratio_of(schema, 1.0), PublicRows(table=empty, declared="nothing"), synthetic
        )


@pytest.mark.parametrize("relation", ["unit", "replace_unit"])
@pytest.mark.parametrize("kind", NoiseKind)
def test_declared_event_is_the_noise_actually_drawn(kind, relation, tables, request):
    """KS on 250 draws; accepts the stated scale (false alarm 1e-3), rejects 2/3 and 3/2."""
    unit = request.getfixturevalue(relation)
    schema, private, synthetic = tables
    own = made(schema, unit, noise=kind)
    (event,) = own.events(schema=schema, unit=unit)
    assert isinstance(event, GaussianEvent if kind is NoiseKind.GAUSSIAN else LaplaceEvent)
    assert event.noise_multiplier == pytest.approx(1 / math.sqrt(0.2))
    add = relation == "unit"  # sensitivities of METHOD section 1 for d = 2 centred columns
    l2 = math.sqrt(3) / 2 if add else math.sqrt(2)
    l1 = 1.5 if add else (2 + math.sqrt(6)) / 2
    penalty = own.calibrated.penalty
    scale = event.noise_multiplier * (l1 if kind is NoiseKind.LAPLACE else l2) / penalty
    ratio = ratio_of(schema, 1.0)
    exact = solve(
        Regression(
            private=calibration_features(private.confidential().columns["x0"] - 0.5, 5.0),
            synthetic=calibration_features(ratio.log_ratio(synthetic), 5.0),
            synthetic_weight=1.0,
            penalty=penalty,
            centre=identity(5.0),
        ),
        tolerance=1e-10,
    )
    noise = SeededNoise(78)
    drawn = np.array(
        [
            own.measure(private, synthetic, ratio=ratio, noise=noise).arrays["coefficients"] - exact
            for _ in range(250)
        ]
    )
    if kind is NoiseKind.SPHERICAL:
        values, reference = np.linalg.norm(drawn, axis=1), stats.gamma(3).cdf
    else:
        values = drawn.ravel()
        reference = stats.norm.cdf if kind is NoiseKind.GAUSSIAN else stats.laplace.cdf
    p = {f: stats.kstest(values / (f * scale), reference).pvalue for f in (2 / 3, 1.0, 3 / 2)}
    assert p[1.0] > 1e-3
    assert max(p[2 / 3], p[3 / 2]) < 1e-4


@pytest.mark.parametrize("relation", ["unit", "replace_unit"])
def test_neighbours_stay_within_the_sensitivity(relation, numeric, rows, request):
    """Exact fits of 60 pairs, with ratios steep enough to reach both ends of the clip."""
    unit, schema = request.getfixturevalue(relation), numeric(1)
    own, rng = made(schema, unit, nominal_rows=60), np.random.default_rng(94)
    worst = 0.0
    for _ in range(60):
        u = rng.normal(scale=8, size=60)
        synthetic = calibration_features(rng.normal(scale=3, size=80), 5.0)
        near = np.append(u[1:], rng.choice([-9.0, 9.0])) if relation == "replace_unit" else u[1:]

        def fit(log_ratio, synthetic=synthetic):
            problem = Regression(
                private=calibration_features(log_ratio, 5.0),
                synthetic=synthetic,
                synthetic_weight=60 / 80,
                penalty=own.calibrated.penalty,
                centre=identity(5.0),
            )
            return solve(problem, tolerance=1e-10)

        worst = max(worst, float(np.linalg.norm(fit(u) - fit(near))))
    assert 0.05 * own.calibrated.sensitivity < worst <= own.calibrated.sensitivity


def test_the_private_map_repairs_a_misscaled_ratio(tables, unit):
    schema, private, synthetic = tables
    ratio, own = ratio_of(schema, 1.0), made(schema, unit, rho=2.0, limit=1.0)
    measured = own.measure(private, synthetic, ratio=ratio, noise=SeededNoise(3))
    stored = Measurement.from_bytes(measured.to_bytes())
    calibrated = own.apply(ratio, stored)
    steps = PostProcessing(steps=(BetaCalibrate(source="private"),))
    weights = weigh(calibrated, synthetic, debias=True, post_processing=steps)
    x = synthetic.scaled.columns["x0"] - 0.5
    assert np.polyfit(x, weights.log_weights, 1)[0] == pytest.approx(2.0, rel=0.25)
    a, b, c = own.map(stored)
    assert weights.steps == (
        f"beta calibration (a={a:.4g}, b={b:.4g}, c={c:.4g}; a private stage of its own)",
        "debias b(g - mu)",
        "self-normalise",
    )
    assert weights.law == calibrated.law
    assert weights.diagnostics.signal is None  # the base of this test carries no noise


def test_little_budget_changes_little(tables, unit):
    """The exact fit at a huge penalty is the identity, not a constant weight."""
    schema, private, synthetic = tables
    own = made(schema, unit, rho=1e-7)
    measured = own.measure(private, synthetic, ratio=ratio_of(schema, 1.0), noise=SeededNoise(1))
    a, b, _ = own.map(measured)
    assert (a, b) == pytest.approx((1.0, 1.0), abs=0.3)


def test_noise_passes_through_the_slope(tables):
    """Noise of the base through the map, by differences, plus the map's own."""
    schema, _, synthetic = tables
    base = ratio_of(schema, 1.0, scale=0.01)
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.2, dimension=3)
    own = CalibratedRatio(
        base=base, coefficients=to_coefficients(1.6, 0.7, 0.1, 5.0), limit=5.0, law=law
    )
    u, step = base.log_ratio(synthetic), 1e-5
    moved = [calibration_features(u + sign * step, 5.0) @ own.coefficients for sign in (1, -1)]
    np.testing.assert_allclose(own.slope(synthetic), (moved[0] - moved[1]) / (2 * step), rtol=1e-6)
    steep = CalibratedRatio(base=base, coefficients=own.coefficients, limit=0.2)
    assert np.all(steep.slope(synthetic)[np.abs(u) > 0.2] == 0)
    steps = PostProcessing(steps=(BetaCalibrate(source="private"), Temper(alpha=0.5)))
    weights = weigh(own, synthetic, debias=True, post_processing=steps)
    whole = TemperedRatio(base=own, alpha=0.5)
    p = np.exp(whole.log_ratio(synthetic) - whole.log_ratio(synthetic).max())
    p /= p.sum()
    g = 0.5 * own.features(synthetic)
    f = 0.5 * own.slope(synthetic)[:, None] * base.features(synthetic)
    expected = 0.2**2 * ((g - p @ g) ** 2).sum(axis=1) + 0.01**2 * ((f - p @ f) ** 2).sum(axis=1)
    np.testing.assert_allclose(weights.noise, np.sqrt(expected))
    assert weights.steps[2] == "debias b(alpha (g - mu))"
    # The signal is asked of the base.
    assert weights.diagnostics.signal.noise == pytest.approx(
        1e-4 * base.features(synthetic).var(axis=0).sum()
    )


def test_private_steps_and_private_ratios_belong_together(tables, unit):
    schema, private, synthetic = tables
    ratio, own = ratio_of(schema, 1.0), made(schema, unit)
    asked = PostProcessing(steps=(BetaCalibrate(source="private"), Clip(at=9)))
    with pytest.raises(UncalibratedError, match="was asked for and not drawn"):
        weigh(ratio, synthetic, debias=True, post_processing=asked)
    calibrated = own.apply(
        ratio, own.measure(private, synthetic, ratio=ratio, noise=SeededNoise(1))
    )
    with pytest.raises(UncalibratedError, match="was drawn and not asked for"):
        weigh(calibrated, synthetic, debias=True)


def test_use_before_calibration_and_foreign_inputs(tables, numeric, rows, unit, replace_unit):
    schema, private, synthetic = tables
    ratio, fresh = ratio_of(schema, 1.0), BetaCalibration()
    for use in (
        lambda: fresh.events(schema=schema, unit=unit),
        lambda: fresh.predicted_log_weight_noise(schema=schema),
        lambda: fresh.measure(private, synthetic, ratio=ratio, noise=SeededNoise(1)),
    ):
        with pytest.raises(UncalibratedError, match="calibrate before use"):
            use()
    own = made(schema, unit)
    with pytest.raises(UncalibratedError, match="another unit"):
        own.events(schema=schema, unit=replace_unit)
    other = SyntheticTable(schema=numeric(3), scaled=rows(numeric(3), 9, np.random.default_rng(0)))
    with pytest.raises(UncalibratedError, match="another schema"):
        own.measure(private, other, ratio=ratio, noise=SeededNoise(1))
    nothing = SyntheticTable(schema=schema, scaled=rows(schema, 0, np.random.default_rng(0)))
    with pytest.raises(WeightError, match="at least one synthetic row"):
        own.measure(private, nothing, ratio=ratio, noise=SeededNoise(1))
    for bad in ({"rho": 0.0}, {"rho": math.nan}, {"nominal_rows": 0}):
        with pytest.raises(SpecError, match="rho > 0 and nominal_rows >= 1"):
            made(schema, unit, **bad)
    for settings, text in (
        ({"noise": "cauchy"}, "noise: expected one of gaussian"),
        ({"tau": 0}, "tau=0"),
        ({"limit": 51}, "limit=51: expected above 0, at most 50"),
    ):
        with pytest.raises(SpecError, match=text):
            BetaCalibration(**settings)


def test_measurements_are_public_facts_and_their_own(tables, unit):
    schema, private, synthetic = tables
    ratio, own = ratio_of(schema, 1.0), made(schema, unit)
    measured = own.measure(private, synthetic, ratio=ratio, noise=SeededNoise(1))
    fewer = PrivateTable(schema=schema, scaled=private.confidential().take(np.arange(50)))
    again = own.measure(fewer, synthetic, ratio=ratio, noise=SeededNoise(1))
    assert measured.facts == again.facts
    json.dumps(own.parameters(), allow_nan=False)
    assert own.predicted_log_weight_noise(schema=schema) <= 0.2 * (1 + 1e-12)
    assert not measured.publishable
    secure = own.measure(private, synthetic, ratio=ratio, noise=SecureNoise())
    assert secure.publishable
    assert pickle.loads(pickle.dumps(own)) == own
    wrong = Measurement(kind="beta", arrays=measured.arrays, facts=measured.facts, publishable=True)
    with pytest.raises(WeightError, match="not a measurement with these settings"):
        own.apply(ratio, wrong)
    with pytest.raises(WeightError, match="not a measurement with these settings"):
        made(schema, unit, limit=4.0).apply(ratio, measured)
    short = Measurement(
        kind=measured.kind,
        arrays={"coefficients": np.zeros(2)},
        facts=measured.facts,
        publishable=True,
    )
    with pytest.raises(WeightError, match="does not fit"):
        own.map(short)


def test_an_empty_private_table_is_an_ordinary_table(tables, rows, unit):
    schema, _, synthetic = tables
    empty = PrivateTable(schema=schema, scaled=rows(schema, 0, np.random.default_rng(0)))
    own = made(schema, unit)
    found = own.measure(empty, synthetic, ratio=ratio_of(schema, 1.0), noise=SeededNoise(1))
    assert np.all(np.isfinite(found.arrays["coefficients"]))
