"""Cells as sources write them, read as declared: the same as their canonical text."""

import datetime as dt
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.cell_formats import CANONICAL, THOUSANDS, CellFormat
from dpiw.data.cell_reading import UNREADABLE, WHITE_SPACE, canonical_cells, canonical_frame
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.encoding import scale_cells

PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=80)

PAIRS = [(d, t) for d in (".", ",") for t in THOUSANDS if d != t]
DATES = ("%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d/%m/%Y", "%Y/%m/%d")
TIMES = ("%H:%M", "%H:%M:%S")
NUMBER = Column(
    name="x", kind=ColumnKind.CONTINUOUS, lower=-1e9, upper=1e9, nullable=True, decimals=2
)
WHOLE = Column(name="x", kind=ColumnKind.INTEGER, lower=-(10**9), upper=10**9, nullable=True)
DAY = Column(name="x", kind=ColumnKind.DATE, lower="1000-01-01", upper="9000-01-01", nullable=True)
MOMENT = Column(
    name="x", kind=ColumnKind.DATETIME, lower="1000-01-01", upper="9000-01-01", nullable=True,
    time_zone="Europe/Berlin",
)  # fmt: skip
WORD = Column(name="x", levels=("a", "b", "rest"), other="rest", nullable=True)
TRUTH = Column(name="x", kind=ColumnKind.BOOLEAN, nullable=True)
PERSON = Column(name="x", role=ColumnRole.IDENTIFIER)
EVERY = (NUMBER, WHOLE, DAY, MOMENT, WORD, TRUTH)


def texts(*cells):
    return pd.Series(cells, dtype="str")


def form(**fields):
    return CellFormat(**(vars(CANONICAL) | fields))


def scaled(column, cells, written=CANONICAL):
    return scale_cells(column, canonical_cells(column, cells, written))


def same(column, written_text, canonical_text, written):
    """Both read, and read alike."""
    values, wanted = (
        scaled(column, texts(written_text), written),
        scaled(column, texts(canonical_text)),
    )
    assert not np.isnan(wanted[0])
    np.testing.assert_array_equal(values, wanted)


def grouped(digits, sign):
    """`1234567` as `1.234.567`: a slow way."""
    groups = []
    while len(digits) > 3:
        digits, group = digits[:-3], digits[-3:]
        groups.insert(0, group)
    return sign.join([digits, *groups])


def test_what_the_issue_met():
    assert (
        scaled(NUMBER, texts("1669,78"), form(decimal=","))[0]
        == scaled(NUMBER, texts("1669.78"))[0]
    )
    assert np.isnan(scaled(NUMBER, texts("1669,78"))[0])


@PROPERTY
@given(
    pair=st.sampled_from(PAIRS),
    number=st.decimals(min_value=-(10**8), max_value=10**8, places=2),
    group=st.booleans(),
    pick=st.integers(0, 3),
    pad=st.sampled_from(["", " ", "\t", "\u00a0"]),
)
def test_a_number_written_as_declared_reads_as_its_canonical_text(pair, number, group, pick, pad):
    decimal, thousands = pair
    canonical = f"{number:.2f}"
    sign = "-" if canonical.startswith("-") else ""
    digits, fraction = canonical.lstrip("-").split(".")
    marks = THOUSANDS[thousands]
    if group and marks:
        digits = grouped(digits, marks[pick % len(marks)])
    for column, text, wanted in (
        (NUMBER, sign + digits + decimal + fraction, canonical),
        (WHOLE, sign + digits, canonical.split(".")[0]),
        (NUMBER, sign + digits + "e2", str(Decimal(canonical.split(".")[0]).scaleb(2))),
    ):
        same(column, pad + text + pad, wanted, form(decimal=decimal, thousands=thousands))


@pytest.mark.parametrize(
    ("decimal", "thousands", "text"),
    [
        (",", "none", "1669.78"), (",", "none", "1.669"), (",", ".", "1669.78"),
        (",", ".", "16.69"),
        (",", ".", "1.6699"), (",", ".", "1234.567"), (",", ".", ".123"), (",", ".", "1,669.780"),
        (",", ".", "1..669"), (",", ".", "1.669."), (",", "space", "1 66"), (".", ",", "1,66"),
        (".", ",", "1,669,78"), (".", "'", "1'66"), (",", "none", "1,2,3"), (",", "none", ","),
        (",", "none", "+"), (",", "none", "e5"), (",", "none", "12 EUR"), (",", "none", "\u0661"),
        (",", "space", "1 \u00a0234"), (",", ".", "1.234.56"), (",", ".", "0x10"),
        (",", "none", "--1"),
    ],
)  # fmt: skip
def test_a_number_written_otherwise_is_unreadable_and_never_guessed_at(decimal, thousands, text):
    """Above all: `16.69` is not 1669 where the point groups thousands."""
    for column in (NUMBER, WHOLE):
        assert np.isnan(scaled(column, texts(text), form(decimal=decimal, thousands=thousands)))


@pytest.mark.parametrize("text", ["inf", "-Infinity", "+INF"])
def test_infinite_numbers_are_clamped_under_every_format(text):
    same(NUMBER, text, text, form(decimal=",", thousands="."))


@PROPERTY
@given(
    moment=st.datetimes(min_value=dt.datetime(1000, 1, 2), max_value=dt.datetime(8999, 12, 30)),
    date_format=st.sampled_from(DATES),
    time_format=st.sampled_from(TIMES),
    between=st.sampled_from(" T"),
)
def test_a_date_written_as_declared_reads_as_its_canonical_text(
    moment, date_format, time_format, between
):
    representable = moment.replace(
        microsecond=0, second=moment.second if "%S" in time_format else 0
    )
    whole = date_format + between + time_format
    written = representable.strftime(whole)
    same(MOMENT, written, representable.isoformat(), form(datetime_format=whole))
    same(DAY, written, representable.date().isoformat(), form(date_format=whole))
    day = representable.strftime(date_format)
    same(DAY, f" {day} ", representable.date().isoformat(), form(date_format=date_format))
    same(MOMENT, day, representable.date().isoformat(), form(datetime_format=date_format))


@pytest.mark.parametrize("text", ["31.02.2024", "2024-02-01", "1.13.2024", "01.01.24", "0.1.2024",
                                  "1.1.0000", "1.1.2024 12:00", "1 .1.2024"])  # fmt: skip
def test_a_date_written_otherwise_is_unreadable(text):
    assert canonical_cells(DAY, texts(text), form(date_format="%d.%m.%Y"))[0] == UNREADABLE
    assert np.isnan(scaled(DAY, texts(text), form(date_format="%d.%m.%Y")))


@pytest.mark.parametrize("column", EVERY)
def test_tokens_are_missing_in_every_kind(column):
    written = form(missing=("NA", "-9", "."), decimal=",")
    cells = canonical_cells(column, texts("NA", " -9\t", ".", "na", "-9,0", None, ""), written)
    assert cells.isna().tolist() == [True, True, True, False, False, True, False]


def test_a_token_is_missing_and_not_other():
    assert scaled(WORD, texts("NA", "zz"), form(missing=("NA",))).tolist() == [-1, 2]
    assert scaled(WORD, texts("NA"), CANONICAL).tolist() == [2]


def test_a_token_that_is_an_admissible_number_means_missing():
    values = scaled(WHOLE, texts("-9", "-8"), form(missing=("-9",)))
    assert np.isnan(values).tolist() == [True, False]


@pytest.mark.parametrize(
    ("cells", "missing"),
    [
        (pd.Series([-9, 1, None], dtype="Int64"), [True, False, True]),
        (pd.Series([-9, 1], dtype="int8"), [True, False]),
        (pd.Series([2**64 - 9, 1], dtype="uint64"), [False, False]),
        (pd.Series([2**64 - 9, None], dtype="UInt64"), [False, True]),
        (pd.Series([-9.0, -9.5, np.nan, 99.9]), [True, False, True, True]),
        (pd.Series([-9.0, 99.9], dtype="float32"), [True, True]),
        (pd.Series([99.9, np.inf], dtype="float16"), [True, False]),
        (pd.Series([Decimal("-9.00"), None, Decimal("99.90"), Decimal(1)]), [True] * 3 + [False]),
        (pd.Series([True, False]), [False, False]),
        (pd.Series([True, None], dtype="boolean"), [False, True]),
        (pd.Series([pd.Timestamp("1999-09-09")]), [False]),
    ],
)  # fmt: skip
def test_of_typed_numbers_those_equal_to_a_token_are_missing(cells, missing):
    tokens = ("NA", "-9", "99.9", "1e300", "1e999999", "nan", "inf", "sNaN", "true")
    canonical = canonical_cells(NUMBER, cells, form(missing=tokens))
    assert canonical.isna().tolist() == missing
    assert str(canonical.dtype).casefold() == str(cells.dtype).casefold()  # whole ones stay whole
    assert canonical_cells(NUMBER, cells, form(decimal=",")) is cells


def test_nothing_declared_changes_nothing():
    frame = pd.DataFrame({"x": texts("1,5", "NA", " ", None)})
    from dpiw.data.schema import PublicSchema

    schema = PublicSchema(name="s", columns=(NUMBER,))
    assert canonical_frame(frame, schema, {"x": CANONICAL}) is frame
    copy = frame.copy()
    canonical_frame(frame, schema, {"x": form(decimal=",", missing=("NA",))})
    pd.testing.assert_frame_equal(frame, copy)


formats = st.builds(
    lambda pair, date, time, missing: CellFormat(
        decimal=pair[0], thousands=pair[1], date_format=date,
        datetime_format=date if date == "iso" else f"{date} {time}", missing=tuple(missing),
    ),
    st.sampled_from(PAIRS), st.sampled_from(["iso", *DATES]), st.sampled_from(TIMES),
    st.lists(st.sampled_from(["NA", "-9", ".", "1"]), unique=True),
)  # fmt: skip
cells = st.one_of(
    st.none(), st.text(), st.text("0123456789.,' -+eE/:T\u202f\u00a0\x1c", max_size=20),
    st.sampled_from(["NA", "-9", "1.234,5", "31.12.2024 10:30", "\ud800", "\x00", "9" * 400]),
)  # fmt: skip


@PROPERTY
@given(column=st.sampled_from([*EVERY, PERSON]), written=formats, found=st.lists(cells, max_size=6))
def test_no_text_raises_and_no_cell_depends_on_another(column, written, found):
    clean = [None if c is None else c.encode("utf-8", "replace").decode() for c in found]
    whole = canonical_cells(column, texts(*clean), written)
    assert whole.index.equals(pd.RangeIndex(len(clean)))
    alone = [canonical_cells(column, texts(cell), written).tolist() for cell in clean]
    assert [one for (one,) in alone] == whole.tolist() or whole.isna().any()
    for one, kept in zip(alone, whole.tolist(), strict=True):
        assert one[0] == kept or (pd.isna(one[0]) and pd.isna(kept))
    if column is not PERSON:
        scale_cells(column, whole)


def test_a_lone_surrogate_is_a_cell_like_another():
    cells = pd.Series(["\ud800", "1,5"], dtype=pd.StringDtype("python", na_value=np.nan))
    assert canonical_cells(NUMBER, cells, form(decimal=",")).tolist() == [UNREADABLE, "1.5"]


def test_white_space_is_what_python_strips():
    every = {chr(code) for code in range(sys.maxunicode + 1)}
    assert {letter for letter in every if letter.isspace()} == set(WHITE_SPACE)
