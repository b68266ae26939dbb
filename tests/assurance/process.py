"""Runs one part in a pytest of its own, and judges it by pytest's own record."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from tests.assurance.guard import Guard, kill

ALLOWED_SKIPS = ("torch finds no CUDA device here",)
"""Reasons for which a skipped test is no loss: the GPU is a machine of its own."""

HOUR = 3600.0


class StoppedError(Exception):
    """The runner was stopped while this part ran: it has no outcome."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """What a process left; see `parts.Part` for the names it shares."""

    why: str
    seconds: float
    cpu_seconds: float
    passed: int
    skipped: int
    figures: tuple[dict[str, object], ...]
    log: str


def judge(record: Path, status: int) -> tuple[str, int, int]:
    """Why a part is red ("" if it is green), and how many tests passed and were skipped."""
    if not record.exists():
        return f"pytest ended with code {status} and left no record", 0, 0
    counts: Counter[str] = Counter()
    faults = []
    for case in ET.parse(record).getroot().iter("testcase"):
        outcomes = {
            child.tag: child for child in case if child.tag in ("failure", "error", "skipped")
        }
        kind = next(iter(outcomes), "passed")
        counts[kind] += 1
        if kind == "skipped":
            reason = outcomes[kind].get("message", "")
            faults += [] if reason in ALLOWED_SKIPS else [f"skipped: {reason}"]
        elif kind != "passed":
            faults.append(kind)
    if not faults and status != 0:
        faults.append(f"pytest ended with code {status}")
    if not faults and not counts:
        faults.append("nothing ran")
    return "; ".join(faults), counts["passed"], counts["skipped"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs parts of one checkout.

    Attributes:
        root: the checkout.
        marker: the suite's marker expression; the default of `pyproject.toml` leaves the suite out.
        guard: kills parts when this process is gone.
        limit: seconds after which a part is killed and red.
    """

    root: Path
    marker: str
    guard: Guard
    limit: float = 4 * HOUR

    def run(self, node: str) -> Ended:
        """Run a part to its end."""
        place = Path(tempfile.mkdtemp(prefix="dpiw-part-"))
        try:
            return self._run(node, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _run(self, node: str, place: Path) -> Ended:
        record, figures, log = place / "record.xml", place / "figures.jsonl", place / "log"
        begun = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", node, "-m", self.marker, "-p", "no:cacheprovider",
                 "--junitxml", record, "--figures", figures, "--basetemp", place / "tmp"],
                cwd=self.root, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": "1", **os.environ}, start_new_session=True, umask=0o022,
            )  # fmt: skip
        self.guard.started(process.pid, place)
        try:
            cpu, late = self._wait(process, begun)
        finally:
            self.guard.ended(process.pid)
        if self.guard.stopped:
            raise StoppedError
        why, passed, skipped = judge(record, process.returncode)
        lines = figures.read_text().splitlines() if figures.exists() else []
        return Ended(
            why=f"killed after {self.limit:.0f} s" if late else why,
            seconds=round(time.monotonic() - begun, 1), cpu_seconds=round(cpu, 1),
            passed=passed, skipped=skipped, figures=tuple(map(json.loads, lines)),
            log=log.read_text(errors="replace"),
        )  # fmt: skip

    def _wait(self, process: subprocess.Popen[bytes], begun: float) -> tuple[float, bool]:
        """CPU seconds of the process and of those it waited for; whether the limit has passed."""
        late = False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_utime + usage.ru_stime, late
            if not late and time.monotonic() - begun > self.limit:
                late = True
                kill(process.pid)
            time.sleep(0.1)
