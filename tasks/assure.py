"""Run one long suite of a checkout in a process of its own, and read what it says in counts.

Tests make their own data and their own servers, so the process hears nothing of Prefect's settings,
and what it says is public. Nothing here imports tests: `python -m tests.assurance` is launched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.errors import DPIWError
from tasks.step import step

CHECKOUT = Path(__file__).resolve().parents[1]


class AssuranceFailedError(DPIWError):
    """A suite has parts that failed or did not run. The table is written; this only counts them."""

    exit_code = 34


@dataclass(frozen=True, kw_only=True)
class SuiteOutcome:
    """A suite in counts.

    Attributes:
        suite: its name.
        ok: whether every part is green.
        total, green, failed, kept: numbers of parts; `kept` ones were green earlier.
        commits: at which they ran.
        failures: ids of the tests that failed.
    """

    suite: str
    ok: bool
    total: int = 0
    green: int = 0
    failed: int = 0
    kept: int = 0
    commits: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, suite: str, code: int) -> SuiteOutcome:
        """From the runner's summary; without one, nothing ran. Both must say that all is well."""
        try:
            summary: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            return cls(suite=suite, ok=False)
        return cls(
            suite=suite,
            ok=code == 0 and summary["ok"] is True,
            total=summary["total"],
            green=summary["green"],
            failed=summary["failed"],
            kept=summary["kept"],
            commits=tuple(summary["commits"]),
            failures=tuple(summary["failures"]),
        )


@step("assure", done="the suite has ended")
def assure(suite: str, root: Path, keep: Path, only: str = "") -> SuiteOutcome:
    """Run a suite, or what is left of it; returns how it ended, however badly.

    What the runner says goes to `<keep>/<suite>.log`.
    """
    keep.mkdir(parents=True, exist_ok=True)
    page = keep / f"{suite}.json"
    page.unlink(missing_ok=True)
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT")}
    command = [sys.executable, "-m", "tests.assurance", suite]
    places = ["--root", str(root), "--keep", str(keep), "--only", only]
    with (keep / f"{suite}.log").open("wb") as log:
        done = subprocess.run(  # noqa: S603 - our own module
            [*command, *places],
            cwd=CHECKOUT,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return SuiteOutcome.read(page, suite, done.returncode)
