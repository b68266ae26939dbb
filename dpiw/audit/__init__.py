"""The audit: does the ledger hold, was everything paid for, and is what is published what it says?

    tally     a second implementation of the ledger's sums and rules; `records` holds its counts
    costs     every reservation's total, recomputed from its events: two accountants and our own
    accountant  our own account, by `inversion` of the `transforms`
    folders   published folders against the ledger
    auditing  the audit itself
    findings  what can be found, how grave it is, what to do
    places    which ledger and folder are meant
    scope     what was checked and what was not
    report    `audit.json` and `audit.html`; `page` draws the latter

It reads a ledger and release folders, never a workspace.
"""

from dpiw.audit.auditing import AuditReport, audit
from dpiw.audit.findings import KINDS, AuditFailedError, Finding, Severity
from dpiw.audit.folders import release_folders
from dpiw.audit.places import places
from dpiw.audit.report import report_json, write_report

__all__ = [
    "KINDS",
    "AuditFailedError",
    "AuditReport",
    "Finding",
    "Severity",
    "audit",
    "places",
    "release_folders",
    "report_json",
    "write_report",
]
