"""How long the worked example takes, by command and by process: most of it is imports and starts.

    python benchmarks/startup.py [--root CHECKOUT ...] [--repeats 3]

Each command runs in a copy of the checkout's files, with a `.dpiw` of its own. `fresh`: no `.dpiw`
but the table, a key and a registered population; `warm`: the next release, with Prefect's database
there; `published`: the same command again. Wall seconds depend on what else the machine does, CPU
seconds of all processes together less so: both are told, with the machine's load. With several
checkouts their commands take turns, so that they meet the same load.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPEC = "examples/breast-cancer/release.yaml"
AGAIN = "examples/breast-cancer/again.yaml"
"""The same of another snapshot: a release of its own."""

COPIED = ("dpiw", "flows", "tasks", "examples")
COMMANDS = {
    "import": ["-c", "import dpiw"],
    "help": ["-m", "dpiw.cli.main", "--help"],
    "plan": ["-m", "dpiw.cli.main", "plan", SPEC],
    "prepare": ["examples/prepare.py", "breast-cancer"],
    "fresh": ["-m", "flows.release", SPEC],
    "published": ["-m", "flows.release", SPEC],
    "warm": ["-m", "flows.release", AGAIN],
}
"""In this order: each finds what those before it left."""

PROBE = """import atexit, json, os, sys, time
def told():
    cpu = time.process_time()
    with open({out!r}, "a") as lines:
        lines.write(json.dumps([sys.orig_argv[1:4], cpu]) + chr(10))
atexit.register(told)
"""
"""A `sitecustomize` by which a Python process tells its CPU seconds, unless a signal ends it."""

REST = "server and ends"
"""What nobody told: the Prefect server, which a signal ends, and the ends of the others."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One command: seconds of wall and CPU, and CPU seconds by process."""

    wall: float
    cpu: float
    processes: dict[str, float]


def name_of(argv: list[str]) -> str:
    words = [word for word in argv if word != "-m"]
    if words[0] == "dpiw.run.process":
        return words[1]
    return "command"


def timed(root: Path, arguments: list[str]) -> Timing:
    """Run one command in a checkout; it must end well."""
    with tempfile.TemporaryDirectory() as probe:
        out = Path(probe) / "told"
        (Path(probe) / "sitecustomize.py").write_text(PROBE.format(out=str(out)))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "OMP_"))}
        environment = clean | {"PYTHONPATH": f"{root}{os.pathsep}{probe}"}
        before, started = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], cwd=root, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wall, after = time.perf_counter() - started, os.times()
        cpu = (after.children_user + after.children_system) - (
            before.children_user + before.children_system
        )
        processes: dict[str, float] = defaultdict(float)
        for line in out.read_text().splitlines():
            argv, seconds = json.loads(line)
            processes[name_of(argv)] += seconds
    processes[REST] = cpu - sum(processes.values())
    return Timing(wall=wall, cpu=cpu, processes=dict(processes))


def table(runs: dict[str, list[Timing]]) -> list[str]:
    """Medians, one line a command."""
    lines = ["| command | wall, s | CPU, s | CPU by process, s |", "|---|---|---|---|"]
    for command, timings in runs.items():
        names = dict.fromkeys(name for run in timings for name in run.processes)
        parts = [
            f"{name} {statistics.median(run.processes.get(name, 0.0) for run in timings):.1f}"
            for name in names
        ]
        wall = statistics.median(run.wall for run in timings)
        cpu = statistics.median(run.cpu for run in timings)
        lines.append(
            f"| {command} | {wall:.1f} | {cpu:.1f} | {', '.join(parts) if parts[2:] else ''} |"
        )
    return lines


def copied(root: Path, target: Path) -> Path:
    for folder in COPIED:
        shutil.copytree(root / folder, target / folder)
    shutil.copy(root / "pyproject.toml", target)
    text = (target / SPEC).read_text()
    (target / AGAIN).write_text(text.replace("source:\n", "source:\n  snapshot: again\n", 1))
    return target


def versions() -> str:
    names = ("prefect", "great-expectations", "numpy", "scipy", "pandas", "opendp")
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return f"Python {platform.python_version()}, {packages}; {os.cpu_count()} cores"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, nargs="+", default=[ROOT])
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args(arguments)
    runs = [{command: [] for command in COMMANDS} for _ in chosen.root]
    loads = []
    with tempfile.TemporaryDirectory() as places:
        for repeat in range(chosen.repeats):
            here = [
                copied(root.resolve(), Path(places) / f"{repeat}-{number}")
                for number, root in enumerate(chosen.root)
            ]
            for command, words in COMMANDS.items():
                for number, place in enumerate(here):
                    runs[number][command].append(timed(place, words))
                    loads.append(os.getloadavg()[0])
    load = f"load {min(loads):.1f} to {max(loads):.1f}"
    print(f"{versions()}; {load}; medians of {chosen.repeats}\n")
    for number, mine in enumerate(runs, 1):
        print(f"Checkout {number}\n" if runs[1:] else "", *table(mine), "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
