"""The public discretisation: sizes follow from the schema, codes from one row each."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.discretisation import Domain
from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
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
        Column(
            name="time",
            kind=ColumnKind.DATETIME,
            lower="2020-01-01T00:00:00",
            upper="2020-01-02T00:00:00",
            bins=3,
        ),
    ),
)
SIZES = (8, 9, 5, 4, 2, 4, 3, 12, 3)


def test_sizes_follow_from_the_schema_alone() -> None:
    # 8 bins by default; age has 8 and a missing code; `few` has no more bins than values; `gain`
    # has its cuts; job has a missing code; the identifier has nothing.
    assert Domain.from_schema(EVERY_KIND, bins=8).sizes == SIZES


def test_bins_of_whole_numbers_hold_their_lower_edge() -> None:
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    gains = [0, 1, 10, 11, 99, 100, 1000]
    frame = _frame(len(gains)).assign(gain=gains)
    codes = domain.codes(EVERY_KIND.scale(frame))
    assert codes[:, 3].tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_bins_of_a_continuous_column_are_equal_and_closed_above() -> None:
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    sizes = [-2.0, -1.001, -1.0, 0.0, 5.999, 6.0]
    frame = _frame(len(sizes)).assign(size=sizes)
    codes = domain.codes(EVERY_KIND.scale(frame))
    assert codes[:, 0].tolist() == [0, 0, 1, 2, 7, 7]


def _frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "size": [0.0] * rows,
            "age": [30] * rows,
            "few": [3] * rows,
            "gain": [0] * rows,
            "flag": [True] * rows,
            "job": ["a"] * rows,
            "grade": ["mid"] * rows,
            "day": ["2020-06-01"] * rows,
            "time": ["2020-01-01T12:00:00"] * rows,
        }
    )


def test_missing_is_the_last_code_where_nullable() -> None:
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    frame = _frame(2).assign(age=[None, 20], job=["unheard of", "c"])
    codes = domain.codes(EVERY_KIND.scale(frame))
    assert codes[0, 1] == 8
    assert codes[0, 5] == 3
    assert codes[1].tolist()[5] == 2
    filled = domain.fill(codes, rng=np.random.default_rng(0))
    assert np.isnan(filled.columns["age"][0])
    assert filled.columns["job"].tolist() == [-1, 2]


@settings(derandomize=True, database=None, deadline=None)
@given(value=st.floats(allow_nan=True, allow_infinity=True), level=st.integers(-5, 50))
def test_codes_are_total(value: float, level: int) -> None:
    """Whatever stands in a scaled table, its code is inside the domain: a marginal cannot leak."""
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    columns = {
        column.name: np.array([value]) if column.is_numeric else np.array([level], dtype=np.int32)
        for column in EVERY_KIND.released
    }
    codes = domain.codes(ScaledTable(columns=columns, rows=1))
    assert np.all(codes >= 0)
    assert np.all(codes < np.array(domain.sizes))


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
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    codes = np.zeros((9000, len(SIZES)), dtype=np.int32)
    codes[:, 3] = 1
    filled = domain.fill(codes, rng=np.random.default_rng(3))
    gains = np.rint(filled.columns["gain"] * 1000).astype(int)
    counts = np.bincount(gains, minlength=11)
    assert counts[0] == 0
    # Ten equal cells of 900, sd 28.5: five of them on either side; false alarm below 1e-5.
    assert np.all(np.abs(counts[1:11] - 900) < 143)
    assert counts.sum() == counts[1:11].sum()


def test_fill_returns_the_same_values_for_the_same_state() -> None:
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    codes = np.zeros((20, len(SIZES)), dtype=np.int32)
    one, two, other = (
        domain.fill(codes, rng=np.random.default_rng(seed)).columns["size"] for seed in (1, 1, 2)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_codes_are_row_local() -> None:
    domain = Domain.from_schema(EVERY_KIND, bins=8)
    rng = np.random.default_rng(5)
    codes = np.column_stack([rng.integers(0, size, 30) for size in domain.sizes]).astype(np.int32)
    scaled = domain.fill(codes, rng=rng)
    order = rng.permutation(30)[:17]
    assert np.array_equal(domain.codes(scaled.take(order)), domain.codes(scaled)[order])


@pytest.mark.parametrize("bins", [0, -1, (1 << 20) + 1])
def test_inadmissible_bins_are_refused(bins: int) -> None:
    with pytest.raises(SchemaError, match="bins="):
        Domain.from_schema(EVERY_KIND, bins=bins)
