"""Prefect's database, made by its own migrations over another driver: the same one, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prefect.settings import (
    PREFECT_API_DATABASE_CONNECTION_URL,
    PREFECT_API_DATABASE_MIGRATE_ON_START,
    temporary_settings,
)

from flows import database
from flows.database import make_database


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where the settings want a database that is not there."""
    file = tmp_path / "prefect.db"
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{file}"}):
        yield file


def schema_of(file: Path) -> set[tuple[str, str, tuple[str, ...]]]:
    """Every table, index and trigger; constraints of a table come in an order of chance."""
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
        return {
            (kind, name, tuple(sorted(line.strip().rstrip(",") for line in sql.splitlines())))
            for kind, name, sql in found
        }


def rows_of(file: Path) -> dict[str, list[tuple[str, ...]]]:
    with closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables
        }


def test_it_is_the_one_that_prefect_makes(prefect_server, path: Path, capfd) -> None:
    make_database()
    theirs = prefect_server.home / "prefect.db"
    assert schema_of(path) == schema_of(theirs)
    rows = rows_of(path)
    assert rows.pop("alembic_version") == rows_of(theirs)["alembic_version"]
    assert len(rows) > 20
    assert not any(rows.values())
    assert capfd.readouterr() == ("", "")
    assert [each.name for each in path.parent.iterdir()] == ["prefect.db"]


def test_one_that_is_there_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"not even a database")
    make_database()
    assert path.read_bytes() == b"not even a database"


@pytest.mark.parametrize("end", ["-wal", "-journal", "-shm"])
def test_beside_a_journal_of_one_that_is_gone_none_is_made(end: str, path: Path, capfd) -> None:
    """SQLite would write it into the new one; by itself it throws it away."""
    journal = path.with_name(path.name + end)
    journal.write_bytes(b"of another")
    make_database()
    assert [*path.parent.iterdir()] == [journal]
    assert capfd.readouterr() == ("", "")


def test_who_wants_no_migrations_gets_none(path: Path, capfd) -> None:
    with temporary_settings({PREFECT_API_DATABASE_MIGRATE_ON_START: False}):
        make_database()
    assert [*path.parent.iterdir()] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("renames", [True, False])
def test_it_has_one_name(renames: bool, path: Path, monkeypatch) -> None:
    monkeypatch.setattr(database, "_migrated", lambda: b"a database")
    if not renames:
        monkeypatch.setattr(database, "rename_exclusively", lambda *_: False)
    make_database()
    assert path.read_bytes() == b"a database"
    assert path.stat().st_nlink == 1
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("renames", [True, False])
@pytest.mark.parametrize("is_seen", [True, False])
def test_of_two_runs_at_once_the_first_makes_it(
    is_seen: bool, renames: bool, path: Path, monkeypatch, capfd
) -> None:
    """Also where it appears after the last look, whether the system can rename so or not."""

    def made_meanwhile() -> bytes:
        path.write_bytes(b"the first")
        return b"the second"

    monkeypatch.setattr(database, "_migrated", made_meanwhile)
    if not is_seen:
        monkeypatch.setattr(database, "_is_there", lambda _: False)
    if not renames:
        monkeypatch.setattr(database, "rename_exclusively", lambda *_: False)
    make_database()
    assert path.read_bytes() == b"the first"
    assert [each.name for each in path.parent.iterdir()] == ["prefect.db"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://prefect@localhost/prefect",
        "sqlite+aiosqlite:///:memory:",
        "sqlite+aiosqlite://",
        "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true&check_same_thread=false",
    ],
)
def test_another_database_is_left_to_prefect(url: str, monkeypatch, tmp_path: Path, capfd) -> None:
    asked = []
    monkeypatch.setattr(database, "_migrated", lambda: asked.append(url) or b"")
    monkeypatch.chdir(tmp_path)
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: url}):
        make_database()
    assert asked == []
    assert [*tmp_path.iterdir()] == []
    assert capfd.readouterr() == ("", "")


def test_what_fails_is_printed_and_left_to_prefect(path: Path, monkeypatch, capfd) -> None:
    def of_another_prefect() -> bytes:
        raise AttributeError("no such migrations")

    monkeypatch.setattr(database, "_migrated", of_another_prefect)
    make_database()
    assert "AttributeError: no such migrations" in capfd.readouterr().err
    assert [*path.parent.iterdir()] == []


def test_a_disk_that_fails_leaves_nothing(path: Path, monkeypatch, capfd) -> None:
    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database, "_migrated", lambda: b"a database")
    monkeypatch.setattr(database.os, "fsync", failing)
    make_database()
    assert "No space left on device" in capfd.readouterr().err
    assert [*path.parent.iterdir()] == []
