"""What a terminal or a log shows of a run's steps while it runs: public facts only."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from rich import progress as bars
from rich.console import Console

FIRST, PACE = 20.0, 60.0
"""Seconds to the first message and between later ones: below any log's timeout.

A message reveals less than the end of a step, which is not controlled (leak register, row 37).
"""


class Heartbeat:
    """Reports the whole seconds of long work to `say`, in a thread, until it cannot write."""

    def __init__(self, say: Callable[[int], None]) -> None:
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more messages; a message under way is finished."""
        self._over.set()
        self._thread.join(timeout=1)

    def _beat(self) -> None:
        started, wait = time.monotonic(), FIRST
        with contextlib.suppress(OSError, ValueError):
            while not self._over.wait(wait):
                self._say(round(time.monotonic() - started))
                wait = PACE


class StepLog(logging.Handler):
    """One line per step, with its time; a bar for a training, or lines without a terminal.

    Without a terminal, a long step reports after `FIRST` seconds, then every `PACE` seconds.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._bar: tuple[bars.Progress, bars.TaskID] | None = None
        self._heart: Heartbeat | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event: `start`, `at`, `done` or `told`; nothing for `failed`."""
        with contextlib.suppress(OSError, ValueError):  # a closed terminal fails no step
            self._show(*record.getMessage().split())

    def _show(self, event: str, name: str, *words: str) -> None:
        if event == "at":
            self._at(name, *map(int, words))
            return
        self.settle()
        if event == "told":
            print(f"    {name:<16}{' '.join(words)}", flush=True)
        if event in ("start", "told"):
            self.begin(name)
        elif event == "done":
            print(f"  ✓ {name:<16}{words[0]:>6} s", flush=True)

    def begin(self, name: str) -> None:
        """Show that something goes on, until `settle`."""
        self.settle()
        if self._console.is_terminal:
            self._draw(name, None, bars.TimeElapsedColumn())
        else:
            self._heart = Heartbeat(
                lambda seconds: print(f"  … {name:<16}{seconds:>6} s so far", flush=True)
            )

    def settle(self) -> None:
        """Remove the bar or heartbeat of a step that is over."""
        if self._heart is not None:
            self._heart.stop()
            self._heart = None
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

    def _at(self, name: str, step: int, steps: int) -> None:
        if not self._console.is_terminal:
            print(f"    {name:<16}{step:>6} of {steps} steps", flush=True)
            return
        if self._bar is None or self._bar[0].tasks[0].total is None:
            self.settle()
            count = bars.TextColumn("{task.completed:.0f} of {task.total:.0f} steps, left")
            self._draw(name, steps, bars.BarColumn(bar_width=24), count, bars.TimeRemainingColumn())
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=step)

    def _draw(self, name: str, total: int | None, *columns: bars.ProgressColumn) -> None:
        bar = bars.Progress(
            bars.TextColumn("  … {task.description:<16}"), *columns, console=self._console,
            transient=True, refresh_per_second=2,
        )  # fmt: skip
        self._bar = bar, bar.add_task(name, total=total)
        bar.start()
