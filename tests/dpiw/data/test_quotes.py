"""Quotes of a CSV text: Arrow, beside Python's own strict reader."""

import csv
import io
from pathlib import Path

import pyarrow
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data.source.batches import IngestLimits, read_csv
from dpiw.errors import SourceError


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


cells = st.text(alphabet='",;\nab é', max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from([",", ";"]),
)
def test_arrow_finds_the_cells_of_the_strict_reader(
    rows: list[list[str]], quoting: int, delimiter: str
) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=quoting, delimiter=delimiter, lineterminator="\n").writerows(rows)
    text = stream.getvalue()
    assert arrow_reads(text, delimiter) == strictly_read(text, delimiter) == rows


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='",ab', max_size=12).map(lambda text: text + "\n"))
@example('a,"b"c\n')
@example('"a""b",""\n')
def test_arrow_finds_the_same_cells_wherever_the_strict_reader_refuses_nothing(text: str) -> None:
    rows = strictly_read(text)
    if rows is not None and [len(row) for row in rows] == [2]:
        assert arrow_reads(text, ",") == rows


def test_a_row_of_quotes_is_no_longer_than_its_cells(tmp_path: Path) -> None:
    """In the file each quote in a cell is doubled: such a row ended a run once."""
    names = [f"c{number}" for number in range(105)]
    quotes = ",".join(['"' + '""' * 10_000 + '"'] * len(names))
    path = tmp_path / "table.csv"
    path.write_text("\n".join([",".join(names), quotes, ",".join("1" * len(names)), ""]))
    frame = read_csv(path, names, limits=IngestLimits(), encoding="utf-8", delimiter=",")
    assert frame["c104"].tolist() == ['"' * 10_000, "1"]


def test_of_an_open_quote_few_bytes_are_held(tmp_path: Path, monkeypatch) -> None:
    path, limits, held = tmp_path / "table.csv", IngestLimits(max_cell_bytes=10), []
    path.write_text('a,b\n1,"' + "x\n" * 1000)
    monkeypatch.setattr(csv, "field_size_limit", lambda *most: held.extend(most) or 0)
    with pytest.raises(SourceError):
        read_csv(path, ["a", "b"], limits=limits, encoding="utf-8", delimiter=",")
    assert held[0] == 4 * limits.max_cell_bytes
