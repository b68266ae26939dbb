import json
import os
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data.cells import statement as cell_statement
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source import batches as sources
from dpiw.data.source import copy as raw_source
from dpiw.data.source.copy import IngestLimits
from dpiw.data.source.ingest import ingest
from dpiw.errors import SourceError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.dpiw.data.schema_example import TOY as SCHEMA
from tests.dpiw.data.schema_example import toy_schema
from tests.support.patience import SECONDS
from tests.support.read import read_snapshot
from tests.support.worlds import declared

ADD = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
REPLACE = PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE)

TEXT = "id,n,c\n1,5,a\n1,99,q\n2,,b\n"


@pytest.fixture
def run(tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)

    def go(content, *, schema=SCHEMA, unit=ADD, file_format="csv", limits=None, **settings):
        source = tmp_path / f"source.{file_format}"
        source.write_bytes(content.encode() if isinstance(content, str) else content)
        path = ingest(
            source, file_format=file_format, schema=schema, unit=unit, directory=private,
            limits=limits or IngestLimits(), **settings,
        )  # fmt: skip
        assert path == private / "scaled.parquet"
        return read_snapshot(path)

    go.private = private
    return go


def _parquet(table):
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    return buffer.getvalue().to_pybytes()


def test_csv_becomes_a_scaled_snapshot(run):
    scaled = run(TEXT)
    frame = SCHEMA.unscale(scaled)
    assert frame["n"].tolist() == [5, 9, pd.NA]
    assert frame["c"].tolist() == ["a", "z", "b"]
    left = sorted(p.name for p in run.private.iterdir())
    assert left == ["cells.txt", "scaled.parquet", "validation.json"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in run.private.iterdir())


def test_verdicts_stay_in_the_private_directory(run):
    run(TEXT)
    verdicts = json.loads((run.private / "validation.json").read_text())
    assert all(verdicts["structure"].values())
    assert all(verdicts["scaled"].values())
    assert verdicts["values"]["n: expect_column_values_to_be_between"] is False


def test_rows_that_break_a_constraint_are_kept_as_they_are_and_only_the_custodian_is_told(run):
    never = {"name": "low", "never": {"n": {"upper": 5}, "c": "a"}}
    stated = PublicSchema.from_mapping({**SCHEMA.to_mapping(), "constraints": [never]})
    for text, holds in ((TEXT, False), (TEXT.replace("5", "6"), True)):
        plain = run(text)
        assert run(text, schema=stated).equals(plain)
        verdicts = json.loads((run.private / "validation.json").read_text())
        assert verdicts["values"]["constraint low"] is holds
        assert "low" not in (run.private / "cells.txt").read_text()


@pytest.mark.parametrize("text", ["id,n,c\n", "id,n,c", "\ufeffid,n,c\r\n", "id,n,c\n1,1,a"])
def test_an_empty_or_tiny_table_is_admissible_under_add_or_remove(run, text):
    assert run(text).rows == text.count("1,1,a")
    empty = pa.table({"id": pa.array([], pa.int64()), "n": pa.array([], pa.int64()),
                      "c": pa.array([], pa.string())})  # fmt: skip
    assert run(_parquet(empty), file_format="parquet").rows == 0


def test_one_column_keeps_its_empty_cells(run):
    schema = declared({"name": "b", "kind": "boolean", "nullable": True})
    scaled = run("b\ntrue\n\nfalse\n", schema=schema)
    assert scaled.columns["b"].tolist() == [1, -1, 0]


def test_replace_one_needs_the_declared_number_of_rows(run):
    assert run(TEXT, unit=REPLACE, public_rows=3).rows == 3
    for rows in (2, 4):
        with pytest.raises(SourceError, match="number of rows") as caught:
            run(TEXT, unit=REPLACE, public_rows=rows)
        assert "3" not in str(caught.value)
    with pytest.raises(SourceError, match="number of rows"):
        run("id,n,c\n", unit=REPLACE, public_rows=1)


# What a file may be beyond the cases of tests/hostile/bad_inputs

CANARY = "CANARY-7f3a"


def refused(run, content, match=None, **settings):
    """The error, which quotes nothing, and no file is left behind."""
    with pytest.raises(SourceError, match=match) as caught:
        run(content, **settings)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert CANARY not in str(caught.value)
    assert not list(run.private.iterdir())
    return caught.value


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f'id,n,c\n"1\n1",2,b\n\n\n3,4\n"Row #9: {CANARY}"\n', "row 2 of the data "),
        ("id,n,c\n" + "1,2,b\n" * 200_000 + f"3,{CANARY}\n", "row 200001 of the data "),
        (f'id,n,c\n"1\r\n1",2,b\r\n3,4,"{CANARY}\r\n1,1,b\r\n', "begins in line 4 of the file"),
        (f"id,n,c\n1,2,b\n3,4,{CANARY * 1000}\n", "row 2 of the data "),
        (f'id,n,c\n1,2,a"{CANARY}\n1,2,"{CANARY * 1000}"\n', "row 2 of the data "),
    ],
)
def test_the_place_of_a_fault_is_known_beside_the_message(run, text, place):
    """Its number alone, and no message holds it."""
    error = refused(run, text)
    assert place in error.place
    assert CANARY not in error.place
    assert not re.search(r"row \d|line \d", str(error))


def test_want_of_memory_is_not_told_as_a_fault_of_the_file(run, monkeypatch):
    """Arrow reads blocks ahead: cells that may be long, in a wide table, can be too much."""
    short = mock.Mock(side_effect=pa.ArrowMemoryError(f"malloc of size 32 failed near {CANARY}"))
    monkeypatch.setattr("pyarrow.csv.open_csv", short)
    refused(run, "id,n,c\n1,2,b\n", r"source\.max_memory_bytes")


def test_quotes_and_line_ends_that_are_admissible(run):
    frame = SCHEMA.unscale(run('c,n,id\r\n"b\nb",1,x\r\n"b ","2","a,b"\r\n5" pipe,3,"say ""b"""'))
    assert frame["n"].tolist() == [1, 2, 3]
    assert frame["c"].tolist() == ["z", "b", "z"]


@pytest.mark.parametrize("name", ["klingon", "rot13", "hex", ""])
def test_what_is_no_text_encoding_is_refused(run, name):
    refused(run, f"id,n,c\n1,1,{CANARY}\n", "text encoding", encoding=name)


def test_only_what_is_read_whole_has_a_limit_of_memory(run):
    limits = IngestLimits(max_memory_bytes=20)
    assert run(f"id,n,c\n1,1,{CANARY}\n", limits=limits).rows == 1
    with pytest.raises(SourceError, match="max_memory_bytes=20"):
        sources.read_csv(run.private.parent / "source.csv", ["id", "n", "c"], limits=limits,
                         encoding="utf-8", delimiter=",")  # fmt: skip


@pytest.mark.parametrize("change", ["rewrite", "append", "touch"])
def test_a_file_that_changes_while_it_is_read_is_refused(run, monkeypatch, change):
    source, digest = run.private.parent / "source.csv", raw_source._digest

    def meddling(*arguments):
        found = digest(*arguments)
        if change == "rewrite":
            with source.open("r+b") as stream:
                stream.write(b"id,n,c\n9")
        elif change == "append":
            with source.open("ab") as stream:
                stream.write(b"2,2,b\n")
        else:
            os.utime(source, ns=(1, 1))
        return found

    monkeypatch.setattr(raw_source, "_digest", meddling)
    refused(run, f"id,n,c\n1,1,{CANARY}\n", "changed while")


def test_parquet_bytes_that_are_no_utf8_are_an_unknown_cell(run):
    bad = pa.array([b"b", b"\xff\xfe", None]).view(pa.string())
    columns = {"id": pa.array([1, 2, 3]), "n": pa.array([1, 2, 3]), "c": bad}
    scaled = run(_parquet(pa.table(columns)), file_format="parquet")
    assert SCHEMA.unscale(scaled)["c"].tolist() == ["b", "z", "z"]


# Rows per person; how they are chosen: test_person_bound.py


def _unit(rows):
    return PrivacyUnit(relation=ADD.relation, max_rows=rows, id_column="id")


@pytest.mark.parametrize("cell", ["", "  "])
def test_a_missing_id_is_refused_unless_declared(run, cell):
    text = f"id,n,c\n{cell},1,a\n{cell},2,a\n1,3,b\n1,4,b\n"
    with pytest.raises(SourceError, match="column id: an id is missing"):
        run(text, unit=_unit(1))
    assert run(text, unit=_unit(1), schema=toy_schema(own_person=True)).rows == 3


def test_a_missing_id_is_irrelevant_when_rows_are_the_unit(run):
    assert run("id,n,c\n,1,a\n").rows == 1


def test_the_custodian_reads_how_many_rows_the_unit_left_out(run):
    rows = "".join(f"{row % 100},1,a\n" for row in range(300))
    for text, read, kept in (("", 0, 0), (rows, 300, 100)):
        assert run("id,n,c\n" + text, unit=_unit(1)).rows == kept
        told = (run.private / "cells.txt").read_text()
        assert f"rows read: {read}; within max_rows, and so kept: {kept}" in told


_BOMB = """
import pathlib, resource, sys
from dpiw.data.source import ingest
from dpiw.data.source import batches as sources
from tests.support import read
from dpiw.data.snapshots import open_snapshot
from dpiw.errors import SourceError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.dpiw.data.schema_example import TOY

source, names = pathlib.Path(sys.argv[1]), [column.name for column in TOY.columns]
for check in ("validate_structure", "validate_values", "validate_scaled"):
    setattr(ingest, check, lambda *_, **__: {})  # Great Expectations takes seconds to import
resource.setrlimit(resource.RLIMIT_AS, (7 << 28, 7 << 28))  # threads reserve 64 MiB each
for most in (200_000_000, 100_000_000_000):
    try:
        read.read_parquet(source, names, limits=sources.IngestLimits(max_memory_bytes=most))
    except SourceError as error:
        print(error)
unit = PrivacyUnit(
    relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1000, id_column="id"
)
path = ingest.ingest(
    source, file_format="parquet", schema=TOY, unit=unit, directory=source.parent,
    limits=sources.IngestLimits(max_memory_bytes=1),
)
print(sum(batch.rows for batch in open_snapshot(path).batches()))
"""


@pytest.mark.slow
def test_a_table_larger_than_the_memory_is_read_in_batches_and_not_at_once(tmp_path):
    """A Parquet bomb of 1.2 GB of text: ends a whole read, as of public files, by either limit."""
    rows = 400_000
    ids = pa.array(np.arange(rows) // 2000)
    cells = pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), ["x" * 3_000])
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"id": ids, "n": ids, "c": cells}), path, store_schema=False)
    assert path.stat().st_size < 1 << 22
    done = subprocess.run(
        [sys.executable, "-c", _BOMB, str(path)],
        capture_output=True, text=True, check=False, env=dict(os.environ), timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    said = "the table exceeds max_memory_bytes=200000000; use fewer rows"
    assert done.stdout.splitlines()[0] == said
    # Which allocation fails is chance, and so is who says so.
    assert any(words in done.stdout for words in ("damaged", "could not be read", "more memory"))
    assert done.stdout.splitlines()[2:] == [str(rows // 2)]
    assert "xxx" not in done.stdout + done.stderr


BATCHED = declared(
    {"name": "id", "role": "identifier"},
    {"name": "n", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
    {"name": "x", "kind": "continuous", "lower": 0, "upper": 1},
    {"name": "d", "kind": "date", "lower": "2000-01-01", "upper": "2001-01-01"},
    {"name": "c", "kind": "categorical", "levels": ["a", "b"], "other": "b"},
    name="s",
    constraints=[{"name": "low", "never": {"n": {"upper": 0}, "c": "a"}}],
)  # fmt: skip
NAMES = [column.name for column in BATCHED.columns]
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
        monkeypatch.setattr(
            f"dpiw.data.source.ingest.{name}", lambda given, *_, **__: {str(given): True}
        )
    monkeypatch.setattr(cell_statement, "_MAX_TEXTS", 3)
    monkeypatch.setattr(cell_statement, "_MAX_BYTES", 12)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)

    def go(rows, *, block):
        monkeypatch.setattr(sources, "_BLOCK", block)
        source = tmp_path / "source"
        cells = [[f'"{cell}"' if "," in cell else cell for cell in row] for row in rows]
        source.write_text("\n".join([",".join(row) for row in (NAMES, *cells)]))
        ingest(source, file_format="csv", schema=BATCHED, unit=ADD, directory=private,
               limits=LIMITS)  # fmt: skip
        return {path.name: path.read_bytes() for path in private.iterdir()}

    go.private = private
    return go


@pytest.mark.slow
def test_any_split_leaves_the_same_files(read):
    @settings(max_examples=6, derandomize=True, database=None, deadline=None)
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
