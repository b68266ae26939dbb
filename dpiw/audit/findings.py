"""Every kind of finding, its severity, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from dpiw.errors import LedgerTamperedError, shown


class AuditFailedError(LedgerTamperedError):
    """An audit found errors. The report is written; the message only counts them."""


class Severity(enum.Enum):
    """How severe a finding is.

    `ERROR`: a rule was broken or a promise cannot be shown; spend nothing until it is explained.
    `WARNING`: legal and paid for, but a person should look. `NOTE`: worth knowing.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Kind:
    """One kind of finding: its severity, and the action for a reader of the report."""

    severity: Severity
    action: str


_error, _warning, _note = (partial(Kind, severity) for severity in Severity)


_HALT = "Stop every run on this ledger. Keep a copy of it, compare with backups, then recover it."

KINDS: Mapping[str, Kind] = {
    "ledger_unreadable": _error(_HALT),
    "chain_broken": _error(_HALT),
    "recount_differs": _error(
        "Two implementations disagree: spend nothing until it is known which one is wrong."
    ),
    "illegal_step": _error(_HALT),
    "overspent": _error("Stop all runs of this population: its budget is used up and more."),
    "too_many_attempts": _error("Publish nothing of this run; find out who reserved again."),
    "too_many_reads": _error(
        "The ledger's program was circumvented. Stop all runs of this population."
    ),
    "events_changed": _error("Publish nothing of this run: it was drawn under another plan."),
    "events_unreadable": _error("Find out which program wrote this reservation."),
    "entry_forged": _error(_HALT),
    "entries_not_signed": _error(
        "Who has no key can have written all of this ledger. Ask the curator by another way for its"
        " head and for the folders, or for the key that signs it."
    ),
    "cost_above_charge": _error(
        "The charge is too small. Withhold the release, and count the recomputed cost as spent."
    ),
    "threshold_too_low": _error(
        "Withhold the list of levels: one of them may be a single person's. If it is published, "
        "count the delta of the recomputed probability as spent."
    ),
    "noise_too_small": _error(
        "The noise is less than was charged. Withhold the release; if it is published, count what"
        " its scale and sensitivity cost as spent, and draw no more with this method."
    ),
    "accountants_disagree": _error(
        "Report this as a defect of the accounting or of the audit; until it is known of which, "
        "trust the largest of the numbers."
    ),
    "folder_unsound": _error(
        "Do not use this folder. Replace it by an untouched copy, or withdraw the release."
    ),
    "other_key": _error(
        "Ask the curator by another way which public keys are theirs. If the other is another key,"
        " use nothing that it signed; if it is one, audit again with all of them, each by a --key."
    ),
    "folder_unknown": _error(
        "Nothing shows that this release was paid for. If its run is committed in this ledger, "
        "start it again: that records it. Else withdraw it, or find the ledger it is in."
    ),
    "rows_not_paid": _error(
        "Nothing shows that its rows were paid for. Withdraw it, or find the ledger that paid."
    ),
    "head_missing": _error(
        "See first whether your copy of the ledger is older than this release, or the folder is"
        " another ledger's. Else it was restored or rewritten: stop every run and recover it."
    ),
    "certificate_disagrees": _error(
        "The release states other facts than the ledger. Withdraw it until this is explained."
    ),
    "previous_disagrees": _error(
        "The releases do not form one chain. Look for a release that was left out or put in."
    ),
    "key_not_pinned": _warning(
        "Run the audit again with the curator's public key, or with each curator's."
    ),
    "several_keys": _warning(
        "Ask the curator whose the other key is, and since when it signs; then give both."
    ),
    "folder_missing": _warning(
        "If the run ended between commit and rename, start it again: the same bytes appear. "
        "Otherwise ask where the folder is."
    ),
    "folder_renamed": _warning("Give the folder its own name again."),
    "folder_twice": _warning("Keep one of the two."),
    "draw_lost": _warning("The charge stands. Make sure that nobody kept the output of that draw."),
    "draw_conflict": _warning(
        "Two outputs claimed one draw; both are charged. The second must never be released."
    ),
    "cost_not_recounted": _warning(
        "Use a version of the audit that knows these events, or account for them by hand."
    ),
    "recovered": _warning(
        "Ask which entries were lost, and whether the stated loss covers every draw of that time."
    ),
    "cost_declared": _warning(
        "Ask who declared it for their evidence: no mechanism of ours stands behind it."
    ),
    "rows_paid_before": _warning(
        "Its cost is that of its weights alone. Count the run it names to what these rows cost."
    ),
    "loss_stated": _warning(
        "A custodian says that this was drawn and is on no other record. Ask what it was."
    ),
    "unknown_entry": _warning(
        "This version of the audit cannot judge the entry; use the version that wrote it."
    ),
    "stage_armed": _warning(
        "A process draws now, or died. A rerun settles it: committed if its output is there, "
        "otherwise lost."
    ),
    "not_published": _warning(
        "Budget is spent and no release shows for it. Start the run again to publish it: that is"
        " free. Else ask where its output is."
    ),
    "entry_other_key": _warning(
        "Ask the curator whose key that is, and since when it may spend. If it is a curator's, give"
        " it too: --key may be repeated."
    ),
    "entry_unsigned": _warning(
        "Ask the curator why: who had no key could have written this entry and all after it."
    ),
    "attempt_voided": _note("What was given back before anything was drawn holds nothing."),
    "period_twice": _note(
        "Two tables, if each run had a source.snapshot of its own. Else the spec was changed: ask"
        " why, and which of the two is in use. Both are paid for."
    ),
    "unpaid_reads": _note(
        "Operators saw how each of these reads ended, and no epsilon paid for it. Ask why there"
        " are many: somebody may try settings to learn about the table."
    ),
    "noise_not_checked": _note(
        "A version of dpiw that states no sensitivity made it: compare the certificate's scales"
        " with its events by hand."
    ),
    "clock_backwards": _note("Times are labels; the numbers of the entries decide the order."),
}


@dataclass(frozen=True)
class Finding:
    """One finding (`code`: a key of `KINDS`). Subject and text hold foreign text and are `shown`.

    `follows`: whether a broken chain, reported before it, may be its only cause.
    """

    code: str
    subject: str
    text: str
    follows: bool = False

    def __post_init__(self) -> None:
        for field in ("subject", "text"):
            object.__setattr__(self, field, shown(getattr(self, field), most=20_000))

    @property
    def severity(self) -> Severity:
        """How severe it is."""
        return Severity.NOTE if self.follows else KINDS[self.code].severity

    @property
    def action(self) -> str:
        """What to do about it."""
        return _FOLLOWS if self.follows else KINDS[self.code].action


_FOLLOWS = "Repair the ledger first, and audit again: this may be the broken entry's doing alone."

_OF_FOLDERS_ALONE = frozenset(
    {"folder_unsound", "other_key", "threshold_too_low", "noise_too_small"}
)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, most severe first; mark errors that a broken chain may have caused."""
    reported = list(findings)
    cause = next((finding for finding in reported if finding.code == "chain_broken"), None)
    if cause is not None:
        reported = [finding if finding is cause else _following(finding) for finding in reported]
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return tuple(sorted(reported, key=lambda finding: ranks[finding.severity]))


def _following(finding: Finding) -> Finding:
    apart = finding.severity is not Severity.ERROR or finding.code in _OF_FOLDERS_ALONE
    return finding if apart else replace(finding, follows=True)
