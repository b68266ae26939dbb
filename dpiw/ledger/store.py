"""Where the entries lie: one append-only table, reached through SQLAlchemy Core.

Everything that knows a database by name is in this file. Today that is SQLite alone; another URL
is refused. The settings are those of RELIABILITY section 3.5: a commit that returned has reached
the disk, writers queue on BEGIN IMMEDIATE, and there is no counter that could be reset.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import NullPool

from dpiw.errors import LedgerError, LedgerTamperedError
from dpiw.ledger.entries import NO_ENTRY, Entry, EntryKind, LedgerHead, canonical_json
from dpiw.ledger.files import (
    APPLICATION_ID,
    check_directory,
    check_file,
    check_no_remains,
    sync,
)

_KINDS = ", ".join(f"'{kind.value}'" for kind in EntryKind)

metadata = sa.MetaData()

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, sa.CheckConstraint(f"kind IN ({_KINDS})"), nullable=False),
    sa.Column("population", sa.Text),
    sa.Column("run_key", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("stage", sa.Text),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sqlite_strict=True,
)

# The rules live in `dpiw.ledger.book`; these repeat the two that must never fail, in SQL.
_TRIGGERS = {
    "entries_no_update": """
        CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    "entries_no_delete": """
        CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    "entries_chain": """
        CREATE TRIGGER entries_chain BEFORE INSERT ON entries
        WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries)
          OR NEW.previous IS NOT coalesce(
               (SELECT hash FROM entries ORDER BY seq DESC LIMIT 1), '<first>')
        BEGIN SELECT RAISE(ABORT, 'an entry must continue the chain'); END""".replace(
        "<first>", NO_ENTRY
    ),
    **{
        f"entries_{unit}": """
        CREATE TRIGGER entries_<unit> BEFORE INSERT ON entries WHEN NEW.kind = 'reserve'
          AND json_extract(NEW.payload, '$.<unit>') + (
            SELECT coalesce(sum(iif(kind = 'void', -1, 1) * json_extract(payload, '$.<unit>')), 0)
            FROM entries WHERE population = NEW.population
              AND kind IN ('reserve', 'conflict', 'void'))
          > (SELECT coalesce(max(json_extract(payload, '$.<unit>')), -1)
             FROM entries WHERE population = NEW.population AND kind = 'register')
        BEGIN SELECT RAISE(ABORT, 'over the lifetime budget'); END""".replace("<unit>", unit)
        for unit in ("epsilon_units", "delta_units")
    },
}

_OLDEST_SQLITE = (3, 38, 0)  # STRICT tables (3.37), JSON always present (3.38)
_WRITE = "dpiw_write"
_SETTINGS = {
    "journal_mode": ("WAL", "wal"),
    "synchronous": ("FULL", 2),
    "foreign_keys": ("ON", 1),
    "recursive_triggers": ("ON", 1),
    "fullfsync": ("ON", 1),  # macOS: fsync alone does not reach the disk there
}


class Store:
    """Connections to one ledger file, each checked before use.

    Args:
        path: an existing file.
        busy_timeout_seconds: how long a writer queues for the lock.

    Raises:
        LedgerError: from every method, when the file is missing, locked, corrupt or unsafe.
    """

    def __init__(self, path: Path, *, busy_timeout_seconds: float) -> None:
        self.path = path
        self._engine = _engine(path, busy_timeout_seconds)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Connection]:
        """One transaction: a writer holds the lock from its first moment, a reader a snapshot."""
        with _as_ledger_error(self.path), self._engine.connect() as connection:
            connection.execution_options(**{_WRITE: write})
            with connection.begin():
                yield connection

    def check_structure(self) -> None:
        """Refuse a file that is not a ledger, or whose guards were removed."""
        check_file(self.path)
        with self.transaction(write=False) as connection:
            problems = connection.exec_driver_sql("PRAGMA quick_check").scalars()
            # A forged `kind` is no damage of the file: it is left for the chain to name.
            if any(p != "ok" and not p.startswith("CHECK constraint") for p in problems):
                raise LedgerError(f"ledger {self.path}: the file is corrupt")
            if not sa.inspect(connection).has_table(entries.name):
                raise LedgerTamperedError(f"ledger {self.path}: its table is gone")
            stored = connection.execute(
                sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            )
            if {name: _squeeze(sql) for name, sql in stored} != _expected_triggers():
                raise LedgerTamperedError(
                    f"ledger {self.path}: its append-only guards were changed"
                )

    def rows(self, connection: Connection, *, after: int = 0) -> list[Mapping[str, Any]]:
        """Stored rows by number, from the one after `after`; not yet checked in any way."""
        query = sa.select(entries).order_by(entries.c.seq)
        if after:
            query = query.where(entries.c.seq > after)
        return [dict(row) for row in connection.execute(query).mappings()]

    def hash_at(self, connection: Connection, seq: int) -> str | None:
        """The stored hash of entry `seq`, or None."""
        query = sa.select(entries.c.hash).where(entries.c.seq == seq)
        found: str | None = connection.execute(query).scalar_one_or_none()
        return found

    def head(self, connection: Connection) -> LedgerHead | None:
        """The last entry, or None."""
        query = sa.select(entries.c.seq, entries.c.hash).order_by(entries.c.seq.desc()).limit(1)
        row = connection.execute(query).one_or_none()
        return None if row is None else LedgerHead(seq=row.seq, hash=row.hash)

    def append(self, connection: Connection, entry: Entry) -> None:
        """Write one entry; the caller has checked it."""
        values = {**entry.to_json(), "payload": canonical_json(dict(entry.payload))}
        connection.execute(sa.insert(entries).values(values))


def ledger_path(url: str | os.PathLike[str]) -> Path:
    """The file a ledger's URL or path names.

    Raises:
        LedgerError: the URL names a database that is not supported. Its text is not repeated: it
            may hold a password.
    """
    text = os.fspath(url)
    if "://" not in text:
        return Path(text).absolute()
    try:
        parsed = make_url(text)
    except sa.exc.ArgumentError as error:
        raise LedgerError("ledger: expected a path or sqlite:///PATH") from error
    if parsed.get_backend_name() != "sqlite":
        raise LedgerError(
            f"ledger: {parsed.get_backend_name()} is not supported; expected sqlite:///PATH"
        )
    name = parsed.database
    if not name or name == ":memory:" or name.startswith("file:") or parsed.query:
        raise LedgerError("ledger: expected sqlite:///PATH, a plain file without options")
    return Path(name).absolute()


def create_file(path: Path, first: Entry, *, busy_timeout_seconds: float) -> bool:
    """Make a ledger file holding `first`, mode 0600; False if something of that name exists.

    The file is built under another name and linked into place, so that no process ever sees half
    of it, and two creators cannot both win.
    """
    if os.path.lexists(path):
        return False
    check_directory(path)
    check_no_remains(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise LedgerError(f"ledger {path}: its folder cannot be written") from error
    os.close(handle)
    draft = Path(name)
    try:
        _build(draft, first, busy_timeout_seconds)
        sync(draft)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise LedgerError(f"ledger {path}: its file system has no hard links") from error
        sync(path.parent)
        return True
    finally:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(name + suffix)


def _build(path: Path, first: Entry, busy_timeout_seconds: float) -> None:
    store = Store(path, busy_timeout_seconds=busy_timeout_seconds)
    with store.transaction(write=True) as connection:
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        metadata.create_all(connection)
        for trigger in _TRIGGERS.values():
            connection.exec_driver_sql(trigger)
        store.append(connection, first)


# --- connections --------------------------------------------------------------------------------


def _engine(path: Path, busy_timeout_seconds: float) -> Engine:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise LedgerError("ledger: SQLite 3.38 or newer is needed")
    # mode=rw: a connection must never create a file, or a deleted ledger would come back empty.
    url = URL.create(
        "sqlite+pysqlite",
        database=f"file:{quote(str(path))}",
        query={"mode": "rw", "uri": "true"},
    )
    # No pool: a connection never crosses a fork, and every one is checked.
    engine = sa.create_engine(
        url, poolclass=NullPool, connect_args={"timeout": busy_timeout_seconds}
    )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    # SQLAlchemy's recipe: the driver must not open transactions behind our back.
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    try:
        for name, (wanted, expected) in _SETTINGS.items():
            cursor.execute(f"PRAGMA {name} = {wanted}")
            (found,) = cursor.execute(f"PRAGMA {name}").fetchone()
            if found != expected:
                raise LedgerError(f"ledger: SQLite refused {name}={wanted}; not safe to spend")
    finally:
        cursor.close()


def _on_begin(connection: Connection) -> None:
    # A deferred transaction that turns writer half-way fails at once instead of queueing.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _squeeze(sql: str) -> str:
    return " ".join(sql.split())


def _expected_triggers() -> dict[str, str]:
    return {name: _squeeze(sql) for name, sql in _TRIGGERS.items()}


@contextmanager
def _as_ledger_error(path: Path) -> Iterator[None]:
    """Database errors become LedgerError; their text is not repeated, it may hold statements."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        original = getattr(error, "orig", None) or error
        text = str(original)
        if "locked" in text or "busy" in text:
            raise LedgerError(f"ledger {path}: locked by another process") from error
        if not path.exists():
            raise LedgerError(f"ledger {path}: no such file") from error
        if isinstance(original, sqlite3.IntegrityError):
            raise LedgerError(f"ledger {path}: the database refused the entry") from error
        if isinstance(original, sqlite3.OperationalError):
            raise LedgerError(
                f"ledger {path}: cannot be used ({type(original).__name__})"
            ) from error
        raise LedgerError(f"ledger {path}: not a database, or corrupt") from error
