"""Regular progress messages of long work whose output is a file or a log, where no bar fits."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

FIRST, PACE = 20.0, 60.0
"""Seconds to the first message and between later ones: below any log's timeout.

A message reveals less than the end of a step, which is not controlled (leak register, row 37).
"""


class Heartbeat:
    """Reports the whole seconds of long work to `say`, in a thread, until it cannot write."""

    def __init__(
        self, say: Callable[[int], None], *, first: float = FIRST, pace: float = PACE
    ) -> None:
        self._say, self._first, self._pace = say, first, pace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> Heartbeat:
        """Start counting."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more messages; a message under way is finished."""
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
