"""Turn what was measured into weights of the published rows; costs nothing."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("debias")
def debias(directory: Path) -> None:
    """Turn what was measured into weights of the published rows; costs nothing."""
    run = ReleaseRun.load(directory)
    steps.debias(run)
