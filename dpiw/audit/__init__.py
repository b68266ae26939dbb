"""The audit: does the ledger hold, was everything paid for, and do releases match the ledger?

    tally, records, amounts  a second implementation of the ledger's sums and rules
    costs, accountant        each reservation recomputed: two accountants and the audit's own
    inversion, transforms    the mathematics of the audit's own accountant
    folders, stated_noise    published folders against the ledger; noise that certificates state
    run_findings, unreleased  legal charges worth a look; what is spent with no folder
    entry_signatures         who signed the entries
    findings, auditing       kinds of findings; the audit itself
    report, page, statements  `audit.json`, `audit.html`, and what was checked

It reads a ledger and release folders, never a workspace.
"""

from dpiw.audit.auditing import AuditReport, audit
from dpiw.audit.findings import KINDS, AuditFailedError, Finding, Severity
from dpiw.audit.report import report_json, write_report
from dpiw.audit.statements import found
from dpiw.release.folders import release_folders

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
