from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaNoised
from dpiw.methods.weights.paper.ratio import weigh
from dpiw.methods.weights.paper.regression import Regression, solve
from dpiw.methods.weights.registry import make_weights
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind


@pytest.fixture
def tables(numeric, rows):
    schema = numeric(3)
    rng = np.random.default_rng(31)
    private = PrivateTable(schema=schema, scaled=rows(schema, 200, rng, power=2.0))
    return schema, private, SyntheticTable(schema=schema, scaled=rows(schema, 300, rng))


def ready(schema, unit, *, rho=0.05, nominal_rows=200, **settings):
    return BetaDebiased(**settings).calibrate(
        rho=rho, schema=schema, unit=unit, nominal_rows=nominal_rows
    )


@pytest.mark.parametrize(
    ("kind", "relation"),
    [
        (NoiseKind.GAUSSIAN, "unit"),
        (NoiseKind.SPHERICAL, "replace_unit"),
        (NoiseKind.LAPLACE, "replace_unit"),
    ],
)
def test_declared_event_is_the_noise_actually_drawn(kind, relation, tables, request):
    """KS on 250 measurements; accepts the stated scale (false alarm 1e-3), rejects 2/3 and 3/2."""
    unit = request.getfixturevalue(relation)
    schema, private, synthetic = tables
    estimator = ready(schema, unit, noise=kind)
    (event,) = estimator.events(schema=schema, unit=unit)
    assert isinstance(event, GaussianEvent if kind is NoiseKind.GAUSSIAN else LaplaceEvent)
    assert event.noise_multiplier == pytest.approx(1 / math.sqrt(2 * 0.05))
    # Sensitivities of docs/method.md section 3 for d = 3, from its table and not from the code.
    penalty = estimator.calibrated.penalty
    add = relation == "unit"
    l2 = 1.0 if add else math.sqrt(3)
    l1 = 2.0 if add else (3 + math.sqrt(12)) / 2
    scale = event.noise_multiplier * (l1 if kind is NoiseKind.LAPLACE else l2) / penalty
    features = estimator.feature_map(schema)
    exact = solve(
        Regression(
            private=features.matrix(private.confidential()),
            synthetic=features.matrix(synthetic.scaled),
            synthetic_weight=200 / 300,
            penalty=penalty,
        ),
        tolerance=1e-10,
    )
    noise = SeededNoise(77)
    drawn = np.array(
        [
            estimator.measure(private, synthetic, noise=noise).arrays["coefficients"] - exact
            for _ in range(250)
        ]
    )
    if kind is NoiseKind.SPHERICAL:
        values, reference = np.linalg.norm(drawn, axis=1), stats.gamma(4).cdf
    else:
        values = drawn.ravel()
        reference = stats.norm.cdf if kind is NoiseKind.GAUSSIAN else stats.laplace.cdf
    p = {f: stats.kstest(values / (f * scale), reference).pvalue for f in (2 / 3, 1.0, 3 / 2)}
    assert p[1.0] > 1e-3
    assert max(p[2 / 3], p[3 / 2]) < 1e-4


def test_both_methods_share_the_measurement(tables, unit):
    schema, private, synthetic = tables
    one, other = (
        method()
        .calibrate(rho=0.1, schema=schema, unit=unit, nominal_rows=200)
        .measure(private, synthetic, noise=SeededNoise(5))
        for method in (BetaDebiased, BetaNoised)
    )
    assert one.to_bytes() == other.to_bytes()


def test_measurement_holds_public_facts_only(tables, unit):
    schema, private, synthetic = tables
    estimator = ready(schema, unit)
    measured = estimator.measure(private, synthetic, noise=SeededNoise(1))
    assert set(measured.arrays) == {"coefficients"}
    assert measured.arrays["coefficients"].shape == (4,)
    public = estimator.parameters().keys() - {"debias"} | {"schema", "synthetic_rows"}
    assert set(measured.facts) == public
    smaller = PrivateTable(schema=schema, scaled=private.confidential().take(np.arange(50)))
    fewer = estimator.measure(smaller, synthetic, noise=SeededNoise(1))
    assert measured.facts == fewer.facts  # the facts do not know the private table


def test_measure_certifies_the_gradient_its_scale_pays_for(tables, unit, monkeypatch):
    schema, private, synthetic = tables
    estimator, shares = ready(schema, unit), []

    def spied(problem, *, tolerance):
        coefficients = solve(problem, tolerance=tolerance)
        norms = (tolerance, np.linalg.norm(problem.gradient(coefficients)))
        shares.append(max(norms) / estimator.calibrated.bounds.norm)
        return coefficients

    monkeypatch.setattr("dpiw.methods.weights.paper.beta.solve", spied)
    estimator.measure(private, synthetic, noise=SeededNoise(1))
    assert len(shares) == 1
    assert shares[0] <= 1e-6


def test_weights_repair_a_wrong_generator(numeric, rows, unit):
    """Real x is a squared uniform (mean 1/3), synthetic x uniform (mean 1/2); rho = 0.02."""
    schema, rng = numeric(3), np.random.default_rng(32)
    private = PrivateTable(schema=schema, scaled=rows(schema, 8000, rng, power=2.0))
    synthetic = SyntheticTable(schema=schema, scaled=rows(schema, 8000, rng))
    estimator = ready(schema, unit, rho=0.02, nominal_rows=8000)
    x = synthetic.scaled.columns["x0"]
    for seed in range(5):
        measured = estimator.measure(private, synthetic, noise=SeededNoise(seed))
        ratio = estimator.ratio(measured, schema=schema)
        log_weights = weigh(ratio, synthetic, debias=True).log_weights
        assert abs(np.average(x, weights=np.exp(log_weights)) - 1 / 3) < 0.4 * abs(x.mean() - 1 / 3)


def test_use_before_calibration_or_for_other_facts_is_refused(
    tables, numeric, rows, unit, replace_unit
):
    schema, private, synthetic = tables
    fresh, estimator, wider = BetaDebiased(), ready(schema, unit), numeric(4)
    wide = PrivateTable(schema=wider, scaled=rows(wider, 5, np.random.default_rng(0)))
    for use in (
        lambda: fresh.events(schema=schema, unit=unit),
        lambda: fresh.measure(private, synthetic, noise=SeededNoise(1)),
        lambda: fresh.predicted_log_weight_noise(schema=schema),
        lambda: fresh.resolution(schema=schema, nominal_rows=10),
        lambda: fresh.warnings(schema=schema, nominal_rows=10),
        lambda: estimator.events(schema=schema, unit=replace_unit),
        lambda: estimator.events(schema=wider, unit=unit),
        lambda: estimator.measure(wide, synthetic, noise=SeededNoise(1)),
    ):
        with pytest.raises(UncalibratedError):
            use()
    nothing = SyntheticTable(schema=schema, scaled=rows(schema, 0, np.random.default_rng(0)))
    with pytest.raises(WeightError):
        estimator.measure(private, nothing, noise=SeededNoise(1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise", "cauchy"),
        ("tau", 0),
        ("tau", "0.2"),
        ("penalty", -1.0),
        ("penalty", math.nan),
        ("features", "fourier"),
        ("features", ["linear"]),
        ("omega_seed", 3),
    ],
)
@pytest.mark.parametrize("method", ["beta_noised", "output_noised"])
def test_inadmissible_settings_are_refused(method, name, value):
    with pytest.raises(SpecError, match=rf"settings\.{name}"):
        make_weights(method, {name: value})
    assert make_weights(method, {"features": "linear"}) == make_weights(method, {})


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf])
def test_calibrate_refuses_a_meaningless_effort(rho, numeric, unit):
    with pytest.raises(SpecError, match="effort rho > 0"):
        ready(numeric(2), unit, rho=rho)


@pytest.mark.parametrize("kind", [NoiseKind.SPHERICAL, NoiseKind.LAPLACE])
def test_moments_that_do_not_exist_stop_the_plan_and_the_stage(kind, tables, unit):
    schema, private, synthetic = tables
    tight = {"rho": 0.5, "noise": kind}
    fine = ready(schema, unit, **tight, penalty=10.0)
    fine.check(schema=schema)
    for penalty, lacking in ((3.0, "variance"), (1.0, "mean")):
        estimator = ready(schema, unit, **tight, penalty=penalty)
        for use in (
            lambda e=estimator: e.predicted_log_weight_noise(schema=schema),
            lambda e=estimator: e.measure(private, synthetic, noise=SeededNoise(1)),
        ):
            with pytest.raises(SpecError, match=f"may have no {lacking}: scale times row length"):
                use()


@pytest.mark.parametrize("relation", ["unit", "replace_unit"])
@pytest.mark.parametrize("kind", NoiseKind)
@pytest.mark.parametrize("rho", [1e-8, 1e-2, 10.0])
def test_public_rule_always_leaves_the_moments(kind, rho, relation, mixed, request):
    unit = request.getfixturevalue(relation)
    estimator = ready(mixed, unit, rho=rho, noise=kind)
    assert 0 < estimator.predicted_log_weight_noise(schema=mixed) <= 0.2 * (1 + 1e-12)


def test_noise_falls_as_effort_grows(numeric, unit):
    schema = numeric(5)
    for kind in NoiseKind:
        scales, shares = [], []
        for rho in np.geomspace(1e-4, 10, 12):
            estimator = ready(schema, unit, rho=rho, noise=kind, nominal_rows=2000)
            (event,) = estimator.events(schema=schema, unit=unit)
            scales.append(event.noise_multiplier)
            shares.append(estimator.resolution(schema=schema, nominal_rows=2000))
        assert all(np.diff(scales) < 0)
        assert all(np.diff(shares) > 0)
        assert 0 < shares[0] < shares[-1] < 1


def test_warning_says_when_the_cap_binds(numeric, unit):
    schema = numeric(13)
    few, many = (ready(schema, unit, rho=0.03, nominal_rows=n) for n in (500, 500_000))
    assert "nominal_rows=500 is small" in few.warnings(schema=schema, nominal_rows=500)[0]
    assert many.warnings(schema=schema, nominal_rows=500_000) == ()
    fixed = replace(few, penalty=1.0)
    assert fixed.warnings(schema=schema, nominal_rows=500) == ()


def test_foreign_measurements_are_refused(tables, numeric, unit):
    schema, private, synthetic = tables
    estimator = ready(schema, unit)
    measured = estimator.measure(private, synthetic, noise=SeededNoise(1))
    for wrong in (
        replace(measured, kind="histogram"),
        replace(measured, facts={**measured.facts, "scale": 1e-9}),
    ):
        with pytest.raises(WeightError, match="not a measurement with these settings"):
            estimator.ratio(wrong, schema=schema)
    short = replace(measured, arrays={"coefficients": np.zeros(2)})
    with pytest.raises(WeightError, match="does not fit this schema"):
        estimator.ratio(short, schema=schema)
