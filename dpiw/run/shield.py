"""Processes that hear no Ctrl-C, SIGTERM or SIGHUP: whoever started them decides when they end.

A terminal sends Ctrl-C to every process of a run, and SIGHUP when it is gone, as with a dropped SSH
session; a service manager sends SIGTERM.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to stop."""


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Processes started inside never hear of `HELD`: they inherit that they are held back.

    A stage that one of them ended in the middle of a draw would be charged and lost, so whoever
    started the stage decides, and hears them at the end: not inside, where the process runs already
    and nobody knows it yet. Another thread may be given the signal, whose handler is this one's
    too.
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
