"""Locks on a run, which the kernel frees when their process dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from dpiw.errors import GrantSpentError
from dpiw.runs import ReleaseRun


@contextlib.contextmanager
def drawing(run: ReleaseRun, stage: str) -> Iterator[None]:
    """Hold a confidential stage.

    Raises:
        GrantSpentError: another process holds it, so it is alive: hands off.
    """
    descriptor = _open(run, stage)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GrantSpentError(f"stage {stage}: another process is drawing it now") from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def working(run: ReleaseRun) -> Iterator[None]:
    """Hold the run's free steps, waiting for another process to finish its own."""
    descriptor = _open(run, "postprocessing")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(run: ReleaseRun, name: str) -> int:
    return os.open(run.directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
