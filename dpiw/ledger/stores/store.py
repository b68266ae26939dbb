"""The table of entries, and what every store does alike."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dpiw.ledger.entries import Entry, EntryKind, entry_json
from dpiw.ledger.location import unusable

BUSY_TIMEOUT_SECONDS = 30.0
"""How long a transaction waits for others' locks."""

_GROUPS = {
    "<charging>": "('reserve', 'conflict', 'void', 'recover')",  # change what a population holds
    "<drawing>": "('arm', 'resume')",  # allow noise to be drawn, under a charge granted before
    "<asking>": "('reserve', 'arm', 'resume')",  # what the budget must cover
}
"""Kinds of entries by the groups that the budget guard of every store names."""


def with_kinds(guard: str) -> str:
    """A guard's text with the kinds of entries that it is about."""
    for name, kinds in _GROUPS.items():
        guard = guard.replace(name, kinds)
    return guard


KIND_CHECK = "entries_kind"
"""Name of the constraint that a ledger of an earlier version sets on kinds that came later."""

_KINDS = ", ".join(f"'{kind.value}'" for kind in EntryKind)

COLUMNS = {
    "seq": "INTEGER NOT NULL PRIMARY KEY",
    "previous": "TEXT NOT NULL",
    "hash": "TEXT NOT NULL",
    "kind": f"TEXT NOT NULL CONSTRAINT {KIND_CHECK} CHECK (kind IN ({_KINDS}))",
    "population": "TEXT",
    "run_key": "TEXT",
    "attempt": "INTEGER",
    "stage": "TEXT",
    "payload": "TEXT NOT NULL",
    "at": "TEXT NOT NULL",
}
"""The columns of the table in every store."""

NEW_TABLE = f"({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})"
"""What follows CREATE TABLE and its name."""


class Connection(Protocol):
    """What the drivers of all stores have: run one statement, and iterate over its rows."""

    def execute(self, query: str, parameters: Any = ..., /) -> Any:
        """Run a statement, and return its rows."""


class Store(ABC):
    """One ledger's entries in one database, checked before each use; else LedgerError.

    `location`: a path or URL by which `open_store` reaches the same ledger; never a password.
    """

    table = "entries"
    mark = "?"
    """Stands for a parameter in a statement."""

    def __init__(self, location: str) -> None:
        self.location = location

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Connection]:
        """One durable transaction: a writer is alone throughout, a reader sees a snapshot."""

    @abstractmethod
    def check_structure(self) -> None:
        """Raise LedgerTamperedError unless its table and guards are as they were made."""

    @abstractmethod
    def create(self, *entries: Entry) -> bool:
        """Make the ledger with its first entries, all or none; False if the name is taken."""

    def rows(self, connection: Connection, *, after: int = 0) -> list[Mapping[str, Any]]:
        """Stored rows by number, from the one after `after`; not yet checked in any way."""
        where = "WHERE seq > <mark>" if after else ""  # a forged entry 0 is listed, too
        query = self._sql("SELECT <columns> FROM <table> <where> ORDER BY seq", where=where)
        found = connection.execute(query, [after] if after else [])
        return [dict(zip(COLUMNS, row, strict=True)) for row in found]

    def hash_at(self, connection: Connection, seq: int) -> str | None:
        """The stored hash of entry `seq`, or None."""
        query = self._sql("SELECT hash FROM <table> WHERE seq = <mark>")
        row = connection.execute(query, [seq]).fetchone()
        return None if row is None else str(row[0])

    def append(self, connection: Connection, entry: Entry) -> None:
        """Write one entry that the caller has checked."""
        values = {**entry.to_json(), "payload": entry_json(entry.stored_payload)}
        statement = self._sql("INSERT INTO <table> (<columns>) VALUES (<marks>)")
        connection.execute(statement, [values[name] for name in COLUMNS])
        # Read back, as a rule of the database may have removed it without an error.
        kept = self._sql("SELECT seq FROM <table> WHERE seq = <mark> AND hash = <mark>")
        if connection.execute(kept, [entry.seq, entry.hash]).fetchone() is None:
            raise unusable(self.location, "the database did not keep the entry: a rule removed it")

    def _sql(self, text: str, *, where: str = "") -> str:
        marks = ", ".join([self.mark] * len(COLUMNS))
        text = text.replace("<columns>", ", ".join(COLUMNS)).replace("<marks>", marks)
        text = text.replace("<table>", self.table).replace("<where>", where)
        return text.replace("<mark>", self.mark)
