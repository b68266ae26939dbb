"""Build, sign and publish the release folder."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("publish")
def publish(directory: Path) -> Path:
    """Return the published folder; the same one, however often this is repeated."""
    return steps.publish(ReleaseRun.load(directory))
