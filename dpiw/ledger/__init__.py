"""The ledger: append-only, hash-chained, in whole units. It remembers every cost and says no.

    entries   one entry, canonical JSON, the hash chain
    charges   what a draw costs, as a cost and as a Renyi vector
    populations  the people a lifetime budget protects, and their terms
    values    runs, stages, grants, reports
    accounts  what a population holds, and what still fits: the filters
    book      the rules: which entry may come next
    attempts  the rules of reserving: which attempt may come next
    recovery  the rules of taking a ledger up again that lost entries
    replay    replaying stored entries against chain and rules
    stores    the database: a SQLite file or a PostgreSQL server
    draws     the operations on a stage, one transaction each
    ledger    the other operations

Importing this needs SQLAlchemy (the extra `pipeline`); analysts do not import it.
"""

from dpiw.ledger.entries import Entry, EntryKind, LedgerHead, PublishedHead
from dpiw.ledger.ledger import Ledger
from dpiw.ledger.populations import MAX_UNPAID_READS, CompositionRule, Population
from dpiw.ledger.recovery import RecoveredRelease, Recovery
from dpiw.ledger.values import (
    AttemptRecord,
    Fault,
    FaultKind,
    Grant,
    Reservation,
    RunRecord,
    RunState,
    StageRecord,
    StageState,
    VerifyReport,
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
    "Reservation",
    "RunRecord",
    "RunState",
    "StageRecord",
    "StageState",
    "VerifyReport",
]
