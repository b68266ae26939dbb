"""The ledger: append-only, hash-chained, in whole units. It remembers every cost and says no.

    entries   one entry, canonical JSON, the hash chain
    values    populations, runs, stages, grants, reports
    book      the rules: which entry may come next
    audit     replaying stored entries against chain and rules
    store     the database, and all that knows it by name
    ledger    the operations, one transaction each

Importing this needs SQLAlchemy (the extra `pipeline`); analysts do not import it.
"""

from dpiw.ledger.entries import Entry, EntryKind, LedgerHead
from dpiw.ledger.ledger import Ledger
from dpiw.ledger.values import (
    AttemptRecord,
    CompositionRule,
    Fault,
    FaultKind,
    Grant,
    Population,
    Reservation,
    RunRecord,
    RunState,
    StageRecord,
    StageState,
    VerifyReport,
)

__all__ = [
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
    "Reservation",
    "RunRecord",
    "RunState",
    "StageRecord",
    "StageState",
    "VerifyReport",
]
