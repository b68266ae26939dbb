"""Turn what was measured into weights of the published rows; costs nothing."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("debias", done="weights of the rows computed from what was drawn, at no cost", drawn=True)
def debias(directory: Path) -> Path:
    """Turn what was measured into weights of the published rows; costs nothing."""
    run = ReleaseRun.load(directory)
    steps.debias(run)
    return directory
