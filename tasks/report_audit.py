"""Write an audit's report."""

from __future__ import annotations

from pathlib import Path

from dpiw.audit import AuditReport, write_report
from tasks.step import step


@step("report", done="the report is written", reads_named_files=True)
def report_audit(report: AuditReport, folder: Path) -> Path:
    """Return the page for people; `audit.json` lies beside it."""
    return write_report(report, folder)[1]
