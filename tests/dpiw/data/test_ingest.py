import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpiw.data.ingest import IngestLimits, ingest
from dpiw.data.schema import PublicSchema
from dpiw.data.snapshots import read_snapshot
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.dpiw.data.schema_example import TOY as SCHEMA
from tests.dpiw.data.schema_example import toy_schema
from tests.support.patience import SECONDS

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


def test_parquet_and_csv_give_the_same_snapshot(run):
    table = pa.table(
        {
            "c": pa.array(["a", "q", "b"]),
            "id": pa.array([1, 1, 2]),
            "n": pa.array([5, 2**62, None], pa.int64()),
        }
    )
    assert run(_parquet(table), file_format="parquet").equals(run(TEXT))


def test_pandas_metadata_decides_nothing(run):
    frame = pd.DataFrame({"id": [1, 2], "n": [1, 2], "c": ["a", "b"]}, index=[10, 20])
    table = pa.Table.from_pandas(frame, preserve_index=False)
    assert b"pandas" in table.schema.metadata
    assert run(_parquet(table), file_format="parquet").rows == 2


@pytest.mark.parametrize("text", ["id,n,c\n", "id,n,c", "\ufeffid,n,c\r\n", "id,n,c\n1,1,a"])
def test_an_empty_or_tiny_table_is_admissible_under_add_or_remove(run, text):
    assert run(text).rows == text.count("1,1,a")
    empty = pa.table({"id": pa.array([], pa.int64()), "n": pa.array([], pa.int64()),
                      "c": pa.array([], pa.string())})  # fmt: skip
    assert run(_parquet(empty), file_format="parquet").rows == 0


def test_one_column_keeps_its_empty_cells(run):
    schema = PublicSchema.from_mapping(
        {"name": "s", "columns": [{"name": "b", "kind": "boolean", "nullable": True}]}
    )
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


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"unit": REPLACE}, SpecError, "must be declared"),
        ({"unit": REPLACE, "public_rows": 0}, SpecError, "must be declared"),
        ({"public_rows": 3}, SpecError, "private"),
        ({"file_format": "xlsx"}, SpecError, "csv or parquet"),
        ({"unit": PrivacyUnit(relation=ADD.relation, id_column="n")}, SchemaError, "identifier"),
        ({"unit": PrivacyUnit(relation=ADD.relation, id_column="zz")}, SchemaError, "no column"),
    ],
)
def test_settings_are_checked_before_the_file_is_opened(tmp_path, settings, error, match):
    settings = {"file_format": "csv", "unit": ADD} | settings
    with pytest.raises(error, match=match):
        ingest(tmp_path / "nothing", schema=SCHEMA, directory=tmp_path, limits=IngestLimits(),
               **settings)  # fmt: skip
    with pytest.raises(SpecError, match="max_columns"):
        IngestLimits(max_columns=0)


# Rows per person; how they are chosen: test_person_bound.py


def _unit(rows):
    return PrivacyUnit(relation=ADD.relation, max_rows=rows, id_column="id")


def test_ids_are_compared_as_text_without_padding(run):
    text = "id,n,c\n a ,1,a\na,2,a\nA,3,a\n"
    assert run(text, unit=_unit(1)).rows == 2


@pytest.mark.parametrize("cell", ["", "  "])
def test_a_missing_id_is_refused_unless_declared(run, cell):
    text = f"id,n,c\n{cell},1,a\n{cell},2,a\n1,3,b\n1,4,b\n"
    with pytest.raises(SourceError, match="column id: an id is missing"):
        run(text, unit=_unit(1))
    assert run(text, unit=_unit(1), schema=toy_schema(own_person=True)).rows == 3


def test_a_missing_id_is_irrelevant_when_rows_are_the_unit(run):
    assert run("id,n,c\n,1,a\n").rows == 1


def test_bounding_an_empty_table(run):
    assert run("id,n,c\n", unit=_unit(2)).rows == 0
    assert (
        "rows read: 0; within max_rows, and so kept: 0" in (run.private / "cells.txt").read_text()
    )


def test_the_custodian_reads_how_many_rows_the_unit_left_out(run):
    rows = "".join(f"{row % 100},1,a\n" for row in range(300))
    run("id,n,c\n" + rows, unit=_unit(1))
    told = (run.private / "cells.txt").read_text()
    assert "rows read: 300; within max_rows, and so kept: 100" in told


# Memory

_BOMB = """
import pathlib, resource, sys
from dpiw.data import ingest, sources
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
        sources.read_parquet(source, names, limits=sources.IngestLimits(max_memory_bytes=most))
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
    assert done.stdout.splitlines()[0] == "the table exceeds max_memory_bytes=200000000"
    # Which allocation fails is chance, and so is who says so.
    assert any(words in done.stdout for words in ("damaged", "could not be read", "more memory"))
    assert done.stdout.splitlines()[2:] == [str(rows // 2)]
    assert "xxx" not in done.stdout + done.stderr
