"""Counts of cells, two ways: as the product counts them, and one character after the other."""

import datetime as dt
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.cells import counts as cell_counts
from dpiw.data.cells.counts import count_cells
from dpiw.data.cells.formats import CANONICAL
from dpiw.data.cells.reading import canonical_cells
from dpiw.data.schema import encoding
from dpiw.data.schema.columns import Column
from dpiw.data.schema.encoding import scale_cells
from tests.support.statements import GERMAN, PROPERTY, SCHEMA, TEXTS, frame_of


def slow_number(text, written):
    """A number as declared, character by character; None: no number."""
    if text.lower().lstrip("+-") in ("inf", "infinity") and text.lower().count("i") <= 3:
        return float(text)
    sign, text = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    mantissa, *exponents = re.split("[eE]", text)
    whole, *fractions = mantissa.split(written.decimal)
    if len(exponents) > 1 or len(fractions) > 1:
        return None
    first, *groups = whole.split(written.thousands) if written.thousands != "none" else [whole]
    if groups and not (1 <= len(first) <= 3 and all(len(group) == 3 for group in groups)):
        return None
    digits, fraction = first + "".join(groups), "".join(fractions)
    power = exponents[0] if exponents else "0"
    parts = (digits + fraction, power.lstrip("+-") if power[:1] in ("+", "-") else power)
    if not all(part and set(part) <= set("0123456789") for part in parts):
        return None
    return sign * Fraction(int(digits + fraction), 10 ** len(fraction)) * Fraction(10) ** int(power)


def slow_verdict(column, text, written):
    """0 fine, or 1 + the place of the count in the statement's table."""
    text = (text or "").strip()
    if not text or text in written.missing:
        return 1
    if column.name == "id":
        return 0
    if column.name == "b":
        return 0 if text.lower() in ("ja", "nein") else 2
    if column.name in ("c", "o"):
        return (
            0 if text.lower() in ("a", "z") * (column.name == "c") or text in column.levels else 5
        )
    if column.name in ("d", "t"):
        pattern = written.date_format if column.name == "d" else written.datetime_format
        try:
            read = dt.datetime.fromisoformat if pattern == "iso" else None
            moment = read(text) if read else dt.datetime.strptime(text, pattern)
        except ValueError:
            return 2
        low, high = dt.datetime(2020, 1, 1), dt.datetime(2024, 12, 31)
        if column.name == "d":
            moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        return 0 if low <= moment <= high else 3
    number = slow_number(text, written)
    if number is None:
        return 2
    if column.name == "income":
        return 0 if 0 <= number <= 5000 else 3
    nearest = number if isinstance(number, float) else round(number)
    return 3 if not -5 <= nearest <= 5000 else 0 if nearest == number else 4


@PROPERTY
@given(
    name=st.sampled_from([column.name for column in SCHEMA.columns]),
    texts=st.lists(TEXTS, min_size=1, max_size=12),
    written=st.sampled_from([CANONICAL, GERMAN]),
)
def test_counts_are_those_of_a_slow_reading(name, texts, written):
    column = SCHEMA.column(name)
    # ISO has shapes (20200101, 2020-W01) that make dates of digits: the slow reading shares them
    counts = count_cells(column, canonical_cells(column, pd.Series(texts, dtype="str"), written))
    tallied = (counts.missing, counts.unreadable, counts.outside, counts.rounded, counts.unknown)
    verdicts = [slow_verdict(column, text, written) for text in texts]
    assert tallied == tuple(verdicts.count(place) for place in range(1, 6))


@PROPERTY
@given(texts=st.lists(TEXTS, min_size=1, max_size=12), written=st.sampled_from([CANONICAL, GERMAN]))
def test_counts_agree_with_what_was_released_from(texts, written):
    """Of a nullable column: what the snapshot lacks is what was counted missing or unreadable."""
    column = SCHEMA.column("n")
    cells = canonical_cells(column, pd.Series(texts, dtype="str"), written)
    counts = count_cells(column, cells)
    table = SCHEMA.scale(frame_of(n=texts).assign(n=cells))
    assert np.isnan(table.columns["n"]).sum() == counts.missing + counts.unreadable


PLAIN_COLUMNS = [
    Column.from_mapping({"name": "x", "nullable": True, **declared})
    for declared in (
        {"kind": "integer", "lower": -50, "upper": 10**15},
        {"kind": "continuous", "lower": -2, "upper": 1e6, "decimals": 6},
        {"kind": "date", "lower": "1990-01-01", "upper": "2020-12-31"},
        {"kind": "datetime", "lower": "1990-01-01", "upper": "2020-12-31"},
        {"kind": "datetime", "lower": "0001-01-01", "upper": "9999-12-31",
         "time_zone": "Europe/Berlin"},
    )
]  # fmt: skip
ODD = [
    "", " ", "0", "-0", "007", "-.5", "5.", ".", "-", "--1", "1-2", "0x1F", "+3", "1e3", "1e400",
    "nan", "inf", "1.2.3", "9" * 18, "9" * 19, "9" * 400, "0." + "3" * 40, "\u0661", " 7 ",
    "7\u00a0", "1_000", "2020-02-29", "2021-02-29", "0000-01-01", "0999-12-31", "1000-01-01",
    "9999-12-31", "2020-1-1",
    "2020-03-29 02:30:00", "2020-10-25T02:30:00", "2020-01-01 24:00:00", "2020-12-31T23:59:60",
    "2020-01-01:00:00:00", "2020-01-01T00:00:0Z", "2020-01-01 10:00", "9999-12-31 23:59:59",
    "-999999999", "2020-W01-1", "20200101", "2020-01-01T00:00:00+02:00",
]  # fmt: skip
LETTERS = st.text("0123456789-.:eT ", max_size=20)
MOMENTS = st.datetimes().map(lambda one: one.isoformat(timespec="seconds"))
ODD_OR_NOT = st.one_of(
    st.sampled_from(ODD), LETTERS, MOMENTS, MOMENTS.map(lambda one: one[:10]),
    st.floats(allow_nan=False).map(repr), st.integers().map(str), st.none(),
)  # fmt: skip


def none_plain(column, texts):
    kind = np.float64 if column.kind.value == "continuous" else np.int64
    return np.zeros(len(texts), dtype=kind), np.zeros(len(texts), dtype=bool)


@pytest.mark.parametrize("column", PLAIN_COLUMNS, ids=lambda column: column.kind.value)
def test_plain_texts_mean_what_the_exact_reading_says(column, monkeypatch):
    def read(texts):
        cells = pd.Series(texts, dtype="str")
        return scale_cells(column, cells), count_cells(column, cells)

    @settings(max_examples=30, derandomize=True, database=None, deadline=None)
    @given(st.lists(ODD_OR_NOT, max_size=6))
    def same(texts):
        scaled, counts = read(texts)
        with monkeypatch.context() as patch:
            for module in (encoding, cell_counts):
                patch.setattr(module, "plain_numbers", none_plain)
            exact = read(texts)
        assert np.array_equal(scaled, exact[0], equal_nan=True)
        assert counts == exact[1]

    for one in ODD:  # alone, so that no other text sends it the long way
        same.hypothesis.inner_test([one])
    same.hypothesis.inner_test(ODD)
    same()
