"""Ranges of columns of numbers: public rows tell them, features keep their norm within them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import ReleaseError
from dpiw.methods.weights.measured.features import PARTS, Ranges, Stack
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.sums import LOUD
from dpiw.methods.weights.measured.weighing import stack_of, weigh_measured
from dpiw.privacy.randomness import SeededNoise
from tests.proof.adversary import extreme_rows
from tests.support.worlds import UNIT


@pytest.fixture
def rng():
    return np.random.default_rng(20261124)


SCHEMA = PublicSchema.from_mapping({
    "name": "ranges",
    "columns": [
        {"name": "a", "kind": "continuous", "lower": 0, "upper": 1},
        {"name": "b", "kind": "continuous", "lower": 0, "upper": 1, "nullable": True},
        {"name": "g", "kind": "categorical", "levels": ["p", "q"]},
    ],
})  # fmt: skip


def rows_of(a, b):
    first = np.asarray(a, dtype=np.float64)
    second = np.broadcast_to(np.asarray(b, dtype=np.float64), first.shape).copy()
    return ScaledTable({"a": first, "b": second, "g": np.zeros(first.size, np.int32)}, first.size)


def public(a, b):
    return SyntheticTable(schema=SCHEMA, scaled=rows_of(a, b))


def test_a_range_is_three_deviations_about_the_mean_inside_the_bounds(rng):
    a, b = rng.normal(0.3, 0.02, 20_000), np.full(20_000, np.nan)
    bounds = Ranges.of(public(np.clip(a, 0, 1), b)).bounds
    assert bounds.keys() == {"a"}  # of a column without a value nothing is known
    assert bounds["a"] == pytest.approx((0.24, 0.36), abs=0.002)
    low, high = Ranges.of(public(rng.random(20_000) * 0.1, 0.5)).bounds["a"]
    assert low == 0.0
    assert high == pytest.approx(0.05 + 3 * 0.1 / np.sqrt(12), abs=0.002)


def test_one_value_alone_leaves_room_and_rows_that_fill_their_bounds_have_no_range(rng):
    bounds = Ranges.of(public([0.5] * 100, 1.0)).bounds
    assert bounds == {"a": (0.5 - 1 / 32, 0.5 + 1 / 32), "b": (1 - 1 / 16, 1.0)}
    assert Ranges.of(public(rng.random(1000), rng.random(1000))).bounds == {}
    assert Ranges.of(public([], [])).bounds == {}


def test_a_value_beyond_a_range_counts_as_its_end():
    ranges = Ranges(bounds={"a": (0.25, 0.5), "b": (0.0, 0.5)})
    moved = ranges.within(rows_of([0.0, 0.25, 0.375, 0.5, 0.9], [np.nan, 0.25, 0.5, 1.0, 0.0]))
    assert moved.columns["a"].tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
    np.testing.assert_array_equal(moved.columns["b"], [np.nan, 0.5, 1.0, 1.0, 0.0])


@settings(derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.9), st.floats(0.001, 0.1))
def test_the_norm_bound_holds_within_any_range(seed, low, width):
    rows = extreme_rows(SCHEMA, 60, np.random.default_rng(seed))
    ranges = Ranges(bounds={"a": (low, low + width)})
    shares = dict.fromkeys(PARTS, 1.0)
    stack = Stack(schema=SCHEMA, shares=shares, frequencies=5, ranges=ranges)
    matrix = stack.matrix(rows)
    assert np.linalg.norm(matrix, axis=1).max() <= stack.norm * (1 + 1e-12)
    order = np.random.default_rng(seed).permutation(rows.rows)
    assert stack.matrix(rows.take(order)).tobytes() == matrix[order].tobytes()


def test_json_is_read_back_and_nonsense_is_refused():
    ranges = Ranges(bounds={"a": (0.1, 0.30000000000000004)})
    assert Ranges.from_json(ranges.to_json(), SCHEMA) == ranges
    for stated in (
        {"g": [0, 1]}, {"z": [0, 1]}, {"a": [0.5, 0.5]}, {"a": [-0.1, 1]}, {"a": [0, float("nan")]},
        {"a": [0]}, {"a": 1}, [], None, {"a": ["x", 1]}, {"a": [0, 5e-324]}, {"a": "01"},
        {"a": [False, True]}, {"a": [0, 10**400]}, {"a": [0.5, 0.55]},
    ):  # fmt: skip
        with pytest.raises(ReleaseError):
            Ranges.from_json(stated, SCHEMA)


def test_a_sum_keeps_the_ranges_of_the_rows_it_was_drawn_beside(rng):
    """Other public rows, drawn anew after a sum was paid for, change nothing."""
    estimator = Measured(omega_seed=1).calibrate(
        rho=0.5, schema=SCHEMA, unit=UNIT, nominal_rows=500
    )
    table = PrivateTable(schema=SCHEMA, scaled=rows_of(rng.random(500) * 0.2, 0.5))
    beside = public(rng.random(500) * 0.2, 0.5)
    drawn = estimator.for_rows(beside).measure(table, beside, noise=SeededNoise(1))
    assert drawn.facts["ranges"] == Ranges.of(beside).to_json() != {}
    assert stack_of(estimator, drawn, SCHEMA).ranges == Ranges.of(beside)
    before = replace(drawn, facts=estimator._facts())  # of a version without ranges
    assert stack_of(estimator, before, SCHEMA).ranges == Ranges(bounds={})


@pytest.mark.parametrize("beyond", [0.99, 1.01])
def test_where_the_noise_is_loud_features_keep_the_bounds_and_products_their_credit(rng, beyond):
    """A narrow range, or a low credit of products, would fit what is mostly noise."""
    map_ = {"numbers": 1.0, "fourier": 1.0}

    def at(rho):
        estimator = Measured(omega_seed=1, features=map_, base_rows=2000)
        return estimator.calibrate(rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=500)

    share = at(0.5).calibrated.share
    estimator = at(0.5 * share / (LOUD * beyond))  # the squared noise goes as 1/rho
    assert estimator.calibrated.share == pytest.approx(LOUD * beyond)
    loud = estimator.calibrated.is_loud
    assert loud is (beyond > 1)
    beside = public(rng.random(2000) * 0.2, rng.random(2000) * 0.2)
    informed = estimator.for_rows(beside)
    assert (informed.ranges is None) is loud
    near = np.clip(rng.normal(0.1, 0.05, 500), 0, 1)
    table = PrivateTable(schema=SCHEMA, scaled=rows_of(near, near))
    drawn = informed.measure(table, beside, noise=SeededNoise(1))
    facts = weigh_measured(informed, drawn, beside, rows=500, rng=rng).facts["measured"]
    assert (facts["ranges"] == {}) is loud
    assert (facts["pairs_credit"] == facts["credit"]) is loud
