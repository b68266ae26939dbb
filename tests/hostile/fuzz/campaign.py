"""Run a campaign over child processes, and start another child where one died."""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.fuzz.mutators import make_case

ROOT = Path(__file__).resolve().parents[3]
WORKER = (sys.executable, "-W", "ignore", "-m", "tests.hostile.fuzz.worker")


def run_slice(
    kind: str, seed: int, start: int, stop: int, folder: Path, *, command: Sequence[str] = WORKER
) -> tuple[Counter[str], dict[int, str]]:
    """Verdicts of cases `start` to `stop` of a kind, and why some broke a rule, by their number.

    Their inputs are kept in `folder`, as `KIND-SEED-NUMBER`.
    """
    verdicts, failures = Counter[str](), dict[int, str]()
    place = folder / f"{kind}-{seed}-from-{start}"
    place.mkdir(parents=True)
    while start < stop:
        done = subprocess.run(
            [*command, kind, str(seed), str(start), str(stop), str(place)],
            capture_output=True, text=True, errors="replace", cwd=ROOT, check=False,
            timeout=600 + 60 * (stop - start),
        )  # fmt: skip
        running, settled = start - 1, True
        for line in done.stdout.splitlines():
            settled = not line.startswith("at ")
            if not settled:
                running = int(line[3:])
            elif line.startswith("FAILED"):
                failures[running] = line
            else:
                verdicts[line] += 1
        if not settled:
            failures[running] = f"the process died with {done.returncode}: {done.stderr[-1500:]}"
        elif done.returncode not in (0, 3) or running < start:
            raise AssertionError(f"{kind}: the worker itself failed: {done.stderr[-1500:]}")
        start = running + 1
    for index in failures:
        (folder / f"{kind}-{seed}-{index}").write_bytes(make_case(kind, seed, index))
    return verdicts, failures


def run_campaign(
    kind: str, seed: int, cases: int, folder: Path, *, workers: int = 2
) -> tuple[Counter[str], dict[int, str]]:
    """`cases` cases in slices over `workers` children at a time."""
    size = max(1, min(2500, -(-cases // workers)))
    starts = range(0, cases, size)
    verdicts, failures = Counter[str](), dict[int, str]()
    with ThreadPoolExecutor(workers) as pool:
        for found, broken in pool.map(
            lambda start: run_slice(kind, seed, start, min(start + size, cases), folder), starts
        ):
            verdicts += found
            failures |= broken
    return verdicts, failures
