"""Replay stored entries: does the chain hold, and is every step legal?"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpiw.errors import BudgetExceededError, DPIWError, LedgerTamperedError
from dpiw.ledger.book import Book
from dpiw.ledger.entries import NO_ENTRY, Entry, EntryKind, LedgerHead, entry_hash, from_stored

Row = Mapping[str, Any]


class FaultKind(enum.Enum):
    """What `verify` found wrong first."""

    EDITED = "edited"
    MISSING = "missing"
    OUT_OF_ORDER = "out_of_order"
    ILLEGAL_TRANSITION = "illegal_transition"
    OVERSPENT = "overspent"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The first fault of the chain, and the entry it shows at."""

    kind: FaultKind
    seq: int
    reason: str

    def __str__(self) -> str:
        return f"entry {self.seq}: {self.kind.value}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """The result of replaying the ledger.

    A cut tail or a replaced chain shows only against published manifests (`Ledger.check_heads`).
    """

    entries: int
    head: LedgerHead | None
    fault: Fault | None

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return self.fault is None


@dataclass(frozen=True, kw_only=True)
class LedgerSnapshot:
    """Everything that a ledger held at one moment: stored rows; the book up to the first fault."""

    location: str
    rows: tuple[Row, ...]
    report: VerifyReport
    book: Book

    def export(self) -> list[dict[str, Any]]:
        """All entries as JSON values. Raises LedgerTamperedError if a row is no entry."""
        try:
            return [from_stored(row).to_json() for row in self.rows]
        except ValueError as error:
            raise LedgerTamperedError(f"ledger {self.location}: unreadable entry") from error


def replay(
    rows: Sequence[Row], *, book: Book, head: LedgerHead | None
) -> tuple[LedgerHead | None, Fault | None]:
    """Apply `rows` (by seq) to `book`, which stands at `head`; return the head and first fault."""
    for index, row in enumerate(rows):
        entry = _sound_entry(row)
        if entry is None or not _continues(entry, head):
            return head, _chain_fault(rows, index, entry, head)
        fault = _rule_fault(book, entry)
        if fault is not None:
            return head, fault
        head = entry.head
    return head, None


def _sound_entry(row: Row) -> Entry | None:
    try:
        entry = from_stored(row)
    except (TypeError, ValueError, RecursionError):
        return None
    return entry if entry.expected_hash() == entry.hash else None


def _next(head: LedgerHead | None) -> tuple[int, str]:
    return (1, NO_ENTRY) if head is None else (head.seq + 1, head.hash)


def _continues(entry: Entry, head: LedgerHead | None) -> bool:
    return (entry.seq, entry.previous) == _next(head)


def _chain_fault(
    rows: Sequence[Row], index: int, entry: Entry | None, head: LedgerHead | None
) -> Fault:
    seq, _ = _next(head)
    row = rows[index]
    if row["seq"] != seq:
        return Fault(kind=FaultKind.MISSING, seq=seq, reason="no entry of this number")
    hashes = {stored["hash"] for stored in rows}
    if entry is None:
        return _moved_fault(row, hashes, len(rows)) or Fault(
            kind=FaultKind.EDITED, seq=seq, reason="its fields do not match its hash"
        )
    if entry.previous in hashes:
        return Fault(
            kind=FaultKind.OUT_OF_ORDER, seq=seq, reason="it continues an entry of another number"
        )
    # Its own hash is sound, so the likelier forgery is the entry before it, hashed again.
    return Fault(
        kind=FaultKind.EDITED,
        seq=max(1, seq - 1),
        reason="the next entry continues another text of this one",
    )


def _moved_fault(row: Row, hashes: set[str], count: int) -> Fault | None:
    try:
        fields = from_stored(row).to_json()
    except (TypeError, ValueError, RecursionError):
        return None
    del fields["hash"]
    for seq in range(1, 2 * count + 16):
        if entry_hash({**fields, "seq": seq}) == row["hash"]:
            moved = row["previous"] in hashes or row["previous"] == NO_ENTRY
            return Fault(
                kind=FaultKind.OUT_OF_ORDER if moved else FaultKind.MISSING,
                seq=row["seq"],
                reason=f"here stands the entry written as number {seq}",
            )
    return None


def _rule_fault(book: Book, entry: Entry) -> Fault | None:
    if entry.seq == 1 and entry.kind is not EntryKind.GENESIS:
        return Fault(kind=FaultKind.ILLEGAL_TRANSITION, seq=1, reason="not a first entry")
    try:
        book.apply(entry)
    except BudgetExceededError as error:
        return Fault(kind=FaultKind.OVERSPENT, seq=entry.seq, reason=str(error))
    except DPIWError as error:
        return Fault(kind=FaultKind.ILLEGAL_TRANSITION, seq=entry.seq, reason=str(error))
    except (KeyError, TypeError, ValueError, AttributeError):
        return Fault(
            kind=FaultKind.ILLEGAL_TRANSITION,
            seq=entry.seq,
            reason=f"malformed {entry.kind.value} payload",
        )
    return None
