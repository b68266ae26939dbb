"""A backup of a ledger: its entries as JSON lines.

Every store reads and writes this form. So one restore brings back a lost ledger, moves a ledger to
another store, and gives an older ledger the table and guards of this version.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from dpiw.data.files import write_durably
from dpiw.errors import LedgerConflictError, LedgerError, LedgerTamperedError
from dpiw.ledger.book import Book
from dpiw.ledger.entries import Entry, entry_json, from_stored
from dpiw.ledger.ledger import Ledger
from dpiw.ledger.location import tampered, unusable
from dpiw.ledger.reading import LedgerReader, replay
from dpiw.ledger.stores import open_store

_ALLOWED = "a file that `dpiw ledger backup` wrote"


def write_backup(ledger: LedgerReader, path: Path) -> int:
    """Write all entries to `path`, durably, mode 0600; return how many.

    A ledger only grows. So an earlier backup at `path` is replaced only if the ledger still has
    each of its entries; else somebody put an older ledger in place, or named another one.

    Raises:
        LedgerTamperedError: the ledger is broken, or lacks an entry of the earlier backup.
        LedgerError: `path` has something else, or cannot be written; it stays as it was.
    """
    snapshot = ledger.snapshot()
    if snapshot.report.fault is not None:
        raise tampered(ledger.location, snapshot.report.fault)
    entries = snapshot.export()
    earlier = [entry.to_json() for entry in read_backup(path)] if os.path.lexists(path) else []
    if entries[: len(earlier)] != earlier:
        raise tampered(
            ledger.location,
            f"lacks an entry of the backup {path.name}, which stays as it was: this ledger was"
            " restored from an older copy, or it is another ledger",
        )
    text = "".join(f"{json.dumps(entry, sort_keys=True)}\n" for entry in entries)
    try:
        write_durably(path, text.encode("ascii"))
    except OSError as error:
        raise unusable(path, f"the backup cannot be written: {error.strerror}") from error
    return len(entries)


def read_backup(path: Path) -> list[Entry]:
    """Return the entries of a backup, replayed: hashes, order, rules and sums.

    Raises LedgerError if it is no backup, LedgerTamperedError if its chain is broken.
    """
    try:
        rows = [
            {**fields, "payload": entry_json(fields["payload"])}
            for fields in map(json.loads, path.read_text(encoding="ascii").splitlines())
        ]
        entries = [from_stored(row) for row in rows]
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}", field="backup", allowed=_ALLOWED) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LedgerError(f"{path.name} is none", field="backup", allowed=_ALLOWED) from error
    _, fault = replay(rows, book=Book(), head=None)
    if fault is not None or not entries:
        raise LedgerTamperedError(fault or "has no entries", field=f"backup {path.name}")
    return entries


def restore(url: str, entries: Sequence[Entry]) -> Ledger:
    """Make a ledger of a backup's entries, as a whole or not at all, and verify it.

    Entries written after the backup are missing: recover them before anything is spent.
    Raises LedgerConflictError if a ledger is there, which stays as it is.
    """
    if not open_store(url).create(*entries):
        raise LedgerConflictError(
            "a ledger is there, and it stays as it is. Only if it is broken, move it away first,"
            " while nothing runs",
            field=f"ledger {url}",
        )
    ledger = Ledger.open(url)
    ledger.check()
    return ledger
