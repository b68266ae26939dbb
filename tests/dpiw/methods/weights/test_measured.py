"""Measured weights: the contract of a weight estimator, and the fit from end to end."""

import json
import pickle
from functools import partial
from unittest import mock

import numpy as np
import pytest

from dpiw.data.schema.discretisation import Domain
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.one_way import OneWayMarginals
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.measured import many_rows as streaming
from dpiw.methods.weights.measured import thinning, weighing
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.sums import UNIT as STEP
from dpiw.methods.weights.measured.sums import exact_sum
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.weights.measuring import (
    EFFORT,
    base_of,
    calibrated,
    method,
    nothing,
    private,
)
from tests.support.around import around
from tests.support.worlds import UNIT, mixed, numbers, uniform_rows


def test_cost_and_forecast_are_known_before_data():
    schema = mixed()
    with pytest.raises(UncalibratedError):
        method().events(schema=schema, unit=UNIT)
    ready = calibrated(schema, UNIT)
    assert ready.events(schema=schema, unit=UNIT) == (GaussianEvent(noise_multiplier=1.0),)
    tau, resolution = ready.forecast(schema=schema, nominal_rows=500)
    assert tau > 0
    assert 0 < resolution < 1
    assert ready.warnings(schema=schema, nominal_rows=500) == ()
    json.dumps(ready.parameters(), allow_nan=False)
    with pytest.raises(UncalibratedError):
        ready.events(schema=numbers(2), unit=UNIT)


def test_measure_is_repeatable_storable_and_blind_to_synthetic_rows():
    schema = mixed()
    ready, table = calibrated(schema, UNIT), private(schema)
    first = ready.measure(table, nothing(schema), noise=SeededNoise(4))
    again = ready.measure(table, base_of(schema), noise=SeededNoise(4))
    assert first.to_bytes() == again.to_bytes()
    assert not first.publishable
    assert pickle.loads(pickle.dumps(ready)) == ready
    restored = Measurement.from_bytes(first.to_bytes())
    about = np.zeros(ready.stack(schema).dimension)
    before, after = (ready.targets(measurement, about=about) for measurement in (first, restored))
    assert np.array_equal(before.means, after.means)


def test_targets_are_the_means_with_their_noise():
    schema = numbers(3, target=True)
    ready, table = calibrated(schema, UNIT), private(schema)
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
def test_a_measurement_of_other_settings_is_refused(change):
    schema = mixed()
    ready = calibrated(schema, UNIT)
    drawn = ready.measure(private(schema), nothing(schema), noise=SeededNoise(1))
    with pytest.raises(WeightError):
        calibrated(schema, UNIT, **change).targets(drawn, about=np.zeros(1))
    # What is done with it afterwards may be chosen afterwards.
    calibrated(schema, UNIT, credit=3.0, design_effect=3.0).targets(
        drawn, about=np.zeros(ready.stack(schema).dimension)
    )


def test_the_sum_is_exact_in_any_order():
    schema, rng = mixed(), np.random.default_rng(6)
    stack, rows = method().stack(schema), uniform_rows(schema, 9000, rng)
    whole = exact_sum(stack, [rows], constant=0.5)
    assert np.array_equal(exact_sum(stack, [rows.take(rng.permutation(9000))], constant=0.5), whole)
    assert whole[-1] == 4500
    assert np.array_equal(whole, np.rint(whole / STEP) * STEP)


def test_by_default_features_follow_from_the_schema():
    def chosen(schema, *, rows=50):
        uncalibrated = Measured(omega_seed=3, frequencies=20)
        ready = uncalibrated.calibrate(rho=EFFORT, schema=schema, unit=UNIT, nominal_rows=rows)
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


def test_sizes_that_could_not_be_fitted_are_refused_before_a_draw():
    products = method(features={"products": 1.0}, omega_seed=None)
    with pytest.raises(SpecError, match=r"10011 features .* at most 8192"):
        products.calibrate(rho=EFFORT, schema=numbers(142), unit=UNIT, nominal_rows=500)
    with pytest.raises(SpecError, match="nominal_rows=1000000000: expected at most 2571"):
        method().calibrate(rho=EFFORT, schema=mixed(), unit=UNIT, nominal_rows=10**9)


@pytest.mark.nightly_cases("1e-09", "0.001")
@pytest.mark.parametrize("credit", [1e-300, 1e-9, 1e-3])
@pytest.mark.slow
def test_a_credit_that_cannot_be_solved_for_ends_no_run(credit):
    """Features of one-hot blocks sum to zero, so that C is singular: a paid draw is not lost."""
    schema = mixed()
    ready = method(credit=credit, features={"linear": 1.0, "target": 1.0}).calibrate(
        rho=500.0, schema=schema, unit=UNIT, nominal_rows=10**6
    )
    drawn = ready.measure(private(schema, 4000), nothing(schema), noise=SeededNoise(1))
    weights = weigh_measured(
        ready, drawn, base_of(schema, 500), rows=100, rng=np.random.default_rng(1)
    )
    assert weights.facts["measured"]["credit"] >= credit
    assert np.all(np.isfinite(weights.log_weights))


def test_base_rows_follow_the_published():
    assert [method().base_rows_for(rows) for rows in (10, 5000, 10**9)] == [10_000, 25_000, 10**9]
    assert [method(base_rows=700).base_rows_for(rows) for rows in (10, 701)] == [700, 701]


def weighed(*, power=3.0, people=5000, base=20_000, rows=1000, known=None, **changes):
    """Private rows crowd at small numbers; the generator's are uniform if power is one."""
    schema = numbers(3, target=True)
    ready = method(**changes).calibrate(rho=EFFORT, schema=schema, unit=UNIT, nominal_rows=people)
    table = private(schema, people, power=power)
    drawn, made = ready.measure(table, nothing(schema), noise=SeededNoise(7)), base_of(schema, base)
    rng = np.random.default_rng(8)
    return weigh_measured(ready, drawn, made, rows=rows, rng=rng, known=known), made


def test_weights_move_the_base_to_the_private_rows():
    weights, base = weighed()
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


@pytest.mark.slow
def test_where_the_generator_is_right_weights_are_not_to_be_used():
    """The verdict of 20 releases; red by chance below 1e-8 at a rate of 1/20 above p = 0.05."""
    schema, verdicts = numbers(3, target=True), []
    ready = calibrated(schema, UNIT)
    base = base_of(schema)
    for seed in range(20):
        drawn = ready.measure(
            private(schema, seed=seed + 10, power=1.0), nothing(schema), noise=SeededNoise(seed)
        )
        weights = weigh_measured(ready, drawn, base, rows=500, rng=np.random.default_rng(seed))
        verdicts.append(weights.diagnostics.verdict)
    assert verdicts.count(Verdict.DO_NOT_USE) >= 10


def known_to(schema, variance):
    domain = Domain.from_schema(schema, bins=4)
    return OneWayMarginals.of(
        domain, bins=4, marginals=[np.ones(size) for size in domain.sizes],
        variances=[variance] * len(domain.sizes), total_variance=variance,
    )  # fmt: skip


@pytest.mark.parametrize("variance", [1.0, 1e9])
def test_weights_keep_to_marginals_that_are_known(variance):
    """A private mean of 1/4 is measured; marginals that say 1/2 hold it back as they are known."""
    known = known_to(numbers(3, target=True), variance)
    weights, base = weighed(base=5000, known=known)
    w, rows = np.exp(weights.log_weights), base.scaled.take(weights.chosen)
    low, high = (0.38, 0.55) if variance == 1.0 else (0.19, 0.31)
    for column in rows.columns.values():
        assert low < w @ column / w.sum() < high
    assert weights.facts["measured"]["one_way"] == known.law.to_json()
    own = method().stack(numbers(3, target=True)).dimension
    assert weights.facts["measured"]["dimension"] == own + known.law.dimension


def test_known_marginals_do_not_tell_how_wrong_the_base_is():
    """The base was made of them: credit and test are those of the measured features alone."""
    known = known_to(numbers(3, target=True), 9.0)
    facts = [
        weighed(people=1000, base=1000, rows=500, known=marginals)[0].facts["measured"]
        for marginals in (None, known)
    ]
    same = ("credit", "chi_square", "evidence_p_value", "rows")
    assert [facts[0][key] for key in same] == pytest.approx([facts[1][key] for key in same])


SCHEMA = mixed()
MADE = partial(base_of, SCHEMA)


def drawn_of(people=500, **changes):
    ready = calibrated(SCHEMA, UNIT, **changes)
    return ready, ready.measure(private(SCHEMA, people), nothing(SCHEMA), noise=SeededNoise(1))


def weighed_of(ready, sums, base, rows):
    rng = np.random.default_rng(3)
    return weigh_measured(ready, sums, base, rows=rows, rng=rng)


@pytest.fixture
def few_fitted(monkeypatch):
    for module in (weighing, thinning):
        monkeypatch.setattr(module, "MOST_FITTED", 1500)
    monkeypatch.setattr(weighing, "_TOLD", 1500)


@pytest.mark.usefixtures("few_fitted")
def test_what_is_not_reached_is_not_published(monkeypatch):
    """The fit says so; of a calibration the rows stay as they were chosen."""
    given = drawn_of(4000)
    unreached = mock.Mock(side_effect=WeightError("tilting: the minimum was not reached"))
    monkeypatch.setattr(thinning, "corrected", unreached)
    assert "calibration" not in weighed_of(*given, MADE(9000), 4000).facts["measured"]
    monkeypatch.setattr(streaming, "reached", lambda *_, **__: None)
    monkeypatch.setattr(streaming, "tilt", unreached)
    with pytest.raises(WeightError, match="not reached"):
        weighed_of(*given, MADE(9000), 1000)


@pytest.mark.parametrize(("base", "rows"), [(9000, 1000), (9000, 4000), (9000, 9000)])
@pytest.mark.usefixtures("few_fitted")
def test_weights_of_many_rows_come_as_close_to_the_targets(base, rows):
    ready, sums = drawn_of(4000)
    base_table = MADE(base)
    weights = weighed_of(ready, sums, base_table, rows)
    assert "tilt fitted to 1500 of them, corrected to all" in weights.steps
    assert weights.log_weights.shape == weights.chosen.shape == (rows,)
    assert weights.noise.size == -(-rows // max(1, rows // 1500))
    facts = weights.facts["measured"]
    assert facts["base_rows"] == base
    assert ("calibration" in facts) is (rows < base)
    matrix = ready.stack(SCHEMA).matrix(base_table.scaled)
    targets = ready.targets(sums, about=matrix.mean(axis=0))
    fitted = targets.means - np.array(facts["residual"])
    means = np.exp(weights.log_weights) @ matrix[weights.chosen] / rows
    chance = np.linalg.norm(matrix.std(axis=0)) / np.sqrt(rows)
    assert np.linalg.norm(means - fitted) < (0.5 if rows < base else 0.2) * chance


def test_the_noise_of_some_weights_tells_that_of_all(monkeypatch):
    given = drawn_of(4000)

    def noise_of(told):
        monkeypatch.setattr(weighing, "_TOLD", told)
        weights = weighed_of(*given, MADE(6000), 3000)
        return weights.noise, weights.diagnostics.noise

    (every, of_all), (some, of_some) = noise_of(3000), noise_of(600)
    assert some == pytest.approx(every[::5])
    assert of_some == pytest.approx(of_all, rel=0.05)


@pytest.mark.usefixtures("few_fitted")
def test_a_base_is_read_in_any_batches():
    given = drawn_of()
    whole = MADE(4000)
    parts = SyntheticTable.chosen(whole, np.arange(4000))
    object.__setattr__(parts, "batches", lambda: whole.scaled.batches(333))
    at_once, batched = (weighed_of(*given, base, 2000) for base in (whole, parts))
    assert np.array_equal(at_once.chosen, batched.chosen)
    assert batched.log_weights == pytest.approx(at_once.log_weights, abs=1e-9)


@pytest.fixture
def held(monkeypatch):
    held, watching = [], lambda _, features, **__: held.append(len(features))
    around(BaseRows, "__init__", before=watching, replace=monkeypatch.setattr)
    return held


@pytest.mark.parametrize("rows", [1000, 3000])
def test_weights_are_the_same_with_features_written_down_and_without(rows, held, monkeypatch):
    """Fitted, calibrated and told of; without, no more than one row's features are held."""
    given = drawn_of(4000)
    written = weighed_of(*given, MADE(3000), rows)
    assert max(held) == 3000
    held.clear()
    monkeypatch.setattr(weighing, "_WRITTEN", 0)
    without = weighed_of(*given, MADE(3000), rows)
    assert max(held) == 1
    assert np.array_equal(without.chosen, written.chosen)
    assert without.log_weights == pytest.approx(written.log_weights, abs=1e-8)
    assert without.noise == pytest.approx(written.noise, rel=1e-6)
    of, of_written = (each.facts["measured"]["calibration"] for each in (without, written))
    assert of == pytest.approx(of_written)
