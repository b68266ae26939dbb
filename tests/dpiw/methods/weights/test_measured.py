"""Measured weights: the contract of a weight estimator, and the fit from end to end."""

import json
import pickle

import numpy as np
import pytest

from dpiw.data.discretisation import Domain
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.one_way import OneWayMarginals
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.sums import UNIT, exact_sum
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.methods.weights.registry import make_weights
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import PrivacyUnit
from tests.dpiw.methods.weights.measuring import (
    EFFORT,
    base_of,
    calibrated,
    method,
    nothing,
    private,
)
from tests.support.worlds import mixed, numbers, uniform_rows

# --- the contract --------------------------------------------------------------------------------


def test_cost_and_forecast_are_known_before_data(unit):
    schema = mixed()
    with pytest.raises(UncalibratedError):
        method().events(schema=schema, unit=unit)
    ready = calibrated(schema, unit)
    assert ready.events(schema=schema, unit=unit) == (GaussianEvent(noise_multiplier=1.0),)
    assert ready.predicted_log_weight_noise(schema=schema) > 0
    assert 0 < ready.resolution(schema=schema, nominal_rows=500) < 1
    assert ready.warnings(schema=schema, nominal_rows=500) == ()
    json.dumps(ready.parameters(), allow_nan=False)
    with pytest.raises(UncalibratedError):
        ready.events(schema=numbers(2), unit=unit)


def test_the_noise_covers_features_count_and_rounding(unit, replace_unit):
    schema = mixed()
    ready, replaced = (calibrated(schema, own).calibrated for own in (unit, replace_unit))
    norm = np.hypot(1.0, 0.3)
    assert ready.norm == pytest.approx(norm)
    assert ready.constant == 0.5
    assert ready.law.dimension == ready.dimension + 1
    assert ready.law.scale > ready.sensitivity > np.hypot(norm, 0.5)
    assert ready.law.scale == pytest.approx(np.hypot(norm, 0.5), rel=1e-5)
    assert replaced.constant == 0
    assert replaced.law.dimension == replaced.dimension
    assert replaced.law.scale == pytest.approx(2 * norm, rel=1e-5)


def test_k_rows_a_person_cost_k_times(unit):
    five_rows = PrivacyUnit(relation=unit.relation, max_rows=5, id_column="id")
    single, fivefold = (calibrated(mixed(), person).calibrated for person in (unit, five_rows))
    assert fivefold.law.scale == pytest.approx(5 * single.law.scale)


def test_measure_is_repeatable_storable_and_blind_to_synthetic_rows(unit):
    schema = mixed()
    ready, table = calibrated(schema, unit), private(schema)
    first = ready.measure(table, nothing(schema), noise=SeededNoise(4))
    again = ready.measure(table, base_of(schema), noise=SeededNoise(4))
    assert first.to_bytes() == again.to_bytes()
    assert not first.publishable
    assert pickle.loads(pickle.dumps(ready)) == ready
    restored = Measurement.from_bytes(first.to_bytes())
    about = np.zeros(ready.stack(schema).dimension)
    before, after = (ready.targets(measurement, about=about) for measurement in (first, restored))
    assert np.array_equal(before.means, after.means)


def test_targets_are_the_means_with_their_noise(unit):
    schema = numbers(3, target=True)
    ready, table = calibrated(schema, unit), private(schema)
    scaled = table.confidential()
    exact = ready.stack(schema).matrix(scaled).mean(axis=0)
    total = 0.0
    for seed in range(25):
        drawn = ready.measure(table, nothing(schema), noise=SeededNoise(seed))
        targets = ready.targets(drawn, about=exact)
        z = np.linalg.solve(np.linalg.cholesky(targets.covariance), targets.means - exact)
        total += float((z**2).sum())
    freedom = 25 * exact.size
    # A chi-square: outside five standard deviations with probability 1e-6, to first order.
    assert abs(total - freedom) < 5 * np.sqrt(2 * freedom) + 0.03 * freedom
    assert abs(targets.rows - 500) < 5 * 2 * ready.calibrated.law.scale


@pytest.mark.parametrize("change", [{"frequencies": 21}, {"omega_seed": 4}, {"scales": (1.0,)}])
def test_a_measurement_of_other_settings_is_refused(unit, change):
    schema = mixed()
    ready = calibrated(schema, unit)
    drawn = ready.measure(private(schema), nothing(schema), noise=SeededNoise(1))
    with pytest.raises(WeightError):
        calibrated(schema, unit, **change).targets(drawn, about=np.zeros(1))
    # What is done with it afterwards may be chosen afterwards.
    calibrated(schema, unit, credit=3.0, design_effect=3.0).targets(
        drawn, about=np.zeros(ready.stack(schema).dimension)
    )


def test_the_sum_is_exact_in_any_order():
    schema, rng = mixed(), np.random.default_rng(6)
    stack, rows = method().stack(schema), uniform_rows(schema, 9000, rng)
    whole = exact_sum(stack, [rows], constant=0.5)
    assert np.array_equal(exact_sum(stack, [rows.take(rng.permutation(9000))], constant=0.5), whole)
    assert whole[-1] == 4500
    assert np.array_equal(whole, np.rint(whole / UNIT) * UNIT)


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("features", {}), ("features", {"fourier": -1}), ("features", {"fourier": 101}),
     ("features", "fourier"), ("omega_seed", None), ("omega_seed", -1), ("frequencies", 0),
     ("scales", ()), ("scales", (0.0,)), ("credit", "risk"), ("credit", 0),
     ("credit", 10**400), ("base_rows", 5), ("design_effect", 0.5)],
)  # fmt: skip
def test_a_wrong_setting_is_named(name, wrong):
    with pytest.raises(SpecError, match=rf"weights\.settings\.{name}"):
        method(**{name: wrong})


def test_by_default_features_follow_from_the_schema(unit):
    def chosen(schema, *, rows=50):
        uncalibrated = Measured(omega_seed=3, frequencies=20)
        ready = uncalibrated.calibrate(rho=EFFORT, schema=schema, unit=unit, nominal_rows=rows)
        assert ready.parameters()["features"] == ready.features
        return ready.features, ready.scales

    both = {"fourier": 1.0, "target": 0.5}
    assert chosen(mixed()) == (both, (1.0,))
    assert chosen(numbers(5, target=True)) == ({"fourier": 1.0}, (3.0,))
    assert chosen(numbers(12, target=True)) == (both, (2.0,))
    assert chosen(numbers(12)) == ({"fourier": 1.0, "linear": 0.5}, (2.0,))
    # Where the noise is faint, first moments as well: those of two numbers where all are too many.
    few, scales = chosen(numbers(5), rows=10**6)
    assert (few, scales) == ({"fourier": 1.0, "linear": 0.3, "products": 0.5}, (3.0,))
    many = chosen(mixed(), rows=10**6)[0]
    assert many == {**both, "linear": 0.3, "numbers": 0.5}
    assert chosen(numbers(12), rows=10**6)[0] == {"fourier": 1.0, "linear": 0.5}
    with pytest.raises(SpecError, match="omega_seed"):
        Measured()


def test_sizes_that_could_not_be_fitted_are_refused_before_a_draw(unit):
    products = method(features={"products": 1.0}, omega_seed=None)
    with pytest.raises(SpecError, match=r"10011 features .* at most 8192"):
        products.calibrate(rho=EFFORT, schema=numbers(142), unit=unit, nominal_rows=500)
    with pytest.raises(SpecError, match="nominal_rows=1000000000: expected at most 2571"):
        method().calibrate(rho=EFFORT, schema=mixed(), unit=unit, nominal_rows=10**9)


@pytest.mark.parametrize("credit", [1e-300, 1e-9, 1e-3])
def test_a_credit_that_cannot_be_solved_for_ends_no_run(unit, credit):
    """Features of one-hot blocks sum to zero, so that C is singular: a paid draw is not lost."""
    schema = mixed()
    ready = method(credit=credit, features={"linear": 1.0, "target": 1.0}).calibrate(
        rho=500.0, schema=schema, unit=unit, nominal_rows=10**6
    )
    drawn = ready.measure(private(schema, 4000), nothing(schema), noise=SeededNoise(1))
    weights = weigh_measured(
        ready, drawn, base_of(schema, 500), rows=100, rng=np.random.default_rng(1)
    )
    assert weights.facts["measured"]["credit"] >= credit
    assert np.all(np.isfinite(weights.log_weights))


def test_its_noise_is_gaussian():
    with pytest.raises(SpecError):
        make_weights("measured", {"omega_seed": 1}, pure=True)


def test_base_rows_follow_the_published():
    assert [method().base_rows_for(rows) for rows in (10, 5000, 10**9)] == [10_000, 25_000, 10**9]
    assert [method(base_rows=700).base_rows_for(rows) for rows in (10, 701)] == [700, 701]


# --- weights -------------------------------------------------------------------------------------


def weighed(unit, *, power=3.0, rows=5000, **changes):
    """Private rows crowd at small numbers; the generator's are uniform if power is one."""
    schema = numbers(3, target=True)
    ready = method(**changes).calibrate(rho=EFFORT, schema=schema, unit=unit, nominal_rows=rows)
    drawn = ready.measure(private(schema, rows, power=power), nothing(schema), noise=SeededNoise(7))
    base = base_of(schema, rows=20_000)
    return (weigh_measured(ready, drawn, base, rows=1000, rng=np.random.default_rng(8)), base)


def test_weights_move_the_base_to_the_private_rows(unit):
    weights, base = weighed(unit)
    rows = base.scaled.take(weights.chosen)
    w = np.exp(weights.log_weights)
    assert weights.rows == 1000
    assert w.mean() == pytest.approx(1)
    assert 1000 / (w.sum() ** 2 / (w**2).sum()) < 2.2
    for column in rows.columns.values():
        # The mean of u^3 is 1/4; uniform rows have 1/2. The noise allows some 0.02.
        assert w @ column / w.sum() == pytest.approx(0.25, abs=0.06)
    assert weights.diagnostics.verdict is Verdict.USE
    assert np.all(weights.noise > 0)
    facts = weights.facts["measured"]
    assert facts["evidence_p_value"] == 1 / 2000
    assert facts["gain"] > 0.9
    json.dumps(weights.facts, allow_nan=False)


def test_where_the_generator_is_right_weights_are_not_to_be_used(unit):
    """The verdict of 20 releases; red by chance below 1e-8 at a rate of 1/20 above p = 0.05."""
    schema, verdicts = numbers(3, target=True), []
    ready = calibrated(schema, unit)
    base = base_of(schema)
    for seed in range(20):
        drawn = ready.measure(
            private(schema, seed=seed + 10, power=1.0), nothing(schema), noise=SeededNoise(seed)
        )
        weights = weigh_measured(ready, drawn, base, rows=500, rng=np.random.default_rng(seed))
        verdicts.append(weights.diagnostics.verdict)
    assert verdicts.count(Verdict.DO_NOT_USE) >= 10


def known_to(schema, variance):
    """Four even bins a column, counts of that variance."""
    domain = Domain.from_schema(schema, bins=4)
    return OneWayMarginals.of(
        domain, bins=4, marginals=[np.ones(size) for size in domain.sizes],
        variances=[variance] * len(domain.sizes), total_variance=variance,
    )  # fmt: skip


@pytest.mark.parametrize("variance", [1.0, 1e9])
def test_weights_keep_to_marginals_that_are_known(unit, variance):
    """A private mean of 1/4 is measured; marginals that say 1/2 hold it back as they are known."""
    schema = numbers(3, target=True)
    ready = method().calibrate(rho=EFFORT, schema=schema, unit=unit, nominal_rows=5000)
    drawn = ready.measure(private(schema, 5000, power=3.0), nothing(schema), noise=SeededNoise(7))
    base = base_of(schema, rows=5000)
    known = known_to(schema, variance)
    weights = weigh_measured(
        ready, drawn, base, rows=1000, rng=np.random.default_rng(8), known=known
    )
    w, rows = np.exp(weights.log_weights), base.scaled.take(weights.chosen)
    low, high = (0.38, 0.55) if variance == 1.0 else (0.19, 0.31)
    for column in rows.columns.values():
        assert low < w @ column / w.sum() < high
    assert weights.facts["measured"]["one_way"] == known.law.to_json()
    assert (
        weights.facts["measured"]["dimension"]
        == ready.stack(schema).dimension + known.law.dimension
    )


def test_known_marginals_do_not_tell_how_wrong_the_base_is(unit):
    """The base was made of them: credit and test are those of the measured features alone."""
    schema = numbers(3, target=True)
    ready = method().calibrate(rho=EFFORT, schema=schema, unit=unit, nominal_rows=1000)
    drawn = ready.measure(private(schema, 1000, power=3.0), nothing(schema), noise=SeededNoise(7))
    base = base_of(schema, rows=1000)
    known = known_to(schema, 9.0)
    facts = [
        weigh_measured(
            ready, drawn, base, rows=500, rng=np.random.default_rng(8), known=marginals
        ).facts["measured"]
        for marginals in (None, known)
    ]
    same = ("credit", "chi_square", "evidence_p_value", "rows")
    assert [facts[0][key] for key in same] == pytest.approx([facts[1][key] for key in same])
