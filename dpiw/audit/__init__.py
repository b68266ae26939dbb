"""The audit: does the ledger hold, was everything paid for, and do releases match the ledger?

It reads a ledger and release folders, never a workspace. `tally` and `accountant` repeat the
ledger's sums and costs with separate code.
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
