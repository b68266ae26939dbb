"""The tables of Ghalebikesabi et al. (UAI 2022), ours beside the paper's, with sound noise.

    make paper-quick DATA=FOLDER      under ten minutes: 2 runs, studies 1, no MNIST
    make paper DATA=FOLDER            10 runs, studies 5; an hour of two cores; resumes
    python benchmarks/paper.py --data FOLDER [--parts tables bayes known mnist]
    python benchmarks/paper.py --page

FOLDER holds breast.csv, banknote.csv, boston.csv, iris.csv, tgfb.csv.gz, MNIST's four files and
paper_tables.csv. Every cell is kept in `--cache`, in a folder named by data and code: a run that
was cut short goes on. Noise is seeded per run.

Budgets. The paper's columns: the generator spends (epsilon, delta), and private weights spend
(epsilon, delta) once more, each stage as if alone; the text at hand prints one epsilon per table
and does not say more. Our extra columns, `joint_*`: generator and weights together spend one
(epsilon, delta), their noise solved jointly. `none` and `discriminator` spend the generator's.
Noise is always sound: what the paper draws differently: docs/method.md section 12.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import mnist
import numpy as np
import pandas as pd
from exact_gan import EXACT
from metrics import Array, auc, design, ess_share
from paper_known import METHODS, SIZES, error, toy
from paper_page import page, summary
from paper_sets import SETS, Halves, measure, split, table
from paper_weights import NOT_PRIVATE, PAPER_KINDS, Tables, alone, estimator_of, weights_of
from provenance import RESULTS, stamp
from study import ROOT, Store, read, records, write
from weights_cells import UNIT, calibrated

from dpiw.analysis.estimators.bayes import logistic_posterior
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.generators.base import GenerativeModel
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.privacy import accounting
from dpiw.privacy.randomness import SeededNoise

REAL = "real"
GENERATORS: Mapping[str, Mapping[str, Any]] = {
    "dpgan": {},
    "dpcgan": {},
    "privbayes": {"degree": 2, "bins": 16},
    "gan": {},
    "cgan": {},
}
CONDITIONAL = ("dpcgan", "cgan")
PRIVATE = ("dpgan", "dpcgan", "privbayes")
JOINT = {
    "joint_linear": "beta_debiased",
    "joint_measured": "measured",
    "joint_dp_mlp": "dp_mlp",
}
KINDS = (*PAPER_KINDS, "joint_linear", "joint_measured")
FITTING_ROWS = 4000
"""Synthetic rows that weights are fitted on, other than the published ones; they cost nothing."""

EPSILONS = (0.5, 1.0, 2.0, 4.0)
PRIOR_SCALE, DRAWS = 10.0, 200
MNIST_SIZE = "half"
PARTS = ("tables", "bayes", "known", "mnist")
FULL = {"tables": 10, "bayes": 5, "known": 5, "mnist": 10}
QUICK = {"tables": 2, "bayes": 1, "known": 1, "mnist": 0}


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release; with generator `real`, the confidential rows themselves.

    Attributes:
        part: one of `PARTS`.
        epsilon: of each stage, or of both together for `joint_*`: efforts 1:1, or the usual ones of
            `measured`.
    """

    part: str
    run: int
    dataset: str
    generator: str
    weights: str = "none"
    epsilon: float = 1.0

    @property
    def name(self) -> str:
        """A file name."""
        return "-".join(str(value) for value in vars(self).values()).replace(" ", "_")


def kinds_of(dataset: str, generator: str) -> tuple[str, ...]:
    """The weights that make sense on a generator's rows; none where it has no such form."""
    if generator in CONDITIONAL and SETS[dataset].regression:
        return ()
    if generator not in PRIVATE:  # no budget to share with
        return ("none", "discriminator", "logreg", "mlp")
    return tuple(k for k in KINDS if k != "discriminator" or generator != "privbayes")


def _of_run(part: str, run: int, datasets: Sequence[str]) -> list[Cell]:
    cell = partial(Cell, part=part, run=run)
    if part == "tables":
        grid = [cell(dataset=name, generator=REAL) for name in datasets]
        return grid + [
            cell(dataset=name, generator=generator, weights=kind)
            for name in datasets for generator in GENERATORS for kind in kinds_of(name, generator)
        ]  # fmt: skip
    if part == "bayes":
        names = ("banknote", "breast", "iris")
        return [cell(dataset=name, generator=REAL) for name in names] + [
            cell(dataset=name, generator="privbayes", weights=kind, epsilon=epsilon)
            for name in names for epsilon in EPSILONS for kind in ("none", *JOINT)
        ]  # fmt: skip
    if part == "mnist":
        first = [cell(dataset="mnist", generator=REAL)] if run == 0 else []
        kinds = (*PAPER_KINDS, "joint_linear")
        return first + [cell(dataset="mnist", generator="dpcgan", weights=kind) for kind in kinds]
    return [
        cell(dataset=f"{d} x {rows}", generator="known", weights=method)
        for d, rows in SIZES for method in METHODS
    ]  # fmt: skip


# Public plans


@lru_cache(maxsize=256)
def _generator_alone(dataset: str, generator: str, epsilon: float, data: Path) -> Any:
    """A generator that spends (epsilon, delta) by itself; without privacy it spends nothing."""
    schema, facts = table(dataset, data)[0], SETS[dataset]
    settings, rows = GENERATORS[generator], facts.nominal_rows
    if generator in EXACT:
        stage = EXACT[generator](**settings)
        return stage.calibrate(rho=1.0, schema=schema, unit=UNIT, nominal_rows=rows)
    stage = make_generator(generator, dict(settings), pure=False)
    return calibrated([(stage, 1.0)], schema, rows, epsilon, facts.delta)[0]


@lru_cache(maxsize=64)
def _together(dataset: str, generator: str, kind: str, epsilon: float, data: Path) -> list[Any]:
    """Both stages at one total."""
    schema, own = table(dataset, data)[0], SETS[dataset]
    share = Measured.effort if kind == "joint_measured" else 0.5
    made = make_generator(generator, dict(GENERATORS[generator]), pure=False)
    stages = [(made, 1 - share), (estimator_of(JOINT[kind]), share)]
    return calibrated(stages, schema, own.nominal_rows, epsilon, own.delta)


def plan(cell: Cell, data: Path) -> tuple[Any, Any]:
    """Calibrated generator and weights; None for weights without a calibration.

    A GAN's public start is the run's own, so that the errors over runs hold it.
    """
    ready = None
    if cell.weights in JOINT:
        generator, ready = _together(cell.dataset, cell.generator, cell.weights, cell.epsilon, data)
    else:
        generator = _generator_alone(cell.dataset, cell.generator, cell.epsilon, data)
        if cell.weights in ("beta_noised", "beta_debiased", "dp_mlp"):
            facts, schema = SETS[cell.dataset], table(cell.dataset, data)[0]
            ready = alone(cell.weights, schema, facts.nominal_rows, cell.epsilon, facts.delta)
    if cell.generator != "privbayes":
        generator = replace(generator, start=cell.run)
    return generator, ready


def spent(cell: Cell, data: Path) -> float:
    """Total epsilon at the table's delta, all stages composed; infinite if one is not private."""
    if cell.generator not in PRIVATE or cell.weights in NOT_PRIVATE:
        return float("inf")
    schema = table(cell.dataset, data)[0]
    methods = [method for method in plan(cell, data) if method is not None]
    events = [event for method in methods for event in method.events(schema=schema, unit=UNIT)]
    return accounting.epsilon(events, delta=SETS[cell.dataset].delta)


# Releases


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6])


@lru_cache(maxsize=3)
def _model(cell: Cell, data: Path) -> GenerativeModel:
    """The generator of a release; `cell.weights` is `none` unless the budget is shared."""
    halves, stage = split(cell.dataset, cell.run, data), plan(cell, data)[0]
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    noise = SeededNoise(_seed("generator", cell.dataset, cell.generator, cell.run))
    model: GenerativeModel = stage.model(stage.measure(private, noise=noise), schema=halves.schema)
    return model


def release(cell: Cell, data: Path) -> tuple[SyntheticTable, Array]:
    """Published rows and their weights."""
    joint, published = cell.weights in JOINT, SETS[cell.dataset].nominal_rows
    key = replace(cell, part="", weights=cell.weights if joint else "none")
    model, rng = _model(key, data), np.random.default_rng([cell.run, 1])
    halves, ready = split(cell.dataset, cell.run, data), plan(cell, data)[1]
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    kind = JOINT.get(cell.weights, cell.weights)
    seed = _seed("weights", kind.removeprefix("beta_"), joint, cell.run)
    if kind == "measured":
        base = model.sample(ready.base_rows_for(published), rng=rng)
        drawn = ready.measure(private, base, noise=SeededNoise(seed))
        known = model.one_way
        weights = weigh_measured(ready, drawn, base, rows=published, rng=rng, known=known)
        rows = SyntheticTable(schema=base.schema, scaled=base.scaled.take(weights.chosen))
        return rows, np.exp(weights.log_weights)
    rows = model.sample(published, rng=rng)
    tables = Tables(private=private, fitting=model.sample(FITTING_ROWS, rng=rng), rows=rows)
    if kind.startswith("beta_"):  # noised and debiased weights have the same draw
        seed = _seed("weights", "beta", joint, cell.run)
    return rows, weights_of(kind, tables, model=model, ready=ready, seed=seed, run=cell.run)


def predictive_auc(halves: Halves, rows: Array, w: Array, *, weighted: bool, seed: int) -> float:
    """Of the mean probability over posterior draws, at the test rows; one half without a fit."""
    x, y = halves.ruler.parts(rows)
    names = [f"x{j}" for j in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=names).assign(y=np.rint(y))
    tx, ty = halves.ruler.parts(halves.test)
    try:
        posterior = logistic_posterior(
            (frame, w), "y", names, prior_scale=PRIOR_SCALE, weighted=weighted
        )
    except WeightError:
        return 0.5
    draws = posterior.draw(DRAWS, np.random.default_rng(seed))
    scores = np.column_stack([np.ones(len(tx)), tx]) @ draws.T
    return auc(ty, (1 / (1 + np.exp(-np.clip(scores, -500, 500)))).mean(axis=1))


# MNIST (Table 3), by `mnist.py` at a reduced size


@lru_cache(maxsize=1)
def _digits(joint: bool, run: int, data: Path) -> tuple[Any, Any]:
    """A fitted generator of digits, and the weights that share its total."""
    size = mnist.SIZES[MNIST_SIZE]
    sections = {"weights": {"method": "beta_debiased", "when_infeasible": "keep"}}
    made = mnist.plan_of(size, "cpu", sections if joint else None)
    generator = replace(made.generator, start=run)  # type: ignore[type-var]
    private = PrivateTable(schema=size.schema, scaled=mnist.digits_of(data, "train", size))
    measured = generator.measure(private, noise=SeededNoise(1000 * run + 1))
    return generator.model(measured, schema=size.schema), made.weights


def mnist_metrics(cell: Cell, data: Path) -> dict[str, float]:
    """Slopes and the perceptron's area on the real test digits."""
    size = mnist.SIZES[MNIST_SIZE]
    train = mnist.digits_of(data, "train", size)
    if cell.generator == REAL:
        chosen = np.random.default_rng(cell.run).permutation(train.rows)[: mnist.SYNTHETIC_ROWS]
        rows, w = train.take(chosen), np.ones(mnist.SYNTHETIC_ROWS)
    else:
        joint = cell.weights in JOINT
        model, ready = _digits(joint, cell.run, data)
        rng = np.random.default_rng([cell.run, 1])
        drawn, fitting = (model.sample(mnist.SYNTHETIC_ROWS, rng=rng) for _ in range(2))
        private = PrivateTable(schema=size.schema, scaled=train)
        kind = JOINT.get(cell.weights, cell.weights)
        if not joint and kind in ("beta_noised", "beta_debiased", "dp_mlp"):
            ready = mnist.alone_on(size, kind)
        tables = Tables(private=private, fitting=fitting, rows=drawn)
        seed = 1000 * cell.run + 2
        w = weights_of(kind, tables, model=model, ready=ready, seed=seed, run=cell.run)
        rows = drawn.scaled
    judge = mnist.judge_of(size, data)
    x, y = design(size.schema, rows)
    return {
        "beta_mse": judge.slope_error(x, y, w),
        "mlp": mnist.classified((x, y), w, judge.test)["auc"],
        "ess_share": ess_share(w),
    }


# Cells


def metrics_of(cell: Cell, data: Path) -> dict[str, float]:
    """What a cell is worth.

    Raises:
        WeightError: there is no result.
    """
    if cell.part == "known":
        d, rows = map(int, cell.dataset.split(" x "))
        return {"mse": error(cell.weights, d, rows, cell.run)}
    if cell.part == "mnist":
        return mnist_metrics(cell, data)
    halves = split(cell.dataset, cell.run, data)
    if cell.generator == REAL:
        rows, w = halves.ruler.rows(halves.train), np.ones(halves.train.rows)
    else:
        drawn, w = release(cell, data)
        rows = halves.ruler.rows(drawn.scaled)
    if cell.part == "bayes":
        weighted = cell.weights != "none"
        return {"auc": predictive_auc(halves, rows, w, weighted=weighted, seed=cell.run)}
    return measure(halves, rows, w, run=cell.run, data=data)


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's record: from the store, or made and kept."""

    def made() -> dict[str, Any]:
        started, result = time.process_time(), dict[str, Any]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = {"metrics": metrics_of(cell, store.data)}
            except WeightError as reason:
                result = {"refused": str(reason)}
        return vars(cell) | result | {"cpu_seconds": time.process_time() - started}

    sources = [store.data / SETS[cell.dataset].file] if cell.dataset in SETS else []
    return store.kept(cell.name, made, sources)


def spending(datasets: Sequence[str], data: Path) -> list[list[Any]]:
    """Total epsilon of every private kind of weights, least and most over data and generators."""
    totals: dict[str, list[float]] = {}
    for dataset in datasets:
        for generator in PRIVATE:
            for kind in kinds_of(dataset, generator):
                cell = Cell(
                    part="tables", run=0, dataset=dataset, generator=generator, weights=kind
                )
                totals.setdefault(kind, []).append(spent(cell, data))
    return [
        [kind, round(min(values), 2), round(max(values), 2)]
        for kind, values in totals.items()
        if kind not in NOT_PRIVATE
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--quick", action="store_true", help="a look in ten minutes")
    parser.add_argument("--page", action="store_true", help="make the page of the record again")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--datasets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "paper")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    out = chosen.out or (chosen.cache / "quick" if chosen.quick else RESULTS)
    if chosen.page:
        write(out, "paper", read(out, "paper"), page)
        return 0
    if chosen.data is None:
        parser.error("--data: expected a folder with the data sets' files")
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    runs = {part: (QUICK if chosen.quick else FULL)[part] for part in PARTS if part in chosen.parts}
    grid = [
        cell for part, count in runs.items() for run in range(count)
        for cell in _of_run(part, run, chosen.datasets)
    ]  # fmt: skip
    stamped = stamp("python benchmarks/paper.py --data FOLDER")
    done = records(grid, partial(compute, store=store), chosen.jobs)
    toy(out / "paper" / "toy.png")
    spent = {"spent": spending(chosen.datasets, store.data)}
    found = summary(done, store.data / "paper_tables.csv")
    write(out, "paper", {**stamped, **spent, **found}, page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
