"""Stacked features: public norm bounds, parts, and rows that know nothing of each other."""

from dataclasses import replace

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.errors import SpecError
from dpiw.methods.weights.measured.features import PARTS, Ranges, Stack
from dpiw.methods.weights.measured.sums import UNIT, exact_sum
from tests.support.worlds import mixed, numbers, uniform_rows

EVERY = {"linear": 0.5, "squares": 0.2, "target": 0.7, "products": 0.4, "fourier": 1.0}
SCHEMAS = {
    "mixed": mixed(),
    "numeric": numbers(3, target=True),
    "no target": numbers(3),
    "36 numbers": numbers(36),
}


def shares_for(name):
    """Of every part that a schema can have."""
    return {part: EVERY[part] for part in EVERY if part != "target" or SCHEMAS[name].target}


def stack_of(schema, **shares):
    return Stack(schema=schema, shares=shares or EVERY, frequencies=11, omega_seed=5)


def corners(schema, rows, rng):
    """Rows at the bounds of every number, any level, missing where it may be."""
    interior = uniform_rows(schema, rows, rng)
    columns = {
        column.name: np.round(interior.columns[column.name])
        if column.is_numeric
        else interior.columns[column.name]
        for column in schema.released
    }
    return ScaledTable(columns, rows)


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
    tables = [uniform_rows(schema, 500, rng), corners(schema, 500, rng), greys(schema)]
    norms = np.linalg.norm(np.vstack([stack.matrix(table) for table in tables]), axis=1)
    assert norms.max() <= stack.norm * (1 + 1e-12)
    assert norms.max() >= 0.9 * stack.norm  # a corner meets it, but for unequal levels
    assert stack.matrix(tables[0]).shape == (500, stack.dimension)


def greys(schema):
    """Images of one grey, where every column is a pixel."""
    cells = {column.name: np.linspace(0.0, 1.0, 9) for column in schema.released}
    is_image = all(column.is_numeric for column in schema.released)
    return ScaledTable(cells, 9) if is_image else corners(schema, 9, np.random.default_rng(0))


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


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_sum_is_that_of_the_rows_rounded(name):
    """Two roads: a table of rounded waves and columns of the other parts, and whole rows."""
    schema = SCHEMAS[name]
    stack = stack_of(schema, **shares_for(name))
    rows = corners(schema, 1500, np.random.default_rng(7))
    expected = (np.rint(stack.matrix(rows) / UNIT) * UNIT).sum(axis=0)
    assert np.array_equal(exact_sum(stack, [rows], constant=0.0), expected)


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
        stack_of(numbers(1), linear=1.0, fourier=1.0),
        ranges=Ranges(bounds={"x0": (0.25, 0.3125)}),
    )
    cells = np.array([0.3, 1.7e308, -np.inf, np.inf, np.nan])
    total = exact_sum(stack, [ScaledTable({"x0": cells}, 5)], constant=0.5)
    assert total[-1] == 2.5
