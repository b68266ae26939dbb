"""Ctrl-C and SIGHUP as a terminal's foreground has them, wherever the tests run."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def in_the_foreground() -> Iterator[None]:
    """For a file that imports it, and for processes of its tests.

    A job in the background ignores the one signal, and one of nohup the other.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
