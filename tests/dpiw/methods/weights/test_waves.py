"""Fourier features with exact phases: any order, any block, close to the cosines they stand for."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpiw.data import threads
from dpiw.data.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.measured import sums as feature_sum
from dpiw.methods.weights.measured.features import Stack
from dpiw.methods.weights.measured.fourier import STEPS, Waves, public_normals
from tests.support.worlds import mixed, numbers, uniform_rows

SCHEMAS = {"mixed": mixed(), "numeric": numbers(3), "wide": numbers(60)}
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
@pytest.mark.parametrize("name", SCHEMAS)
def test_phases_are_exact_in_every_order(name, scales):
    waves, rng = waves_of(SCHEMAS[name], SCALES[scales]), np.random.default_rng(1)
    rows = uniform_rows(SCHEMAS[name], 6, rng)
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


@pytest.mark.parametrize("name", SCHEMAS)
def test_they_are_the_cosines_and_sines_to_one_step(name):
    schema, rng = SCHEMAS[name], np.random.default_rng(2)
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


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("name", SCHEMAS)
def test_no_sum_of_terms_leaves_what_a_double_holds(name, scales):
    """At the box's corners, terms of either sign, in any order."""
    waves = waves_of(SCHEMAS[name], SCALES[scales])
    numbers = sum(block.numeric for block in waves._blocks)
    largest = np.abs(waves._numbers)
    largest[:numbers] /= 2  # cells less a half
    unit, cell = waves._unit, 2.0**-20
    assert (waves._numbers[:numbers] % (unit / cell) == 0).all()
    assert (waves._numbers[numbers:] % unit == 0).all()
    assert all((table % unit == 0).all() for table in waves._levels)
    levels = sum((np.abs(table).max(axis=0) for table in waves._levels), np.zeros(7))
    assert ((largest.sum(axis=0) + levels) / unit < 2**53).all()
    flags = largest[numbers:-1].sum(axis=0)
    least = waves._numbers[-1] - largest[:numbers].sum(axis=0) - levels - flags
    assert (least > 0).all()


def test_threads_add_what_one_would(monkeypatch):
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 4)
    schema = SCHEMAS["mixed"]
    stack = Stack(schema=schema, shares={"fourier": 1.0}, frequencies=150)
    rows = uniform_rows(schema, 3 * feature_sum._BLOCK, np.random.default_rng(5))
    alone = sum(feature_sum._block_sum(stack, part) for part in rows.batches(feature_sum._BLOCK))
    total = feature_sum.exact_sum(stack, [rows], constant=0.0)
    assert np.array_equal(total, alone * feature_sum.UNIT)


@pytest.mark.parametrize("largest", [1, 2**20, 2**29, 2**31 - 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_cosines_and_sines_are_added_in_one_integer_each(sign, largest):
    """However large they are: rows whose sines, or cosines, are all as large as they may be."""
    schema = SCHEMAS["numeric"]
    waves = Waves(schema=schema, frequencies=1, scales=(1e-9,), omega_seed=5)  # no phase turns
    rows = uniform_rows(schema, 1200, np.random.default_rng(10))
    for pair in np.array([(largest, -largest), (1, largest), (largest, 1)], dtype=np.float64):
        pair *= sign
        vars(waves)["_circle"] = np.tile(pair, (STEPS, 1))
        total = waves.sum_in(rows, unit=2.0**-24, scale=2.0**-24)
        assert total.tolist() == [1200 * int(cell) for cell in pair]


def test_a_sum_in_units_is_of_the_rounded_features():
    schema, rng = SCHEMAS["mixed"], np.random.default_rng(11)
    rows = uniform_rows(schema, 700, rng)
    for unit, scale in [(2.0**-24, 1.0), (2.0**-24, 90.0), (2.0**-3, 0.7), (1.0, 1e9)]:
        units = np.rint(scale * matrix_of(waves_of(schema), rows) / unit)
        exact = [sum(map(int, column)) for column in units.T]
        assert waves_of(schema).sum_in(rows, unit=unit, scale=scale).tolist() == exact


def test_what_no_integer_or_turn_holds_is_refused():
    """Features of more units than half an integer, and frequencies beyond any spec."""
    rows = uniform_rows(SCHEMAS["mixed"], 3, np.random.default_rng(12))
    for scale in (6e9, 1e30, np.inf, np.nan):
        with np.errstate(invalid="ignore"), pytest.raises(WeightError):
            waves_of(SCHEMAS["mixed"]).sum_in(rows, unit=1.0, scale=scale)
    with pytest.raises(SpecError, match="scales"):
        matrix_of(waves_of(SCHEMAS["mixed"], (1e12,)), rows)
