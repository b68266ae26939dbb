"""The ledger: append-only, hash-chained, in whole units. Needs the extra `pipeline`."""

from dpiw.ledger.accounts import MAX_UNPAID_READS, CompositionRule, Population
from dpiw.ledger.entries import Entry, EntryKind, LedgerHead, PublishedHead
from dpiw.ledger.ledger import Ledger
from dpiw.ledger.reading import Fault, FaultKind, VerifyReport
from dpiw.ledger.recovery import RecoveredRelease, Recovery
from dpiw.ledger.values import AttemptRecord, Grant, RunRecord, RunState, StageRecord, StageState

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
