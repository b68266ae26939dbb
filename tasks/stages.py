"""The steps of a release, an audit and a local collection, as tasks."""

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dpiw.audit import AuditReport, write_report
from dpiw.audit import audit as run_audit
from dpiw.local import collector
from dpiw.local.collector import LocalSpec, Reports
from dpiw.plan.calendar import Due
from dpiw.plan.spec import load_spec
from dpiw.run import steps
from dpiw.run.ahead import check_label, check_turn
from dpiw.run.continuation import Rerun
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun, RunRequest
from dpiw.series.completeness import Series, due_of, read_series
from tasks import signals
from tasks.failures import told_briefly
from tasks.pages import show_budget, show_periods, show_release, show_run
from tasks.progress import launch_fit
from tasks.step import announce, step, tell


@step("plan", done="calibrated and composed; no data was read")
def plan(spec: Path, period: str | None, due: Due) -> Path:
    """Return the folder of the run that this spec and period name."""
    with told_briefly(spec.name):
        read = load_spec(spec)
        label = period or due.label(read.cadence, read.time_zone)
        request = RunRequest.of(read, spec, period=label)
    check_label(read, label)
    check_turn(read, key=request.key, label=label, due=due)
    with told_briefly(spec.name):
        run = request.prepared()
    show_run(run)
    return run.directory


@step("collect", done="every report is one that an honest client may send", reads_named_files=True)
def collect_reports(spec: LocalSpec) -> Reports:
    """Return the reports, one for each person."""
    return collector.read_reports(spec)


@step("publish", done="signed and published", reads_named_files=True)
def publish_reports(spec: LocalSpec, reports: Reports) -> Path:
    """Return the published folder; repeating returns the same one."""
    return collector.publish_reports(spec, reports)


@step("audit", done="the ledger is replayed and the releases are checked", reads_named_files=True)
def audit(ledger: str, releases: Sequence[Path], public_keys: Sequence[Path]) -> AuditReport:
    """Return all findings of the audit; bad ones raise nothing."""
    report = run_audit(ledger, releases, public_keys)
    with contextlib.suppress(Exception):  # as pages: a finished step does not fail
        signals.audit_findings(report)
    return report


@step("report", done="the report is written", reads_named_files=True)
def report_audit(report: AuditReport, folder: Path) -> Path:
    """Write the report; return the page for people, beside `audit.json`."""
    return write_report(report, folder)[1]


@step("series", done="which periods are published, and which are missing; no data was read")
def show_series(spec: Path, *, fills: bool) -> Series:
    """Return a spec's series now, after a look at ledger and releases.

    `fills`: raise what refuses a fill, before anything is reserved; else say which are missing.
    """
    with told_briefly(spec.name):
        read, found = read_series(spec)
    show_periods(found)
    if fills:
        due_of(found, read)
        return found
    with contextlib.suppress(Exception):
        signals.missing_periods(found)
    return found


_COSTS = {
    Rerun.FREE: "nothing more is paid",
    Rerun.PAID: "a lost draw is paid once more, as max_attempts allows",
}


@step("reserve", done="the budget is reserved in the ledger; no data was read")
def reserve(directory: Path) -> Path:
    """Reserve the run's budget in the ledger, before any private byte is read."""
    run = ReleaseRun.load(directory)
    with signals.lost_stages(run):
        steps.reserve(run, told=partial(announce, "reserve"))
    show_budget(run)
    with contextlib.suppress(Exception):
        signals.low_budget(run)
        signals.count_population(run)
    return directory


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
    steps.draw_synthetic(ReleaseRun.load(directory))
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
    steps.debias(ReleaseRun.load(directory))
    return directory


@step("diagnose", done="the verdict is decided, from public quantities, at no cost", drawn=True)
def diagnose(directory: Path) -> Path:
    """Decide the weights' verdict from public quantities."""
    steps.diagnose(ReleaseRun.load(directory))
    return directory


@step("publish", done="signed and published", drawn=True)
def publish(directory: Path) -> Path:
    """Return the published folder; repeating returns the same one."""
    run = ReleaseRun.load(directory)
    folder = steps.publish(run)
    show_release(run, folder)
    with contextlib.suppress(Exception):
        signals.count_population(run)
    return folder


@step("wait", done="the run starts again")
def wait(directory: Path, allowed: Rerun, seconds: float, number: int) -> Path:
    """Report when the run starts again and what that pays; return its folder after the pause."""
    tell(f"wait: rerun {number} starts in {seconds:.0f} s; by the ledger {_COSTS[allowed]}")
    time.sleep(seconds)
    return directory
