"""The tables of Ghalebikesabi et al. (UAI 2022), ours beside the paper's, with sound noise.

    make paper-quick DATA=FOLDER      2 runs, studies 1, no MNIST
    make paper DATA=FOLDER            10 runs, of steps 5; resumes
    python benchmarks/paper.py --data FOLDER [--parts poster bayes ...] [--runs 10]
    python benchmarks/paper.py --page

FOLDER holds breast.csv, banknote.csv, boston.csv, iris.csv, tgfb.csv.gz, MNIST's four files and
paper_tables.csv. Every cell is kept in `--cache`, in a folder named by data and code: a run that
was cut short goes on. The record keeps the parts that are not run, each with its commit. Noise is
seeded per run.

Budgets. The paper's columns: the generator spends (epsilon, delta), and private weights spend
(epsilon, delta) once more, each stage as if alone; the text at hand prints one epsilon per table
and does not say more. Our extra columns, `joint_*`: generator and weights together spend one
(epsilon, delta), their noise solved jointly. `none` and `discriminator` spend the generator's.
Noise is always sound: what the paper draws differently: docs/method.md section 12.
"""

from __future__ import annotations

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
from metrics import Array, auc
from paper_page import POSTER, page, summary
from paper_sets import SETS, Halves, measure, split, table
from paper_toy import toy
from paper_weights import PAPER_KINDS, Tables, alone, estimator_of, weights_of
from provenance import RESULTS, stamp
from study import Store, options, parsed, read, records, write
from weights_cells import UNIT, calibrated

from dpiw.analysis.estimators.bayes import NormalPosterior, logistic_posterior
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.generators.base import GenerativeModel
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.weights.diagnostics import k_hat
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.methods.weights.paper.regression import sigmoid
from dpiw.methods.weights.weigh import normalised
from dpiw.privacy.randomness import SeededNoise

REAL = "real"
GENERATORS: Mapping[str, Mapping[str, Any]] = {
    "dpgan": {}, "dpcgan": {}, "privbayes": {"degree": 2, "bins": 16}, "gan": {}, "cgan": {},
}  # fmt: skip
CONDITIONAL = ("dpcgan", "cgan")
PRIVATE = ("dpgan", "dpcgan", "privbayes")
JOINT = {"joint_linear": "beta_debiased", "joint_measured": "measured"}
CALIBRATED = ("beta_noised", "beta_debiased", "dp_mlp")
"""Weights that spend a budget of their own."""

KINDS = (*PAPER_KINDS, "joint_linear", "joint_measured")
FITTING_ROWS = 4000
"""Synthetic rows that weights are fitted on, other than the published ones; they cost nothing."""

PRIOR_SCALE, DRAWS = 10.0, 200
MNIST_SIZE = "half"
BAYES = ("cgan", "dpcgan", "privbayes")
BAYES_EPSILONS = (1.0, 6.0)
NETWORKS = (
    ("dpgan", "discriminator"), ("dpcgan", "discriminator"), ("cgan", "discriminator"),
    ("dpcgan", "dp_mlp"), ("privbayes", "dp_mlp"),
)  # fmt: skip
"""Generators and network ratios whose weights are processed further, by `STEPPED`."""

STEPPED = ("", ", beta_calibrate", ", pareto_smooth", ", beta_calibrate, pareto_smooth")

PUBLIC_SHARE = 0.1
"""Of the confidential rows, in the part `steps`: they are public there, and nobody else reads them,
so that a beta calibration has real rows."""

PARTS = ("tables", "poster", "bayes", "steps", "mnist", "toy")
FULL = {"tables": 10, "poster": 10, "bayes": 10, "steps": 5, "mnist": 10, "toy": 1}
QUICK = {"tables": 2, "poster": 1, "bayes": 1, "steps": 1, "mnist": 0, "toy": 1}


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release; with generator `real`, the confidential rows themselves.

    Epsilon: of each stage, or of both together for `joint_*`: efforts 1:1, or `measured`'s own.
    """

    part: str
    run: int
    dataset: str
    generator: str
    weights: str = "none"
    epsilon: float = 1.0

    @property
    def method(self) -> str:
        """The weights without the steps of post-processing."""
        return self.weights.partition(", ")[0]

    @property
    def steps(self) -> tuple[str, ...]:
        """Of post-processing."""
        return tuple(self.weights.split(", ")[1:])

    @property
    def public(self) -> float:
        """Share of the confidential rows that is public."""
        return PUBLIC_SHARE if self.part == "steps" else 0.0

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
    if part == "poster":
        kinds = ("beta_noised", "beta_debiased")
        return [cell(dataset=d, generator=g, weights=kind) for g, d in POSTER for kind in kinds]
    if part == "bayes":
        return [cell(dataset="banknote", generator=REAL)] + [
            cell(dataset="banknote", generator=generator, weights=kind, epsilon=epsilon)
            for generator in BAYES for epsilon in BAYES_EPSILONS
            for kind in (*PAPER_KINDS, "joint_measured")
            if (generator, kind) not in (("privbayes", "discriminator"), ("cgan", "joint_measured"))
        ]  # fmt: skip
    if part == "steps":
        pairs = [(generator, f"{kind}{steps}") for generator, kind in NETWORKS for steps in STEPPED]
        pairs += [(generator, "none") for generator in dict.fromkeys(g for g, _ in NETWORKS)]
        return [cell(dataset=d, generator=g, weights=kind)
                for d in ("banknote", "breast") for g, kind in pairs]  # fmt: skip
    if part == "mnist":
        first = [cell(dataset="mnist", generator=REAL)] if run == 0 else []
        return first + [
            cell(dataset="mnist", generator="dpcgan", weights=kind) for kind in PAPER_KINDS
        ]
    return []


# Public plans


@lru_cache(maxsize=256)
def _stages(dataset: str, generator: str, kind: str, epsilon: float, data: Path) -> list[Any]:
    """The generator, and weights of `JOINT` that share its total; exact ones spend nothing."""
    schema, facts = table(dataset, data)[0], SETS[dataset]
    settings, rows = dict(GENERATORS[generator]), facts.nominal_rows
    if generator in EXACT:
        exact = EXACT[generator](**settings)
        return [exact.calibrate(rho=1.0, schema=schema, unit=UNIT, nominal_rows=rows)]
    stages: list[tuple[Any, float]] = [(make_generator(generator, settings, pure=False), 1.0)]
    if kind in JOINT:
        share = Measured.effort if kind == "joint_measured" else 0.5
        stages = [(stages[0][0], 1 - share), (estimator_of(JOINT[kind]), share)]
    return calibrated(stages, schema, rows, epsilon, facts.delta)


def plan(cell: Cell, data: Path) -> tuple[Any, Any]:
    """Calibrated generator and weights; None for weights without a calibration.

    A GAN's public start is the run's own, so that the errors over runs hold it.
    """
    shared = cell.weights if cell.weights in JOINT else ""
    generator, *weights = _stages(cell.dataset, cell.generator, shared, cell.epsilon, data)
    ready = weights[0] if weights else None
    if cell.method in (*CALIBRATED, "beta_exact"):
        facts, schema = SETS[cell.dataset], table(cell.dataset, data)[0]
        kind = "beta_noised" if cell.method == "beta_exact" else cell.method
        ready = alone(kind, schema, facts.nominal_rows, cell.epsilon, facts.delta)
    if cell.generator != "privbayes":
        generator = replace(generator, start=cell.run)
    return generator, ready


# Releases


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6])


@lru_cache(maxsize=3)
def _model(cell: Cell, data: Path) -> GenerativeModel:
    """The generator of a release; `cell.weights` is `none` unless the budget is shared."""
    halves, stage = split(cell.dataset, cell.run, data, cell.public), plan(cell, data)[0]
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    noise = SeededNoise(_seed("generator", cell.dataset, cell.generator, cell.run))
    model: GenerativeModel = stage.model(stage.measure(private, noise=noise), schema=halves.schema)
    return model


def release(cell: Cell, data: Path) -> tuple[SyntheticTable, Array]:
    """Published rows and their weights."""
    joint, published = cell.weights in JOINT, SETS[cell.dataset].nominal_rows
    key = replace(
        cell, part="steps" if cell.public else "", weights=cell.weights if joint else "none",
        epsilon=1.0 if cell.generator in EXACT else cell.epsilon,
    )  # fmt: skip
    model, rng = _model(key, data), np.random.default_rng([cell.run, 1])
    halves, ready = split(cell.dataset, cell.run, data, cell.public), plan(cell, data)[1]
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    kind = JOINT.get(cell.weights, cell.method)
    seed = _seed("weights", kind.removeprefix("beta_"), joint, cell.run)
    if kind == "measured":
        base = model.sample(ready.base_rows_for(published), rng=rng)
        drawn = ready.measure(private, base, noise=SeededNoise(seed))
        known = model.one_way
        weights = weigh_measured(ready, drawn, base, rows=published, rng=rng, known=known)
        rows = SyntheticTable(schema=base.schema, scaled=base.scaled.take(weights.chosen))
        return rows, np.exp(weights.log_weights)
    rows = model.sample(published, rng=rng)
    public = SyntheticTable(schema=halves.schema, scaled=halves.public)
    fitting = model.sample(FITTING_ROWS, rng=rng)
    tables = Tables(private=private, fitting=fitting, rows=rows, public=public)
    if kind.startswith("beta_"):  # noised and debiased weights have the same draw
        seed = _seed("weights", "beta", joint, cell.run)
    return rows, weights_of(
        kind, tables, model=model, ready=ready, seed=seed, run=cell.run, steps=cell.steps
    )


def weight_errors(cell: Cell, data: Path) -> dict[str, float]:
    """Mean squared error of log weights against two regressions without noise on the same rows."""

    def log_weights(kind: str) -> Array:
        return normalised(np.log(release(replace(cell, weights=kind), data)[1]))

    ours = log_weights(cell.weights)
    references = {"own": "beta_exact", "logreg": "logreg"}
    return {
        f"log_{name}": float(((ours - log_weights(kind)) ** 2).mean())
        for name, kind in references.items()
    }


def _posterior(halves: Halves, rows: Array, w: Array, *, weighted: bool) -> NormalPosterior:
    """Of a logistic regression on the metrics' scale."""
    x, y = halves.ruler.parts(rows)
    names = [f"x{j}" for j in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=names).assign(y=np.rint(y))
    return logistic_posterior((frame, w), "y", names, prior_scale=PRIOR_SCALE, weighted=weighted)


def posterior_errors(
    halves: Halves, rows: Array, w: Array, *, weighted: bool, seed: int
) -> dict[str, float]:
    """The posterior of weighted rows beside that of the confidential rows.

    `shift`: root mean square over coefficients of the means' distance, in confidential standard
    deviations; `width`: geometric mean of the ratio of standard deviations; `auc`: of the mean
    probability over draws, at the test rows.
    """
    own = _posterior(halves, rows, w, weighted=weighted)
    exact = halves.ruler.rows(halves.train)
    truth = _posterior(halves, exact, np.ones(len(exact)), weighted=False)
    tx, ty = halves.ruler.parts(halves.test)
    draws = own.draw(DRAWS, np.random.default_rng(seed))
    scores = np.column_stack([np.ones(len(tx)), tx]) @ draws.T
    shifts = (own.mean - truth.mean) / truth.standard_deviation
    return {
        "shift": float(np.sqrt((shifts**2).mean())),
        "width": float(np.exp(np.log(own.standard_deviation / truth.standard_deviation).mean())),
        "auc": auc(ty, sigmoid(scores).mean(axis=1)),
    }


# MNIST (Table 3), by `mnist.py` at a reduced size


@lru_cache(maxsize=1)
def _digits(run: int, data: Path) -> GenerativeModel:
    """A fitted generator of digits."""
    size = mnist.SIZES[MNIST_SIZE]
    generator: Any = replace(mnist.plan_of(size, "cpu").generator, start=run)
    private = PrivateTable(schema=size.schema, scaled=mnist.digits_of(data, "train", size))
    measured = generator.measure(private, noise=SeededNoise(1000 * run + 1))
    model: GenerativeModel = generator.model(measured, schema=size.schema)
    return model


def mnist_metrics(cell: Cell, data: Path) -> dict[str, float]:
    """Slopes and the perceptron's area on the real test digits."""
    size = mnist.SIZES[MNIST_SIZE]
    train = mnist.digits_of(data, "train", size)
    if cell.generator == REAL:
        chosen = np.random.default_rng(cell.run).permutation(train.rows)[: mnist.SYNTHETIC_ROWS]
        rows, w = train.take(chosen), np.ones(mnist.SYNTHETIC_ROWS)
    else:
        model, rng = _digits(cell.run, data), np.random.default_rng([cell.run, 1])
        drawn, fitting = (model.sample(mnist.SYNTHETIC_ROWS, rng=rng) for _ in range(2))
        private = PrivateTable(schema=size.schema, scaled=train)
        ready = mnist.alone_on(size, cell.weights) if cell.weights in CALIBRATED else None
        tables = Tables(private=private, fitting=fitting, rows=drawn)
        seed = 1000 * cell.run + 2
        w = weights_of(cell.weights, tables, model=model, ready=ready, seed=seed, run=cell.run)
        rows = drawn.scaled
    found = mnist.judge_of(size, data).figures(rows, w)
    return {"beta_mse": found["beta_mse"], "mlp": found["auc"], "ess_share": found["ess_share"]}


# Cells


def metrics_of(cell: Cell, data: Path) -> dict[str, float]:
    """What a cell is worth.

    Raises:
        WeightError: there is no result.
    """
    if cell.part == "mnist":
        return mnist_metrics(cell, data)
    if cell.part == "poster":
        return weight_errors(cell, data)
    halves = split(cell.dataset, cell.run, data, cell.public)
    if cell.generator == REAL:
        rows, w = halves.ruler.rows(halves.train), np.ones(halves.train.rows)
    else:
        drawn, w = release(cell, data)
        rows = halves.ruler.rows(drawn.scaled)
    if cell.part == "bayes":
        weighted = cell.weights != "none"
        return posterior_errors(halves, rows, w, weighted=weighted, seed=cell.run)
    found = measure(halves, rows, w, run=cell.run, data=data)
    return found | ({"k_hat": k_hat(np.log(w)) or 0.0} if cell.part == "steps" else {})


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


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, "paper", again=False)
    parser.add_argument("--quick", action="store_true", help="a look, beside the cache")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runs", type=int, help="of every part that is asked for")
    parser.add_argument("--datasets", nargs="+", default=list(SETS), choices=list(SETS))
    chosen = parsed(parser, arguments)
    out = chosen.out or (chosen.cache / "quick" if chosen.quick else RESULTS)
    if chosen.page:
        write(out, "paper", read(out, "paper"), page)
        return 0
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    usual = QUICK if chosen.quick else FULL
    runs = {part: chosen.runs or usual[part] for part in PARTS if part in chosen.parts}
    grid = [
        cell for part, count in runs.items() for run in range(count)
        for cell in _of_run(part, run, chosen.datasets)
    ]  # fmt: skip
    parts = [part for part, count in runs.items() if count]
    stamped = {part: stamp(f"python benchmarks/paper.py --data FOLDER --parts {part}")
               for part in parts}  # fmt: skip
    done = records(grid, partial(compute, store=store), chosen.jobs)
    new = summary(done, store.data / "paper_tables.csv")
    if "toy" in parts:
        toy(out / "paper" / "toy.png")
    old = read(out, "paper") if (out / "paper.json").exists() else {}
    new["made"] = old.get("made", {}) | stamped
    refused = {part: new["refused"].get(part, []) for part in parts}
    new["refused"] = old.get("refused", {}) | refused
    write(out, "paper", old | new, page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
