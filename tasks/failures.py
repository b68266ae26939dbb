"""What a worker's terminal shows of a step that failed: one sentence, and no traceback.

Prefect logs the traceback of an exception that leaves a task, once for the task and twice for its
flow. Of our own errors it says nothing that the sentence does not: where a step's own code failed
stands in the run's confidential log. What Prefect itself runs into is shown as ever.
"""

from __future__ import annotations

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
    """What ends a process or a run by intent; Prefect has words of its own for each."""
    from prefect.exceptions import ExternalSignal, PrefectSignal  # a published run needs none

    return (
        KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, PrefectSignal,
        ExternalSignal,
    )  # fmt: skip


class StepFailedError(Exception):
    """A step failed for a reason that stays in its own process."""

    advice = DPIWError.advice


class DrawnStepFailedError(StepFailedError):
    """A step behind a draw failed for a reason that nobody foresaw."""

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
"""For errors whose own advice is about a run that drew nothing."""


class OwnFailures(logging.Filter):
    """Turns the traceback of one of our errors into a sentence; leaves out that it is repeated."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, DPIWError | StepFailedError):
            return True
        record.msg, record.args = _sentence(error), ()
        record.exc_info = record.exc_text = None
        return record.name == _TASKS  # a flow says in what state it ended


def brief(error: DPIWError, subject: str) -> DPIWError:
    """An error as Prefect keeps it: its class, and the file and line that it is about.

    Everyone who may start a run chooses the files that it reads, so no word of a file may come
    back.

    Args:
        error: of reading what somebody named.
        subject: what is said where neither file nor line is known.

    Returns:
        The same error with another text; `full` holds the whole of it, for a person's terminal.
    """
    short = copy.copy(error)
    short.full = str(error)
    short.args = (f"{error.at or subject}: refused; dpiw says why on the machine itself",)
    return short


@contextlib.contextmanager
def told_briefly(subject: str) -> Iterator[None]:
    """Let what is raised inside say no more than `brief` lets it, or than its class.

    What is raised has no context: a library's reducer for pickles may keep that, with its text.
    """
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
        failure.__context__ = None  # set by `with`, which handles the error that came in


def only_our_own(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a flow's body raise errors of ours, without what led to them, and what stops a process.

    Anything else leaves as its class alone, also what is no `Exception`, as a library in Rust may
    raise: Prefect keeps the text of whatever ends a flow.

    Args:
        name: of the flow, as its failure says it.
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
            except HTTPError as error:  # a person sees that the server went away
                failure = HTTPError(f"{name} failed: {type(error).__name__}")
            except BaseException as error:
                failure = StepFailedError(f"{name} failed: {type(error).__name__}")
            failure.__cause__ = failure.__context__ = None
            raise failure

        return guarded

    return wrap


def _sentence(error: DPIWError | StepFailedError) -> str:
    return f"{type(error).__name__}: {error}. What to do: {error.advice}."


def show_sentences() -> None:
    """From now on, in this process; saying it twice changes nothing."""
    for name in (_TASKS, _FLOWS):
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, OwnFailures) for log_filter in logger.filters):
            logger.addFilter(OwnFailures())


def record(error: BaseException, name: str, *given: object) -> None:
    """Keep the traceback of a step's own failure in its run's log, for the custodian alone.

    Args:
        error: what the step raised.
        name: of the step.
        given: its arguments, the run's folder first; of one that has no run, nothing is kept.
    """
    place = given[0] if given else None
    if not isinstance(place, Path) or not (place / "log").is_dir():
        return
    trace = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # a full disk is not to hide that the step failed
        log = os.open(place / "log" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(log, "w", encoding="utf-8", errors="backslashreplace") as output:
            output.write(trace)


__all__ = [
    "DRAWN_ADVICE",
    "DrawnStepFailedError",
    "OwnFailures",
    "StepFailedError",
    "brief",
    "only_our_own",
    "record",
    "show_sentences",
    "stops",
    "told_briefly",
]
