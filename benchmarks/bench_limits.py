"""Ours beside a matrix product, a copy in memory, and pyarrow's reading and writing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from bench_record import Cost, Found, NotRunError, Place, in_turns, median, timed
from scale_table import dictionary, write_table
from study import ROOT
from threadpoolctl import threadpool_limits

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.snapshots import open_snapshot, write_snapshot
from dpiw.ledger import Ledger, Population
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.measured.features import with_first_moments
from dpiw.methods.weights.measured.many_rows import StreamedRows
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.scoring import Scoring
from dpiw.methods.weights.measured.sums import exact_sum
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from dpiw.run.run import ReleaseRun

BLOCK = 8192
"""Rows of one matrix product."""

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
synthetic_rows: {rows}
state: state
signing_key: state/keys/scale.key
publish_to: state/releases
"""
REFERENCE = """import sys
import pyarrow.csv, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.csv.read_csv(sys.argv[1]), sys.argv[2])
for _ in range(2):
    pyarrow.parquet.read_table(sys.argv[2])
"""
STEP = """import sys
from pathlib import Path
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
steps.{step}(ReleaseRun.load(Path(sys.argv[1])))
"""
VERIFY = "import sys; from dpiw.cli.main import main; sys.exit(main(['verify', sys.argv[1]]))"
REWRITE = """import glob, sys
import pyarrow.parquet
table = pyarrow.parquet.read_table(glob.glob(sys.argv[1] + "/synthetic*.parquet"))
pyarrow.parquet.write_table(table, sys.argv[2])
"""
RELEASE = (
    "ingest", "histogram", "draw_synthetic", "fit_weights", "debias", "diagnose", "publish",
)  # fmt: skip
"""Steps of a release with a histogram and measured weights, after its budget is held."""

UNWEIGHTED = tuple(step for step in RELEASE if step not in ("fit_weights", "debias"))

EXAMPLE = "examples/breast-cancer/release.yaml"
AGAIN = "examples/breast-cancer/again.yaml"
"""The same of another snapshot: a release of its own."""

COPIED = ("dpiw", "flows", "tasks", "examples")
COMMANDS = {
    "import": ["-c", "import dpiw"],
    "help": ["-m", "dpiw.cli.main", "--help"],
    "plan": ["-m", "dpiw.cli.main", "plan", EXAMPLE],
    "prepare": ["examples/prepare.py", "breast-cancer"],
    "fresh": ["-m", "flows", EXAMPLE],
    "published": ["-m", "flows", EXAMPLE],
    "warm": ["-m", "flows", AGAIN],
}
"""In this order: each finds what those before it left."""

IMPORTS = "import prefect, great_expectations, pandas, scipy.stats, sqlalchemy"


def made_up(rows: int) -> tuple[PublicSchema, ScaledTable]:
    """Rows of the columns of `scale_table.py`, each drawn by itself."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "schema.yaml")
        path.write_text(dictionary())
        schema = PublicSchema.from_yaml(path)
    domain, rng = Domain.from_schema(schema, bins=64), np.random.default_rng(1)
    codes = np.column_stack([rng.integers(0, size, rows) for size in domain.sizes])
    return schema, domain.fill(codes.astype(np.int32), rng=rng)


def features(place: Place) -> dict[str, Found]:
    """The exact sum of measured weights' features beside the matrix product of its phases."""
    count = max(place.rows // 10, 1000)
    schema, rows = made_up(count)
    stack = Measured(omega_seed=1).stack(schema)
    omega = stack.waves.omega
    encoded = np.random.default_rng(1).random((count, omega.shape[0]))
    product = np.empty((BLOCK, omega.shape[1]))

    def multiplied() -> None:
        for start in range(0, count, BLOCK):
            block = encoded[start : start + BLOCK]
            np.matmul(block, omega, out=product[: len(block)])

    text = (
        f"{count:,} rows; {stack.dimension} features; product with a matrix of"
        f" {omega.shape[0]} x {omega.shape[1]}"
    )
    comparison = in_turns(
        lambda: exact_sum(stack, [rows], constant=0.5), multiplied,
        repeats=place.repeats, told=text,
    )  # fmt: skip
    return {"features": comparison}


def scores(place: Place) -> dict[str, Found]:
    """Scoring: log weights of rows on disk under a tilting, beside pyarrow's reading and writing.

    The features are those of a release of so many rows whose generator is a histogram:
    what measured weights ask of every base row once a step.
    """
    schema, rows = made_up(10 * place.rows)
    stack = with_first_moments(Measured(omega_seed=1).stack(schema), noise=1e-6)
    names = range(len(schema.released))
    law = OneWayLaw(
        schema=schema, bins=32, columns=(*names,), variances=(1.0,) * len(names),
        total_variance=0.0,
    )  # fmt: skip
    theta = np.random.default_rng(1).normal(scale=0.01, size=stack.dimension + law.dimension)
    with tempfile.TemporaryDirectory(dir=place.scratch) as folder:
        path = Path(folder, "table.parquet")
        write_snapshot(rows, path)
        scoring = Scoring(stack=stack, known=law)
        base = StreamedRows(rows.rows, open_snapshot(path).batches, scoring)

        def rewritten() -> None:
            pa.parquet.write_table(pa.parquet.read_table(path), Path(folder, "again.parquet"))

        with threadpool_limits(limits=1):  # as where weights are made
            comparison = in_turns(
                lambda: base.tilted(theta), rewritten, repeats=place.repeats,
                told=f"{rows.rows:,} rows; {theta.size:,} features",
            )  # fmt: skip
    return {"scores": comparison}


@dataclass(frozen=True, kw_only=True)
class Used(Cost):
    """What a process took, and bytes at its peak."""

    peak: int


def used(arguments: list[str]) -> Used:
    """Run Python; it must end well."""
    started = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment
    ) as process:
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments[:3])}: ended with {process.returncode}")
    return Used(
        wall=time.perf_counter() - started,
        cpu=resources.ru_utime + resources.ru_stime,
        peak=resources.ru_maxrss * 1024,
    )


def workplace(root: Path) -> None:
    """A table's dictionary, a key, and a population with budget enough."""
    (root / "state" / "keys").mkdir(mode=0o700, parents=True)
    (root / "state").chmod(0o700)
    (root / "schema.yaml").write_text(dictionary())
    create_key_pair(root / "state" / "keys", "scale")
    town = Population(
        name="town", relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1, id_column=None,
        epsilon=Decimal(20), delta=Decimal("1e-4"),
    )  # fmt: skip
    Ledger.create(root / "state" / "ledger.sqlite").register(town)


def reserved(root: Path, generator: str, rows: int, *, weights: str = "none") -> ReleaseRun:
    """A run whose budget is held."""
    path = root / f"{generator}.yaml"
    name = f"scale-{generator}"
    path.write_text(SPEC.format(name=name, rows=rows, generator=generator, weights=weights))
    run = ReleaseRun.prepare(path, period="once")
    steps.reserve(run)
    return run


def stage(name: str, run: ReleaseRun) -> Used:
    """A step of a run in a process of its own; a confidential one as a release starts it."""
    if name in ("ingest", "fit_generator", "fit_weights"):
        return used(["-m", "dpiw.run.process", name, str(run.directory)])
    if name == "verify":
        return used(["-c", VERIFY, str(Path(run.spec.publish_to) / run.release_id)])
    return used(["-c", STEP.format(step=name), str(run.directory)])


def release(place: Place, rows: int) -> dict[str, Used]:
    """Every stage of a release of so many rows from as many, a process each; and pyarrow."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place.scratch) as folder:
        root = Path(folder)
        write_table(root / "table.csv", rows)
        workplace(root)
        table, copy, again = (str(root / name) for name in ("table.csv", "copy.parquet", "again"))
        stages = {"pyarrow": used(["-c", REFERENCE, table, copy])}
        run = reserved(root, "histogram", rows, weights="measured, settings: {omega_seed: 1}")
        stages |= {"ingest": stage("ingest", run), "histogram": stage("fit_generator", run)}
        for generator in ("privbayes", "mst"):
            other = reserved(root, generator, rows)
            os.link(run.snapshot, other.snapshot)
            stages[generator] = stage("fit_generator", other)
        stages |= {name: stage(name, run) for name in (*RELEASE[2:], "verify")}
        stages["rewrite"] = used(
            ["-c", REWRITE, str(Path(run.spec.publish_to) / run.release_id), again]
        )
    return stages


def of_stages(stages: dict[str, Any], steps: tuple[str, ...]) -> Cost:
    """What some steps took together."""
    costs = [Cost(wall=stages[step]["wall"], cpu=stages[step]["cpu"]) for step in steps]
    return sum(costs[1:], costs[0])


def of_release(stages: dict[str, Any], rows: int) -> dict[str, Found]:
    """Lines of a release's stages, as `release` found them."""
    reference = of_stages(stages, ("pyarrow",))
    text = f"{rows:,} rows"
    largest = max(RELEASE, key=lambda step: stages[step]["peak"])
    return {
        "ingest": Found(ours=of_stages(stages, ("ingest",)), reference=reference, told=text),
        "release": Found(ours=of_stages(stages, UNWEIGHTED), reference=reference, told=text),
        "release, measured": Found(
            ours=of_stages(stages, RELEASE), reference=reference,
            told=f"{text}; most memory {stages[largest]['peak'] / 2**20:,.0f} MiB, in {largest}",
        ),
        "weights": Found(
            ours=of_stages(stages, ("debias",)), reference=of_stages(stages, ("rewrite",)),
            told=text,
        ),
    }  # fmt: skip


def copied(root: Path, target: Path) -> Path:
    """A checkout's files with a second snapshot's spec, for a `.dpiw` of their own."""
    for folder in COPIED:
        shutil.copytree(root / folder, target / folder)
    shutil.copy(root / "pyproject.toml", target)
    text = (target / EXAMPLE).read_text()
    (target / AGAIN).write_text(text.replace("source:\n", "source:\n  snapshot: again\n", 1))
    return target


def command(root: Path, arguments: list[str]) -> Cost:
    """What a command in a checkout took, its processes included; it must end well."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "OMP_"))}
    words, environment = [sys.executable, *arguments], clean | {"PYTHONPATH": str(root)}
    return timed(
        lambda: subprocess.run(
            words, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL
        )
    )[1]


def starts(place: Place) -> dict[str, Found]:
    """Commands of the worked example in a copy of this checkout, beside imports of libraries."""
    if not (ROOT / "examples").is_dir():
        raise NotRunError("needs a checkout")
    costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    reference = []
    for _ in range(max(1, place.repeats - 1)):
        with tempfile.TemporaryDirectory(dir=place.scratch) as folder:
            root = copied(ROOT, Path(folder))
            reference.append(used(["-c", IMPORTS]))
            for name, words in COMMANDS.items():
                costs[name].append(command(root, words))
    return {
        name: Found(ours=median(turns), reference=median(reference))
        for name, turns in costs.items()
        if name != "prepare"
    }
