"""Turn the noisy density ratio into debiased weights; costs nothing."""

from __future__ import annotations

from pathlib import Path

from dpiw import steps
from dpiw.runs import ReleaseRun
from tasks.step import step


@step("debias")
def debias(directory: Path) -> None:
    """Turn the noisy density ratio into debiased weights; costs nothing."""
    run = ReleaseRun.load(directory)
    steps.debias(run)
