"""Start processes that ignore Ctrl-C, SIGTERM and SIGHUP, which reach the whole process group."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a run to stop."""


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Block `HELD` in processes started inside; raise what arrived at the end.

    A signal during a draw would lose a charged stage, so only the starting process decides.
    Handlers are replaced too: the kernel may give the signal to another thread.
    """
    heard: list[int] = []
    handlers = {number: signal.getsignal(number) for number in HELD}
    main = threading.current_thread() is threading.main_thread()
    deferred = {n: h for n, h in handlers.items() if main and h not in (None, signal.SIG_IGN)}
    for number in deferred:
        signal.signal(number, lambda number, _: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        for number, handler in deferred.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(heard[0])
