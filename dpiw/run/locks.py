"""Locks on a run, which the kernel frees when their process dies."""

from __future__ import annotations

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
    descriptor = _open(run.directory, stage)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GrantSpentError(
                "another process is drawing it now, perhaps of a command that was killed; once it"
                " has ended, the same command goes on, and what it drew is not paid twice (only a"
                " draw that was cut off is, where max_attempts admits another)",
                field=f"stage {stage}",
            ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def working(run: ReleaseRun) -> Iterator[None]:
    """Hold the run's free steps, after any other process has finished its own.

    A failing disk is a ReleaseError; once it is repaired, run again.
    """
    try:
        descriptor = _open(run.directory, _FREE_STEPS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
    except OSError as reason:
        cause = os.strerror(reason.errno) if reason.errno else type(reason).__name__
        raise ReleaseError(
            f"a file operation failed: {cause}", field=f"run {run.release_id}"
        ) from reason


@contextlib.contextmanager
def idle(directory: Path) -> Iterator[None]:
    """Hold every lock of a run, so that no step can start; GrantSpentError if a process works."""
    with contextlib.ExitStack() as held:
        for name in ("ingest", *PRIVATE_STAGES, _FREE_STEPS):
            descriptor = _open(directory, name)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise GrantSpentError(
                    "a process is working on it", field=f"run {directory.name}"
                ) from None
        yield


def _open(directory: Path, name: str) -> int:
    return os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
