"""Seconds and peak memory of a release's stages on tables of many rows, on one machine.

    python benchmarks/scale.py [--rows 100000 1000000] [--methods histogram privbayes mst measured]
    python benchmarks/scale.py --published 100000 1000000 [--methods histogram privbayes]

A made-up table of 15 columns and an id is written as CSV in batches. Each stage is the process that
a release starts, timed from its start to its end. Beside it, in a process of its own: pyarrow reads
the CSV, writes it as Parquet, and reads that twice. Wall seconds depend on what else the machine
does, which the load tells.

With `--published` the confidential table has the first number of `--rows`, and the public steps of
releases of so many rows with `measured` weights are timed, each in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpiw.ledger import Ledger, Population
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from dpiw.run.run import ReleaseRun

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("histogram", "privbayes", "mst", "measured")
BATCH = 1 << 18

LEVELS = {
    "work": ["private", "public", "self-employed", "none"],
    "education": [f"level {number}" for number in range(16)],
    "job": [f"job {number}" for number in range(40)],
    "sex": ["f", "m"],
}
NUMBERS = {
    "age": (17, 90), "hours": (1, 99), "children": (0, 9), "income": (0.0, 200_000.0),
    "kilos": (30.0, 150.0), "score": (0.0, 1.0), "bmi": (10.0, 60.0),
}  # fmt: skip
COLUMNS = [
    "  - {name: id, role: identifier}",
    *(
        f"  - {{name: {name}, kind: {'integer' if isinstance(low, int) else 'continuous'},"
        f" lower: {low}, upper: {high}{', nullable: true' if name == 'bmi' else ''}}}"
        for name, (low, high) in NUMBERS.items()
    ),
    *(
        f"  - {{name: {name}, kind: categorical, levels: [{', '.join(levels)}]}}"
        for name, levels in LEVELS.items()
    ),
    "  - {name: married, kind: boolean}",
    "  - {name: ill, kind: boolean, role: target}",
    "  - {name: born, kind: date, lower: 1930-01-01, upper: 2010-01-01}",
    "  - {name: seen, kind: datetime, lower: 2010-01-01, upper: 2025-01-01}",
]
SPEC = """format: 1
name: {name}
population: town
cadence: once
source: {{path: table.csv, format: csv}}
schema: schema.yaml
relation: add_or_remove_one
epsilon: 1
delta: 1e-8
nominal_rows: {rows}
generator: {{method: {generator}}}
weights: {{method: {weights}}}
synthetic_rows: {published}
state: state
signing_key: state/keys/scale.key
publish_to: state/releases
"""
REFERENCE = """import sys, time
import pyarrow.csv, pyarrow.parquet
started = time.perf_counter()
table = pyarrow.csv.read_csv(sys.argv[1])
print(time.perf_counter() - started)
pyarrow.parquet.write_table(table, sys.argv[2])
for _ in range(2):
    pyarrow.parquet.read_table(sys.argv[2])
"""


PUBLIC_STEPS = ("draw_synthetic", "fit_weights", "debias", "diagnose", "publish", "verify")
STEP = """import sys
from pathlib import Path
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
steps.{step}(ReleaseRun.load(Path(sys.argv[1])))
"""
VERIFY = "import sys; from dpiw.cli.main import main; sys.exit(main(['verify', sys.argv[1]]))"


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a process took."""

    wall: float
    cpu: float
    peak: int
    said: str

    def line(self, name: str, whole: float) -> str:
        """A row of the table; `whole` seconds are the reference."""
        return (
            f"| {name} | {self.wall:.1f} | {self.cpu:.1f} | {self.peak / 2**20:.0f} |"
            f" {self.wall / whole:.1f} |"
        )

    def per_row(self, name: str, rows: int) -> str:
        """A row of the table of public steps."""
        return (
            f"| {name} | {self.wall:.1f} | {self.cpu:.1f} | {self.peak / 2**20:.0f} |"
            f" {self.cpu / rows * 1e6:.1f} |"
        )


def batch(rng: np.random.Generator, start: int, rows: int) -> pa.Table:
    """Some rows, two of each person."""
    columns = {"id": (start + np.arange(rows)) // 2}
    for name, (low, high) in NUMBERS.items():
        if isinstance(low, int):
            columns[name] = rng.integers(low, high + 1, rows)
        else:
            columns[name] = np.round(low + (high - low) * rng.beta(2, 4, rows), 2)
    for name, levels in LEVELS.items():
        columns[name] = np.array(levels)[rng.binomial(len(levels) - 1, 0.4, rows)]
    columns |= {"married": rng.random(rows) < 0.5, "ill": rng.random(rows) < 0.1}
    columns["born"] = np.datetime64("1930-01-01") + rng.integers(0, 29_000, rows)
    columns["seen"] = np.datetime64("2010-01-01T00:00:00") + rng.integers(0, 47 * 10**7, rows)
    table = pa.table(columns)
    gaps = pa.array(columns["bmi"], mask=rng.random(rows) < 0.05)
    return table.set_column(table.column_names.index("bmi"), "bmi", gaps)


def write_table(path: Path, rows: int) -> None:
    rng = np.random.default_rng(17)
    with path.open("wb") as file:
        for start in range(0, rows, BATCH):
            options = pyarrow.csv.WriteOptions(include_header=start == 0, quoting_style="none")
            pyarrow.csv.write_csv(batch(rng, start, min(BATCH, rows - start)), file, options)


def used(arguments: list[str]) -> Used:
    """Run Python; it must end well."""
    started = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments[:3])}: ended with {process.returncode}")
    return Used(
        wall=time.perf_counter() - started,
        cpu=resources.ru_utime + resources.ru_stime,
        peak=resources.ru_maxrss * 1024,
        said=said,
    )


def dictionary() -> str:
    """The made-up table's data dictionary, but for its id where a row is a person."""
    return "\n".join(["name: scale", "columns:", *COLUMNS, ""])


def workplace(root: Path, *, most: int) -> None:
    """A table's dictionary, a key, and a population with rows enough to spend."""
    (root / "state").mkdir(mode=0o700)
    (root / "state" / "keys").mkdir(mode=0o700)
    (root / "schema.yaml").write_text(dictionary())
    create_key_pair(root / "state" / "keys", "scale")
    ledger = Ledger.create(root / "state" / "ledger.sqlite")
    ledger.register(
        Population(
            name="town", relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=most,
            id_column="id" if most > 1 else None, epsilon=Decimal(20), delta=Decimal("1e-4"),
        )
    )  # fmt: skip


def run_of(root: Path, method: str, rows: int, *, most: int) -> ReleaseRun:
    """A reserved run whose generator, or whose weights, are of that method."""
    return spec_run(
        root, "histogram" if method == "measured" else method, rows,
        published=1000, measured=method == "measured", most=most,
    )  # fmt: skip


def spec_run(
    root: Path, generator: str, rows: int, *, published: int, measured: bool, most: int
) -> ReleaseRun:
    """A reserved run."""
    name = f"{generator}-{published}{'-measured' if measured else ''}"
    text = SPEC.format(
        name=f"scale-{name}", rows=rows, published=published, generator=generator,
        weights="measured, settings: {omega_seed: 1}" if measured else "none",
    )  # fmt: skip
    if most > 1:
        text += f"unit: {{max_rows: {most}, id_column: id}}\n"
    (root / f"{name}.yaml").write_text(text)
    run = ReleaseRun.prepare(root / f"{name}.yaml", period="once")
    steps.reserve(run)
    return run


def reference(root: Path) -> Used:
    """Pyarrow reads the CSV, writes it as Parquet, and reads that twice."""
    return used(["-c", REFERENCE, str(root / "table.csv"), str(root / "table.parquet")])


def ingested(root: Path, run: ReleaseRun) -> Iterator[tuple[str, Used]]:
    """The table in the run's workspace: ingested once, and the same file for later runs."""
    kept = root / "snapshot"
    if kept.exists():
        os.link(kept, run.snapshot)
        return
    yield "ingest", used(["-m", "dpiw.run.process", "ingest", str(run.directory)])
    os.link(run.snapshot, kept)


def fits(root: Path, rows: int, methods: Sequence[str], *, most: int) -> Iterator[tuple[str, Used]]:
    """Ingest, and each method's draws on one snapshot."""
    for method in methods:
        run = run_of(root, method, rows, most=most)
        yield from ingested(root, run)
        draw = used(["-m", "dpiw.run.process", "fit_generator", str(run.directory)])
        if method == "measured":
            steps.draw_synthetic(run)
            draw = used(["-m", "dpiw.run.process", "fit_weights", str(run.directory)])
        yield method, draw


def public(
    root: Path, rows: int, published: int, methods: Sequence[str], *, most: int
) -> Iterator[tuple[str, Used]]:
    """The steps after the generator's fit, with each generator and measured weights."""
    for method in methods:
        run = spec_run(root, method, rows, published=published, measured=True, most=most)
        for _ in ingested(root, run):
            pass
        used(["-m", "dpiw.run.process", "fit_generator", str(run.directory)])
        for step in PUBLIC_STEPS:
            yield f"{method}: {step}", public_step(step, run)


def public_step(step: str, run: ReleaseRun) -> Used:
    """A step after the generator's fit."""
    if step == "fit_weights":
        return used(["-m", "dpiw.run.process", step, str(run.directory)])
    if step == "verify":
        return used(["-c", VERIFY, str(Path(run.spec.publish_to) / run.release_id)])
    return used(["-c", STEP.format(step=step), str(run.directory)])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--published", type=int, nargs="+", default=[], help="rows of a release")
    parser.add_argument("--max-rows", type=int, default=1, help="of a person; 1: a row is a person")
    parser.add_argument("--folder", type=Path, help="where the tables lie while they are used")
    chosen = parser.parse_args(arguments)
    for number in chosen.published or chosen.rows:
        with tempfile.TemporaryDirectory(prefix="scale-", dir=chosen.folder) as folder:
            lines, size = told(Path(folder), number, chosen)
        what = "published rows" if chosen.published else f"rows, {size / 2**20:.0f} MiB of CSV"
        load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"\n{number:,} {what}, {load}, {platform.machine()}\n")
        last = "CPU a row, microseconds" if chosen.published else "wall to pyarrow's"
        print(f"| process | wall, s | CPU, s | peak, MiB | {last} |")
        print("|---|---|---|---|---|")
        print("\n".join(lines), flush=True)
    return 0


def told(root: Path, number: int, chosen: argparse.Namespace) -> tuple[list[str], int]:
    """Lines of the table of so many rows, and the bytes of the CSV."""
    rows = chosen.rows[0] if chosen.published else number
    write_table(root / "table.csv", rows)
    workplace(root, most=chosen.max_rows)
    if chosen.published:
        methods = [method for method in chosen.methods if method != "measured"]
        found = public(root, rows, number, methods, most=chosen.max_rows)
        lines = [used.per_row(name, number) for name, used in found]
    else:
        best = reference(root)
        found = fits(root, rows, chosen.methods, most=chosen.max_rows)
        lines = [best.line(f"pyarrow (its read alone: {float(best.said):.1f} s)", best.wall)]
        lines += [used.line(name, best.wall) for name, used in found]
    return lines, (root / "table.csv").stat().st_size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
