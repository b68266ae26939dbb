"""When Prefect says a run was due, and whether a schedule met a period twice.

A run has the period of its scheduled time, however late the worker. Callers may schedule for any
past time, so a run counts as due no earlier than the server made it.
"""

from __future__ import annotations

import contextlib
import datetime
import os

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterName,
    FlowRunFilterState,
    FlowRunFilterStateName,
)
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext

from dpiw.run.periods import Due

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
    """Return how often this flow run may start again: only a worker's; a person sees it fail."""
    run = _this_run()
    return RERUNS if run is not None and run.deployment_id is not None else 0


def pause() -> float:
    """Return seconds between a failure and the next start."""
    return float(os.environ["DPIW_RERUN_SECONDS"])


def scheduled_before() -> str:
    """Return when an earlier scheduled run of this name ended; empty: none, or not known."""
    context, run = FlowRunContext.get(), _this_run()
    if context is None or run is None or not run.auto_scheduled or run.run_count > 1:
        return ""
    if run.deployment_id is None or not isinstance(context.client, SyncPrefectClient):
        return ""
    wanted = FlowRunFilter(
        name=FlowRunFilterName(any_=[run.name]),
        deployment_id=FlowRunFilterDeploymentId(any_=[run.deployment_id]),
        state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Completed"])),
    )
    with contextlib.suppress(Exception):  # a warning must not fail a run
        earlier = context.client.read_flow_runs(flow_run_filter=wanted)
        moments = [
            other.expected_start_time
            for other in earlier
            if other.auto_scheduled and other.id != run.id and other.expected_start_time
        ]
        return min(moments).isoformat(timespec="minutes") if moments else ""
    return ""
