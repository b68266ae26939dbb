"""Every kind of finding, its severity, and what to do about it."""

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


_HALT = (
    "The ledger no longer proves what was spent. Stop every run on it, keep a copy, compare it with"
    " backups, and recover it (docs/operations.md: a ledger that lost entries)."
)

KINDS: Mapping[str, Kind] = {
    "ledger_unreadable": _error(_HALT),
    "chain_broken": _error(_HALT),
    "recount_differs": _error(
        "dpiw and the audit count differently. Spend nothing until it is known which is wrong."
    ),
    "illegal_step": _error(_HALT),
    "overspent": _error(
        "People may lose more privacy than promised. Stop all runs, and inform the data's owner."
    ),
    "too_many_attempts": _error("Publish nothing of this run; find out who reserved again."),
    "too_many_reads": _error(
        "Somebody went around dpiw, and no epsilon pays for it. Stop all runs of this population."
    ),
    "events_changed": _error("Publish nothing of this run: it was drawn under another plan."),
    "events_unreadable": _error(
        "Nothing shows that the charge is enough. Audit with the version of dpiw that reserved it."
    ),
    "entry_forged": _error(_HALT),
    "entries_not_signed": _error(
        "Anyone could have written this ledger. Ask the curator, by another way, for the ledger's"
        " head and the folders, or for the key that signs its entries."
    ),
    "not_approved": _error(
        "One person spent alone. Publish nothing of this run; ask who reserved it behind dpiw."
    ),
    "key_not_valid": _error(
        "Somebody without a valid key spent, published, or changed keys. Stop all runs of this"
        " population, and ask each key's holder (`dpiw key list`)."
    ),
    "cost_above_charge": _error(
        "People lost more privacy than the ledger counts. Withhold the release, and record the"
        " recomputed cost as a loss: dpiw ledger recover --loss-only."
    ),
    "threshold_too_low": _error(
        "A listed level may belong to one person. Withhold the list of levels. If it is published,"
        " count the delta of the recomputed probability as spent."
    ),
    "noise_too_small": _error(
        "People are protected less than the certificate says. Withhold the release, and draw no"
        " more with this method. If it is published, count what its scale and sensitivity cost."
    ),
    "accountants_disagree": _error(
        "One of the methods is wrong, so report this as a defect of dpiw. Until it is known which,"
        " trust the largest number."
    ),
    "folder_unsound": _error(
        "This may not be what the curator signed. Get an untouched copy, or withdraw the release."
    ),
    "other_key": _error(
        "Ask the curator, by another way, which public keys are theirs. If this key is not, use"
        " nothing that it signed. If it is, audit again with a --key for each of them."
    ),
    "folder_unknown": _error(
        "Nothing shows that this release was paid for. If the ledger has its run as committed,"
        " start that run again, which records it. Else withdraw it, or find the ledger that paid."
    ),
    "rows_not_paid": _error(
        "Nothing shows that its rows were paid for. Withdraw it, or find the ledger that paid."
    ),
    "head_missing": _error(
        "Your copy of the ledger may be older than this release, or the release may belong to"
        " another ledger. If neither, the ledger lost entries: stop every run and recover it."
    ),
    "certificate_disagrees": _error(
        "Its promise is not shown. Withdraw the release until somebody explains the difference."
    ),
    "tombstone_unknown": _error(
        "The ledger lost the withdrawal, or somebody else signed it. If the curator withdrew it,"
        " type the same `dpiw withdraw` again, which records it."
    ),
    "tombstone_disagrees": _error(
        "One of the two was changed. Ask the curator why the release was withdrawn."
    ),
    "previous_disagrees": _error(
        "The releases do not form one chain. Look for a release that was left out or put in."
    ),
    "key_not_pinned": _warning(
        "Anyone could have signed these folders. Audit again with each curator's --key FILE."
    ),
    "several_keys": _warning(
        "Ask the curator whose keys these are, since when. Audit again with a --key for each."
    ),
    "folder_missing": _warning(
        "If the run was stopped while it published, start it again: it writes the same bytes."
        " Otherwise ask where the folder is; its cost is spent."
    ),
    "withdrawal_unfinished": _warning(
        "Type the same `dpiw withdraw` again, which removes the files. Remove copies elsewhere."
    ),
    "rows_not_withdrawn": _warning(
        "They share the draws of a withdrawn release. Withdraw this folder too, if its reason holds"
        " for them."
    ),
    "folder_renamed": _warning("Rename the folder to the name that its certificate states."),
    "folder_twice": _warning("Keep one of the two folders."),
    "draw_lost": _warning("The charge stands. Make sure that nobody kept the output of that draw."),
    "draw_conflict": _warning(
        "One draw left two outputs, and both are charged. Never release the second one."
    ),
    "cost_not_recounted": _warning(
        "Only dpiw's accounting checked the charge. Audit with a version that knows these events."
    ),
    "recovered": _warning(
        "Ask which entries were lost, and whether the stated loss covers every draw of that time."
    ),
    "cost_declared": _warning(
        "dpiw did not draw these rows and cannot prove their cost. Ask for the declarer's evidence."
    ),
    "rows_paid_before": _warning(
        "Its total is the cost of its weights alone. Add the cost of the run that it names."
    ),
    "loss_stated": _warning(
        "A custodian states that this was drawn, and no other record shows it. Ask what it was."
    ),
    "unknown_entry": _warning(
        "The audit's totals may be too small. Audit with the version of dpiw that wrote the entry."
    ),
    "stage_armed": _warning(
        "A process is drawing now, or it was killed. If none is running, start the run again: dpiw"
        " records the draw as committed if its output exists, and else as lost."
    ),
    "not_published": _warning(
        "Budget is spent, and no release came of it. Start the run again to publish it at no cost."
        " If that fails, ask where its output is."
    ),
    "entry_other_key": _warning(
        "Ask the curator whose key that is, and since when it may spend. If it is a curator's,"
        " audit again with one more --key."
    ),
    "entry_unsigned": _warning(
        "Anyone could have written this entry and all after it. Ask the curator why it is unsigned."
    ),
    "key_revoked_since": _warning(
        "A thief of the key may have signed it. Ask its holder; if it was not the holder, withdraw"
        " what was published, and revoke the keys that it added."
    ),
    "withdrawn": _note("Use the release that replaces it, if there is one. Nothing to do."),
    "attempt_voided": _note("Nothing was drawn, so the charge was given back. Nothing to do."),
    "period_twice": _note(
        "Both runs are paid for. If each had its own source.snapshot, there were two tables."
        " Otherwise the spec was changed: ask why, and which release is in use."
    ),
    "unpaid_reads": _note(
        "Operators saw how each of these reads ended, and no epsilon paid for it. Ask why there"
        " are many: somebody may try settings to learn about the table."
    ),
    "noise_not_checked": _note(
        "An earlier version of dpiw, which states no sensitivity, made it: compare the"
        " certificate's scales with its events by hand."
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


_FOLLOWS = "The broken chain alone may have caused this. Recover the ledger, and audit again."

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
