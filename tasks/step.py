"""How a step of dpiw becomes a Prefect task.

No retries, cache or stored results: the ledger decides what may be repeated. Prefect gets our own
errors, whose texts hold no values, or the name of an error's class, never the chain.
"""

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect.cache_policies import NO_CACHE
from prefect.tasks import Task

from dpiw.errors import DPIWError, PrivacyError, SchemaError, SpecError
from tasks.failures import (
    DRAWN_ADVICE,
    DrawnStepFailedError,
    StepFailedError,
    brief,
    record,
    show_sentences,
    stops,
)
from tasks.window import Window

P = ParamSpec("P")
R = TypeVar("R")

progress = logging.getLogger("dpiw.progress")
"""Reports which step runs and how long it took; it never receives a value."""


_BEFORE_A_DRAW = {error.advice for error in (SpecError, SchemaError, PrivacyError)}
"""Advice that is wrong after a draw: that nothing was spent, or to change the plan."""


def tell(text: str, level: int = logging.INFO) -> None:
    """Write one public line to the run's log in Prefect, inside a task."""
    window = Window.of_this_task()
    if window is not None:
        window.line(text, level)


def announce(name: str, text: str) -> None:
    """Show what a step is about to do, in Prefect and on the terminal."""
    tell(f"{name}: {text}")
    progress.info("told %s %s", name, text)


def step(
    name: str, *, done: str, reads_named_files: bool = False, drawn: bool = False
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Turn a function into a task called `name`.

    `done`: its line in Prefect, the same whatever was read. `reads_named_files`: Prefect gets only
    class, file and line of errors (`tasks.failures.brief`). `drawn`: a failed run is paid and kept.
    """
    unforeseen = DrawnStepFailedError if drawn else StepFailedError

    def wrap(body: Callable[P, R]) -> Task[P, R]:
        @functools.wraps(body)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            started = time.monotonic()
            progress.info("start %s", name)
            failure: DPIWError | StepFailedError
            try:
                result = body(*args, **kwargs)
            except DPIWError as error:
                shown = brief(error, name) if reads_named_files else error
                failure = shown.with_traceback(None)
                if drawn and error.advice in _BEFORE_A_DRAW:
                    failure.advice = DRAWN_ADVICE
            except stops():
                raise
            except BaseException as error:  # libraries in Rust raise such
                record(error, name, *args)
                failure = unforeseen(f"{name} failed: {type(error).__name__}")
                if isinstance(error, StepFailedError):
                    failure = error
            else:
                progress.info("done %s %.1f", name, time.monotonic() - started)
                tell(f"{name}: {done}")
                return result
            progress.info("failed %s", name)
            tell(f"{name} failed. What to do: {failure.advice}.", logging.ERROR)
            failure.__cause__ = failure.__context__ = None
            raise failure

        return Task(
            guarded,
            name=name,
            retries=0,
            cache_policy=NO_CACHE,
            persist_result=False,
            log_prints=False,
        )

    return wrap


show_sentences()
