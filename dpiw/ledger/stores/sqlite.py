"""The ledger in a SQLite file of one host."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from dpiw.data import files
from dpiw.errors import LedgerError
from dpiw.ledger.entries import NO_ENTRY, Entry
from dpiw.ledger.location import Faults, no_ledger, tampered, unusable
from dpiw.ledger.stores.files import (
    APPLICATION_ID,
    DRAFT_PREFIX,
    check_directory,
    check_file,
    check_no_remains,
    drafts_of,
    make_directory,
)
from dpiw.ledger.stores.store import (
    BUSY_TIMEOUT_SECONDS,
    KIND_CHECK,
    NEW_TABLE,
    Store,
    with_kinds,
)

# The rules live in `dpiw.ledger.book`; these repeat the ones that must never fail, in SQL.
_BUDGET = with_kinds("""
    CREATE TRIGGER entries_<unit> BEFORE INSERT ON entries WHEN NEW.kind IN <asking>
      AND NOT EXISTS (
        SELECT 1 FROM entries WHERE population = NEW.population AND kind = 'register'
          AND json_extract(payload, '$.composition') IS NOT 'basic')
      AND NOT coalesce(
        iif(NEW.kind IN <drawing>, 0, json_extract(NEW.payload, '$.<unit>')) + (
          SELECT coalesce(sum(iif(kind = 'void', -1, 1) * json_extract(payload, '$.<unit>')), 0)
          FROM entries WHERE population = NEW.population AND kind IN <charging>)
        <= (SELECT max(json_extract(payload, '$.<unit>'))
            FROM entries WHERE population = NEW.population AND kind = 'register'), 0)
    BEGIN SELECT RAISE(ABORT, 'over the lifetime budget'); END""")

# Renyi populations: a vector of 16, and at one order at least its sum is within the budget.
_RENYI = with_kinds("""
    CREATE TRIGGER entries_renyi BEFORE INSERT ON entries WHEN NEW.kind IN <asking>
      AND EXISTS (
        SELECT 1 FROM entries WHERE population = NEW.population AND kind = 'register'
          AND json_extract(payload, '$.composition') IS NOT 'basic')
      AND (iif(NEW.kind IN <drawing>, 16, json_array_length(NEW.payload, '$.renyi.units')) IS NOT 16
        OR NOT EXISTS (
        SELECT 1 FROM (
          SELECT part.key AS place, sum(iif(paid.kind = 'void', -1, 1) * part.value) AS total
          FROM (SELECT kind, payload FROM entries
                WHERE population = NEW.population AND kind IN <charging>
                UNION ALL SELECT NEW.kind, NEW.payload) AS paid,
            json_each(paid.payload, '$.renyi.units') AS part
          GROUP BY part.key) AS held
        JOIN (
          SELECT most.key AS place, most.value AS total
          FROM entries AS terms, json_each(terms.payload, '$.renyi.budget_units') AS most
          WHERE terms.population = NEW.population AND terms.kind = 'register') AS budget
        ON held.place = budget.place AND held.total <= budget.total))
    BEGIN SELECT RAISE(ABORT, 'over the lifetime budget'); END""")

TRIGGERS = {
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
    "entries_epsilon_units": _BUDGET.replace("<unit>", "epsilon_units"),
    "entries_delta_units": _BUDGET.replace("<unit>", "delta_units"),
    "entries_renyi": _RENYI,
}

_OLDEST_SQLITE = (3, 38, 0)  # STRICT tables (3.37), JSON always present (3.38)
_SETTINGS = {
    "journal_mode": ("WAL", "wal"),
    "synchronous": ("FULL", 2),
    "foreign_keys": ("ON", 1),
    "recursive_triggers": ("ON", 1),
    "fullfsync": ("ON", 1),  # macOS: fsync alone does not reach the disk there
}


class SQLiteStore(Store):
    """Connections to one ledger file, each checked before use (`dpiw.ledger.stores.files`)."""

    def __init__(self, path: Path, *, local_file_system: str | None = None) -> None:
        option = f"sqlite:///{path}?local_file_system={local_file_system}"
        super().__init__(str(path) if local_file_system is None else option)
        self._path = path
        self._local_file_system = local_file_system
        self._patience = BUSY_TIMEOUT_SECONDS

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """One transaction: a writer holds the lock from its first moment, a reader a snapshot."""
        # One connection each: none crosses a fork, and every one is checked.
        with (
            _as_ledger_error(self._path),
            closing(_connect(self._path, self._patience)) as connection,
            connection,
        ):
            # A deferred transaction that turns writer half-way fails at once instead of queueing.
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield connection

    def check_structure(self) -> None:
        """Refuse a file that is not a ledger, or whose guards were removed."""
        check_file(self._path, local_file_system=self._local_file_system)
        with self.transaction(write=False) as connection:
            problems = connection.execute("PRAGMA quick_check")
            # A forged `kind` is no damage of the file: it is left for the chain to name.
            if any(p != "ok" and not p.startswith("CHECK constraint") for (p,) in problems):
                raise unusable(self._path, Faults.DAMAGED)
            if not connection.execute(f"PRAGMA table_info({self.table})").fetchall():
                raise tampered(self._path, Faults.TABLE_GONE)
            stored = connection.execute("SELECT name, sql FROM sqlite_master WHERE type='trigger'")
            meant = {name: _squeeze(sql) for name, sql in TRIGGERS.items()}
            if {name: _squeeze(sql) for name, sql in stored} != meant:
                raise tampered(self._path, Faults.GUARDS_CHANGED)

    def create(self, *entries: Entry) -> bool:
        """Make the file, mode 0600, and its missing folder, mode 0700; False if the name exists.

        Built under another name and then linked, so no process sees half of it or two creators win.
        """
        path = self._path
        if os.path.lexists(path):
            _finish_creation(path)
            return False
        make_directory(path, local_file_system=self._local_file_system)
        check_directory(path, local_file_system=self._local_file_system)
        check_no_remains(path)
        try:
            handle, name = tempfile.mkstemp(
                prefix=DRAFT_PREFIX.format(name=path.name), dir=path.parent
            )
        except OSError as error:
            raise unusable(path, "its folder cannot be written: check its permissions") from error
        os.close(handle)
        draft = Path(name)
        try:
            _build(draft, entries)
            return _put_in_place(draft, path)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(name + suffix)


def _build(path: Path, first: Sequence[Entry]) -> None:
    store = SQLiteStore(path)
    with store.transaction(write=True) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"CREATE TABLE {store.table} {NEW_TABLE} STRICT")
        for trigger in TRIGGERS.values():
            connection.execute(trigger)
        for entry in first:
            store.append(connection, entry)


def _put_in_place(draft: Path, path: Path) -> bool:
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    try:
        files.name_exclusively(draft, path)  # two names for a moment: `check_file` waits
    except FileExistsError:
        return False
    except OSError as error:
        raise unusable(path, "cannot be made here: use a folder that allows hard links") from error
    files.sync_directory(path.parent)
    return True


def _finish_creation(path: Path) -> None:
    """Remove the second name of a ledger whose creation was killed after it had its own."""
    with suppress(OSError):  # `check_file` says what is wrong with such a file
        for draft in drafts_of(path.resolve()):
            draft.unlink(missing_ok=True)


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise LedgerError("SQLite 3.38 or newer is needed", field="ledger")
    # mode=rw: a connection must never create a file, or a deleted ledger would come back empty.
    # isolation_level=None: the driver opens no transactions of its own.
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=patience,
        isolation_level=None,
    )
    try:
        for name, (setting, expected) in _SETTINGS.items():
            connection.execute(f"PRAGMA {name} = {setting}")
            (value,) = connection.execute(f"PRAGMA {name}").fetchone()
            if value != expected:
                found = f"SQLite refused {name}={setting}, without which a crash can lose a charge"
                raise LedgerError(found, field="ledger")
    except BaseException:
        connection.close()
        raise
    return connection


def _squeeze(sql: str) -> str:
    return " ".join(sql.split())


@contextmanager
def _as_ledger_error(path: Path) -> Iterator[None]:
    """Turn database errors into LedgerError without their text, which may hold statements."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise unusable(path, Faults.LOCKED) from error
        if not path.exists():
            raise no_ledger(f"ledger {path}: no such file", begin=False) from error
        if isinstance(error, sqlite3.IntegrityError):
            older = "CHECK constraint" in text and KIND_CHECK in text
            raise unusable(path, Faults.OLDER if older else Faults.REFUSED) from error
        if isinstance(error, sqlite3.OperationalError):
            raise unusable(path, "cannot be used: check permissions and free disk space") from error
        raise unusable(path, Faults.DAMAGED) from error
