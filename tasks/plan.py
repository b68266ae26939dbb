"""Compile the spec and open the run's folder; reads no data."""

from __future__ import annotations

import logging
from pathlib import Path

from dpiw.errors import LedgerError
from dpiw.ledger import Ledger, RunState
from dpiw.plan.spec import load_spec
from dpiw.run.ahead import check_label, check_turn
from dpiw.run.periods import Due
from dpiw.run.run import ReleaseRun, RunRequest, ledger_url
from tasks.failures import told_briefly
from tasks.pages import show_run
from tasks.step import step, tell


def _met_twice(run: ReleaseRun, scheduled_before: str) -> str:
    """A warning if a schedule starts twice in a period; empty if not, or if the ledger fails."""
    try:
        record = Ledger.open(ledger_url(run.spec)).find_run(run.key)
    except LedgerError:  # `reserve` reports it
        return ""
    if not scheduled_before or record is None or record.state is not RunState.PUBLISHED:
        return ""
    return (
        f"period {run.period} was published by the run that was scheduled for"
        f" {scheduled_before}: the schedule starts twice in a period of cadence"
        f" {run.spec.cadence} and time_zone {run.spec.time_zone}; nothing is paid, and another"
        " period may be left out. Give schedule and spec the same time zone and interval"
    )


@step("plan", done="calibrated and composed; no data was read")
def plan(
    spec: Path, period: str | None, due: Due | None = None, scheduled_before: str = ""
) -> Path:
    """Return the folder of the run that this spec and period name."""
    due = due or Due.now_alone()
    with told_briefly(spec.name):
        read = load_spec(spec)
        label = period or due.label(read.cadence, read.time_zone)
        request = RunRequest.of(read, spec, period=label)
        is_new = request.found() is None
    if is_new:
        check_label(read, label)
    check_turn(read, key=request.key, label=label, due=due)
    with told_briefly(spec.name):
        run = request.prepared()
    show_run(run)
    if text := _met_twice(run, scheduled_before):
        tell(f"plan: {text}", logging.WARNING)
    return run.directory
