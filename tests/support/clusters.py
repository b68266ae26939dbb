"""Tallies that kill or fail where they are counted, and a cluster as a site would run it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpiw.data.passes import Totals
from dpiw.data.scaled import ScaledTable
from tests.support.documents import blocks, lines_of
from tests.support.patience import until

ROOT = Path(__file__).resolve().parents[2]


def count_rows(batches: Iterable[ScaledTable]) -> Totals:
    """The number of rows, and of those with an age above a half."""
    rows = above = 0
    for batch in batches:
        rows += batch.rows
        above += int((batch.columns["age"] > 0.5).sum())
    return np.array([rows], dtype=np.int64), np.array([above], dtype=np.int64)


@dataclass(frozen=True)
class KillsOnce:
    """Kills a process when the first part is counted: its own, or another; counts ever after."""

    killed: Path
    victim: int = 0

    def __call__(self, batches: Iterable[ScaledTable]) -> Totals:
        with contextlib.suppress(FileExistsError):
            self.killed.touch(exist_ok=False)
            self.killed.write_text(str(self.victim or os.getpid()))
            os.kill(self.victim or os.getpid(), signal.SIGKILL)
        return count_rows(batches)


@dataclass(frozen=True)
class QuotesElsewhere:
    """Counts in one process; in every other it fails and quotes cells."""

    here: int

    def __call__(self, batches: Iterable[ScaledTable]) -> Totals:
        if os.getpid() != self.here:
            (first, *_) = batches
            raise ValueError(f"cells: {first.columns['income'][:9].tolist()}")
        return count_rows(batches)


@dataclass(frozen=True)
class DiesElsewhere:
    """Counts in one process; every other is killed by it, whatever the part."""

    here: int

    def __call__(self, batches: Iterable[ScaledTable]) -> Totals:
        if os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)
        return count_rows(batches)


@dataclass(frozen=True)
class WaitsElsewhere:
    """Counts in one process; every other stands still until it may go on."""

    here: int
    may_go_on: Path

    def __call__(self, batches: Iterable[ScaledTable]) -> Totals:
        if os.getpid() != self.here:
            until(self.may_go_on.exists)
        return count_rows(batches)


def adds_floats(batches: Iterable[ScaledTable]) -> Totals:
    """What no pass may do."""
    return (sum(np.nan_to_num(batch.columns["income"]).sum(keepdims=True) for batch in batches),)


def documented() -> str:
    """What a site's shell is told before the commands."""
    (block,) = (
        candidate
        for candidate in blocks("docs/operations.md", "sh")
        if "dask worker" in candidate.text
    )
    return "; ".join(line for line in lines_of(block) if re.match("umask|ulimit|export", line))


@dataclass(frozen=True)
class Site:
    """A scheduler and one worker, in processes of their own."""

    address: str
    page: str
    scheduler: subprocess.Popen[bytes]
    logs: tuple[Path, Path]


@contextlib.contextmanager
def site(folder: Path, keys: list[str]) -> Iterator[Site]:
    """Start them as docs/operations.md says.

    Args:
        folder: for their logs.
        keys: the options that name a certificate and its key.
    """
    scheduler_file = folder / "scheduler.json"
    common = ["--protocol", "tls", "--host", "127.0.0.1", "--no-dashboard"]
    commands = (
        ["scheduler", *common, "--port", "0", "--scheduler-file", str(scheduler_file), *keys,
         "--dashboard-address", "127.0.0.1:0"],
        ["worker", *common, "--scheduler-file", str(scheduler_file), "--nthreads", "1",
         "--memory-limit", "0",
         "--local-directory", str(folder), "--death-timeout", "600", *keys],
    )  # fmt: skip
    logs = folder / "scheduler.log", folder / "worker.log"
    with contextlib.ExitStack() as stack:
        started = []
        for command, log in zip(commands, logs, strict=True):
            output = stack.enter_context(log.open("wb"))
            process = subprocess.Popen(
                ["sh", "-c", f'{documented()}; exec "$@"', "sh", sys.executable, "-m", "dask",
                 *command],
                stdout=output, stderr=output, cwd=ROOT,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        until(
            lambda: scheduler_file.exists() and scheduler_file.read_text().endswith("}"),
            what="the scheduler",
        )
        facts = json.loads(scheduler_file.read_text())
        page = f"http://127.0.0.1:{facts['services']['dashboard']}"
        yield Site(address=facts["address"], page=page, scheduler=started[0], logs=logs)
