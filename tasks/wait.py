"""Wait before a run that failed starts again by itself; the ledger has said that it may."""

from __future__ import annotations

import time
from pathlib import Path

from dpiw.run.continuation import Rerun
from tasks.step import step, tell

_COSTS = {
    Rerun.FREE: "nothing more is paid",
    Rerun.PAID: "a lost draw is paid once more, as max_attempts allows",
}


@step("wait", done="the run starts again")
def wait(directory: Path, allowed: Rerun, seconds: float, number: int) -> Path:
    """Say when the run starts again and what that pays; return its folder after the pause."""
    tell(f"wait: rerun {number} starts in {seconds:.0f} s; by the ledger {_COSTS[allowed]}")
    time.sleep(seconds)
    return directory
