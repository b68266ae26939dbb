"""Start the process of a confidential stage (`dpiw.run.process`); read progress and exit code."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from dpiw.data.files import write_durably
from dpiw.errors import StageFailedError
from dpiw.privacy.resumption import Progress, silent

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a run to stop."""


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Block `HELD` in processes started inside; raise what arrived at the end.

    A signal during a draw would lose a charged stage, so only the starting process decides.
    Handlers are replaced too: the kernel may give the signal to another thread.
    """
    heard: list[int] = []
    handlers = {number: signal.getsignal(number) for number in HELD}
    main = threading.current_thread() is threading.main_thread()
    deferred = {n: h for n, h in handlers.items() if main and h not in (None, signal.SIG_IGN)}
    for number in deferred:
        signal.signal(number, lambda number, _: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        for number, handler in deferred.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(heard[0])


_PLACE = "\nfor the custodian alone: "
"""Precedes the row or line of a `SourceError`; no screen shows what follows."""


def failure_file(directory: Path, stage: str) -> Path:
    """Path of a stage's error text."""
    return directory / "log" / f"{stage}.error"


def leave_failure(directory: Path, stage: str, text: str, *, place: str) -> None:
    """Write a stage's error text: names and ranges only, for a person's screen.

    `place`: the row or line, for the custodian only; may be empty.
    """
    whole = f"{text}{place and _PLACE + place}\n"
    write_durably(failure_file(directory, stage), whole.encode())


def failure_text(directory: Path, stage: str) -> str | None:
    """Return the text for a person's screen; None if the stage left none."""
    file = failure_file(directory, stage)
    return file.read_text(encoding="utf-8").partition(_PLACE)[0].strip() if file.exists() else None


_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "SYSTEMROOT",
              "CUDA_VISIBLE_DEVICES",
              "DPIW_ACTOR",  # who acts, for the ledger
              # libpq: password of a PostgreSQL ledger, which no spec may hold
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


def launch_stage(
    stage: str, directory: Path, *, progress: Progress = silent, without_gpu: bool = False
) -> None:
    """Run a stage of the run in `directory` and wait for it; raises StageFailedError.

    `progress` receives a training's (steps taken, steps); `without_gpu` hides GPUs from `device:
    auto`.
    """
    failure_file(directory, stage).unlink(missing_ok=True)
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if without_gpu else {}
    log = directory / "log" / f"{stage}.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ours, theirs = socket.socketpair()
    process = None
    try:  # a Ctrl-C held back at the start is raised in here
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
        with contextlib.suppress(ConnectionError), ours.makefile("rb") as lines:
            for line in lines:  # ends with the process
                if match := _LINE.fullmatch(line):
                    with contextlib.suppress(Exception):  # a display must not stop the stage
                        progress(int(match[1]), int(match[2]))
        code = process.wait()
    finally:
        ours.close()
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:  # a signal is a failure like any other
        raise StageFailedError(stage, code if code > 0 else StageFailedError.exit_code)


_LINE = re.compile(rb"(\d{1,7}) (\d{1,7})\n")
