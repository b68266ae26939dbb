"""What a cell is read as, by its declared type alone: total, row-local, the same in every dtype.

For every kind and option scaling what was unscaled is the identity, whatever pandas or Arrow made
of the cells between; and no typed moment, however far, raises or moves another row.
"""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.encoding import project_cells, scale_cells, unscale_cells
from dpiw.errors import SourceError
from dpiw.release.parquet import arrow_type
from tests.dpiw.data.schema_example import PROPERTY, SCHEMA, cells_of, conforming_frame, one_column
from tests.hostile.fuzz.cells import SCHEMA as FUZZED
from tests.hostile.fuzz.cells import UNITS, ZONES


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
        ("uint64", [2**64 - 1, 2**63, 3], [9, 9, 3]), ("Int64", [2**62, None, 4], [9, 0, 4]),
        ("UInt64", [2**64 - 1, None, 4], [9, 0, 4]),
        ("float64", [1e300, -math.inf, math.nan, -0.0, 2.5, 3.5, 5e-324], [9, -9, 0, 0, 2, 4, 0]),
        ("float32", [math.inf, math.nan], [9, 0]), ("Float64", [None, 3.2], [0, 3]),
        ("bool", [True, False], [0, 0]), ("datetime64[s]", ["2000-01-01"], [0]),
        ("category", ["3", "x"], [3, 0]), ("timedelta64[s]", [5], [0]), ("complex128", [5], [0]),
    ],
)  # fmt: skip
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
@pytest.mark.slow
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


INT64 = np.iinfo(np.int64)

LISTED = tuple(column for column in FUZZED.released if not column.unseen)
"""Cells of an unseen column are read, and never released."""


def grid(column: Column) -> np.ndarray:
    """Admissible scaled values: ends, inside, and missing if there is such a value."""
    if column.is_discrete:
        codes = [*range(column.cardinality), *([-1] if column.nullable else []), 0]
        return project_cells(column, np.array(codes, dtype=np.int32))
    units = [0.0, 1.0, 0.5, 0.123, 0.9, *([np.nan] if column.nullable else [])]
    return project_cells(column, np.array(units))


def arrow(column: Column, cells: pd.Series) -> pa.Array:
    """The released column, as `synthetic.parquet` stores it."""
    moments = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
    array = pa.array(cells.astype("object") if moments else cells, from_pandas=True)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.cast(arrow_type(column))


WRAPPINGS = {
    "pandas": lambda a: a.to_pandas(),
    "typed dates": lambda a: a.to_pandas(date_as_object=False),
    "nullable": lambda a: a.to_pandas(date_as_object=False).convert_dtypes(),
    "objects": lambda a: pd.Series(a.to_pylist(), dtype=object),
    "timestamps": lambda a: a.to_pandas(date_as_object=False).astype(object),
}


@pytest.mark.parametrize("column", LISTED, ids=lambda column: column.name)
def test_scaling_what_was_unscaled_is_the_identity_in_every_dtype(column):
    values = grid(column)
    cells = unscale_cells(column, values)
    np.testing.assert_array_equal(scale_cells(column, cells), values)
    for name, wrap in WRAPPINGS.items():
        found = scale_cells(column, wrap(arrow(column, cells)))
        np.testing.assert_array_equal(found, values, err_msg=name)


def truth(cells, **words):
    column = Column(name="b", kind=ColumnKind.BOOLEAN, nullable=True, **words)
    return scale_cells(column, cells).tolist()


OWN = {"true_values": ("oui",), "false_values": ("non",)}


def test_typed_truth_means_itself_beside_words():
    assert truth(pd.Series(["oui", False, "true", None], dtype=object), **OWN) == [1, 0, -1, -1]


def test_numbers_are_words_where_a_word_is_a_number():
    words = {"true_values": ("1",), "false_values": ("2",)}
    assert truth(pd.Series([1, 2, 0, None], dtype="Int64"), **words) == [1, 0, -1, -1]
    assert truth(pd.Series([1.0, 2.0, 0.0]), **words) == [1, 0, -1]
    assert truth(pd.Series([True, False]), **words) == [1, 0]
    assert truth(pd.Series([0, 1, 2]), **OWN) == [0, 1, -1]
    assert truth(pd.Series([0, 1, 2])) == [0, 1, -1]


def column_of(kind, low, high, **settings):
    return Column(name="t", kind=kind, lower=low, upper=high, nullable=True, **settings)


EVER = column_of(ColumnKind.DATE, "0001-01-01", "9999-12-31")
ALWAYS = column_of(ColumnKind.DATETIME, "0001-01-01T00:00:00", "9999-12-31T23:59:59",
                   time_zone="Europe/Berlin")  # fmt: skip
EDGES = [INT64.min + 1, INT64.min + 2, -1, 0, 1, INT64.max - 1, INT64.max]


def moments(seconds, unit, zone):
    counts = [None if s is None else s * UNITS[unit] for s in seconds]
    return pa.array(counts, pa.timestamp(unit, tz=zone)).to_pandas()


@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("unit", list(UNITS))
def test_every_count_of_every_unit_is_a_moment(unit, zone):
    """Clamped, in the order of the counts; missing stays missing."""
    cells = pa.array([*EDGES, None], pa.timestamp(unit, tz=zone)).to_pandas()
    for column in (EVER, ALWAYS, column_of(ColumnKind.DATE, "1900-01-01", "2020-12-31"),
                   column_of(ColumnKind.DATETIME, "1900-01-01", "2020-12-31")):  # fmt: skip
        found = scale_cells(column, cells)
        assert np.isnan(found[-1])
        assert (np.diff(found[:-1]) >= 0).all()
        if unit == "s":
            assert (found[0], found[-2]) == (0, 1)
        for row in range(len(cells)):
            alone = scale_cells(column, cells.iloc[[row]])
            np.testing.assert_array_equal(alone, found[[row]])


LAST = 253_402_300_799  # 9999-12-31T23:59:59Z


@pytest.mark.parametrize(
    ("seconds", "zone", "expected"),
    [
        (LAST, "Europe/Berlin", "9999-12-31"),  # there it is 10000-01-01: clamped
        (LAST, "America/New_York", "9999-12-31"), (LAST, "+05:30", "9999-12-31"),
        (LAST - 86_400, "Europe/Berlin", "9999-12-31"), (LAST - 90_000, "-23:59", "9999-12-29"),
        (LAST - 86_400, "America/New_York", "9999-12-30"), (LAST + 1, None, "9999-12-31"),
        (-62_135_596_800, "America/New_York", "0001-01-01"),
        (-62_135_596_800, "+05:30", "0001-01-01"), (-62_135_596_800, None, "0001-01-01"),
        (-62_135_596_800 + 20 * 3600, "+05:30", "0001-01-02"),
        (0, "America/New_York", "1969-12-31"), (0, "+05:30", "1970-01-01"),
        (-1, None, "1969-12-31"), (1_711_846_800 - 3601, "Europe/Berlin", "2024-03-31"),
    ],
)  # fmt: skip
def test_a_day_is_the_day_on_the_cells_own_clock(seconds, zone, expected):
    (day,) = scale_cells(EVER, pd.Series([expected], dtype="str"))
    for unit in ("s", "ms", "us"):
        assert scale_cells(EVER, moments([seconds], unit, zone))[0] == day


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (LAST, "9999-12-31T22:59:59Z"), (LAST + 10**9, "9999-12-31T23:59:59"),
        (LAST - 86_400, "9999-12-30T22:59:59Z"),
        (-62_135_596_800, "0001-01-01T00:00:00"), (0, "1969-12-31T23:00:00Z"),
        (1_711_852_200, "2024-03-31T01:30:00Z"),  # 02:30 that night did not exist
        (1_729_996_200, "2024-10-27T00:30:00Z"),  # 02:30 that night came twice: the first
    ],
)  # fmt: skip
def test_a_naive_moment_is_read_in_the_columns_zone(seconds, expected):
    (wanted,) = scale_cells(ALWAYS, pd.Series([expected], dtype="str"))
    for unit in ("s", "ms", "us"):
        assert scale_cells(ALWAYS, moments([seconds], unit, None))[0] == wanted
        utc = moments([seconds], unit, "UTC")
        text = pd.Series([str(np.datetime64(min(seconds, LAST), "s")) + "Z"], dtype="str")
        assert scale_cells(ALWAYS, utc)[0] == scale_cells(ALWAYS, text)[0]


@pytest.mark.parametrize(
    "cell",
    ["1" * 9_989 + "x", "." * 9_990, "1." * 4_995, "\u0301\u0323" * 2_497, "9" * 9_990, " " * 999],
    ids=["digits", "dots", "mixed", "marks", "whole", "blank"],
)  # fmt: skip
def test_a_long_cell_takes_no_time(cell):
    """The pattern of numbers took seconds for one such cell: time by its length squared."""
    import time

    cells = pd.Series([cell], dtype="str")
    started = time.process_time()
    for column in FUZZED.released:
        scale_cells(column, cells)
    assert time.process_time() - started < 1
