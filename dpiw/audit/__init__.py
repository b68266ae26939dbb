"""The audit: does the ledger hold, was everything paid for, and is what is published what it says?

    tally     a second implementation of the ledger's sums and rules
    records   what it counts, in the `amounts` that entries state
    costs     every reservation's total, recomputed from its events: two accountants and our own
    accountant  our own account, by `inversion` of the `transforms`
    run_findings  what is legal and charged, and still worth a look
    folders   published folders against the ledger
    unreleased  what is spent with no folder, and why; `entry_signatures` who signed the entries
    auditing  the audit itself
    findings  what can be found, how grave it is, what to do
    report    `audit.json` and `audit.html`; `page` draws the latter, and says what was checked

It reads a ledger and release folders, never a workspace.
"""

from dpiw.audit.auditing import AuditReport, audit
from dpiw.audit.findings import KINDS, AuditFailedError, Finding, Severity
from dpiw.audit.folders import release_folders
from dpiw.audit.report import report_json, write_report
from dpiw.audit.statements import found

__all__ = [
    "KINDS",
    "AuditFailedError",
    "AuditReport",
    "Finding",
    "Severity",
    "audit",
    "found",
    "release_folders",
    "report_json",
    "write_report",
]
