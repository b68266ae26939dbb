import copy
import pickle

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpiw.data.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.data.snapshots import read_snapshot, write_snapshot
from dpiw.data.tables import PrivateSource, PrivateTable, SyntheticTable
from dpiw.errors import PrivacyError, SchemaError, SourceError

SCHEMA = PublicSchema(
    name="toy",
    columns=(
        Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0, upper=10, nullable=True),
        Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a", "b")),
    ),
)
SCALED = SCHEMA.scale(pd.DataFrame({"x": [7.77777, None, 3.0], "c": ["a", "b", "b"]}))


class Confirms:
    def __init__(self, error=None):
        self.error, self.asked = error, []

    def confirm(self, grant):
        self.asked.append(grant)
        if self.error is not None:
            raise self.error


@pytest.fixture
def table():
    return PrivateTable(schema=SCHEMA, scaled=SCALED)


@pytest.mark.parametrize(
    "action",
    [
        len, bool, iter, list, copy.copy, copy.deepcopy, pickle.dumps, hash,
        lambda t: pickle.dumps(t, protocol=0), lambda t: t[0], lambda t: 1 in t,
        lambda t: t == t, lambda t: pd.DataFrame(t), lambda t: np.array(t).sum(),
        lambda t: t.scaled, lambda t: t.__dict__,
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


def test_a_private_table_gives_its_rows_on_request_only(table):
    assert table.confidential().equals(SCALED)
    assert table.schema is SCHEMA


@pytest.mark.parametrize("names", [["c", "x"], ["x"], ["x", "c", "d"]])
def test_a_private_table_has_the_released_columns(names):
    columns = {name: np.zeros(2) for name in names}
    with pytest.raises(SchemaError, match="exactly the released columns"):
        PrivateTable(schema=SCHEMA, scaled=ScaledTable(columns, 2))


def test_source_opens_after_the_ledger_confirmed(tmp_path):
    path = tmp_path / "scaled.parquet"
    write_snapshot(SCALED, path)
    ledger = Confirms()
    opened = PrivateSource(snapshot=path, schema=SCHEMA).open("grant", ledger)
    assert ledger.asked == ["grant"]
    assert opened.confidential().equals(SCALED)


def test_source_reads_no_byte_without_the_ledger(tmp_path):
    source = PrivateSource(snapshot=tmp_path / "not-there.parquet", schema=SCHEMA)
    with pytest.raises(PrivacyError, match="not live"):  # not the missing file's error
        source.open("grant", Confirms(PrivacyError("not live")))
    assert str(tmp_path) not in repr(source)


@pytest.mark.parametrize("damage", ["missing", "truncated", "noise", "other"])
def test_damaged_snapshots_are_refused(tmp_path, damage):
    path = tmp_path / "scaled.parquet"
    write_snapshot(SCALED, path)
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
        PrivateSource(snapshot=path, schema=SCHEMA).open("grant", Confirms())
    assert caught.value.__context__ is None


def test_snapshot_file_holds_no_statistics_and_no_metadata(tmp_path):
    path = tmp_path / "scaled.parquet"
    write_snapshot(SCALED, path)
    assert path.stat().st_mode & 0o077 == 0
    metadata = pq.ParquetFile(path).metadata
    assert metadata.metadata is None
    group = metadata.row_group(0)
    assert not any(group.column(i).is_stats_set for i in range(group.num_columns))
    assert [p.name for p in tmp_path.iterdir()] == ["scaled.parquet"]


def test_empty_snapshot(tmp_path):
    empty = SCALED.take(np.array([], dtype=int))
    write_snapshot(empty, tmp_path / "s")
    found = read_snapshot(tmp_path / "s")
    assert found.rows == 0
    assert found.equals(empty)


def test_synthetic_table_holds_what_is_released():
    raw = ScaledTable({"x": np.array([1 / 3, 1.7, np.nan]), "c": np.array([5, -1, 1])}, 3)
    table = SyntheticTable(schema=SCHEMA, scaled=raw)
    assert table.rows == 3
    assert SCHEMA.scale(table.frame()).equals(table.scaled)
    assert table.frame()["c"].tolist() == ["b", "a", "b"]
    assert pickle.loads(pickle.dumps(table)).scaled.equals(table.scaled)
