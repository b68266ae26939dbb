"""Confidential stages, each in a process of its own that hands back an exit code and its progress.

    python -m dpiw.run.process STAGE RUN_FOLDER [SOCKET]

With the descriptor SOCKET the process waits on it, its imports done, for one byte: before that it
has looked at nothing of the run. Progress is a line `step steps` on it now and then: two numbers
that the spec fixes, read by whoever started the stage as nothing else.

The process runs with a private umask, no core dumps, a scrubbed environment and, on the CPU, a
memory limit.
Whatever it says goes to the run's `log/` folder. Its exit code depends on the class of the error
alone: what depends on the data ends in one code (`StageFailedError`).
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpiw.run.imports import begin_imports, end_imports, importing

if __name__ == "__main__":
    begin_imports()

from dpiw.data.files import write_durably
from dpiw.data.validation import load_checks
from dpiw.errors import (
    BudgetExceededError,
    ClusterError,
    GrantSpentError,
    LedgerError,
    SchemaError,
    SourceError,
    SpecError,
    StageFailedError,
)
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.resumption import Progress, silent
from dpiw.run import steps
from dpiw.run.cluster import SETTING, TLS, cluster_of
from dpiw.run.run import ReleaseRun
from dpiw.run.shield import shielded

STAGES: Mapping[str, Callable[[ReleaseRun, Progress], None]] = {
    "ingest": lambda run, _: steps.ingest(run),
    "fit_generator": lambda run, progress: steps.fit_generator(
        run, noise=SecureNoise(), progress=progress, cluster=cluster_of(os.environ)
    ),
    "fit_weights": lambda run, progress: steps.fit_weights(
        run, noise=SecureNoise(), progress=progress, cluster=cluster_of(os.environ)
    ),
}

_SPEAKING = (
    SpecError, SchemaError, SourceError, LedgerError, GrantSpentError, BudgetExceededError,
    ClusterError,
)  # fmt: skip
"""Errors about structure, settings and budget: the same for every admissible table.

A bare `PrivacyError` is not among them: a mechanism may raise it for what it was given.
"""

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


def failure_file(directory: Path, stage: str) -> Path:
    """Where a stage leaves the text of a speaking error, and its place for the custodian alone."""
    return directory / "log" / f"{stage}.error"


_PLACE = "\nfor the custodian alone: "
"""Before the row or line of a `SourceError`, at the end of its file: no screen shows it."""


def failure_text(directory: Path, stage: str) -> str | None:
    """What a stage left for a person's screen; None where it left nothing."""
    file = failure_file(directory, stage)
    return file.read_text(encoding="utf-8").partition(_PLACE)[0].strip() if file.exists() else None


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

    def wait(self, progress: Progress) -> int:
        """Tell it to begin; its exit code, once it is over."""
        try:
            with contextlib.suppress(ConnectionError), self.told.makefile("rb") as lines:
                self.told.sendall(b"\n")  # one that is gone already says by its code how
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


_AHEAD: ContextVar[dict[tuple[str, Path], _Started]] = ContextVar("stages started ahead")


@contextlib.contextmanager
def stages_ahead(directory: Path) -> Iterator[None]:
    """Start the processes of a run's stages ahead of time, so that they import side by side.

    Each is a process of its own as ever, and has looked at nothing of the run when `launch_stage`
    tells it to begin. One that is never told is killed on the way out.

    Args:
        directory: the run's folder.
    """
    started: dict[tuple[str, Path], _Started] = {}
    token = _AHEAD.set(started)
    try:
        for stage in STAGES:
            started[stage, directory] = _Started.of(stage, directory)
        yield
    finally:
        _AHEAD.reset(token)
        for waiting in started.values():
            waiting.end()


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
    ahead = None if without_gpu else _AHEAD.get({}).pop((stage, directory), None)
    if ahead is not None and ahead.process.poll() is not None:  # killed while it waited
        ahead.end()
        ahead = None
    started = ahead or _Started.of(stage, directory, without_gpu=without_gpu)
    code = started.wait(progress)
    if code != 0:  # a signal is one more way to fail, and no more is told of it
        raise StageFailedError(stage, code if code > 0 else StageFailedError.exit_code)


_LINE = re.compile(rb"(\d{1,7}) (\d{1,7})\n")


def _telling(pipe: int) -> Progress:
    """Tell progress on a socket, as long as somebody listens."""

    def tell(step: int, steps: int) -> None:
        with contextlib.suppress(OSError):
            os.write(pipe, b"%d %d\n" % (step, steps))

    return tell


def _confine(memory: int | None) -> None:
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def run_stage(stage: str, directory: Path, *, progress: Progress = silent) -> int:
    """Run one stage in this process and return its exit code; never raises."""
    try:
        _confine(None)
        run = ReleaseRun.load(directory)
        # CUDA reserves far more address space than it uses, so no limit on it would let it start.
        limit = run.spec.source.max_memory_bytes
        _confine(limit if run.plan.device(stage) == "cpu" else None)
        STAGES[stage](run, progress)
    except _SPEAKING as error:
        # The texts of these errors hold names and ranges only, but stay in the workspace all
        # the same: what crosses the boundary is the code.
        place = error.place if isinstance(error, SourceError) else ""
        text = f"{type(error).__name__}: {error}{place and _PLACE + place}\n"
        with contextlib.suppress(OSError):  # a full disk changes no code
            write_durably(failure_file(directory, stage), text.encode())
        return error.exit_code
    except (Exception, MemoryError):
        traceback.print_exc(file=sys.stderr)
        return StageFailedError.exit_code
    return 0


def main(arguments: list[str]) -> int:
    """Entry point of the stage process."""
    well_formed = 2 <= len(arguments) <= 3 and arguments[0] in STAGES
    if not well_formed or not all(pipe.isdecimal() for pipe in arguments[2:]):
        sys.stderr.write(
            f"usage: python -m dpiw.run.process {{{','.join(STAGES)}}} RUN_FOLDER [SOCKET]\n"
        )
        return 2
    stage, directory = arguments[0], Path(arguments[1])
    if not arguments[2:]:
        return run_stage(stage, directory)
    pipe = int(arguments[2])
    _get_ready(stage)
    if not os.read(pipe, 1):
        return 0  # whoever started it is gone, and told it nothing
    return run_stage(stage, directory, progress=_telling(pipe))


def _get_ready(stage: str) -> None:
    """Import what a stage will import; what is broken is for the stage itself to find."""
    if stage == "ingest":
        with contextlib.suppress(Exception), importing():
            load_checks()


if __name__ == "__main__":
    end_imports()
    sys.exit(main(sys.argv[1:]))
