"""Kills the process groups of parts when the runner is gone, however it went.

The runner says `+ 123 FOLDER` when it starts a group and `- 123` when that has ended; when its end
of the pipe closes, what is left is killed, and its folder removed. Otherwise parts of a killed run
would go on beside the next.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path


def watch(lines: Iterable[str]) -> None:
    """Follow the runner until it ends, then kill what it left."""
    alive: dict[int, str] = {}
    for line in lines:
        sign, group, *folder = line.rstrip("\n").split(" ", 2)
        if sign == "+":
            alive[int(group)] = folder[0]
        else:
            alive.pop(int(group), None)
    for group, left in alive.items():
        kill(group)
        shutil.rmtree(left, ignore_errors=True)


def kill(group: int) -> None:
    """Kill a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class Guard:
    """The runner's side."""

    def __init__(self) -> None:
        self._alive: set[int] = set()
        self._stopped = False
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            bufsize=1,
        )

    @property
    def stopped(self) -> bool:
        return self._stopped

    def started(self, group: int, folder: Path) -> None:
        """Remember a process group and its temporary folder; after `stop` it is killed at once."""
        with self._lock:
            self._alive.add(group)
            self._say(f"+ {group} {folder}\n")
            if self._stopped:
                kill(group)

    def ended(self, group: int) -> None:
        """Forget a process group, and kill what a test has left behind."""
        with self._lock:
            kill(group)
            self._alive.discard(group)
            self._say(f"- {group}\n")

    def stop(self) -> None:
        """Kill all there are, and all that start from now on."""
        with self._lock:
            self._stopped = True
            for group in self._alive:
                kill(group)

    def close(self) -> None:
        """End the watch; it kills what is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)


if __name__ == "__main__":
    watch(sys.stdin)
