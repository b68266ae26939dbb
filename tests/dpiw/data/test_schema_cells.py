"""What a cell is read as, by its declared type alone: total and row-local."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpiw.errors import SourceError
from tests.dpiw.data.schema_example import PROPERTY, SCHEMA, cells_of, conforming_frame, one_column


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("12", 12), (" 12\t", 12), ("+7", 7), ("007", 7), ("3.7", 4), ("2.5", 2), ("3.0", 3),
        ("1e2", 100), (".5e1", 5), ("-5", 0), ("9" * 400, 120), ("-" + "9" * 400, 0),
        ("1e400", 120), ("-1e400", 0), ("1e-400", 0), ("1e99999999999999999999", 120),
        ("1e-99999999999999999999", 0), ("0e99999999999999999999", 0), ("inf", 120),
        ("-Infinity", 0), ("9223372036854775808", 120), ("18446744073709551616", 120),
        ("nan", None), ("", None), ("abc", None), ("1_000", None), ("1,5", None), ("0x10", None),
        ("=cmd|' /C calc'!A0", None), ("١٢", None), ("true", None), ("1e", None), (".", None),
        ("12\x00", None), (None, None), (pd.NA, None), (pd.NaT, None), (math.nan, None),
        (12, 12), (2**70, 120), (np.uint8(3), 3), (3.0, 3), (math.inf, 120),
        (-math.inf, 0), (1e300, 120), (Decimal("7.2"), 7), (Decimal("NaN"), None),
        (Decimal("sNaN"), None), (True, None), (b"12", None), ([1], None), (object(), None),
        (dt.date(2000, 1, 1), None), (1 + 2j, None), ("\ud800", None),
    ],
)  # fmt: skip
def test_integer_cells(cell, value):
    schema = one_column("integer", lower=0, upper=120, nullable=True)
    found = cells_of(schema, [cell, "5"])
    assert found[1] == 5
    assert found[0] is pd.NA if value is None else found[0] == value
    filled = cells_of(one_column("integer", lower=0, upper=120, fill=77), [cell])
    assert filled == [77 if value is None else value]


@pytest.mark.parametrize(
    ("dtype", "cells", "values"),
    [
        ("int64", [-(2**63), 5, 2**63 - 1], [-9, 5, 9]),
        ("uint64", [2**64 - 1, 2**63, 3], [9, 9, 3]),
        ("Int64", [2**62, None, 4], [9, 0, 4]),
        ("UInt64", [2**64 - 1, None, 4], [9, 0, 4]),
        ("float64", [1e300, -math.inf, math.nan, -0.0, 2.5, 3.5, 5e-324], [9, -9, 0, 0, 2, 4, 0]),
        ("float32", [math.inf, math.nan], [9, 0]),
        ("Float64", [None, 3.2], [0, 3]),
        ("bool", [True, False], [0, 0]),
        ("datetime64[s]", ["2000-01-01"], [0]),
        ("category", ["3", "x"], [3, 0]),
        ("timedelta64[s]", [5], [0]),
        ("complex128", [5], [0]),
    ],
)
def test_integer_dtypes(dtype, cells, values):
    assert cells_of(one_column("integer", lower=-9, upper=9, fill=0), cells, dtype) == values


def test_an_integer_with_a_gap_is_not_read_through_floats():
    top = 2**53 + 1
    schema = one_column("integer", lower=top - 10, upper=top + 10, nullable=True)
    for dtype in (object, "Int64"):
        assert cells_of(schema, [top, None], dtype)[0] == top
    assert cells_of(schema, [str(top), ""], "str")[0] == top


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("0.1", 0.1), ("-0.0", 0.0), ("5e-324", 0.0), ("1e-320", 0.0), ("2", 1.5), ("-2", -1.0),
        ("1e400", 1.5), ("-1e400", -1.0), ("inf", 1.5), (math.inf, 1.5), (-math.inf, -1.0),
        ("1.2345678901234567890123456789", 1.23456789012), ("abc", None), (math.nan, None),
        ("nan", None), (2**53 + 1, 1.5), ("9" * 400, 1.5), (-0.0, 0.0),
        (True, None), ("1e-999999999", 0.0), ("0." + "0" * 500 + "1", 0.0),
    ],
)  # fmt: skip
def test_continuous_cells(cell, value):
    (found,) = cells_of(one_column("continuous", lower=-1, upper=1.5, nullable=True), [cell])
    assert math.isnan(found) if value is None else found == pytest.approx(value, abs=1e-12)
    assert math.copysign(1, found) == 1 or found < 0  # no negative zero
    if value is None:
        assert cells_of(one_column("continuous", lower=-1, upper=1.5, fill=0.25), [cell]) == [0.25]


def test_continuous_decimals_are_a_declared_grid():
    schema = one_column("continuous", lower=0, upper=100, decimals=2)
    assert cells_of(schema, ["99.999", "3.14159", "1e-9"]) == [100.0, 3.14, 0.0]


@pytest.mark.parametrize("other", [None, "rest"])
@pytest.mark.parametrize("nullable", [True, False])
def test_unknown_and_missing_categories(other, nullable):
    schema = one_column("categorical", levels=("a", "b", "rest"), other=other, nullable=nullable)
    cells = ["a", " b ", "A", "a\u0301", "=1+1", "\x00", None, "", 1, True, b"a"]
    unknown = other or (math.nan if nullable else "a")
    missing = math.nan if nullable else (other or "a")
    expected = ["a", "b", *[unknown] * 4, missing, missing, unknown, unknown, missing]
    assert pd.Series(cells_of(schema, cells)).equals(pd.Series(expected, dtype="str"))


def test_numbers_as_categories_do_not_depend_on_a_gap():
    schema = one_column("categorical", levels=("1", "2", "2.5"), nullable=True)
    for dtype, cells in ((None, [1, 2]), ("float64", [1, 2, math.nan]), ("Int64", [1, 2, None])):
        assert cells_of(schema, cells, dtype)[:2] == ["1", "2"]
    assert cells_of(schema, [2.5], "float64") == ["2.5"]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (True, True), (False, False), (1, True), (0, False), (1.0, True), ("yes", True),
        (" TRUE ", True), ("F", False), ("n", False), ("0", False), ("maybe", None), (2, None),
        (None, None), ("", None), (math.nan, None),
    ],
)  # fmt: skip
def test_boolean_cells(cell, value):
    (found,) = cells_of(one_column("boolean", nullable=True), [cell])
    assert found is pd.NA if value is None else found == value
    assert cells_of(one_column("boolean", fill=True), [cell]) == [True if value is None else value]


def test_boolean_dtypes_and_declared_words():
    assert cells_of(one_column("boolean"), [True, False], bool) == [True, False]
    schema = one_column("boolean", true_values=("ja",), false_values=("nein",), nullable=True)
    assert cells_of(schema, ["Ja", "nein", "yes"]) == [True, False, pd.NA]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1999-12-31", "1999-12-31"), ("0001-01-01", "1900-01-01"), ("9999-12-31", "2020-12-31"),
        ("1900-02-29", None), ("2000-02-29", "2000-02-29"),
        ("2000-05-05T23:00:00-10:00", "2000-05-05"),
        (dt.date(1999, 1, 2), "1999-01-02"), (pd.Timestamp("1999-01-02 23:59"), "1999-01-02"),
        ("31.12.1999", None), (19991231, "1999-12-31"), ("", None), ("=A1", None), (5.5, None),
        ("0000-01-01", None), ("10000-01-01", None),
    ],
)  # fmt: skip
def test_date_cells(cell, value):
    schema = one_column("date", lower="1900-01-01", upper="2020-12-31", nullable=True)
    (found,) = cells_of(schema, [cell])
    assert found is pd.NaT if value is None else found == pd.Timestamp(value)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("2000-01-01", "1999-12-31T23:00"), ("2000-01-01T00:00:00Z", "2000-01-01T00:00"),
        ("2000-07-01T12:00", "2000-07-01T10:00"), ("2000-07-01 12:00:00.9", "2000-07-01T10:00:00"),
        ("2000-03-26T02:30", "2000-03-26T01:30"),  # daylight-saving gap: offset before the change
        ("2000-10-29T02:30", "2000-10-29T00:30"),  # overlap: the first of the two
        ("0001-01-01", "1899-12-31T23:00"), ("9999-12-31T23:59:59-23:00", "2020-12-31T09:00"),
        ("0001-01-01T00:00:00+23:00", "1899-12-31T23:00"), ("2000-01-01T24:00", None),
        ("2000-01-01T23:59:60", None), ("never", None),
    ],
)  # fmt: skip
def test_datetime_cells(cell, value):
    schema = one_column(
        "datetime", lower="1900-01-01", upper="2020-12-31T10:00", time_zone="Europe/Berlin",
        nullable=True,
    )  # fmt: skip
    expected = pd.NaT if value is None else pd.Timestamp(value, tz="UTC")
    assert cells_of(schema, [cell])[0] is expected or cells_of(schema, [cell])[0] == expected
    if value is not None and "24:00" not in cell:
        moment = dt.datetime.fromisoformat(cell)
        assert cells_of(schema, [moment])[0] == expected


@PROPERTY
@given(st.lists(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(),
                          st.datetimes(), st.dates(), st.binary(), st.decimals()),
                min_size=1, max_size=8))  # fmt: skip
def test_scale_is_total_and_row_local(cells):
    frame = pd.DataFrame({c.name: pd.Series(cells, dtype=object) for c in SCHEMA.released})
    whole = SCHEMA.scale(frame)
    for row in range(len(cells)):
        alone = pd.DataFrame({name: [frame[name][row]] for name in frame})
        assert SCHEMA.scale(alone).equals(whole.take([row]))  # whatever dtype pandas inferred
    for column in SCHEMA.released:
        values = whole.columns[column.name]
        if column.is_numeric:
            known = values[~np.isnan(values)]
            assert ((known >= 0) & (known <= 1)).all()
            assert column.nullable or len(known) == len(values)
        else:
            assert values.min() >= (-1 if column.nullable else 0)
            assert values.max() < column.cardinality


def test_integers_too_long_to_print_are_clamped():
    for kind in ("integer", "continuous"):
        assert cells_of(one_column(kind, lower=0, upper=9), [10**5000, -(10**5000)]) == [9, 0]


def test_scale_needs_the_columns():
    frame = SCHEMA.unscale(SCHEMA.scale(conforming_frame()))
    with pytest.raises(SourceError, match="column age: declared, but missing"):
        SCHEMA.scale(frame.drop(columns="age"))
    with pytest.raises(SourceError, match="column age: occurs more than once"):
        SCHEMA.scale(pd.concat([frame, frame[["age"]]], axis=1))
