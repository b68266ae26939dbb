"""Processes that do not hear Ctrl-C, which a terminal sends to every process of a run."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Processes started inside never hear of Ctrl-C: they inherit that it is held back.

    A stage that it ended in the middle of a draw would be charged and lost, so whoever started the
    stage decides. This thread hears Ctrl-C at the end; another one may hear it before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
