"""Build, sign and publish the release folder."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.pages import show_release
from tasks.step import step


@step("publish", done="signed and published", drawn=True)
def publish(directory: Path) -> Path:
    """Return the published folder; the same one, however often this is repeated."""
    run = ReleaseRun.load(directory)
    folder = steps.publish(run)
    show_release(run, folder)
    return folder
