"""The operator's window: log lines, artifacts and events in Prefect, of public facts only.

Prefect's own log shipping stays off. A failing server fails no step.
"""

import contextlib
import contextvars
import datetime
import functools
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import (
    FlowRunContext,
    SettingsContext,
    TaskRunContext,
    get_settings_context,
)
from prefect.events import emit_event

TIMEOUT_SECONDS = 5.0
"""For one request to Prefect as a whole, even if its answer arrives slowly."""

PATIENCE = 2
"""Failed requests in a row before a task goes on without its window."""


R = TypeVar("R")


class Window:
    """What one task run shows.

    `client` is not the engine's own, whose connections abandoned requests would hold.
    """

    def __init__(self, *, task_run: UUID, flow_run: UUID | None, client: SyncPrefectClient) -> None:
        self._task_run, self._flow_run = task_run, flow_run
        self._client, self._failures = client, 0

    @classmethod
    def of_this_task(cls) -> Self | None:
        """Return the window of the task run under way; None outside of a task."""
        context = TaskRunContext.get()
        if context is None or not isinstance(context.client, SyncPrefectClient):
            return None
        task, client = context.task_run, _own_client(str(context.client.api_url))
        return cls(task_run=task.id, flow_run=task.flow_run_id, client=client)

    def line(self, text: str, level: int = logging.INFO) -> None:
        """Write one line to the run's log."""
        entry = {
            "name": "dpiw", "level": level, "message": text, "task_run_id": str(self._task_run),
            "timestamp": datetime.datetime.now(datetime.UTC).isoformat(),
            "flow_run_id": None if self._flow_run is None else str(self._flow_run),
        }  # fmt: skip
        self._send(lambda client: client.create_logs([entry]))

    def artifact(self, key: str, kind: str, data: Any, description: str = "") -> UUID | None:
        """Create an artifact; return its identifier, or None if the server did not accept it.

        `kind`: `table`, `markdown`, `image` or `progress`; `data`: rows, text, an address, or
        percent.
        """
        new = ArtifactCreate(
            key=key.replace("_", "-"), type=kind, data=data, description=description,
            task_run_id=self._task_run, flow_run_id=self._flow_run,
        )  # fmt: skip
        return self._send(lambda client: client.create_artifact(new).id)

    def update(self, artifact: UUID, data: Any, description: str) -> None:
        """Replace data and description of an artifact of this task."""
        changed = ArtifactUpdate(data=data, description=description)
        self._send(lambda client: client.update_artifact(artifact, changed))

    def _send(self, ask: Callable[[SyncPrefectClient], R]) -> R | None:
        if self._failures == PATIENCE:
            return None
        try:
            with _asked_once():
                answer = _within(TIMEOUT_SECONDS, lambda: ask(self._client))
        except Exception:
            self._failures += 1
            return None
        self._failures = 0
        return answer


def send_event(name: str, facts: Mapping[str, str]) -> None:
    """Send Prefect an event, in a flow or task; nothing waits for it, and no failure is raised.

    Its resource is named after the values of `facts`, and has each as a label `dpiw.KEY`, which an
    automation can match.
    """
    if FlowRunContext.get() is None and TaskRunContext.get() is None:
        return
    resource = {
        "prefect.resource.id": ".".join([name, *facts.values()]),
        "prefect.resource.name": " ".join(facts.values()),
        **{f"dpiw.{key}": value for key, value in facts.items()},
    }
    with contextlib.suppress(Exception):
        emit_event(name, resource=resource, payload=dict(facts))


@functools.cache
def _own_client(url: str) -> SyncPrefectClient:
    """One for all windows on a server: making one reads the machine's TLS certificates."""
    settings = {"base_url": url, "timeout": TIMEOUT_SECONDS}
    return get_client(httpx_settings=settings, sync_client=True)


def _asked_once() -> SettingsContext:
    """Prefect's settings without retries; its `temporary_settings` would read all of them again."""
    now = get_settings_context()
    client = now.settings.client.model_copy(update={"max_retries": 0})
    once = now.settings.model_copy(update={"client": client})
    return SettingsContext(profile=now.profile, settings=once)


def _within(seconds: float, ask: Callable[[], R]) -> R:
    """Return the answer if it comes in time, else raise queue.Empty; httpx limits only reads."""
    answers: queue.SimpleQueue[R] = queue.SimpleQueue()

    def request() -> None:
        with contextlib.suppress(Exception):
            answers.put(ask())

    settings = contextvars.copy_context()
    thread = threading.Thread(target=settings.run, args=(request,), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers.get_nowait()
