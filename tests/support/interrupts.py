"""Ctrl-C and SIGHUP as a terminal's foreground has them, wherever the tests run."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def foreground() -> Iterator[None]:
    """Here and in processes started inside: the background ignores the one, nohup the other."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
