"""Locks on a run, which the kernel frees when their process dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dpiw.errors import GrantSpentError, ReleaseError
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.run.run import ReleaseRun

_FREE_STEPS = "postprocessing"


@contextlib.contextmanager
def drawing(run: ReleaseRun, stage: str) -> Iterator[None]:
    """Hold a confidential stage; GrantSpentError if a living process holds it."""
    busy = GrantSpentError(
        "another process is drawing it now, perhaps one of a command that was killed. Wait until"
        " that process has ended, and start the same command again: a finished draw is not paid"
        " twice; a draw that was cut off is paid again, if max_attempts admits that",
        field=f"stage {stage}",
    )
    with _held(run.directory, stage, busy=busy):
        yield


@contextlib.contextmanager
def working(run: ReleaseRun) -> Iterator[None]:
    """Hold the run's free steps, after any other process has finished its own.

    A failing disk is a ReleaseError; once it is repaired, run again.
    """
    try:
        with _held(run.directory, _FREE_STEPS):
            yield
    except OSError as reason:
        cause = os.strerror(reason.errno) if reason.errno else type(reason).__name__
        raise ReleaseError(
            f"a file operation failed: {cause}; repair it, and start the same command again",
            field=f"run {run.release_id}",
        ) from reason


@contextlib.contextmanager
def idle(directory: Path) -> Iterator[None]:
    """Hold every lock of a run, so that no step can start; GrantSpentError if a process works."""
    busy = GrantSpentError("a process is working on it; wait for it", field=f"run {directory.name}")
    with contextlib.ExitStack() as held:
        for name in ("ingest", *PRIVATE_STAGES, _FREE_STEPS):
            held.enter_context(_held(directory, name, busy=busy))
        yield


@contextlib.contextmanager
def _held(directory: Path, name: str, *, busy: GrantSpentError | None = None) -> Iterator[None]:
    """Hold a lock; raise `busy` if a process holds it, or wait for it without `busy`."""
    descriptor = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as held:
            raise busy or held from None
        yield
    finally:
        os.close(descriptor)
