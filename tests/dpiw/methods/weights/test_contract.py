"""What every weight estimator with a ratio promises, over the whole registry.

Measured weights have none before base rows are there: `test_measured.py` has their contract.
"""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.recipe import Recipe
from dpiw.methods.weights.base import Normalisation, WeightEstimator
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.output import OutputNoised
from dpiw.methods.weights.paper.ratio import RatioEstimator, weigh
from dpiw.methods.weights.registry import WEIGHTS, make_weights
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.support.draws import PROVED_ELSEWHERE, check_draws
from tests.support.worlds import REPLACED, UNIT, mixed, numbers, uniform_rows

MIXED = mixed()

EXTRA = {
    "measured": {"omega_seed": 1, "frequencies": 5},
    "output_noised": {"rows": 300, "allow_more_rows": True},
    "dp_mlp": {"hidden": [4], "steps": 10},
}

CASES = [
    (name, EXTRA.get(name, {}))
    for name, method in WEIGHTS.items()
    if issubclass(method, RatioEstimator)
]
SETTINGS = [
    (n, s, k) for n, s in CASES for k in ("add", "replace") if (n, k) != ("dp_mlp", "replace")
]


class AnyJudge:
    ratio = True

    def critic(self, scaled):
        return 2 * scaled.columns["x"]


@pytest.fixture(params=SETTINGS, ids=lambda c: f"{c[0]}-{c[2]}")
def case(request):
    name, settings, relation = request.param
    rng = np.random.default_rng(12)
    own = UNIT if relation == "add" else REPLACED
    estimator = WEIGHTS[name](**settings).calibrate(
        rho=1.0, schema=MIXED, unit=own, nominal_rows=500
    )
    private = PrivateTable(schema=MIXED, scaled=uniform_rows(MIXED, 400, rng, power=2.0))
    synthetic = SyntheticTable(schema=MIXED, scaled=uniform_rows(MIXED, 300, rng))
    if name == "output_noised":
        estimator = estimator.for_rows(synthetic)
    if name == "discriminator":
        estimator = estimator.informed(AnyJudge())
    return name, estimator, own, private, synthetic


def test_cost_and_forecast_are_known_before_data(case):
    name, estimator, unit, *_ = case
    assert estimator.method == name
    events = estimator.events(schema=MIXED, unit=unit)
    assert len(events) == (0 if name == "discriminator" else 1)
    forecast = estimator.forecast(schema=MIXED, nominal_rows=500)
    assert (forecast is None) is (name in ("dp_mlp", "discriminator"))
    tau, resolution = forecast or (0.0, 0.0)
    assert 0 <= tau <= 0.2 + 1e-9
    assert 0 <= resolution <= 1
    assert all(isinstance(w, str) for w in estimator.warnings(schema=MIXED, nominal_rows=500))
    json.dumps(estimator.parameters(), allow_nan=False)


def test_measure_is_repeatable_and_storable(case):
    name, estimator, _, private, synthetic = case
    first, again = (estimator.measure(private, synthetic, noise=SeededNoise(4)) for _ in range(2))
    assert first.to_bytes() == again.to_bytes()
    assert first.publishable is (name == "discriminator")  # noise that anybody can repeat
    assert pickle.loads(pickle.dumps(estimator)) == estimator
    assert pickle.loads(pickle.dumps(first)).digest == first.digest
    ratios = [
        estimator.ratio(m, schema=MIXED) for m in (first, Measurement.from_bytes(first.to_bytes()))
    ]
    np.testing.assert_array_equal(*(r.log_ratio(synthetic) for r in ratios))


def test_ratio_is_linear_in_its_features(case):
    _, estimator, _, private, synthetic = case
    ratio = estimator.ratio(
        estimator.measure(private, synthetic, noise=SeededNoise(4)), schema=MIXED
    )
    scored = ratio.scored(synthetic)
    np.testing.assert_array_equal(scored.log_ratio, ratio.log_ratio(synthetic))
    if scored.law is None:
        assert scored.features.shape == (300, 0)
        return
    dimension = scored.law.dimension
    assert scored.features.shape == (300, dimension) == (300, ratio.coefficients.size)
    np.testing.assert_allclose(scored.log_ratio, scored.features @ ratio.coefficients)


def test_what_is_uncalibrated_or_does_not_fit_is_refused(case):
    name, estimator, unit, private, synthetic = case
    if name == "discriminator":  # it measures nothing: `paper/test_estimators.py`
        return
    fresh, other = WEIGHTS[name](**EXTRA.get(name, {})), numbers(4)
    other_unit = REPLACED if unit == UNIT else UNIT
    wide = PrivateTable(schema=other, scaled=uniform_rows(other, 5, np.random.default_rng(0)))
    nothing, noise = SyntheticTable(schema=MIXED, scaled=synthetic.scaled.take([])), SeededNoise(1)
    for error, use in (
        (UncalibratedError, lambda: fresh.events(schema=MIXED, unit=unit)),
        (UncalibratedError, lambda: fresh.measure(private, synthetic, noise=noise)),
        (UncalibratedError, lambda: estimator.events(schema=MIXED, unit=other_unit)),
        (UncalibratedError, lambda: estimator.events(schema=other, unit=unit)),
        (UncalibratedError, lambda: estimator.measure(wide, synthetic, noise=noise)),
        (WeightError, lambda: estimator.measure(private, nothing, noise=noise)),
    ):
        with pytest.raises(error):
            use()
    for rho, count in ((0.0, 10), (-1.0, 10), (math.nan, 10), (math.inf, 10), (1.0, 0)):
        with pytest.raises(SpecError):
            fresh.calibrate(rho=rho, schema=MIXED, unit=unit, nominal_rows=count)
    measured = estimator.measure(private, synthetic, noise=noise)
    setting = next(iter(estimator.parameters()))
    for foreign in (
        replace(measured, kind="histogram"),
        replace(measured, facts={**measured.facts, setting: "other"}),
        replace(measured, arrays={key: np.zeros(2) for key in measured.arrays}),
    ):
        with pytest.raises(WeightError):
            estimator.ratio(foreign, schema=MIXED)


@pytest.mark.parametrize("normalisation", Normalisation)
def test_weights_come_out(case, normalisation):
    _, estimator, _, private, synthetic = case
    measured = estimator.measure(private, synthetic, noise=SeededNoise(4))
    ratio = estimator.ratio(measured, schema=MIXED)
    weights = weigh(ratio, synthetic, debias=estimator.debias, normalisation=normalisation)
    assert weights.rows == 300
    assert np.all(np.isfinite(weights.log_weights))
    if normalisation is Normalisation.SELF:
        assert np.exp(weights.log_weights).mean() == pytest.approx(1.0)


def test_network_weights_are_refused_under_replace_one():
    with pytest.raises(SpecError, match="replace_one"):
        make_weights("dp_mlp", {}).calibrate(rho=1.0, schema=MIXED, unit=REPLACED, nominal_rows=500)


def test_a_method_that_forgets_its_cost_cannot_be_made():
    """Nothing that a guarantee rests on has a default."""
    costs = {"calibrate", "events", "parameters", "released_noise"}
    assert costs < WeightEstimator.__abstractmethods__


NOISES = {"beta_debiased": ["gaussian", "laplace", "spherical"],
          "beta_noised": ["gaussian", "laplace", "spherical"],
          "output_noised": ["gaussian", "spherical"]}  # fmt: skip
DRAWN = [
    (name, EXTRA.get(name, {}) | ({"noise": noise} if noise else {}))
    for name in WEIGHTS
    if name not in PROVED_ELSEWHERE
    for noise in NOISES.get(name, [None])
]


@pytest.mark.parametrize("unit", [UNIT, REPLACED], ids=["add", "replace"])
@pytest.mark.parametrize(("name", "settings"), DRAWN, ids=str)
def test_draws_are_the_events(name, settings, unit):
    """Every registered method, but for those with a test named for them.

    That bugs are found: `test_a_generator_that_draws_otherwise_is_found`, `proof/bugs_of_weights`.
    """
    rng = np.random.default_rng(3)
    shared = uniform_rows(MIXED, 80, rng, power=2.0)
    own, other = (ScaledTable.concatenate([shared, uniform_rows(MIXED, 1, rng)]) for _ in range(2))
    tables = [
        PrivateTable(schema=MIXED, scaled=scaled)
        for scaled in (shared if unit is UNIT else other, own)
    ]
    synthetic = SyntheticTable(schema=MIXED, scaled=uniform_rows(MIXED, 300, rng))
    plain = WEIGHTS[name](**settings)
    ready = plain.calibrate(rho=1.0, schema=MIXED, unit=unit, nominal_rows=500).for_rows(synthetic)
    one, two = (
        lambda noise, table=table: ready.measure(table, synthetic, noise=noise) for table in tables
    )
    check_draws(ready, schema=MIXED, unit=unit, neighbours=(one, two))


def test_output_noised_knows_the_published_rows():
    assert make_weights("output_noised", {}, rows=4) == OutputNoised(rows=4)
    assert make_weights("output_noised", {"rows": 4}, rows=4) == OutputNoised(rows=4)
    assert make_weights("beta_debiased", {}, rows=4) == BetaDebiased()
    pure = make_weights("output_noised", {}, rows=4, pure=True)
    assert pure == OutputNoised(rows=4, noise=NoiseKind.SPHERICAL)
    with pytest.raises(
        SpecError, match=r"settings\.rows: expected 5, the release's synthetic_rows"
    ):
        make_weights("output_noised", {"rows": 4}, rows=5)


def test_pure_releases_get_pure_noise():
    assert make_weights("beta_debiased", {}, pure=True) == BetaDebiased(noise=NoiseKind.SPHERICAL)
    laplace = make_weights("beta_debiased", {"noise": "laplace"}, pure=True)
    assert laplace == BetaDebiased(noise=NoiseKind.LAPLACE)
    assert make_weights("none", {}, pure=True) is None
    for name, own in (("beta_debiased", {"noise": "gaussian"}), ("measured", {"omega_seed": 1}),
                      ("dp_mlp", {})):  # fmt: skip
        with pytest.raises(SpecError):
            make_weights(name, own, pure=True)


REGRESSION = [
    ("noise", "cauchy"), ("tau", 0), ("tau", "0.2"), ("penalty", -1.0), ("penalty", math.nan),
    ("features", "fourier"), ("features", ["linear"]), ("omega_seed", 3), ("lambda", 1),
    ("calibrated", None),
]  # fmt: skip
WRONG = {
    "none": [("tau", 1)],
    "beta_debiased": REGRESSION,
    "beta_noised": REGRESSION,
    "output_noised": [
        *REGRESSION, ("noise", "laplace"), ("rows", 0), ("rows", 2000), ("allow_more_rows", 1),
        ("published", 1),
    ],
    "dp_mlp": [
        ("hidden", ()), ("hidden", (0,)), ("hidden", 8), ("activation", "relu"),
        ("loss", "logistic"), ("device", "tpu"), ("steps", 0), ("lot", 2.5), ("replays", 10),
        ("clip", 0), ("learning_rate", -1), ("limit", 4.0), ("averaged", 0.0),
    ],
    "discriminator": [("limit", 0), ("limit", "wide"), ("limit", True), ("judge", None)],
    "measured": [
        ("features", {}), ("features", {"fourier": -1}),
        ("features", {"fourier": 101}),
        ("features", "fourier"), ("omega_seed", -1), ("frequencies", 0),
        ("scales", ()), ("scales", (0.0,)), ("credit", "risk"), ("credit", 0),
        ("credit", 10**400), ("base_rows", 5), ("design_effect", 0.5),
    ],
}  # fmt: skip


def test_what_no_spec_may_ask_for_is_refused_by_name():
    for method in ("magic", "selected"):
        with pytest.raises(SpecError, match=r"weights\.method"):
            make_weights(method, {})
    assert WRONG.keys() - {"none"} == WEIGHTS.keys() - {"none"}
    for method, settings in WRONG.items():
        needed = {"omega_seed": 3} if method == "measured" else {}
        for name, wrong in settings:
            with pytest.raises(SpecError, match=rf"settings\.{name}\b"):
                make_weights(method, needed | {name: wrong})


def test_weights_are_fitted_on_one_blas_thread():
    """Also in memory, where no stage limits them: threads of ours would wait for theirs."""

    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    class Watched:
        def weigh(self, *_, **__):
            return threads()

    recipe = Recipe(schema=MIXED, generator=None, weights=None, weighing=None)
    with threadpool_limits(limits=2):
        assert threads() == {2}
        assert recipe.weigh(Watched(), None, None, rng=None) == {1}
        assert threads() == {2}
