"""The ledger in a file of SQLite: opening and creating it, its settings, its locks, its guards."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from dpiw.data import files as durable
from dpiw.errors import LedgerError
from dpiw.ledger import Ledger
from dpiw.ledger.stores import files
from dpiw.ledger.stores import sqlite as store_sqlite
from tests.support.around import around
from tests.support.ledger import BOTH, adult, ask, cost, opened, refused


def test_create_makes_a_private_file_and_again_is_the_same_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite"
    first = Ledger.create(path)
    first.register(adult())
    head = first.head()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Ledger.create(f"sqlite:///{path}").head() == head
    assert Ledger.open(path).head() == head
    assert first.location == str(path)
    assert [p.name for p in tmp_path.iterdir() if "-" not in p.name] == ["ledger.sqlite"]


def test_open_never_creates(tmp_path):
    with pytest.raises(LedgerError, match="no such file"):
        Ledger.open(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_deleted_under_us_fails_closed_and_stays_deleted(sqlite_ledger):
    for path in Path(sqlite_ledger.location).parent.iterdir():
        path.unlink()
    with pytest.raises(LedgerError, match="no such file"):
        sqlite_ledger.reserve(**ask())
    assert list(Path(sqlite_ledger.location).parent.iterdir()) == []


def test_what_is_not_a_ledger_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    path.chmod(0o600)
    for content in (path.read_bytes(), b"", b"not a database at all" * 50):
        path.write_bytes(content)
        for act in (Ledger.open, Ledger.create):
            with pytest.raises(LedgerError, match=r"not a (database|dpiw ledger)"):
                act(path)
        assert path.read_bytes() == content


def test_a_damaged_file_is_refused(sqlite_ledger):
    for number in range(40):
        sqlite_ledger.register(adult(name=f"p{number}"))
    connection = sqlite3.connect(sqlite_ledger.location)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(Path(sqlite_ledger.location).read_bytes())
    data[4096 : 4096 + 2000] = os.urandom(2000)
    Path(sqlite_ledger.location).write_bytes(bytes(data))
    with pytest.raises(LedgerError):
        Ledger.open(sqlite_ledger.location).verify()


def test_a_link_to_nothing_and_two_missing_folders_are_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(LedgerError, match="no such file"):
        Ledger.create(tmp_path / "link")
    with pytest.raises(LedgerError, match="in one that does not exist"):
        Ledger.create(tmp_path / "none" / "missing" / "ledger")
    (tmp_path / "state").symlink_to(tmp_path / "unmounted")
    with pytest.raises(LedgerError, match="folder cannot be made"):
        Ledger.create(tmp_path / "state" / "ledger")
    assert {path.name for path in tmp_path.iterdir()} == {"link", "state"}  # nothing was made


def test_the_log_of_a_removed_ledger_is_not_replayed_into_a_new_one(tmp_path):
    (tmp_path / "ledger-wal").write_bytes(b"old")
    with pytest.raises(LedgerError, match="remains of a removed ledger"):
        Ledger.create(tmp_path / "ledger")


def test_a_ledger_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    steps: list[str] = []

    def synced(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    def renamed(*_):
        steps.append("rename")

    around(files.os, "fsync", before=synced, replace=monkeypatch.setattr)
    around(durable, "name_exclusively", before=renamed, replace=monkeypatch.setattr)
    Ledger.create(tmp_path / "ledger")
    assert steps == ["file", "rename", "folder"]


def test_two_creators_make_one_ledger(tmp_path, monkeypatch):
    def overtaken(_, target):
        monkeypatch.undo()
        Ledger.create(target).register(adult())

    around(durable, "name_exclusively", before=overtaken, replace=monkeypatch.setattr)
    late = Ledger.create(tmp_path / "ledger")
    assert late.populations() == (adult(),)
    assert [path.name for path in tmp_path.iterdir() if "-" not in path.name] == ["ledger"]


@pytest.mark.parametrize(("name", "weaker"), [("synchronous", "NORMAL"), ("foreign_keys", "OFF")])
def test_a_connection_with_weaker_settings_is_refused(sqlite_ledger, monkeypatch, name, weaker):
    _, expected = store_sqlite._SETTINGS[name]
    monkeypatch.setitem(store_sqlite._SETTINGS, name, (weaker, expected))
    with pytest.raises(LedgerError, match=f"SQLite refused {name}={weaker}"):
        sqlite_ledger.reserve(**ask())


def test_every_connection_is_wal_and_full(sqlite_ledger):
    with sqlite_ledger._store.transaction(write=True) as connection:
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    assert found == expected


def test_an_old_sqlite_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(store_sqlite, "_OLDEST_SQLITE", (99, 0, 0))
    with pytest.raises(LedgerError, match=r"SQLite 3\.38"):
        Ledger.create(tmp_path / "ledger")


@pytest.mark.slow
def test_a_held_lock_ends_in_an_error_not_in_a_wait(sqlite_ledger):
    patient = opened(sqlite_ledger.location, wait=0.2)
    other = sqlite3.connect(sqlite_ledger.location, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked by another process"):
        patient.reserve(**ask())
    assert patient.spent("adult") == cost("0", "0")  # readers do not wait
    other.execute("ROLLBACK")
    other.close()
    patient.reserve(**ask())


def test_a_full_disk_writes_nothing(sqlite_ledger, monkeypatch):
    pages = sqlite3.connect(sqlite_ledger.location).execute("PRAGMA page_count").fetchone()[0]
    real = store_sqlite._connect

    def small(*arguments):
        connection = real(*arguments)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    many = {f"s{number}": BOTH["generator"] * 20 for number in range(40)}
    monkeypatch.setattr(store_sqlite, "_connect", small)
    refused(sqlite_ledger, LedgerError, lambda: sqlite_ledger.reserve(**ask(stages=many)))
    monkeypatch.undo()
    sqlite_ledger.reserve(**ask(stages=many))
    assert sqlite_ledger.verify().ok


def test_the_database_itself_refuses_change(sqlite_ledger):
    raw = sqlite3.connect(sqlite_ledger.location, isolation_level=None)
    for statement in (
        "UPDATE entries SET at = 'x'",
        "DELETE FROM entries WHERE seq = 2",
        "INSERT INTO entries SELECT 9, previous, hash, kind, population, run_key, attempt, stage,"
        " payload, at FROM entries WHERE seq = 2",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 2",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|continue the chain"):
            raw.execute(statement)
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT"):
        raw.execute(
            "INSERT INTO entries SELECT 3, hash, hash, kind, population, run_key, 'x', stage,"
            " payload, at FROM entries WHERE seq = 2"
        )
    raw.close()
    assert sqlite_ledger.verify().ok
