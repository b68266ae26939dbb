from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaNoised
from dpiw.methods.weights.paper.ratio import weigh
from dpiw.methods.weights.paper.regression import solve
from dpiw.methods.weights.registry import make_weights
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


def test_both_methods_share_the_measurement(tables, unit):
    schema, private, synthetic = tables
    one, other = (
        method()
        .calibrate(rho=0.1, schema=schema, unit=unit, nominal_rows=200)
        .measure(private, synthetic, noise=SeededNoise(5))
        for method in (BetaDebiased, BetaNoised)
    )
    assert one.to_bytes() == other.to_bytes()


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


def test_warning_says_when_the_cap_binds(numeric, unit):
    schema = numeric(13)
    few, many = (ready(schema, unit, rho=0.03, nominal_rows=n) for n in (500, 500_000))
    assert "nominal_rows=500 is small" in few.warnings(schema=schema, nominal_rows=500)[0]
    assert many.warnings(schema=schema, nominal_rows=500_000) == ()
    fixed = replace(few, penalty=1.0)
    assert fixed.warnings(schema=schema, nominal_rows=500) == ()
