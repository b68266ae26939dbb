"""Quotes of a CSV text, looked at in passing, beside Python's own strict reader."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path

import pyarrow
import pyarrow.csv
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data.sources import IngestLimits, QuoteScan, read_csv


def scanned(text: str, edges: list[int], delimiter: str = ",") -> bool:
    """Whether quotes are plain, of a text that arrives in parts."""
    scan, data = QuoteScan(delimiter), text.encode()
    places = sorted({0, len(data), *(edge % (len(data) + 1) for edge in edges)})
    for start, stop in itertools.pairwise(places):
        scan.add(data[start:stop])
    return scan.are_plain


def strictly_read(text: str, delimiter: str = ",") -> list[list[str]] | None:
    """The cells, or None where a quote is not balanced."""
    try:
        return [*csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)]
    except csv.Error:
        return None


def arrow_reads(text: str, delimiter: str) -> list[list[str]]:
    """Rows of two cells."""
    table = pyarrow.csv.read_csv(
        io.BytesIO(text.encode()),
        read_options=pyarrow.csv.ReadOptions(column_names=["a", "b"]),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys("ab", pyarrow.string()), strings_can_be_null=False
        ),
    )
    return [[*row.values()] for row in table.to_pylist()]


edges = st.lists(st.integers(0, 1000), max_size=6)
cells = st.text(alphabet='",;\nab é', max_size=8)
texts = st.text(alphabet='",\nab é', max_size=40).map(lambda text: text + "\n")


@settings(max_examples=80, deadline=None)
@given(texts, edges)
@example('a,"b\n', [])
@example('a,"b"c\n', [])
@example('"""\n', [1, 2])
@example('"a""b","",x\n', [3, 4])
def test_of_plain_quotes_none_is_unbalanced(text: str, edges: list[int]) -> None:
    if scanned(text, edges):
        assert strictly_read(text) is not None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1),
    edges,
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from([",", ";"]),
)
def test_what_is_written_by_the_book_is_plain(
    rows: list[list[str]], edges: list[int], quoting: int, delimiter: str
) -> None:
    """No second pass over files that a library wrote; Arrow reads the same cells."""
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=quoting, delimiter=delimiter, lineterminator="\n").writerows(rows)
    text = stream.getvalue()
    assert scanned(text, edges, delimiter)
    assert arrow_reads(text, delimiter) == strictly_read(text, delimiter) == rows


def test_a_row_of_quotes_is_no_longer_than_its_cells(tmp_path: Path) -> None:
    """In the file each quote in a cell is doubled: such a row ended a run once."""
    names = [f"c{number}" for number in range(105)]
    quotes = ",".join(['"' + '""' * 10_000 + '"'] * len(names))
    path = tmp_path / "table.csv"
    path.write_text("\n".join([",".join(names), quotes, ",".join("1" * len(names)), ""]))
    frame = read_csv(path, names, limits=IngestLimits(), encoding="utf-8", delimiter=",").frame
    assert frame["c104"].tolist() == ['"' * 10_000, "1"]
