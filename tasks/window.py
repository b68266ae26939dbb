"""The operator's window: what a run shows of itself in Prefect.

One line a step, as a log of its own, and a few artifacts: the plan, the run's places, the budget,
the release. Prefect's own log shipping stays off; each line is made here, of public facts alone:
the spec, the plan, the ledger, the published folder. A server that does not take them fails
nothing: after two failures in a row a task goes on without its window.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import functools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import SettingsContext, TaskRunContext, get_settings_context

TIMEOUT_SECONDS = 5.0
"""For one request to Prefect as a whole, however slowly its answer drips."""

PATIENCE = 2
"""Requests in a row that may fail before a task goes on without its window."""


R = TypeVar("R")


class Window:
    """What one task run shows.

    Args:
        task_run: it belongs to.
        flow_run: it belongs to; None: to none.
        client: asks Prefect; not the engine's own, whose connections requests that are left behind
            would hold.
        timeout: seconds for one request, connection and answer together.
    """

    def __init__(
        self,
        *,
        task_run: UUID,
        flow_run: UUID | None,
        client: SyncPrefectClient,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._task_run, self._flow_run, self._timeout = task_run, flow_run, timeout
        self._client, self._failures = client, 0

    @classmethod
    def of_this_task(cls) -> Self | None:
        """For the task run under way; None outside of one."""
        context = TaskRunContext.get()
        if context is None or not isinstance(context.client, SyncPrefectClient):
            return None
        task, client = context.task_run, _own_client(str(context.client.api_url))
        return cls(
            task_run=task.id, flow_run=task.flow_run_id, client=client, timeout=TIMEOUT_SECONDS
        )

    def line(self, text: str, level: int = logging.INFO) -> None:
        """One line in the run's log."""
        entry = {
            "name": "dpiw", "level": level, "message": text, "task_run_id": str(self._task_run),
            "timestamp": datetime.datetime.now(datetime.UTC).isoformat(),
            "flow_run_id": None if self._flow_run is None else str(self._flow_run),
        }  # fmt: skip
        self._send(lambda client: client.create_logs([entry]))

    def artifact(self, key: str, kind: str, data: Any, description: str = "") -> UUID | None:
        """An artifact of a kind that Prefect draws: `table`, `markdown`, `image` or `progress`.

        Args:
            key: its name, the same for every run; underscores become dashes.
            kind: as above.
            data: rows as JSON, text, an address, or percent.
            description: in Markdown.

        Returns:
            Its identifier; None: the server did not take it.
        """
        new = ArtifactCreate(
            key=key.replace("_", "-"), type=kind, data=data, description=description,
            task_run_id=self._task_run, flow_run_id=self._flow_run,
        )  # fmt: skip
        return self._send(lambda client: client.create_artifact(new).id)

    def update(self, artifact: UUID, data: Any, description: str) -> None:
        """Put other data into an artifact of this task."""
        changed = ArtifactUpdate(data=data, description=description)
        self._send(lambda client: client.update_artifact(artifact, changed))

    def _send(self, ask: Callable[[SyncPrefectClient], R]) -> R | None:
        if self._failures == PATIENCE:
            return None
        try:
            with _asked_once():
                answer = _within(self._timeout, lambda: ask(self._client))
        except Exception:
            self._failures += 1
            return None
        self._failures = 0
        return answer


@functools.cache
def _own_client(url: str) -> SyncPrefectClient:
    """One for all windows on a server: each reads the machine's TLS certificates and asks twice."""
    settings = {"base_url": url, "timeout": TIMEOUT_SECONDS}
    return get_client(httpx_settings=settings, sync_client=True)


def _asked_once() -> SettingsContext:
    """Prefect's settings, but for its retries; its `temporary_settings` reads all of them again."""
    now = get_settings_context()
    client = now.settings.client.model_copy(update={"max_retries": 0})
    once = now.settings.model_copy(update={"client": client})
    return SettingsContext(profile=now.profile, settings=once)


def _within(seconds: float, ask: Callable[[], R]) -> R:
    """What `ask` answers in time: the client's own limit is one for each read.

    Raises:
        queue.Empty: nothing in time, or an error. Of a thread that is left behind nobody hears.
    """
    answers: queue.SimpleQueue[R] = queue.SimpleQueue()

    def request() -> None:
        with contextlib.suppress(Exception):
            answers.put(ask())

    settings = contextvars.copy_context()
    thread = threading.Thread(target=settings.run, args=(request,), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers.get_nowait()


__all__ = ["PATIENCE", "TIMEOUT_SECONDS", "Window"]
