"""Processes that do not hear Ctrl-C, which a terminal sends to every process of a run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Processes started inside never hear of Ctrl-C: they inherit that it is held back.

    A stage that it ended in the middle of a draw would be charged and lost, so whoever started the
    stage decides, and hears Ctrl-C at the end: not inside, where the process runs already and
    nobody knows it yet. Another thread may be given the signal, whose handler is this one's too.
    """
    heard: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    deferred = main and handler not in (None, signal.SIG_IGN)
    if deferred:
        signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if deferred:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(signal.SIGINT)
