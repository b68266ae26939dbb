"""Sample synthetic rows from the fitted model; costs nothing."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("draw_synthetic", done="rows drawn from the fitted model, at no cost", drawn=True)
def draw_synthetic(directory: Path) -> Path:
    """Sample synthetic rows from the fitted model; costs nothing."""
    run = ReleaseRun.load(directory)
    steps.draw_synthetic(run)
    return directory
