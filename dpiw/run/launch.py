"""Whoever starts confidential stages: a process for each, told to begin, and its exit code.

What runs in that process is `dpiw.run.process`. Of what it says only its progress is read, two
numbers that the spec fixes; its exit code depends on the class of an error alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from dpiw.errors import StageFailedError
from dpiw.privacy.resumption import Progress, silent
from dpiw.run.cluster import SETTING, TLS
from dpiw.run.failure import failure_file
from dpiw.run.process import STAGES
from dpiw.run.shield import shielded

_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "SYSTEMROOT",
              "CUDA_VISIBLE_DEVICES",
              "DPIW_ACTOR",  # who the ledger is told acts
              SETTING, *TLS,  # where passes over the rows are made
              # where libpq finds the password of a PostgreSQL ledger, which no spec may hold
              "PGPASSFILE", "PGSERVICEFILE", "PGSSLMODE", "PGSSLROOTCERT")  # fmt: skip


def _environment(directory: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {
        "HOME": str(directory / "private"),
        "TMPDIR": str(directory / "private"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
        "GX_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


@dataclass(frozen=True, kw_only=True)
class _Started:
    """A stage's process, which waits for its word to begin."""

    stage: str
    process: subprocess.Popen[bytes]
    told: socket.socket

    @classmethod
    def of(cls, stage: str, directory: Path, *, without_gpu: bool = False) -> Self:
        """Start it. It imports what it needs, and no more until it is told."""
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if without_gpu else {}
        log = directory / "log" / f"{stage}.log"
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        ours, theirs = socket.socketpair()
        process = None
        try:  # a Ctrl-C that was held back while it started is heard in here
            with os.fdopen(descriptor, "ab") as output, theirs, shielded():
                pipe = theirs.fileno()
                process = subprocess.Popen(  # noqa: S603 - our own module, our own arguments
                    [sys.executable, "-m", "dpiw.run.process", stage, str(directory), str(pipe)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_environment(directory) | hidden,
                    pass_fds=[pipe],
                )
            return cls(stage=stage, process=process, told=ours)
        except BaseException:
            ours.close()
            if process is not None:
                _end(process)
            raise

    def end(self) -> None:
        """Kill it, if it is not over."""
        self.told.close()
        _end(self.process)

    def wait(self, progress: Progress, meanwhile: Callable[[], None]) -> int:
        """Tell it to begin, and do something while it works; its exit code, once it is over."""
        try:
            with contextlib.suppress(ConnectionError), self.told.makefile("rb") as lines:
                self.told.sendall(b"\n")  # one that is gone already says by its code how
                meanwhile()
                for line in lines:  # ends with the process
                    if match := _LINE.fullmatch(line):
                        with contextlib.suppress(Exception):  # who shows it must not stop the stage
                            progress(int(match[1]), int(match[2]))
            return self.process.wait()
        finally:
            self.end()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


class _Ahead:
    """A run's processes that wait for their word, and what else is done ahead of its time."""

    def __init__(self, directory: Path, meanwhile: Callable[[], None]) -> None:
        self.directory, self._meanwhile, self._is_ready = directory, meanwhile, False
        self._waiting: dict[str, _Started] = {}

    def start(self, stages: Iterable[str]) -> None:
        """Start the processes of some stages."""
        for stage in stages:
            self._waiting[stage] = _Started.of(stage, self.directory)

    def taken(self, stage: str) -> _Started | None:
        """The process of a stage, if one waits."""
        if (started := self._waiting.pop(stage, None)) and started.process.poll() is not None:
            started.end()  # killed while it waited
            return None
        return started

    def go_on(self, stage: str) -> None:
        """Once, while the first stage works: start those after it, and do what else there is.

        What cannot be done ahead of its time fails in its time; the stage that works goes on.
        """
        if not self._is_ready:
            self._is_ready, order = True, list(STAGES)
            with contextlib.suppress(Exception):
                self.start(order[order.index(stage) + 1 :])
                self._meanwhile()

    def end(self) -> None:
        """Kill those that were never told to begin."""
        for waiting in self._waiting.values():
            waiting.end()


def _nothing() -> None:
    pass


_AHEAD: ContextVar[_Ahead | None] = ContextVar("stages started ahead", default=None)


@contextlib.contextmanager
def stages_ahead(directory: Path, *, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Start a run's first stage ahead of its time, and the others while that one works.

    So they import side by side, and not while the run itself gets ready. Each is a process of its
    own as ever, and has looked at nothing of the run when `launch_stage` tells it to begin. One
    that is never told is killed on the way out.

    Args:
        directory: the run's folder.
        meanwhile: what else to get ready while the first stage works.
    """
    ahead = _Ahead(directory, meanwhile)
    token = _AHEAD.set(ahead)
    try:
        ahead.start(list(STAGES)[:1])
        yield
    finally:
        _AHEAD.reset(token)
        ahead.end()


def launch_stage(
    stage: str, directory: Path, *, progress: Progress = silent, without_gpu: bool = False
) -> None:
    """Run `stage` of the run in `directory` and wait for it.

    Args:
        stage: one of `STAGES`.
        directory: the run's folder.
        progress: told (steps taken, steps) now and then, if the stage trains for long.
        without_gpu: whether GPUs are hidden from it: `device: auto` is then the CPU.

    Raises:
        StageFailedError: it ended with a code other than 0; carries the stage and the code only.
            A killed process counts as one that failed unexpectedly.
    """
    failure_file(directory, stage).unlink(missing_ok=True)
    ahead = _AHEAD.get()
    if ahead is not None and ahead.directory != directory:
        ahead = None
    waiting = None if ahead is None or without_gpu else ahead.taken(stage)
    started = waiting or _Started.of(stage, directory, without_gpu=without_gpu)
    code = started.wait(progress, _nothing if ahead is None else partial(ahead.go_on, stage))
    if code != 0:  # a signal is one more way to fail, and no more is told of it
        raise StageFailedError(stage, code if code > 0 else StageFailedError.exit_code)


_LINE = re.compile(rb"(\d{1,7}) (\d{1,7})\n")


__all__ = ["launch_stage", "stages_ahead"]
