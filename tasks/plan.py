"""Compile the spec and open the run's folder; reads no data."""

from __future__ import annotations

from pathlib import Path

from dpiw.plan.spec import load_spec
from dpiw.run.ahead import check_label
from dpiw.run.run import ReleaseRun
from tasks.failures import told_briefly
from tasks.pages import show_run
from tasks.step import step


@step("plan", done="calibrated and composed; no data was read")
def plan(spec: Path, period: str | None) -> Path:
    """Return the folder of the run that this spec and period name."""
    with told_briefly(spec.name):
        unknown = None if ReleaseRun.find(spec, period=period) else load_spec(spec)
    if unknown is not None:
        check_label(unknown, period)
    with told_briefly(spec.name):
        run = ReleaseRun.prepare(spec, period=period)
    show_run(run)
    return run.directory
