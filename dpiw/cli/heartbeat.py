"""Signs of life of long work whose output is a file or a log, where no bar can be drawn."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

FIRST, PACE = 20.0, 60.0
"""Seconds until the first sign, and between one and the next: calm, and under any log's patience.
How long a step takes is not controlled (leak register, row 37); a sign tells less than its end."""


class Heartbeat:
    """Says now and then, while something lasts, for how long it has lasted.

    Args:
        say: told the whole seconds; from a thread of its own. Where it cannot write, it is not
            asked again.
        first, pace: seconds until the first sign, and between others.
    """

    def __init__(
        self, say: Callable[[int], None], *, first: float = FIRST, pace: float = PACE
    ) -> None:
        self._say, self._first, self._pace = say, first, pace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> Heartbeat:
        """Begin to count."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Say nothing more; what is being said is said to its end."""
        self._over.set()
        self._thread.join(timeout=1)

    def __enter__(self) -> Heartbeat:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _beat(self) -> None:
        started, wait = time.monotonic(), self._first
        with contextlib.suppress(OSError, ValueError):
            while not self._over.wait(wait):
                self._say(round(time.monotonic() - started))
                wait = self._pace
