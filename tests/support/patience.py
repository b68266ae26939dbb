"""How long a test waits for what must happen. It is late on a busy machine, and no less sure.

A short wait belongs only where the time itself is what a test is about.
"""

import time
from collections.abc import Callable
from typing import TypeVar

SECONDS = 600
"""Long enough for two cores that ten others want; a test that needs them all has failed."""

T = TypeVar("T")


def until(happens: Callable[[], T], *, every: float = 0.1, what: str = "it") -> T:
    """What `happens` returns, once that is true; AssertionError after `SECONDS`."""
    deadline = time.monotonic() + SECONDS
    while not (outcome := happens()):
        assert time.monotonic() < deadline, f"{what} did not happen within {SECONDS} s"
        time.sleep(every)
    return outcome
