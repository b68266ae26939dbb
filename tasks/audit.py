"""Audit the ledger and the published folders; reads nothing confidential."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpiw.audit import AuditReport, write_report
from dpiw.audit import audit as run_audit
from tasks.step import step


@step("audit", done="the ledger is replayed and the releases are checked", reads_named_files=True)
def audit(ledger: str, releases: Sequence[Path], public_keys: Sequence[Path]) -> AuditReport:
    """Return all findings of the audit; bad ones raise nothing."""
    return run_audit(ledger, releases, public_keys)


@step("report", done="the report is written", reads_named_files=True)
def report_audit(report: AuditReport, folder: Path) -> Path:
    """Write the report; return the page for people, beside `audit.json`."""
    return write_report(report, folder)[1]
