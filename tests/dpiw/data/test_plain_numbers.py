"""Plain texts are read as the exact reading reads them; the exact reading knows no plain ones."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data import cell_counts, encoding
from dpiw.data.cell_counts import count_cells
from dpiw.data.columns import Column
from dpiw.data.encoding import scale_cells

COLUMNS = [
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
TEXTS = st.one_of(
    st.sampled_from(ODD), LETTERS, MOMENTS, MOMENTS.map(lambda one: one[:10]),
    st.floats(allow_nan=False).map(repr), st.integers().map(str), st.none(),
)  # fmt: skip


def none_plain(column, texts):
    kind = np.float64 if column.kind.value == "continuous" else np.int64
    return np.zeros(len(texts), dtype=kind), np.zeros(len(texts), dtype=bool)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.kind.value)
def test_plain_texts_mean_what_the_exact_reading_says(column, monkeypatch):
    def read(texts):
        cells = pd.Series(texts, dtype="str")
        return scale_cells(column, cells), count_cells(column, cells)

    @settings(max_examples=30, derandomize=True, database=None, deadline=None)
    @given(st.lists(TEXTS, max_size=6))
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
