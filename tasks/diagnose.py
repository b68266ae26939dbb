"""Judge the weights from public quantities and decide the verdict."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("diagnose", done="the verdict is decided, from public quantities, at no cost", drawn=True)
def diagnose(directory: Path) -> Path:
    """Judge the weights from public quantities and decide the verdict."""
    run = ReleaseRun.load(directory)
    steps.diagnose(run)
    return directory
