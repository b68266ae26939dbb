"""Batches of the ingest: any split leaves the same files, and a table of any size fits."""

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data import cell_statement, sources
from dpiw.data.cell_statement import CellTally
from dpiw.data.ingest import ingest
from dpiw.data.raw_source import IngestLimits
from dpiw.data.schema import PublicSchema
from dpiw.errors import SourceError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

SCHEMA = PublicSchema.from_mapping(
    {
        "name": "s",
        "columns": [
            {"name": "id", "role": "identifier"},
            {"name": "n", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
            {"name": "x", "kind": "continuous", "lower": 0, "upper": 1},
            {"name": "d", "kind": "date", "lower": "2000-01-01", "upper": "2001-01-01"},
            {"name": "c", "kind": "categorical", "levels": ["a", "b"], "other": "b"},
        ],
        "constraints": [{"name": "low", "never": {"n": {"upper": 0}, "c": "a"}}],
    }
)
NAMES = [column.name for column in SCHEMA.columns]
CELLS = st.tuples(
    st.just("7"), st.sampled_from(["0", "5", " 7", "", "12", "2.5", "2,5", "1e1"]),
    st.sampled_from(["0.25", ".5", "1", "9", "nan", "0,5", ""]),
    st.sampled_from(["2000-02-03", "3.2.2000", "1999-01-01", ""]),
    st.sampled_from(["a", "b", "zz", ""]),
)  # fmt: skip
EVEN, ODD = ("7", "5", "0.25", "2000-02-03", "b"), ("7", "0", "9", "3.2.2000", "a")
LIMITS = IngestLimits(max_cell_bytes=11)  # so that a batch may be as small as a few rows


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read cells in batches of about so many bytes; the files that it leaves."""

    # Great Expectations takes long; what it would judge is compared instead.
    for name in ("validate_structure", "validate_values", "validate_scaled"):
        monkeypatch.setattr(f"dpiw.data.ingest.{name}", lambda given, *_, **__: {str(given): True})
    monkeypatch.setattr(cell_statement, "_MAX_TEXTS", 3)
    monkeypatch.setattr(cell_statement, "_MAX_BYTES", 12)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)

    def go(rows, *, block, most=None):
        monkeypatch.setattr(sources, "_BLOCK", block)
        source = tmp_path / "source"
        cells = [[f'"{cell}"' if "," in cell else cell for cell in row] for row in rows]
        source.write_text("\n".join([",".join(row) for row in (NAMES, *cells)]))
        unit = PrivacyUnit(
            relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=most or 1,
            id_column="id" if most else None,
        )  # fmt: skip
        ingest(source, file_format="csv", schema=SCHEMA, unit=unit, directory=private,
               limits=LIMITS)  # fmt: skip
        return {path.name: path.read_bytes() for path in private.iterdir()}

    go.private = private
    return go


def test_any_split_leaves_the_same_files(read):
    @settings(max_examples=8, derandomize=True, database=None, deadline=None)
    @given(st.lists(CELLS, max_size=60), st.integers(1, 2000))
    @example([ODD, *[EVEN] * 59], 1)
    @example([*[EVEN] * 59, ODD], 1)
    def same(rows, block):
        whole, split = read(rows, block=1 << 20), read(rows, block=block)
        assert whole == split

    same()
    rows = [("7", "2,5", "9", "3.2.2000", "zz")] * 50
    whole = read(rows, block=1 << 20)
    assert b"rows read: 50" in whole["cells.txt"]
    assert b"declare date_format" in whole["cells.txt"]
    assert json.loads(whole["validation.json"])["values"]["constraint low"]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_first_texts_are_those_of_the_whole_table(monkeypatch, size):
    """A short text behind one that was too much is none of them, whatever batch it is in."""
    monkeypatch.setattr(cell_statement, "_MAX_BYTES", 12)
    cells = pd.Series(["0,555555", "0,666666", "0,7"], dtype="str")
    tally = CellTally(PublicSchema(name="s", columns=[SCHEMA.column("x")]))
    for start in range(0, 3, size):
        frame = pd.DataFrame({"x": cells[start : start + size]})
        tally.add(frame, frame)
    texts = tally.first_texts(SCHEMA.column("x"))
    assert texts.series().tolist() == ["0,555555"]
    assert texts.full


def test_rows_are_bounded_across_batches(read):
    rows = [("7", str(n % 10), "0.5", "2000-02-03", "a") for n in range(90)]
    read(rows, block=1, most=4)
    assert pq.read_metadata(read.private / "scaled.parquet").num_rows == 4


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (["7", "1"], "ragged"), (["7", "1", "0", "2000-01-01", "a", "b"], "ragged"),
        (["7", "1" * 12, "0", "2000-01-01", "a"], "column n: a cell exceeds max_cell_bytes=11"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 70, 139])
def test_a_fault_is_told_alike_wherever_it_stands(read, bad, match, place):
    rows = [["7", "1", "0.5", "2000-02-03", "a"] for _ in range(140)]
    rows[place] = bad
    with pytest.raises(SourceError, match=match) as caught:
        read(rows, block=1)
    assert not any(digits in str(caught.value) for digits in ("70", "139", "141"))
    assert [*read.private.iterdir()] == []


def test_a_line_s_end_inside_a_cell_is_one_whatever_lies_before_it(tmp_path, monkeypatch):
    """A block's edge between CR and LF took the LF: one person's id read as two, by other rows."""
    monkeypatch.setattr(sources, "_BLOCK", 64)
    limits, clean = IngestLimits(max_cell_bytes=11), tmp_path / "copy"
    read = set()
    for before in range(60):
        other = b"z" * (before % 6) + b",1\n"
        rows = b"z,1\n" * (before // 6 + 10) + other + b'"x\r\ny",2\n'
        clean.write_bytes(b"a,b\n" + rows)
        with sources.open_csv(
            clean, ["a", "b"], limits=limits, encoding="utf-8", delimiter=","
        ) as raw:
            read |= {cell for frame in raw.frames() for cell in frame["a"] if "x" in cell}
    assert read == {"x\ny"}
