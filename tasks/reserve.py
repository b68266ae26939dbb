"""Reserve the run's budget in the ledger, before any private byte is read."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.step import step


@step("reserve")
def reserve(directory: Path) -> None:
    """Reserve the run's budget in the ledger, before any private byte is read."""
    run = ReleaseRun.load(directory)
    steps.reserve(run)
