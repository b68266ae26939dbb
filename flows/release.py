"""The release flow: a confidential table goes in, a signed release comes out.

Only `ingest` and the fits read private rows, in processes that return an exit code. Prefect sees a
spec's name, a period, each step's outcome and the pages of `tasks.pages`, never a value.
"""

import datetime
import os
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.runtime import flow_run
from prefect.tasks import Task

from dpiw.errors import DPIWError, StageFailedError
from dpiw.plan.calendar import Due
from dpiw.plan.plan import Plan
from dpiw.plan.spec import load_spec
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.run.checkpoints import goes_on_without_gpu
from dpiw.run.continuation import Rerun, rerun
from dpiw.run.run import ReleaseRun
from flows.parameters import spec_below_root
from tasks.failures import StepFailedError, only_our_own, record, told_briefly
from tasks.stages import (
    debias,
    diagnose,
    draw_synthetic,
    fit_generator,
    fit_weights,
    ingest,
    plan,
    publish,
    reserve,
    wait,
)

RERUNS = 3
"""How often a worker's run starts again by itself, at most."""


def _this_run() -> FlowRun | None:
    context = FlowRunContext.get()
    return None if context is None else context.flow_run


def due() -> Due:
    """Return when the flow run under way was due; now, outside of a flow run."""
    now, run = datetime.datetime.now(datetime.UTC), _this_run()
    scheduled = None if run is None else run.expected_start_time
    created = None if run is None else run.created
    return Due(scheduled=scheduled or now, created=created or now, now=now)


def reruns() -> int:
    """Return how often this flow run may start again: only a worker's; a person sees it fail.

    A run inside another, such as of a series, is a worker's too.
    """
    run = _this_run()
    is_worker_s = run is not None and (run.deployment_id or run.parent_task_run_id)
    return RERUNS if is_worker_s else 0


GPU = "gpu"
"""Tag of a task that trains on a GPU; a server's concurrency limit on it makes them queue."""


def gpu_tags(plan: Plan, stage: str) -> set[str]:
    """Return `GPU` if the method of a stage may use one, by its settings."""
    return set() if plan.device(stage) == "cpu" else {GPU}


def fitted(fit: Task[..., Path], run: Path, stage: str) -> Path:
    """Run a fit, queued if it may use a GPU; once more without a GPU if that failed.

    The second is a task of its own, from the checkpoint, and does not queue for the GPU.
    """
    planned = _loaded(run)
    try:
        return fit.with_options(tags=gpu_tags(planned.plan, stage))(run)
    except StageFailedError as error:
        if error.exit_code != StageFailedError.exit_code or not goes_on_without_gpu(planned, stage):
            raise
    return fit(run, without_gpu=True)


def _loaded(run: Path) -> ReleaseRun:
    with told_briefly("run"):
        return ReleaseRun.load(run)


def title(spec: Path, period: str | None) -> str:
    """Return `NAME PERIOD` of a run; the file's name if the spec cannot be read."""
    try:
        read = load_spec(spec_below_root("spec", str(spec)))
        return f"{read.name} {period or due().label(read.cadence, read.time_zone)}"
    except Exception:
        return spec.stem  # `plan` reports the fault; Prefect would store an error raised here


def run_name() -> str:
    """Return the title of the run that starts."""
    parameters = flow_run.parameters
    return title(Path(parameters["spec"]), parameters.get("period"))


def published(run: Path) -> Path:
    """Run every step of a planned run, each from its existing files; return the folder."""
    try:
        run = ingest(reserve(run))
        run = fitted(fit_generator, run, GENERATOR_STAGE)
        run = draw_synthetic(run)
        run = fitted(fit_weights, run, WEIGHTS_STAGE)
        return publish(diagnose(debias(run)))
    except (DPIWError, StepFailedError):
        raise
    except Exception as error:  # between steps, which record their own errors
        record(error, "release", run)
        raise


@flow(
    name="dpiw-release", flow_run_name=run_name, retries=0, persist_result=False, log_prints=False
)
@only_our_own("release")
def release(spec: str, period: str | None = None) -> str:
    """Publish the release that `spec` describes for `period`, once; return its folder.

    After a failed step a worker's run starts again after a pause, if the ledger says that this
    costs nothing, or no more than `max_attempts` allows (`dpiw.run.continuation`).

    Args:
        spec: path of a release spec; its name is all that Prefect stores.
        period: label of the period, such as `2027-q1`; None: the one that the run was scheduled in.
    """
    with told_briefly("spec"):
        path = spec_below_root("spec", spec)
    run = plan(path, period, due())
    for start in range(reruns()):
        try:
            return str(published(run))
        except DPIWError as error:
            allowed = rerun(_loaded(run), error)
            if allowed is Rerun.NEVER:
                raise
        wait(run, allowed, float(os.environ["DPIW_RERUN_SECONDS"]), start + 1)
    return str(published(run))
