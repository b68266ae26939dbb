"""Tiltings without a feature matrix are those with one."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import WeightError
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.measured import scoring as scoring_module
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.features import PARTS, Stack, all_features
from dpiw.methods.weights.measured.many_rows import StreamedRows
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.scoring import Scoring
from tests.support.columns import COLUMNS
from tests.support.worlds import levels, mixed, numbers, uniform_rows

SCHEMAS = {
    "mixed": mixed(), "numeric": numbers(3, target=True), "one number": numbers(1),
    "no target": numbers(3), "labels": levels(4, 4, target=1, nullable=True),
    "whole": PublicSchema(name="whole", columns=COLUMNS[2:12]), "25 numbers": numbers(25),
}  # fmt: skip


def choices(name):
    """All sets of the parts that a schema has a feature of."""
    schema = SCHEMAS[name]
    numbers = sum(column.is_numeric for column in schema.released)
    is_there = {
        "squares": numbers > 0, "target": schema.target is not None, "numbers": numbers > 1,
        "products": name != "one number",
    }  # fmt: skip
    parts = [part for part in PARTS if is_there.get(part, True)]
    return [*chain.from_iterable(combinations(parts, size + 1) for size in range(len(parts)))]


def stack_of(name, parts, *, narrow=False, count=7):
    schema = SCHEMAS[name]
    numbers = [column.name for column in schema.released if column.is_numeric]
    ranges = Ranges(bounds=dict.fromkeys(numbers[::2], (0.25, 0.75)))
    return Stack(
        schema=schema, shares={part: 0.2 + 0.1 * i for i, part in enumerate(parts)},
        frequencies=count, omega_seed=5, ranges=ranges if narrow else None,
    )  # fmt: skip


def law_of(name, *, every=True):
    columns = tuple(range(0, len(SCHEMAS[name].released), 1 if every else 2))
    return OneWayLaw(
        schema=SCHEMAS[name], bins=5, columns=columns, variances=(1.0,) * len(columns),
        total_variance=1.0,
    )  # fmt: skip


def dense(scoring, rows, **options):
    """With a feature matrix."""
    return BaseRows(all_features(scoring.stack, scoring.known, rows), **options)


def streamed(scoring, rows, **options):
    return StreamedRows(rows.rows, lambda: rows.batches(30_000), scoring, **options)


def tiltings(scoring, rows, theta, *, log_weights=None):
    """With features, and without."""
    made = (make(scoring, rows, log_weights=log_weights) for make in (dense, streamed))
    return tuple(each.tilted(theta) for each in made)


def assert_alike(dense, without, *, score=1.0):
    """But for rounding, which is that of the largest score."""
    tolerance = 1e-11 + 1e-13 * score
    assert without[0] == pytest.approx(dense[0], rel=1e-11, abs=tolerance)
    assert without[1] == pytest.approx(dense[1], rel=1e-11, abs=tolerance)
    assert without[2] == pytest.approx(dense[2], rel=1e-11, abs=tolerance)


@pytest.mark.parametrize("rows", [511, 512, 513, 1536, 16_384, 16_385])
def test_waves_are_put_together(rows):
    """Of few rows each, with scores so far apart that a sum is no use beside another's.

    Some rows more or fewer than are read at once, and than a block has.
    """
    rng = np.random.default_rng(3)
    waved = Scoring(stack=stack_of("numeric", ("linear", "fourier")))
    assert (scoring_module._FEW, waved.rows) == (512, 16_384)
    table = uniform_rows(SCHEMAS["numeric"], rows, rng)
    table.columns["x0"].sort()
    theta = rng.normal(size=waved.stack.dimension)
    for slope in (1e4, -1e4):
        theta[0] = slope
        assert_alike(*tiltings(waved, table, theta), score=1e4)
    assert_alike(*tiltings(waved, table.take([rows - 1]), theta), score=1e4)


@settings(deadline=None)
@given(
    name=st.sampled_from([*SCHEMAS]), data=st.data(), seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 40), count=st.integers(1, 20), narrow=st.booleans(),
    size=st.sampled_from([0.0, 1e-6, 0.1, 1.0, 30.0, 1e3]),
    marginals=st.sampled_from([None, True, False]), has_weights=st.booleans(),
)  # fmt: skip
@pytest.mark.slow
def test_any_stack_and_any_theta(
    name, data, seed, rows, count, narrow, size, marginals, has_weights
):  # fmt: skip
    """Scores up to a size; rows with weights of their own, and marginals of all columns or some."""
    rng = np.random.default_rng(seed)
    stack = stack_of(name, data.draw(st.sampled_from(choices(name))), narrow=narrow, count=count)
    known = None if marginals is None else law_of(name, every=marginals)
    table = uniform_rows(SCHEMAS[name], rows, rng)
    theta = rng.normal(size=all_features(stack, known, table).shape[1])
    largest = float(np.abs(all_features(stack, known, table) @ theta).max())
    theta *= size / max(largest, 1e-9)
    logs = rng.normal(size=rows)
    logs = logs - np.log(np.exp(logs).mean()) if has_weights else None
    scoring = Scoring(stack=stack, known=known)
    assert_alike(*tiltings(scoring, table, theta, log_weights=logs), score=size)


def test_a_wrong_order_is_seen():
    """The control: cosines and sines beside each other, or one code's coefficient for the next."""
    rng = np.random.default_rng(4)
    known = law_of("mixed")
    scoring = Scoring(stack=stack_of("mixed", ("fourier",)), known=known)
    rows = uniform_rows(SCHEMAS["mixed"], 100, rng)
    theta = rng.normal(size=scoring.stack.dimension + known.dimension)
    right, _ = tiltings(scoring, rows, theta)
    swapped, shifted = theta.copy(), theta.copy()
    swapped[: scoring.stack.dimension] = theta[: scoring.stack.dimension].reshape(2, -1).T.ravel()
    shifted[scoring.stack.dimension :] = np.roll(theta[scoring.stack.dimension :], 1)
    for wrong in (swapped, shifted):
        _, tilting = tiltings(scoring, rows, wrong)
        assert np.abs(tilting[0] - right[0]).max() > 0.1
        assert np.abs(tilting[2] - right[2]).max() > 0.01


@pytest.mark.parametrize("parts", [("linear",), ("squares",), ("products", "fourier")])
def test_what_is_not_finite_is_refused(parts):
    """Also where theta is zero; and a cell that all features see within bounds is none."""
    scoring = Scoring(stack=stack_of("25 numbers", parts))
    rows = uniform_rows(SCHEMAS["25 numbers"], 20, np.random.default_rng(5))
    theta = np.zeros(scoring.stack.dimension)
    with pytest.raises(WeightError):
        streamed(scoring, rows).tilted(theta * np.nan)
    rows.columns["x0"][13] = np.inf
    for make in (dense, streamed):
        with pytest.raises(WeightError):
            make(scoring, rows).tilted(theta)
    waves = Scoring(stack=stack_of("25 numbers", ("fourier",)))
    assert_alike(*tiltings(waves, rows, np.ones(waves.stack.dimension)))


def test_codes_are_those_of_the_domain_one_column_after_the_other():
    """What in rows may be rare: levels, and codes of known marginals; no code is of two columns."""
    schema = SCHEMAS["mixed"]
    rows = uniform_rows(schema, 500, np.random.default_rng(1))
    numeric = [j for j, column in enumerate(schema.released) if column.is_numeric]
    labels = [j for j, column in enumerate(schema.released) if not column.is_numeric]
    law = OneWayLaw(
        schema=schema, bins=7, columns=(numeric[0],), variances=(1.0,), total_variance=0.0
    )
    for known, columns, bins in ((None, labels, 3), (law, sorted([numeric[0], *labels]), 7)):
        domain = Domain.from_schema(schema, bins=bins)
        found = Scoring(stack=stack_of("mixed", ("fourier",)), known=known).codes(rows)
        starts = np.cumsum([0, *(domain.sizes[j] for j in columns)])[:, None]
        assert np.array_equal(found - starts[:-1], domain.codes(rows)[:, columns].T)
        assert np.all((starts[:-1] <= found) & (found < starts[1:]))
