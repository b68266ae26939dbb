"""Snapshots: the same rows whatever batches they come in, and row groups that tell nothing."""

import copy
import itertools
import pickle

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data import snapshots
from dpiw.data.scaled import ScaledTable
from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema
from dpiw.data.snapshots import open_snapshot, snapshot_writer, write_snapshot
from dpiw.data.tables import PrivateSource, PrivateTable, SyntheticTable
from dpiw.errors import PrivacyError, SchemaError, SourceError
from tests.support.read import read_snapshot

ROWS = 23
SCALED = ScaledTable(
    {
        "x": np.where(np.arange(ROWS) % 5, np.linspace(0, 1, ROWS), np.nan),
        "c": (np.arange(ROWS) % 3 - 1).astype(np.int32),
        "t": np.array([f"text {row}" for row in range(ROWS)], dtype=object),
    },
    ROWS,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(snapshots, "BATCH_ROWS", 5)


def test_any_split_gives_the_same_snapshot(tmp_path_factory):
    folder, files = tmp_path_factory.mktemp("splits"), set()

    @settings(max_examples=12, derandomize=True, database=None, deadline=None)
    @given(st.sets(st.integers(0, ROWS)))
    def splits(cuts):
        edges = [0, *sorted(cuts), ROWS]
        path = folder / "snapshot"
        with snapshot_writer(path) as append:
            for start, stop in itertools.pairwise(edges):
                append(SCALED.take(np.arange(start, stop)))
        files.add(path.read_bytes())
        batches = [*open_snapshot(path).batches()]
        assert [batch.rows for batch in batches] == [5, 5, 5, 5, 3]
        assert ScaledTable.concatenate(batches).equals(SCALED)

    splits()
    assert len(files) == 1
    metadata = pq.ParquetFile(folder / "snapshot").metadata
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert groups == [5, 5, 5, 5, 3]


def test_a_flipped_bit_of_a_page_is_found(tmp_path):
    """Every seventh byte in turn: the rows are the same, or the file is refused."""
    path, found = tmp_path / "s", []
    write_snapshot(SCALED, path)
    whole = path.read_bytes()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in range(0, pages, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        read = read_snapshot(path)
        assert read is None or read.equals(SCALED)
        found.append(read is None)
    assert sum(found) > 0.9 * len(found)


def test_a_snapshot_of_before_is_read(tmp_path):
    pq.write_table(SCALED.to_arrow(), tmp_path / "s", store_schema=False)  # one row group
    read = read_snapshot(tmp_path / "s")
    assert read.equals(SCALED)
    assert {name: values.dtype for name, values in read.columns.items()} == {
        name: values.dtype for name, values in SCALED.columns.items()
    }


def test_without_rows_there_is_one_batch_of_none(tmp_path):
    empty = SCALED.take([])
    write_snapshot(empty, tmp_path / "s")
    (batch,) = open_snapshot(tmp_path / "s").batches()
    assert batch.equals(empty)
    assert batch.columns["t"].dtype == object


def test_what_fails_leaves_nothing(tmp_path):
    def interrupted():
        with snapshot_writer(tmp_path / "s") as append:
            append(SCALED)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        interrupted()
    assert [*tmp_path.iterdir()] == []


def test_damage_behind_the_first_batch_is_refused(tmp_path):
    write_snapshot(SCALED, tmp_path / "s")
    data = bytearray((tmp_path / "s").read_bytes())
    start = pq.ParquetFile(tmp_path / "s").metadata.row_group(2).column(0).dictionary_page_offset
    data[start : start + 40] = bytes(40)
    (tmp_path / "s").write_bytes(data)
    batches = open_snapshot(tmp_path / "s").batches()
    assert next(batches).rows == 5
    with pytest.raises(SourceError, match="snapshot") as caught:
        list(batches)
    assert caught.value.__context__ is None


TOY = PublicSchema(
    name="toy",
    columns=(
        Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0, upper=10, nullable=True),
        Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a", "b")),
    ),
)
TABLE = TOY.scale(pd.DataFrame({"x": [7.77777, None, 3.0], "c": ["a", "b", "b"]}))


class Confirms:
    def __init__(self, error=None):
        self.error, self.asked = error, []

    def confirm(self, grant):
        self.asked.append(grant)
        if self.error is not None:
            raise self.error


@pytest.fixture
def table():
    return PrivateTable(schema=TOY, scaled=TABLE)


@pytest.mark.parametrize(
    "action",
    [
        len, bool, iter, list, copy.copy, copy.deepcopy, pickle.dumps, hash,
        lambda t: pickle.dumps(t, protocol=0), lambda t: t[0], lambda t: 1 in t,
        lambda t: t == t, lambda t: pd.DataFrame(t), lambda t: np.array(t).sum(),
        lambda t: t.scaled, lambda t: t.__dict__, lambda t: t.__getstate__(),
    ],
)  # fmt: skip
def test_a_private_table_is_sealed(table, action):
    with pytest.raises((PrivacyError, TypeError, AttributeError)) as caught:
        action(table)
    assert "777" not in str(caught.value)


@pytest.mark.parametrize("show", [repr, str, format, lambda t: f"{t:>50}", lambda t: str(dir(t))])
def test_a_private_table_shows_nothing(table, show):
    assert "777" not in show(table)
    assert "3" not in show(table)  # neither the number of rows


@pytest.mark.parametrize("names", [["c", "x"], ["x"], ["x", "c", "d"]])
def test_a_private_table_has_the_released_columns(names):
    columns = {name: np.zeros(2) for name in names}
    with pytest.raises(SchemaError, match="exactly the released columns"):
        PrivateTable(schema=TOY, scaled=ScaledTable(columns, 2))


def test_source_opens_after_the_ledger_confirmed(tmp_path):
    path = tmp_path / "scaled.parquet"
    write_snapshot(TABLE, path)
    ledger = Confirms()
    opened = PrivateSource(snapshot=path, schema=TOY).open("grant", ledger)
    assert ledger.asked == ["grant"]
    assert opened.schema is TOY
    assert opened.confidential().equals(TABLE)


def test_source_reads_no_byte_without_the_ledger(tmp_path):
    source = PrivateSource(snapshot=tmp_path / "not-there.parquet", schema=TOY)
    with pytest.raises(PrivacyError, match="not live"):  # not the missing file's error
        source.open("grant", Confirms(PrivacyError("not live")))
    assert str(tmp_path) not in repr(source)


@pytest.mark.parametrize("damage", ["missing", "truncated", "noise", "other"])
def test_damaged_snapshots_are_refused(tmp_path, damage):
    path = tmp_path / "scaled.parquet"
    write_snapshot(TABLE, path)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[:-20])
    elif damage == "noise":
        path.write_bytes(bytes(len(data)))
    else:
        write_snapshot(ScaledTable({"y": np.zeros(1)}, 1), path)
    with pytest.raises(SourceError, match="snapshot") as caught:
        PrivateSource(snapshot=path, schema=TOY).open("grant", Confirms())
    assert caught.value.__context__ is None


def test_snapshot_file_holds_no_statistics_and_no_metadata(tmp_path):
    path = tmp_path / "scaled.parquet"
    write_snapshot(TABLE, path)
    assert path.stat().st_mode & 0o077 == 0
    metadata = pq.ParquetFile(path).metadata
    assert metadata.metadata is None
    group = metadata.row_group(0)
    assert not any(group.column(i).is_stats_set for i in range(group.num_columns))
    assert [p.name for p in tmp_path.iterdir()] == ["scaled.parquet"]


def test_synthetic_table_holds_what_is_released():
    raw = ScaledTable({"x": np.array([1 / 3, 1.7, np.nan]), "c": np.array([5, -1, 1])}, 3)
    table = SyntheticTable(schema=TOY, scaled=raw)
    assert table.rows == 3
    assert TOY.scale(table.frame()).equals(table.scaled)
    assert table.frame()["c"].tolist() == ["b", "a", "b"]
    assert pickle.loads(pickle.dumps(table)).scaled.equals(table.scaled)
