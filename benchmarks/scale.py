"""Seconds and peak memory of a release's stages on tables of many rows, on one machine.

    python benchmarks/scale.py [--rows 100000 1000000] [--methods histogram privbayes mst measured]
    python benchmarks/scale.py --published 100000 1000000 [--methods histogram privbayes]

A made-up table of 15 columns and an id is written as CSV in batches. Each stage is the process that
a release starts, timed from its start to its end. Beside it, in a process of its own: pyarrow reads
the CSV, writes it as Parquet, and reads that twice. Wall seconds depend on what else the machine
does, which the load tells.

`--copies 7`: the columns seven times side by side, 105 of them.
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

from scale_table import dictionary, write_table

from dpiw.ledger import Ledger, Population
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from dpiw.run.run import ReleaseRun

ROOT = Path(__file__).resolve().parents[1]
METHODS = (
    "histogram", "privbayes", "mst", "aim", "bayes", "dpgan", "dpcgan", "pategan", "measured",
)  # fmt: skip
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

    def line(self, name: str, last: float) -> str:
        """A row of the table."""
        return (
            f"| {name} | {self.wall:.1f} | {self.cpu:.1f} | {self.peak / 2**20:.0f} | {last:.1f} |"
        )


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


def workplace(root: Path, *, most: int, copies: int = 1) -> None:
    """A table's dictionary, a key, and a population with rows enough to spend."""
    (root / "state").mkdir(mode=0o700)
    (root / "state" / "keys").mkdir(mode=0o700)
    (root / "schema.yaml").write_text(dictionary(copies))
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
    snapshot = root / "snapshot"
    if snapshot.exists():
        os.link(snapshot, run.snapshot)
        return
    yield "ingest", used(["-m", "dpiw.run.process", "ingest", str(run.directory)])
    os.link(run.snapshot, snapshot)


def fits(root: Path, rows: int, methods: Sequence[str], *, most: int) -> Iterator[tuple[str, Used]]:
    """Ingest, and each method's draws on one snapshot."""
    for method in methods:
        run = run_of(root, method, rows, most=most)
        yield from ingested(root, run)
        yield method, used(["-m", "dpiw.run.process", "fit_generator", str(run.directory)])
        yield f"{method}: draw_synthetic", public_step("draw_synthetic", run)
        if method == "measured":
            yield "measured: fit_weights", public_step("fit_weights", run)
            yield "measured: debias", public_step("debias", run)


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
    parser.add_argument("--copies", type=int, default=1, help="of the 15 columns, side by side")
    parser.add_argument("--folder", type=Path, help="where the tables lie while they are used")
    chosen = parser.parse_args(arguments)
    for number in chosen.published or chosen.rows:
        with tempfile.TemporaryDirectory(prefix="scale-", dir=chosen.folder) as folder:
            lines, size = told(Path(folder), number, chosen)
        what = "published rows" if chosen.published else f"rows, {size}"
        load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"\n{number:,} {what}, {load}, {platform.machine()}\n")
        last = "CPU a row, microseconds" if chosen.published else "wall to pyarrow's"
        print(f"| process | wall, s | CPU, s | peak, MiB | {last} |")
        print("|---|---|---|---|---|")
        print("\n".join(lines), flush=True)
    return 0


def told(root: Path, number: int, chosen: argparse.Namespace) -> tuple[list[str], str]:
    """Lines of the table of so many rows, and how large the confidential table is."""
    rows = chosen.rows[0] if chosen.published else number
    write_table(root / "table.csv", rows, copies=chosen.copies)
    workplace(root, most=chosen.max_rows, copies=chosen.copies)
    if chosen.published:
        methods = [method for method in chosen.methods if method != "measured"]
        stages = public(root, rows, number, methods, most=chosen.max_rows)
        lines = [used.line(name, used.cpu / number * 1e6) for name, used in stages]
    else:
        best = reference(root)
        stages = fits(root, rows, chosen.methods, most=chosen.max_rows)
        lines = [best.line(f"pyarrow (its read alone: {float(best.said):.1f} s)", 1.0)]
        lines += [used.line(name, used.wall / best.wall) for name, used in stages]
    sizes = [(root / name).stat().st_size / 2**20 for name in ("table.csv", "snapshot")]
    return lines, f"{sizes[0]:.0f} MiB of CSV, {sizes[1]:.0f} MiB scaled"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
