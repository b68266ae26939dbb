"""Build, sign and publish the folder of a local collection."""

from __future__ import annotations

from pathlib import Path

from dpiw.plan.local import LocalSpec
from dpiw.run import local
from dpiw.run.local_reports import Reports
from tasks.step import step


@step("publish", done="signed and published", reads_named_files=True)
def publish_reports(spec: LocalSpec, reports: Reports) -> Path:
    """Return the published folder; the same one, however often this is repeated."""
    return local.publish_reports(spec, reports)
