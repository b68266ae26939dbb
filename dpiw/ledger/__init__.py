"""The ledger: append-only, hash-chained, in whole units. It remembers every cost and says no.

    entries   one entry, canonical JSON, the hash chain
    authors   who wrote an entry, and with which key they signed it
    charges   what a draw costs, as a cost and as a Renyi vector
    populations  the people a lifetime budget protects, and their terms
    values    runs, stages, grants
    accounts  what a population holds, and what still fits: the filters
    book      what all entries amount to, and whether one may come next
    transitions  the rules of a run: what may become of it
    attempts  the rules of reserving: which attempt may come next
    certified_terms  the registration that a certificate names, and how to begin a lost one again
    recovery  the rules of taking a ledger up again that lost entries
    replay    replaying stored entries against chain and rules, and the report
    stores    the database: a SQLite file or a PostgreSQL server
    reading   every question, and the transaction of every operation
    history   what was charged when, and how many more such releases fit
    draws     the operations on an attempt, one transaction each
    ledger    the other operations

Importing this needs SQLAlchemy (the extra `pipeline`); analysts do not import it.
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
