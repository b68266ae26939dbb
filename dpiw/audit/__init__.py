"""The audit: a second count of a ledger and its release folders; it never reads a workspace."""

from dpiw.audit.auditing import AuditReport, audit
from dpiw.audit.findings import KINDS, AuditFailedError, Finding, Severity
from dpiw.audit.report import report_json, write_report
from dpiw.audit.statements import found
from dpiw.release.manifest import release_folders

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
