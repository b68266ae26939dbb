"""One cell of the weights tables: one release of one data set, and what it is worth.

A cell is (data set, generator, total epsilon, weights, run). The run fixes the split, the noise
and the rows drawn: the same run under two kinds of weights differs in nothing else, so their
difference is paired. `gan` and `cgan` are not private (`exact_gan.py`), of epsilon `inf`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from exact_gan import EXACT
from metrics import (
    Array,
    Perceptron,
    auc,
    coefficient_errors,
    design,
    ess_share,
    is_regression,
    levels_of,
    linear_fit,
    sliced_wasserstein,
    squared_error,
    total_variation,
    wasserstein_1d_sum,
)
from study import ROOT, Store

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.recipe import Played, Recipe, play
from dpiw.methods.weights.registry import make_weights
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import ReleaseSpec, parse_spec
from dpiw.privacy.accounting import calibrate
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)


@dataclass(frozen=True)
class Dataset:
    """A table, and the public facts its specs use."""

    file: str
    schema: str
    nominal_rows: int
    synthetic_rows: int = 4000


DATASETS: Mapping[str, Dataset] = {
    "banknote": Dataset("banknote.csv", "examples/banknote/schema.yaml", 1100),
    "breast": Dataset("breast.csv", "examples/breast-cancer-all/schema.yaml", 450),
    "boston": Dataset("boston.csv", "benchmarks/schemas/boston.yaml", 400),
    "adult": Dataset("adult.csv", "examples/adult/schema.yaml", 39_000, 20_000),
    "acs": Dataset("acs_ma2019.csv", "benchmarks/schemas/acs.yaml", 6100, 6000),
    "iris": Dataset("iris.csv", "benchmarks/schemas/iris.yaml", 120),
}
"""Nominal rows: about 80% of the published sizes, which are public."""

NEURAL = ("dpgan", "dpcgan", "pategan")
GENERATORS: Mapping[str, Mapping[str, Any]] = {
    "privbayes": {"degree": 2, "bins": 16},
    "histogram": {"bins": 16},
    "mst": {},
    "aim": {},
    **{name: {} for name in (*NEURAL, *EXACT)},
}
"""Settings; of graphical models and networks the defaults."""

WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "none": {"method": "none"},
    "linear": {"method": "beta_debiased"},
    "dp_mlp": {"method": "dp_mlp"},
    "discriminator": {"method": "discriminator"},
    "measured": {"method": "measured", "settings": {"omega_seed": 1}},
}
"""Kinds of weights."""

KINDS = tuple(WEIGHTS)
NO_PRIVACY = "inf"
EPSILONS = ("0.5", "1", "6")
DELTA = "1e-6"
REAL = "real"
TEST_SHARE = 0.2
TV_BINS = 8
"""Equal-width bins on the public bounds, for columns that declare no cuts."""

DIRECTIONS = 50
DIRECTIONS_SEED = 20240614
SLICED_TEST_ROWS = 2000
"""Of larger test parts, only the first so many rows enter the sliced distance."""

PERCEPTRON = Perceptron()


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release: or, with generator `real`, the confidential rows themselves."""

    run: int
    dataset: str
    generator: str
    epsilon: str
    weights: str

    @property
    def name(self) -> str:
        """A file name."""
        return f"{self.dataset}-{self.generator}-{self.epsilon}-{self.weights}-{self.run}"


def has(generator: str, weights: str) -> bool:
    """Whether a generator can have them: `discriminator` needs a logistic loss."""
    if weights == "discriminator":
        return generator in ("dpgan", "dpcgan", *EXACT)
    return weights == "none" or generator not in EXACT


def cells(
    runs: Mapping[str, int],
    generators: tuple[str, ...],
    epsilons: tuple[str, ...],
    kinds: tuple[str, ...],
) -> list[Cell]:
    """Every cell, run by run; a data set has its own number of runs."""
    grid = []
    for run in range(max(runs.values())):
        for dataset in (name for name in runs if run < runs[name]):
            grid.append(Cell(run=run, dataset=dataset, generator=REAL, epsilon="-", weights="-"))
            grid += [
                Cell(run=run, dataset=dataset, generator=generator, epsilon=epsilon, weights=kind)
                for generator in generators
                for epsilon in ((NO_PRIVACY,) if generator in EXACT else epsilons)
                for kind in kinds
                if has(generator, kind)
            ]
    return grid


# Data, plans, releases


@lru_cache(maxsize=len(DATASETS))
def table(dataset: str, data: Path) -> tuple[PublicSchema, ScaledTable]:
    """Schema and all rows, on the public scale."""
    own = DATASETS[dataset]
    schema = PublicSchema.from_yaml(ROOT / own.schema)
    frame = pd.read_csv(data / own.file, dtype=str, keep_default_na=False)
    return schema, schema.scale(frame)


def spec_for(dataset: str, generator: str, epsilon: str, weights: str) -> ReleaseSpec:
    """The spec of a release in memory, of which weights are kept whatever the forecast says."""
    method = {"method": generator, "settings": dict(GENERATORS[generator])}
    own = DATASETS[dataset]
    return parse_spec(
        {
            "format": 1, "name": dataset, "population": dataset,
            "source": {"path": "unused", "format": "csv"}, "schema": "unused",
            "epsilon": epsilon, "delta": DELTA, "nominal_rows": own.nominal_rows,
            "generator": method,
            "weights": {**WEIGHTS[weights], "when_infeasible": "keep"},
            "synthetic_rows": own.synthetic_rows, "state": "unused", "signing_key": "unused",
            "publish_to": "unused",
        }
    )  # fmt: skip


@cache
def plan_for(dataset: str, generator: str, epsilon: str, weights: str, data: Path) -> Plan:
    """The compiled plan; reads no row."""
    schema, _ = table(dataset, data)
    return compile_plan(spec_for(dataset, generator, epsilon, weights), schema)


@dataclass(frozen=True, kw_only=True)
class Halves:
    """One split, with what all cells of the run need of its test part."""

    schema: PublicSchema
    train: ScaledTable
    test: ScaledTable
    x: Array
    y: Array
    truth: Array
    centred: Array


@lru_cache(maxsize=2)
def split(dataset: str, run: int, data: Path) -> Halves:
    schema, every = table(dataset, data)
    order = np.random.default_rng(run).permutation(every.rows)
    cut = int((1 - TEST_SHARE) * every.rows)
    train, test = every.take(order[:cut]), every.take(order[cut:])
    x, y = design(schema, test)
    fit = linear_fit(x, y, np.ones(len(x)), regression=is_regression(schema))
    assert fit is not None
    few = test.take(np.arange(min(test.rows, SLICED_TEST_ROWS)))
    return Halves(schema=schema, train=train, test=test, x=x, y=y, truth=fit.coefficients,
                  centred=schema.centred(few))  # fmt: skip


def measure(halves: Halves, rows: ScaledTable, w: Array, run: int) -> dict[str, float]:
    """Every metric of one weighted table against the test part."""
    schema, x, y = halves.schema, *design(halves.schema, rows)
    regression, levels = is_regression(schema), levels_of(schema)
    fit = linear_fit(x, y, w, regression=regression, levels=levels)
    predicted = None if fit is None else fit.score(halves.x)
    deep = PERCEPTRON.score(x, y, w, halves.x, regression=regression, seed=run, levels=levels)
    found = {}
    if levels == 2:
        slopes = None if fit is None else fit.coefficients
        found["beta_mse"], found["beta_relative_error"] = coefficient_errors(slopes, halves.truth)
    if regression:
        assert predicted is not None
        assert deep is not None
        found["mlp_mse"] = squared_error(halves.y, deep)
        found["linear_mse"] = squared_error(halves.y, predicted)
        found["linear_r2"] = 1 - found["linear_mse"] / float(halves.y.var())
    else:
        found["mlp_auc"] = auc(halves.y, deep)
        found["linear_auc"] = auc(halves.y, predicted)
    domain = Domain.from_schema(schema, bins=TV_BINS)
    one, two = total_variation(domain.codes(rows), domain.codes(halves.test), domain.sizes, w)
    return found | {
        "wasserstein_1d": wasserstein_1d_sum(schema, rows, w, halves.test),
        "wasserstein_sliced": sliced_wasserstein(
            schema.centred(rows), w, halves.centred, directions=DIRECTIONS, seed=DIRECTIONS_SEED
        ),
        "tv_1way": one,
        "tv_2way": two,
        "ess_share": ess_share(w),
    }


def calibrated(
    stages: Sequence[tuple[Any, float]],
    schema: PublicSchema,
    rows: int,
    epsilon: float,
    delta: float,
) -> list[Any]:
    """Methods that spend (epsilon, delta) together, each with its share of the effort."""

    def at(rho: float) -> list[Any]:
        return [
            method.calibrate(rho=rho * share, schema=schema, unit=UNIT, nominal_rows=rows)
            for method, share in stages
        ]

    def events(rho: float) -> list[Any]:
        return [event for method in at(rho) for event in method.events(schema=schema, unit=UNIT)]

    return at(calibrate(events, epsilon=epsilon, delta=delta))


def recipe_for(cell: Cell, data: Path) -> Recipe:
    """How a cell's release is made; a network has the run's own public start."""
    if cell.generator not in EXACT:
        recipe = plan_for(cell.dataset, cell.generator, cell.epsilon, cell.weights, data).recipe
        generator: Any = recipe.generator
    else:
        recipe = plan_for(cell.dataset, "histogram", "1", "none", data).recipe
        rows = DATASETS[cell.dataset].nominal_rows
        generator = EXACT[cell.generator](**GENERATORS[cell.generator]).calibrate(
            rho=1.0, schema=recipe.schema, unit=UNIT, nominal_rows=rows
        )
        recipe = replace(recipe, weights=make_weights(cell.weights, {}))
    if cell.generator in (*NEURAL, *EXACT):
        generator = replace(generator, start=cell.run)
    return replace(recipe, generator=generator)


def release(cell: Cell, halves: Halves, data: Path) -> dict[str, Any]:
    """Draw a release in memory, as the flow would, and measure it, whatever the verdict.

    `unweighted`: rows of the same draw of its generator, as many, without weights.
    """
    recipe = recipe_for(cell, data)

    def played(recipe: Recipe) -> Played:
        return play(
            recipe,
            PrivateTable(schema=halves.schema, scaled=halves.train),
            noise=SeededNoise(1000 * cell.run + 1),
            rng=np.random.default_rng([cell.run, 1]),
        )

    def metrics(made: Played) -> dict[str, float]:
        return measure(halves, made.rows.scaled, np.exp(made.weights.log_weights), cell.run)

    made = played(recipe)
    if made.estimator is None:
        return {"metrics": metrics(made)}
    plain = played(replace(recipe, weights=None))
    if plain.fitted.digest != made.fitted.digest:
        raise SystemExit(f"{cell.name}: its rows do not rest on one draw of the generator")
    verdict = made.weights.diagnostics.verdict.value
    return {"verdict": verdict, "metrics": metrics(made), "unweighted": metrics(plain)}


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's record: from the store, or made and kept."""
    own = DATASETS[cell.dataset]

    def made() -> dict[str, Any]:
        started = time.process_time()
        halves = split(cell.dataset, cell.run, store.data)
        if cell.generator == REAL:
            every = np.ones(halves.train.rows)
            result: dict[str, Any] = {"metrics": measure(halves, halves.train, every, cell.run)}
        else:
            result = release(cell, halves, store.data)
        return vars(cell) | result | {"cpu_seconds": time.process_time() - started}

    return store.kept(cell.name, made, (store.data / own.file, ROOT / own.schema))
