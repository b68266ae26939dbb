"""The steps of a release after `tasks.plan`: each calls one function of dpiw."""

from __future__ import annotations

import time
from pathlib import Path

from dpiw.run import steps
from dpiw.run.continuation import Rerun
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun
from tasks.pages import show_budget, show_release
from tasks.progress import launch_fit
from tasks.step import progress, step, tell

_COSTS = {
    Rerun.FREE: "nothing more is paid",
    Rerun.PAID: "a lost draw is paid once more, as max_attempts allows",
}


@step("reserve", done="the budget is reserved in the ledger; no data was read")
def reserve(directory: Path) -> Path:
    """Reserve the run's budget in the ledger, before any private byte is read."""
    run = ReleaseRun.load(directory)
    steps.reserve(run, told=_told)
    show_budget(run)
    return directory


def _told(text: str) -> None:
    """Show it in Prefect and on the terminal, before it happens."""
    tell(f"reserve: {text}")
    progress.info("told reserve %s", text)


@step(
    "ingest",
    done="the table was copied, checked and scaled, in a process of its own; nothing left it",
)
def ingest(directory: Path) -> Path:
    """Write the scaled snapshot into the confidential workspace."""
    launch_stage("ingest", directory)
    return directory


@step("fit_generator", done="drawn once and committed in the ledger")
def fit_generator(directory: Path, *, without_gpu: bool = False) -> Path:
    """Draw the generator's noisy measurement, charged once."""
    launch_fit("fit_generator", directory, without_gpu=without_gpu)
    return directory


@step("draw_synthetic", done="rows drawn from the fitted model, at no cost", drawn=True)
def draw_synthetic(directory: Path) -> Path:
    """Sample synthetic rows from the fitted model; costs nothing."""
    run = ReleaseRun.load(directory)
    steps.draw_synthetic(run)
    return directory


@step(
    "fit_weights",
    done="what the plan has of it is drawn once and committed in the ledger",
    drawn=True,
)
def fit_weights(directory: Path, *, without_gpu: bool = False) -> Path:
    """Draw the weights' noisy coefficients, charged once."""
    launch_fit("fit_weights", directory, without_gpu=without_gpu)
    return directory


@step("debias", done="weights of the rows computed from what was drawn, at no cost", drawn=True)
def debias(directory: Path) -> Path:
    """Turn what was measured into weights of the published rows; costs nothing."""
    run = ReleaseRun.load(directory)
    steps.debias(run)
    return directory


@step("diagnose", done="the verdict is decided, from public quantities, at no cost", drawn=True)
def diagnose(directory: Path) -> Path:
    """Decide the weights' verdict from public quantities."""
    run = ReleaseRun.load(directory)
    steps.diagnose(run)
    return directory


@step("publish", done="signed and published", drawn=True)
def publish(directory: Path) -> Path:
    """Return the published folder; repeating returns the same one."""
    run = ReleaseRun.load(directory)
    folder = steps.publish(run)
    show_release(run, folder)
    return folder


@step("wait", done="the run starts again")
def wait(directory: Path, allowed: Rerun, seconds: float, number: int) -> Path:
    """Report when the run starts again and what that pays; return its folder after the pause."""
    tell(f"wait: rerun {number} starts in {seconds:.0f} s; by the ledger {_COSTS[allowed]}")
    time.sleep(seconds)
    return directory
