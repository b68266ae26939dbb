"""Reserve the run's budget in the ledger, before any private byte is read."""

from __future__ import annotations

from pathlib import Path

from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tasks.pages import show_budget
from tasks.step import progress, step, tell


@step("reserve", done="the budget is reserved in the ledger; no data was read")
def reserve(directory: Path) -> Path:
    """Reserve the run's budget in the ledger, before any private byte is read."""
    run = ReleaseRun.load(directory)
    steps.reserve(run, told=_told)
    show_budget(run)
    return directory


def _told(text: str) -> None:
    """Before it happens, in Prefect and on the terminal."""
    tell(f"reserve: {text}")
    progress.info("told reserve %s", text)
