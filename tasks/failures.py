"""What a worker's terminal shows of a failed step: one sentence, and no traceback.

Tracebacks of a step's own code are in the run's log. Prefect's own errors stay unchanged.
"""

import asyncio
import contextlib
import copy
import functools
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from httpx import HTTPError

from dpiw.errors import DPIWError

_TASKS: Final = "prefect.task_runs"
_FLOWS: Final = "prefect.flow_runs"


P = ParamSpec("P")
R = TypeVar("R")


def stops() -> tuple[type[BaseException], ...]:
    """Return what ends a process or a run by intent; Prefect reports each itself."""
    from prefect.exceptions import ExternalSignal, PrefectSignal  # not before a failure

    return (
        KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, PrefectSignal,
        ExternalSignal,
    )  # fmt: skip


class StepFailedError(Exception):
    """A step failed for a reason that stays in its own process."""

    advice = DPIWError.advice


class DrawnStepFailedError(StepFailedError):
    """A step after a draw failed for an unforeseen reason."""

    advice = (
        "what was drawn is committed and kept, and nothing is paid again. Do not change the spec or"
        " the period: those are paid again. A custodian reads the step's log in log/ of the run's"
        " folder, and asks the maintainers of dpiw, or of the method; with the fault repaired, the"
        " same run publishes what was drawn"
    )


DRAWN_ADVICE = (
    "what was drawn is committed and kept, and nothing is paid again: put right what the message"
    " names, without another spec or period, and start the run again; if it names nothing of yours,"
    " ask the maintainers of dpiw"
)
"""Replaces advice that assumes that nothing was drawn."""


class OwnFailures(logging.Filter):
    """Replaces the tracebacks of our own errors by a sentence, shown once."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is shown."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, DPIWError | StepFailedError):
            return True
        record.msg = f"{type(error).__name__}: {error}. What to do: {error.advice}."
        record.args = ()
        record.exc_info = record.exc_text = None
        return record.name == _TASKS  # the flow's own line follows


def brief(error: DPIWError, subject: str) -> DPIWError:
    """Return an error for Prefect: its class, file and line; else `subject` instead of a place.

    Everyone who may start a run chooses the files that it reads, so no text of a file may come
    back. `whole` is the error itself, for a person's terminal.
    """
    short = copy.copy(error)
    short.whole, short.next, short.several = error, (), ()
    short.field, short.allowed, short.mark = error.at or subject, "", None
    short.args = ("refused; to read why, type the same dpiw command on the worker's machine",)
    return short


@contextlib.contextmanager
def told_briefly(subject: str) -> Iterator[None]:
    """Reduce errors raised inside to `brief`, or to their class, without a context to pickle."""
    failure: Exception
    try:
        yield
    except DPIWError as error:
        failure = brief(error, subject)
    except Exception as error:
        failure = StepFailedError(f"{subject} failed: {type(error).__name__}")
    else:
        return
    try:
        raise failure
    finally:
        failure.__context__ = None  # `with` sets it to the first error


def only_our_own(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the body of the flow `name` raise only our errors, without causes, and `stops`.

    Anything else becomes its class name, even what is no `Exception`, as libraries in Rust raise:
    Prefect stores the text of the error that ends a flow.
    """

    def wrap(body: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(body)
        def guarded(*words: P.args, **named: P.kwargs) -> R:
            failure: BaseException
            try:
                return body(*words, **named)
            except (DPIWError, StepFailedError) as error:
                failure = error
            except stops():
                raise
            except HTTPError as error:  # shown as a lost server
                failure = HTTPError(f"{name} failed: {type(error).__name__}")
            except BaseException as error:
                failure = StepFailedError(f"{name} failed: {type(error).__name__}")
            failure.__cause__ = failure.__context__ = None
            raise failure

        return guarded

    return wrap


def show_sentences() -> None:
    """Install `OwnFailures` in this process; repeating it changes nothing."""
    for name in (_TASKS, _FLOWS):
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, OwnFailures) for log_filter in logger.filters):
            logger.addFilter(OwnFailures())


def record(error: BaseException, name: str, *given: object) -> None:
    """Keep the traceback of a step's own failure in its run's log, for the custodian only.

    `given`: the step's arguments, the run's folder first; without a run nothing is kept.
    """
    place = given[0] if given else None
    if not isinstance(place, Path) or not (place / "log").is_dir():
        return
    trace = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # a full disk must not hide the failure
        log = os.open(place / "log" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(log, "w", encoding="utf-8", errors="backslashreplace") as output:
            output.write(trace)
