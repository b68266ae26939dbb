"""The steps of a local collection; nothing in its reports is confidential."""

from __future__ import annotations

from pathlib import Path

from dpiw.local import collector
from dpiw.local.collector import Reports
from dpiw.local.spec import LocalSpec
from tasks.step import step


@step("collect", done="every report is one that an honest client may send", reads_named_files=True)
def collect_reports(spec: LocalSpec) -> Reports:
    """Return the reports, one for each person."""
    return collector.read_reports(spec)


@step("publish", done="signed and published", reads_named_files=True)
def publish_reports(spec: LocalSpec, reports: Reports) -> Path:
    """Return the published folder; repeating returns the same one."""
    return collector.publish_reports(spec, reports)
