"""The ledger: append-only, hash-chained, in whole units. It records costs and refuses to overspend.

    entries, authors      one entry, canonical JSON, the hash chain; who wrote and signed it
    charges, populations  what a draw costs; the people a budget protects, and their terms
    values, accounts      runs, stages, grants; what a population holds, and what still fits
    book, reservations    which entry may come next
    recovery, from_releases, certified_terms  recovering a ledger that lost entries
    replay                replaying stored entries against chain and rules
    stores                the database: a SQLite file or a PostgreSQL server
    reading, ledger       questions; operations, one transaction each
    history               what was charged when, and how many more such releases fit

Needs SQLAlchemy (the extra `pipeline`); analysts do not import it.
"""

from dpiw.ledger.entries import Entry, EntryKind, LedgerHead, PublishedHead
from dpiw.ledger.ledger import Ledger
from dpiw.ledger.populations import MAX_UNPAID_READS, CompositionRule, Population
from dpiw.ledger.recovery import RecoveredRelease, Recovery
from dpiw.ledger.replay import Fault, FaultKind, VerifyReport
from dpiw.ledger.values import (
    AttemptRecord,
    Grant,
    RunRecord,
    RunState,
    StageRecord,
    StageState,
)

__all__ = [
    "MAX_UNPAID_READS",
    "AttemptRecord",
    "CompositionRule",
    "Entry",
    "EntryKind",
    "Fault",
    "FaultKind",
    "Grant",
    "Ledger",
    "LedgerHead",
    "Population",
    "PublishedHead",
    "RecoveredRelease",
    "Recovery",
    "RunRecord",
    "RunState",
    "StageRecord",
    "StageState",
    "VerifyReport",
]
