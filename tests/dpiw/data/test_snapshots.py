"""Snapshots: the same rows whatever batches they come in, and row groups that tell nothing."""

import itertools

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data import snapshots
from dpiw.data.scaled import ScaledTable
from dpiw.data.snapshots import open_snapshot, read_snapshot, snapshot_writer
from dpiw.errors import SourceError

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

    @settings(max_examples=20, derandomize=True, database=None, deadline=None)
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
    """Every third byte in turn: the rows are the same, or the file is refused."""
    path, found = tmp_path / "s", []
    with snapshot_writer(path) as append:
        append(SCALED)
    whole = path.read_bytes()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in range(0, pages, 3):
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
    with snapshot_writer(tmp_path / "s") as append:
        append(empty)
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
    with snapshot_writer(tmp_path / "s") as append:
        append(SCALED)
    data = bytearray((tmp_path / "s").read_bytes())
    start = pq.ParquetFile(tmp_path / "s").metadata.row_group(2).column(0).dictionary_page_offset
    data[start : start + 40] = bytes(40)
    (tmp_path / "s").write_bytes(data)
    batches = open_snapshot(tmp_path / "s").batches()
    assert next(batches).rows == 5
    with pytest.raises(SourceError, match="snapshot") as caught:
        list(batches)
    assert caught.value.__context__ is None
