"""Ctrl-C: a step under way ends first, so that no draw that was charged is cut off and lost.

A terminal sends Ctrl-C to every process of a run. The confidential stages and a Prefect server of
the run's own are started `dpiw.run.shield.shielded` from it; the run itself decides. The first one
lets the step under way end, the second stops it at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self


class Interrupts(logging.Handler):
    """Turns Ctrl-C into an end between two steps; a context manager, and a listener to steps."""

    exit_code: ClassVar[int] = 130

    def __init__(self) -> None:
        super().__init__()
        self._step: str | None = None
        self._asked = self._at_once = False
        self._before: Any = None

    def __enter__(self) -> Self:
        # Only the main thread hears signals; and a job in the background was told to ignore it.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if threading.current_thread() is threading.main_thread() and not ignored:
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        logging.getLogger("dpiw.progress").addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        logging.getLogger("dpiw.progress").removeHandler(self)
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def emit(self, record: logging.LogRecord) -> None:
        """A step starts: not if it was asked to stop. Raises KeyboardInterrupt."""
        event, name, *_ = record.getMessage().split()
        if event == "start":
            if self._asked:
                raise KeyboardInterrupt
            self._step = name

    def _interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        if self._step is None or self._asked:
            self._at_once = self._step is not None
            raise KeyboardInterrupt
        self._asked = True
        told = f"\n  stopping when {self._step} has ended (Ctrl-C again: at once)\n"
        os.write(sys.stdout.fileno(), told.encode("ascii"))  # a print may be under way

    def told(self, command: str) -> str:
        """Where the run stands and how to go on, in one sentence.

        Args:
            command: what goes on with this run.
        """
        if self._step is None:
            return f"stopped before the first step: nothing was read or spent; to go on: {command}"
        if self._at_once:
            return (
                f"stopped in {self._step}, at once: what was published or drawn before is kept, a"
                f" draw that was cut off stays charged; to go on where that can be: {command}"
            )
        return (
            f"stopped after {self._step}: all that was drawn is kept, and paid for once; to go on:"
            f" {command}"
        )
