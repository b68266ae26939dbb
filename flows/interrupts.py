"""Ctrl-C, SIGTERM and SIGHUP: a step under way ends first, so that no charged draw is lost.

Stages and the run's own server are started `dpiw.run.launch.shielded`; the run decides. The first
signal lets the step end, the second stops it at once.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from dpiw.errors import DPIWError
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.run.continuation import used_up
from dpiw.run.launch import HELD
from dpiw.run.run import ReleaseRun

_DRAWS = (GENERATOR_STAGE, WEIGHTS_STAGE)


class Interrupts(logging.Handler):
    """Turns signals into an end between two steps; a context manager.

    `exit_code` is as in shells: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP. `run`: None until prepared.
    """

    def __init__(self) -> None:
        super().__init__()
        self._step: str | None = None
        self._asked = self._at_once = self._raised = False
        self._before: dict[int, Any] = {}
        self.exit_code = 128 + signal.SIGINT
        self.run: ReleaseRun | None = None

    def __enter__(self) -> Self:
        # Background jobs ignore some signals.
        if _hears():
            heard = [number for number in HELD if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._interrupt) for number in heard}
        logging.getLogger("dpiw.progress").addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        logging.getLogger("dpiw.progress").removeHandler(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._raised and self._step is None and isinstance(error, Exception):
            raise KeyboardInterrupt from None  # an import may have wrapped it

    def emit(self, record: logging.LogRecord) -> None:
        """Raise KeyboardInterrupt instead of starting a step if the run was asked to stop."""
        event, name, *_ = record.getMessage().split()
        if event == "start":
            for number in self._before if _hears() else ():  # Prefect replaced the handler
                signal.signal(number, self._interrupt)
            if self._asked:
                raise KeyboardInterrupt
            self._step = name

    def _interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        self.exit_code = 128 + signal_number
        if self._step is None or self._asked:
            self._at_once = self._step is not None
            self._raised = True
            raise KeyboardInterrupt
        self._asked = True
        name = signal.Signals(signal_number).name
        again = "Ctrl-C" if signal_number == signal.SIGINT else name
        stakes = _stakes(self.run) if self.run and self._step in _DRAWS else ""
        message = f"\n  stopping when {self._step} has ended ({again} again: at once){stakes}\n"
        # A print may be under way, or the terminal gone: neither must end a stage.
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.stdout.fileno(), message.encode("ascii"))

    def told(self, command: str) -> str:
        """Return, in one sentence, where the run stands and how `command` goes on with it."""
        if self._step is None:
            return f"stopped before the first step: nothing was read or spent; to go on: {command}"
        if self._at_once:
            ended = ""  # also where nobody can say whether the same command goes on
            with contextlib.suppress(DPIWError):
                ended = used_up(self.run) if self.run else ""
            cut_off = "no draw was under way"
            if self._step in _DRAWS:
                cut_off = "a draw that was cut off stays charged"
            return (
                f"stopped in {self._step}, at once: what was published or drawn before is kept,"
                f" {cut_off}; {ended or f'to go on: {command}'}"
            )
        if self._step in ("plan", "reserve", "ingest"):
            return f"stopped after {self._step}: nothing was drawn this time; to go on: {command}"
        return (
            f"stopped after {self._step}: all that was drawn is kept, and paid for once; to go on:"
            f" {command}"
        )


def _stakes(run: ReleaseRun) -> str:
    most = run.spec.max_attempts
    allowance = "cannot draw again" if most == 1 else f"may pay for {most} draws in all"
    return (
        f"; a draw that is cut off stays charged (of this run's epsilon {run.spec.epsilon}), and"
        f" with max_attempts {most} this run {allowance}"
    )


def _hears() -> bool:
    """Whether this is the main thread, the only one that receives signals."""
    return threading.current_thread() is threading.main_thread()
