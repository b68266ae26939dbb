"""The public discretisation: sizes follow from the schema, codes from one row each."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema.discretisation import CodeTable, Domain
from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.errors import SchemaError

EVERY_KIND = PublicSchema(
    name="every-kind",
    columns=(
        Column(name="id", role=ColumnRole.IDENTIFIER),
        Column(name="size", kind=ColumnKind.CONTINUOUS, lower=-2.0, upper=6.0),
        Column(name="age", kind=ColumnKind.INTEGER, lower=17, upper=90, nullable=True),
        Column(name="few", kind=ColumnKind.INTEGER, lower=1, upper=5),
        Column(name="gain", kind=ColumnKind.INTEGER, lower=0, upper=1000, cuts=(1, 10.5, 100)),
        Column(name="flag", kind=ColumnKind.BOOLEAN),
        Column(name="job", kind=ColumnKind.CATEGORICAL, levels=("a", "b", "c"), nullable=True),
        Column(name="grade", kind=ColumnKind.ORDINAL, levels=("low", "mid", "high")),
        Column(name="day", kind=ColumnKind.DATE, lower="2020-01-01", upper="2020-12-31", bins=12),
        Column(name="time", kind=ColumnKind.DATETIME, lower="2020-01-01", upper="2020-01-02",
               bins=3),
    ),
)  # fmt: skip
SIZES = (8, 9, 5, 4, 2, 4, 3, 12, 3)
DOMAIN = Domain.from_schema(EVERY_KIND, bins=8)


def test_sizes_follow_from_the_schema_alone() -> None:
    # 8 bins by default; age has 8 and a missing code; `few` has no more bins than values; `gain`
    # has its cuts; job has a missing code; the identifier has nothing.
    assert DOMAIN.sizes == SIZES


def test_bins_of_whole_numbers_hold_their_lower_edge() -> None:
    gains = [0, 1, 10, 11, 99, 100, 1000]
    frame = _frame(len(gains)).assign(gain=gains)
    codes = DOMAIN.codes(EVERY_KIND.scale(frame))
    assert codes[:, 3].tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_bins_of_a_continuous_column_are_equal_and_closed_above() -> None:
    sizes = [-2.0, -1.001, -1.0, 0.0, 5.999, 6.0]
    frame = _frame(len(sizes)).assign(size=sizes)
    codes = DOMAIN.codes(EVERY_KIND.scale(frame))
    assert codes[:, 0].tolist() == [0, 0, 1, 2, 7, 7]


def _frame(rows: int) -> pd.DataFrame:
    row = {"size": 0.0, "age": 30, "few": 3, "gain": 0, "flag": True, "job": "a", "grade": "mid",
           "day": "2020-06-01", "time": "2020-01-01T12:00:00"}  # fmt: skip
    return pd.DataFrame([row] * rows)


def test_missing_is_the_last_code_where_nullable() -> None:
    frame = _frame(2).assign(age=[None, 20], job=["unheard of", "c"])
    codes = DOMAIN.codes(EVERY_KIND.scale(frame))
    assert codes[0, 1] == 8
    assert codes[0, 5] == 3
    assert codes[1].tolist()[5] == 2
    filled = DOMAIN.fill(codes, rng=np.random.default_rng(0))
    assert np.isnan(filled.columns["age"][0])
    assert filled.columns["job"].tolist() == [-1, 2]


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(value=st.floats(allow_nan=True, allow_infinity=True), level=st.integers(-5, 50))
def test_codes_are_total(value: float, level: int) -> None:
    """Whatever stands in a scaled table, its code is inside the domain: a marginal cannot leak."""
    columns = {
        column.name: np.array([value]) if column.is_numeric else np.array([level], dtype=np.int32)
        for column in EVERY_KIND.released
    }
    codes = DOMAIN.codes(ScaledTable(columns=columns, rows=1))
    assert np.all(codes >= 0)
    assert np.all(codes < np.array(DOMAIN.sizes))


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), bins=st.integers(1, 40))
def test_codes_survive_fill(seed: int, bins: int) -> None:
    domain = Domain.from_schema(EVERY_KIND, bins=bins)
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, size, 50) for size in domain.sizes]).astype(np.int32)
    filled = domain.fill(codes, rng=rng)
    assert np.array_equal(domain.codes(filled), codes)
    for column in EVERY_KIND.released:
        values = filled.columns[column.name]
        if column.is_numeric:
            present = values[~np.isnan(values)]
            assert present.min(initial=0) >= 0
            assert present.max(initial=0) <= 1


def test_fill_is_uniform_over_a_bins_whole_numbers() -> None:
    codes = np.zeros((9000, len(SIZES)), dtype=np.int32)
    codes[:, 3] = 1
    filled = DOMAIN.fill(codes, rng=np.random.default_rng(3))
    gains = np.rint(filled.columns["gain"] * 1000).astype(int)
    counts = np.bincount(gains, minlength=11)
    assert counts[0] == 0
    # Ten equal cells of 900, sd 28.5: five of them on either side; false alarm below 1e-5.
    assert np.all(np.abs(counts[1:11] - 900) < 143)
    assert counts.sum() == counts[1:11].sum()


@pytest.mark.parametrize("bins", [0, -1, (1 << 20) + 1])
def test_inadmissible_bins_are_refused(bins: int) -> None:
    with pytest.raises(SchemaError, match="bins="):
        Domain.from_schema(EVERY_KIND, bins=bins)


KINDS = {
    "plain": Column(name="c", kind=ColumnKind.CONTINUOUS, lower=-3.0, upper=5.0),
    "nullable": Column(name="c", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True),
    "cuts": Column(name="c", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0,
                   cuts=(1e-9, 0.1, 0.1 + 1e-12, 0.1001, 0.5, 1 - 1e-12)),
    "whole": Column(name="c", kind=ColumnKind.INTEGER, lower=-7, upper=93),
    "wide": Column(name="c", kind=ColumnKind.INTEGER, lower=0, upper=10**9, nullable=True),
    "dates": Column(name="c", kind=ColumnKind.DATE, lower="1930-01-01", upper="2010-01-01"),
    "levels": Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a", "b", "c")),
    "missing": Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a", "b"), nullable=True),
}  # fmt: skip


def assert_same(column: Column, values: np.ndarray, bins: int) -> None:
    schema = PublicSchema(name="one", columns=(column,))
    domain = Domain.from_schema(schema, bins=bins)
    rows = ScaledTable({"c": values}, values.size)
    (line,) = CodeTable(domain=domain, columns=(0,)).lines(rows)
    assert np.array_equal(line, domain.codes(rows)[:, 0])


@pytest.mark.parametrize("bins", [1, 2, 7, 32, 64, 1000])
@pytest.mark.parametrize("name", KINDS)
def test_codes_change_at_the_same_numbers(name: str, bins: int) -> None:
    """At every edge, at every cell's end, next to both, beyond the box, and where none is."""
    column = KINDS[name]
    if not column.is_numeric:
        assert_same(column, np.array([-1, 0, 1, 2, 3, -5, 900], dtype=np.int32), bins)
        return
    domain = Domain.from_schema(PublicSchema(name="one", columns=(column,)), bins=bins)
    (held,) = domain.columns
    span = held.span or 1
    edges = np.concatenate([held.edges / span, (held.edges - 0.5) / span, np.arange(257) / 256])
    near = [edges, np.nextafter(edges, -9.0), np.nextafter(edges, 9.0)]
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e300, -0.3, 1.3])
    assert_same(column, np.concatenate([*near, odd, np.random.default_rng(1).random(500)]), bins)
