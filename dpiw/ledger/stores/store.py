"""The table of entries, and what every store does alike."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpiw.ledger.entries import Entry, EntryKind, LedgerHead, entry_json
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

metadata = sa.MetaData()

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column(
        "kind",
        sa.Text,
        sa.CheckConstraint(f"kind IN ({_KINDS})", name=KIND_CHECK),
        nullable=False,
    ),
    sa.Column("population", sa.Text),
    sa.Column("run_key", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("stage", sa.Text),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sqlite_strict=True,
)


class Store(ABC):
    """One ledger's entries in one database, checked before each use; else LedgerError.

    `location`: a path or URL by which `open_store` reaches the same ledger; never a password.
    """

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
        query = sa.select(entries).order_by(entries.c.seq)
        if after:
            query = query.where(entries.c.seq > after)
        return [dict(row) for row in connection.execute(query).mappings()]

    def hash_at(self, connection: Connection, seq: int) -> str | None:
        """The stored hash of entry `seq`, or None."""
        query = sa.select(entries.c.hash).where(entries.c.seq == seq)
        stored_hash: str | None = connection.execute(query).scalar_one_or_none()
        return stored_hash

    def head(self, connection: Connection) -> LedgerHead | None:
        """The last entry, or None."""
        query = sa.select(entries.c.seq, entries.c.hash).order_by(entries.c.seq.desc()).limit(1)
        row = connection.execute(query).one_or_none()
        return None if row is None else LedgerHead(seq=row.seq, hash=row.hash)

    def append(self, connection: Connection, entry: Entry) -> None:
        """Write one entry that the caller has checked."""
        values = {**entry.to_json(), "payload": entry_json(entry.stored_payload)}
        connection.execute(sa.insert(entries).values(values))
        # Read back, as a driver's count is none under a Turkish locale, where its INSERT is no DML.
        condition = (entries.c.seq == entry.seq) & (entries.c.hash == entry.hash)
        if connection.execute(sa.select(entries.c.seq).where(condition)).first() is None:
            raise unusable(self.location, "the database did not keep the entry: a rule removed it")
