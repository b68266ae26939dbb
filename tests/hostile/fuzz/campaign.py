"""Run a campaign over child processes, and start another child where one died."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.fuzz.mutators import make_case

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A case that broke a rule; its input lies in `saved`."""

    kind: str
    seed: int
    index: int
    reason: str
    saved: Path


@dataclass(kw_only=True)
class Outcome:
    """What a campaign of one kind came to."""

    cases: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.cases += other.cases
        self.verdicts += other.verdicts
        self.failures += other.failures

    def summary(self) -> dict[str, int]:
        return {"cases": self.cases, **self.verdicts, "violations": len(self.failures)}


WORKER = (sys.executable, "-W", "ignore", "-m", "tests.hostile.fuzz.worker")


def _child(
    command: Sequence[str], kind: str, seed: int, start: int, stop: int, folder: Path
) -> tuple[int, str, str]:
    done = subprocess.run(
        [*command, kind, str(seed), str(start), str(stop), str(folder)],
        capture_output=True, text=True, errors="replace", cwd=ROOT, check=False,
        timeout=600 + 60 * (stop - start),
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def run_slice(
    kind: str, seed: int, start: int, stop: int, folder: Path, *, command: Sequence[str] = WORKER
) -> Outcome:
    """Cases `start` to `stop` of a kind, however often a child dies of one."""
    outcome = Outcome(cases=stop - start)
    place = folder / f"{kind}-{seed}-{start}"
    place.mkdir(parents=True)

    def fail(index: int, reason: str) -> None:
        saved = folder / "failing" / f"{kind}-{seed}-{index}"
        saved.parent.mkdir(exist_ok=True)
        saved.write_bytes(make_case(kind, seed, index))
        outcome.failures.append(
            Failure(kind=kind, seed=seed, index=index, reason=reason, saved=saved)
        )

    while start < stop:
        code, output, stack = _child(command, kind, seed, start, stop, place)
        running, settled = start - 1, True
        for line in output.splitlines():
            if line.startswith("at "):
                running, settled = int(line[3:]), False
                continue
            settled = True
            if line.startswith("FAILED"):
                fail(running, line)
            else:
                outcome.verdicts[line] += 1
        if not settled:
            fail(running, f"the process died with {code}: {stack[-1500:]}")
        elif code not in (0, 3) or running < start:
            raise AssertionError(f"{kind}: the worker itself failed: {stack[-1500:]}")
        start = running + 1
    return outcome


def run_campaign(kind: str, seed: int, cases: int, folder: Path, *, workers: int = 2) -> Outcome:
    """`cases` cases in slices over `workers` children at a time."""
    size = max(1, min(2500, -(-cases // workers)))
    slices = [(start, min(start + size, cases)) for start in range(0, cases, size)]
    outcome = Outcome()
    with ThreadPoolExecutor(workers) as pool:
        for part in pool.map(lambda s: run_slice(kind, seed, *s, folder), slices):
            outcome.add(part)
    return outcome
