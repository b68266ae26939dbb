"""Judge the weights from public quantities and decide the verdict."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("diagnose")
def diagnose(directory: Path) -> None:
    """Judge the weights from public quantities and decide the verdict."""
    run = ReleaseRun.load(directory)
    steps.diagnose(run)
