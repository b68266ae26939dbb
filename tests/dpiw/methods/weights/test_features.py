"""Random features: norm bounds, exact sums and phases, ranges."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data import threads
from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import ReleaseError, SpecError, WeightError
from dpiw.methods.weights.measured import sums as feature_sum
from dpiw.methods.weights.measured.features import PARTS, Stack
from dpiw.methods.weights.measured.fourier import STEPS, Waves, public_normals
from dpiw.methods.weights.measured.halves import cuts_of
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.sums import LOUD, exact_sum
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.privacy.randomness import SeededNoise
from tests.proof.neighbours import extreme_rows
from tests.support.worlds import UNIT, declared, mixed, numbers, uniform_rows

EVERY = {"linear": 0.5, "squares": 0.2, "target": 0.7, "products": 0.4, "fourier": 1.0}
SCHEMAS = {
    "mixed": mixed(), "numeric": numbers(3, target=True), "no target": numbers(3),
    "36 numbers": numbers(36),
}  # fmt: skip


def shares_for(name):
    return {part: EVERY[part] for part in EVERY if part != "target" or SCHEMAS[name].target}


def stack_of(schema, **shares):
    return Stack(schema=schema, shares=shares or EVERY, frequencies=11, omega_seed=5)


@pytest.mark.parametrize("part", [*PARTS, "all"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_the_norm_bound_holds_and_is_met(name, part):
    schema = SCHEMAS[name]
    if part == "target" and schema.target is None:
        with pytest.raises(SpecError, match="none that this schema has"):
            stack_of(schema, **{part: 1.0})
        return
    shares = shares_for(name) if part == "all" else {part: 0.8}
    stack, rng = stack_of(schema, **shares), np.random.default_rng(1)
    tables = [uniform_rows(schema, 500, rng), extreme_rows(schema, 500, rng)]
    if name == "36 numbers":
        greys = {column.name: np.linspace(0.0, 1.0, 9) for column in schema.released}
        tables.append(ScaledTable(greys, 9))
    norms = np.linalg.norm(np.vstack([stack.matrix(table) for table in tables]), axis=1)
    assert norms.max() <= stack.norm * (1 + 1e-12)
    assert norms.max() >= 0.9 * stack.norm  # a corner meets it, but for unequal levels
    assert stack.matrix(tables[0]).shape == (500, stack.dimension)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_row_s_features_are_of_that_row_alone_to_the_last_bit(name):
    schema, rng = SCHEMAS[name], np.random.default_rng(3)
    stack, rows = stack_of(schema, **shares_for(name)), uniform_rows(schema, 257, rng)
    whole = stack.matrix(rows)
    order = rng.permutation(rows.rows)
    assert np.array_equal(stack.matrix(rows.take(order)), whole[order])
    for start, stop in ((0, 1), (5, 6), (100, 131), (256, 257)):
        alone = stack.matrix(rows.take(np.arange(start, stop)))
        assert np.array_equal(alone, whole[start:stop])


def test_target_products_are_some_of_all_products():
    schema, rng = numbers(3, target=True), np.random.default_rng(4)
    rows = uniform_rows(schema, 20, rng)
    target_products = stack_of(schema, target=1.0).matrix(rows)
    every = stack_of(schema, products=1.0).matrix(rows)
    assert target_products.shape[1] == 2
    assert every.shape[1] == 3
    u = schema.centred(rows)
    assert target_products == pytest.approx(u[:, :2] * u[:, 2:] / np.sqrt(2 / 16))


@pytest.mark.parametrize("shares", [{}, {"waves": 1.0}, {"linear": 0.0}])
def test_unknown_or_empty_parts_are_refused(shares):
    with pytest.raises(SpecError, match="features: expected parts among linear, squares"):
        Stack(schema=numbers(2), shares=shares)


def test_a_row_that_is_too_long_with_its_waves_adds_nothing_at_all():
    """Its other features alone are within the stack's norm; its count is added."""
    stack = stack_of(numbers(1), linear=1.0, fourier=1.0)
    cells = np.array([0.25, 1.1, 1.0])  # linear features -0.5, 1.2 and 1; the norm is sqrt(2)
    long_row, others = ScaledTable({"x0": cells}, 3), ScaledTable({"x0": cells[[0, 2]]}, 2)
    assert np.array_equal(
        exact_sum(stack, [long_row], constant=0.0), exact_sum(stack, [others], constant=0.0)
    )
    assert exact_sum(stack, [long_row], constant=0.5)[-1] == 1.5


def test_nothing_is_said_of_a_row_outside_the_box():
    """A warning would tell that a confidential table holds one; pytest makes it an error."""
    stack = replace(
        stack_of(numbers(1), linear=1.0, fourier=1.0), ranges=Ranges(bounds={"x0": (0.25, 0.3125)})
    )
    cells = np.array([0.3, 1.7e308, -np.inf, np.inf, np.nan])
    total = exact_sum(stack, [ScaledTable({"x0": cells}, 5)], constant=0.5)
    assert total[-1] == 2.5


WAVE_SCHEMAS = {"mixed": mixed(), "numeric": numbers(3), "wide": numbers(60)}
SCALES = {
    "usual": (1.0, 3.0), "huge": (1e3,), "tiny": (1e-9,),
    "many turns": (1e5,), "beyond": (1e6,),
}  # fmt: skip


def waves_of(schema, scales=(1.0,)):
    return Waves(schema=schema, frequencies=7, scales=scales, omega_seed=5)


def matrix_of(waves, rows):
    """All cosines, then all sines."""
    features = np.empty((rows.rows, 2 * waves.frequencies))
    waves.write(rows, features)
    return features


def test_public_numbers_stay_what_they_are():
    """Golden, of 23 November 2026: a certificate names the seed alone."""
    own = [1.5147188938140126, 0.4639570164544394, 1.8249816080617016]
    np.testing.assert_allclose(public_normals(1, 3), own, rtol=1e-12)


def phases_of(waves, rows):
    """Of each row and frequency, in rational numbers, of the same cells and tables."""
    cells, codes = waves._cells(rows), waves._codes(rows)
    phases = []
    for i, j in product(range(rows.rows), range(waves.frequencies)):
        numbers = zip(cells[:, i], waves._numbers[:, j], strict=True)
        levels = zip(codes, waves._levels, strict=True)
        phase = sum((Fraction(cell) * Fraction(step) for cell, step in numbers), Fraction(0))
        phases.append(sum((Fraction(table[indices[i], j]) for indices, table in levels), phase))
    return phases


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("name", WAVE_SCHEMAS)
def test_phases_are_exact_in_every_order(name, scales):
    waves, rng = waves_of(WAVE_SCHEMAS[name], SCALES[scales]), np.random.default_rng(1)
    rows = uniform_rows(WAVE_SCHEMAS[name], 6, rng)
    exact = phases_of(waves, rows)
    rounded = np.array([float(phase) for phase in exact])
    assert list(map(Fraction, rounded)) == exact
    rounded = rounded.reshape(rows.rows, -1)
    cells, numbers = waves._cells(rows), waves._numbers
    for order in (np.arange(len(numbers)), rng.permutation(len(numbers))):
        phases = np.zeros_like(rounded)
        for j in order:
            phases += cells[j][:, None] * numbers[j]
        for indices, table in zip(waves._codes(rows), waves._levels, strict=True):
            phases += table[indices]
        assert np.array_equal(phases, rounded)
    # The offset is every phase's highest bit, by which the others are found.
    assert waves._offset <= rounded.min() <= rounded.max() < 2 * waves._offset
    place = rounded.astype(np.int64) % STEPS
    read = np.hstack([waves._circle[place, 0], waves._circle[place, 1]])
    assert np.array_equal(matrix_of(waves, rows), read)


@pytest.mark.parametrize("name", WAVE_SCHEMAS)
def test_they_are_the_cosines_and_sines_to_one_step(name):
    schema, rng = WAVE_SCHEMAS[name], np.random.default_rng(2)
    rows = uniform_rows(schema, 300, rng)
    waves = waves_of(schema, (2.0,))
    angle = schema.centred(rows) @ waves.omega
    expected = np.hstack([np.cos(angle), np.sin(angle)]) / np.sqrt(7)
    assert np.abs(matrix_of(waves, rows) - expected).max() <= np.pi / STEPS / np.sqrt(7) * 1.01


def test_no_row_is_longer_than_one():
    """Cells that no schema's box holds are moved into it, codes to the last level."""
    schema = PublicSchema(
        name="odd",
        columns=(
            Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True),
            Column(name="k", kind=ColumnKind.CATEGORICAL, levels=("a", "b")),
        ),
    )
    cells = {
        "x": np.array([np.nan, np.inf, -np.inf, 1e300, -3.0, 0.5]),
        "k": np.array([0, 1, -1, 7, 2, 1]),
    }
    matrix = matrix_of(waves_of(schema), ScaledTable(cells, 6))
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(np.ones(6), abs=1e-12)


def two_labels(**nullable):
    """Two columns of 15 levels, which share a table."""
    levels = tuple(f"l{i}" for i in range(15))
    kind = ColumnKind.CATEGORICAL
    return PublicSchema(
        name="codes",
        columns=tuple(
            Column(name=name, kind=kind, levels=levels, nullable=nullable.get(name, False))
            for name in ("a", "b")
        ),
    )


@pytest.mark.parametrize("narrow", [np.int8, np.uint8, np.int16, np.int32, np.uint64])
def test_codes_of_any_width_read_the_same_lines(narrow):
    """Lines of a table that columns share go beyond what a byte holds."""
    waves = waves_of(two_labels())
    rows = uniform_rows(two_labels(), 500, np.random.default_rng(8))
    cells = {name: codes.astype(narrow) for name, codes in rows.columns.items()}
    assert len(waves._levels) == 1
    assert np.array_equal(matrix_of(waves, ScaledTable(cells, 500)), matrix_of(waves, rows))


@pytest.mark.parametrize("nullable", [{}, {"a": True}, {"b": True}, {"a": True, "b": True}])
def test_a_code_that_no_level_has_is_its_own_column_s_last(nullable):
    """It does not move another column's level, whose table it shares."""
    schema = two_labels(**nullable)
    assert len(waves_of(schema)._levels) == 1
    last = {name: 15 if nullable.get(name) else 14 for name in ("a", "b")}
    odd = {"a": np.array([-1, 99, 3, 3, -7, 2**40]), "b": np.array([4, 4, -1, 16, 700, -1])}
    even = {name: np.where((c < 0) | (c > 14), last[name], c) for name, c in odd.items()}
    matrices = [matrix_of(waves_of(schema), ScaledTable(cells, 6)) for cells in (odd, even)]
    assert np.array_equal(*matrices)


def test_threads_add_what_one_would(monkeypatch):
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 4)
    schema = WAVE_SCHEMAS["mixed"]
    stack = Stack(schema=schema, shares={"fourier": 1.0}, frequencies=150)
    rows = uniform_rows(schema, 3 * feature_sum._BLOCK, np.random.default_rng(5))
    alone = sum(feature_sum._block_sum(stack, part) for part in rows.batches(feature_sum._BLOCK))
    total = feature_sum.exact_sum(stack, [rows], constant=0.0)
    assert np.array_equal(total, alone * feature_sum.UNIT)


@pytest.mark.parametrize("largest", [1, 2**20, 2**29, 2**31 - 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_cosines_and_sines_are_added_in_one_integer_each(sign, largest):
    """However large they are: rows whose sines, or cosines, are all as large as they may be."""
    schema = WAVE_SCHEMAS["numeric"]
    waves = Waves(schema=schema, frequencies=1, scales=(1e-9,), omega_seed=5)  # no phase turns
    rows = uniform_rows(schema, 1200, np.random.default_rng(10))
    for pair in np.array([(largest, -largest), (1, largest), (largest, 1)], dtype=np.float64):
        pair *= sign
        vars(waves)["_circle"] = np.tile(pair, (STEPS, 1))
        total = waves.sum_in(rows, unit=2.0**-24, scale=2.0**-24)
        assert total.tolist() == [1200 * int(cell) for cell in pair]


def test_a_sum_in_units_is_of_the_rounded_features():
    schema, rng = WAVE_SCHEMAS["mixed"], np.random.default_rng(11)
    rows = uniform_rows(schema, 700, rng)
    for unit, scale in [(2.0**-24, 1.0), (2.0**-24, 90.0), (2.0**-3, 0.7), (1.0, 1e9)]:
        units = np.rint(scale * matrix_of(waves_of(schema), rows) / unit)
        exact = [sum(map(int, column)) for column in units.T]
        assert waves_of(schema).sum_in(rows, unit=unit, scale=scale).tolist() == exact


def test_what_no_integer_or_turn_holds_is_refused():
    """Features of more units than half an integer, and frequencies beyond any spec."""
    rows = uniform_rows(WAVE_SCHEMAS["mixed"], 3, np.random.default_rng(12))
    for scale in (6e9, 1e30, np.inf, np.nan):
        with np.errstate(invalid="ignore"), pytest.raises(WeightError):
            waves_of(WAVE_SCHEMAS["mixed"]).sum_in(rows, unit=1.0, scale=scale)
    with pytest.raises(SpecError, match="scales"):
        matrix_of(waves_of(WAVE_SCHEMAS["mixed"], (1e12,)), rows)


@pytest.fixture
def rng():
    return np.random.default_rng(20261124)


RANGED = declared(
    {"name": "a", "kind": "continuous", "lower": 0, "upper": 1},
    {"name": "b", "kind": "continuous", "lower": 0, "upper": 1, "nullable": True},
    {"name": "g", "kind": "categorical", "levels": ["p", "q"]},
    name="ranges",
)


def rows_of(a, b):
    first = np.asarray(a, dtype=np.float64)
    second = np.broadcast_to(np.asarray(b, dtype=np.float64), first.shape).copy()
    return ScaledTable({"a": first, "b": second, "g": np.zeros(first.size, np.int32)}, first.size)


def public(a, b):
    return SyntheticTable(schema=RANGED, scaled=rows_of(a, b))


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
@pytest.mark.slow
def test_the_norm_bound_holds_within_any_range(seed, low, width):
    rows = extreme_rows(RANGED, 60, np.random.default_rng(seed))
    ranges = Ranges(bounds={"a": (low, low + width)})
    shares = dict.fromkeys(PARTS, 1.0)
    stack = Stack(schema=RANGED, shares=shares, frequencies=5, ranges=ranges)
    matrix = stack.matrix(rows)
    assert np.linalg.norm(matrix, axis=1).max() <= stack.norm * (1 + 1e-12)
    order = np.random.default_rng(seed).permutation(rows.rows)
    assert stack.matrix(rows.take(order)).tobytes() == matrix[order].tobytes()


def test_json_is_read_back_and_nonsense_is_refused():
    ranges = Ranges(bounds={"a": (0.1, 0.30000000000000004)})
    assert Ranges.from_json(ranges.to_json(), RANGED) == ranges
    for stated in (
        {"g": [0, 1]}, {"z": [0, 1]}, {"a": [0.5, 0.5]}, {"a": [-0.1, 1]}, {"a": [0, float("nan")]},
        {"a": [0]}, {"a": 1}, [], None, {"a": ["x", 1]}, {"a": [0, 5e-324]}, {"a": "01"},
        {"a": [False, True]}, {"a": [0, 10**400]}, {"a": [0.5, 0.55]},
    ):  # fmt: skip
        with pytest.raises(ReleaseError):
            Ranges.from_json({"ranges": stated}, RANGED)
    cuts = cuts_of(np.linspace(0.1, 0.9, 999))
    halved = Ranges(bounds={}, cuts={"a": cuts})
    assert Ranges.from_json(halved.to_json(), RANGED) == halved
    for stated in (
        {"g": cuts}, {"a": cuts[:-1]}, {"a": cuts[::-1]}, {"a": (*cuts[:-1], 1.5)}, {"a": 1}, None,
        {"a": (float("nan"), *cuts[1:])}, {"a": (True,) * 127}, {"a": ("0.5",) * 127},
    ):  # fmt: skip
        with pytest.raises(ReleaseError):
            Ranges.from_json({"cuts": stated}, RANGED)


def test_a_sum_keeps_the_ranges_of_the_rows_it_was_drawn_beside(rng):
    """Other public rows, drawn anew after a sum was paid for, change nothing."""
    estimator = Measured(omega_seed=1).calibrate(
        rho=0.5, schema=RANGED, unit=UNIT, nominal_rows=500
    )
    table = PrivateTable(schema=RANGED, scaled=rows_of(rng.random(500) * 0.2, 0.5))
    beside = public(rng.random(500) * 0.2, 0.5)
    drawn = estimator.for_rows(beside).measure(table, beside, noise=SeededNoise(1))
    assert drawn.facts["ranges"] == Ranges.of(beside).to_json()["ranges"] != {}
    assert Ranges.from_json(drawn.facts, RANGED) == Ranges.of(beside)


@pytest.mark.parametrize("beyond", [0.99, 1.01])
@pytest.mark.slow
def test_where_the_noise_is_loud_features_keep_the_bounds_and_products_their_credit(rng, beyond):
    """A narrow range, or a low credit of products, would fit what is mostly noise."""
    map_ = {"numbers": 1.0, "fourier": 1.0}

    def at(rho):
        estimator = Measured(omega_seed=1, features=map_, base_rows=2000)
        return estimator.calibrate(rho=rho, schema=RANGED, unit=UNIT, nominal_rows=500)

    share = at(0.5).calibrated.share
    estimator = at(0.5 * share / (LOUD * beyond))  # the squared noise goes as 1/rho
    assert estimator.calibrated.share == pytest.approx(LOUD * beyond)
    loud = estimator.calibrated.is_loud
    assert loud is (beyond > 1)
    beside = public(rng.random(2000) * 0.2, rng.random(2000) * 0.2)
    informed = estimator.for_rows(beside)
    assert (informed.ranges is None) is loud
    near = np.clip(rng.normal(0.1, 0.05, 500), 0, 1)
    table = PrivateTable(schema=RANGED, scaled=rows_of(near, near))
    drawn = informed.measure(table, beside, noise=SeededNoise(1))
    facts = weigh_measured(informed, drawn, beside, rows=500, rng=rng).facts["measured"]
    assert (facts["ranges"] == {}) is loud
    assert (facts["pairs_credit"] == facts["credit"]) is loud
