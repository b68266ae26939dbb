"""How a step of dpiw becomes a Prefect task.

No retries, no cache, no stored result: what may be repeated, and at what cost, is the ledger's
business (docs/operations.md). A failure crosses into Prefect as one of our own errors, whose texts
hold no values, or as the bare name of the error's class, without the chain that led to it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect.cache_policies import NO_CACHE
from prefect.tasks import Task

from dpiw.errors import DPIWError

P = ParamSpec("P")
R = TypeVar("R")

progress = logging.getLogger("dpiw.progress")
"""Says which step runs and how long it took; it never receives a value."""


class StepFailedError(Exception):
    """A step failed for a reason that stays in its own process."""


def _guarded(name: str, body: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(body)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        started = time.monotonic()
        progress.info("start %s", name)
        failure: Exception
        try:
            result = body(*args, **kwargs)
        except DPIWError as error:
            failure = error.with_traceback(None)
            failure.__cause__ = failure.__context__ = None
        except Exception as error:
            failure = StepFailedError(f"{name} failed: {type(error).__name__}")
        else:
            progress.info("done %s %.1f", name, time.monotonic() - started)
            return result
        raise failure

    return guarded


def step(name: str, *tags: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Turn a function into a task called `name`."""

    def wrap(body: Callable[P, R]) -> Task[P, R]:
        return Task(
            _guarded(name, body),
            name=name,
            tags=set(tags),
            retries=0,
            cache_policy=NO_CACHE,
            persist_result=False,
            log_prints=False,
        )

    return wrap


__all__ = ["StepFailedError", "progress", "step"]
