"""Check the reports of a local collection; nothing in them is confidential."""

from __future__ import annotations

from dpiw.plan.local import LocalSpec
from dpiw.run.local_reports import Reports, read_reports
from tasks.step import step


@step("collect", done="every report is one that an honest client may send", reads_named_files=True)
def collect_reports(spec: LocalSpec) -> Reports:
    """Return the reports, each person's once."""
    return read_reports(spec)
