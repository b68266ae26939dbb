"""Quotes of a CSV text: what ingest reads, beside Python's own strict reader."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data.source.batches import IngestLimits, read_csv
from dpiw.errors import SourceError


def strictly_read(text: str) -> list[list[str]] | None:
    """The cells, or None where a quote is not balanced."""
    try:
        return [*csv.reader(io.StringIO(text, newline=""), strict=True)]
    except csv.Error:
        return None


def read(text: str, delimiter: str = ",") -> list[list[str]]:
    """Rows of two cells, as ingest reads them."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(f"a{delimiter}b\n{text}".encode())
        frame = read_csv(
            Path(file.name), ["a", "b"], limits=IngestLimits(), encoding="utf-8",
            delimiter=delimiter,
        )  # fmt: skip
    return frame.fillna("").to_numpy().tolist()


cells = st.text(alphabet='",;\nab é', max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from([",", ";"]),
)
def test_every_cell_that_was_written_is_read(
    rows: list[list[str]], quoting: int, delimiter: str
) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=quoting, delimiter=delimiter, lineterminator="\n").writerows(rows)
    assert read(stream.getvalue(), delimiter) == rows


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='",ab', max_size=12).map(lambda text: text + "\n"))
@example('a,"b"c\n')
@example('"a""b",""\n')
def test_cells_are_those_of_the_strict_reader_wherever_it_refuses_nothing(text: str) -> None:
    rows = strictly_read(text)
    if rows is not None and [len(row) for row in rows] == [2]:
        assert read(text) == rows


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
