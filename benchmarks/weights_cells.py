"""One cell of the weights table: one release of one data set, and what it is worth.

A cell is (data set, generator, total epsilon, weights, run). The run fixes the split, the noise
and the rows drawn: the same run under two kinds of weights differs in nothing else, so their
difference is paired. Results are kept in a folder named by everything that can change them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.play import play
from dpiw.methods.weights.weigh import Weights
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.spec import ReleaseSpec, parse_spec
from dpiw.privacy.randomness import SeededNoise

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A table, and the public facts its specs use."""

    file: str
    schema: str
    nominal_rows: int
    synthetic_rows: int


DATASETS: Mapping[str, Dataset] = {
    "banknote": Dataset(
        file="banknote.csv",
        schema="examples/banknote/schema.yaml",
        nominal_rows=1100,
        synthetic_rows=4000,
    ),
    "breast": Dataset(
        file="breast.csv",
        schema="examples/breast-cancer-all/schema.yaml",
        nominal_rows=450,
        synthetic_rows=4000,
    ),
    "boston": Dataset(
        file="boston.csv",
        schema="benchmarks/schemas/boston.yaml",
        nominal_rows=400,
        synthetic_rows=4000,
    ),
    "adult": Dataset(
        file="adult.csv",
        schema="examples/adult/schema.yaml",
        nominal_rows=39_000,
        synthetic_rows=20_000,
    ),
    "acs": Dataset(
        file="acs_ma2019.csv",
        schema="benchmarks/schemas/acs.yaml",
        nominal_rows=6100,
        synthetic_rows=6000,
    ),
    "iris": Dataset(
        file="iris.csv",
        schema="benchmarks/schemas/iris.yaml",
        nominal_rows=120,
        synthetic_rows=4000,
    ),
}
"""Nominal rows: about 80% of the published sizes, which are public."""

TABLE = ("banknote", "breast", "boston", "adult")
"""Those of the weights table."""

GENERATORS: Mapping[str, Mapping[str, Any]] = {
    "privbayes": {"degree": 2, "bins": 16},
    "histogram": {"bins": 16},
    "mst": {},
    "aim": {},
    "dpgan": {},
    "dpcgan": {},
    "pategan": {},
}
"""Settings; of graphical models and networks the defaults."""

TABULAR = ("privbayes", "histogram")
"""Those of the weights table: networks train for minutes."""

WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "none": {"method": "none"},
    "linear": {"method": "beta_debiased", "settings": {"features": "linear"}},
    "measured": {"method": "measured", "settings": {"omega_seed": 1}},
    "measured-debiased": {"method": "measured", "settings": {"omega_seed": 1, "debias": True}},
}
UNUSED, UNUSED_MEASURED = "unused", "unused-measured"
"""The rows of a weighted release with their weights left out: what a `do not use` leaves."""

LEFT_OUT: Mapping[str, str] = {UNUSED: "linear", UNUSED_MEASURED: "measured"}
"""Whose generator draw each is: `measured` weights leave more of the effort to the generator."""

KINDS = ("none", *LEFT_OUT, "linear", "measured", "measured-debiased")
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


def cells(
    datasets: tuple[str, ...],
    epsilons: tuple[str, ...],
    kinds: tuple[str, ...],
    runs: int,
    *,
    generators: tuple[str, ...] = TABULAR,
) -> list[Cell]:
    """Every cell, run by run, so that what is there when a run is cut short is balanced."""
    found = []
    for run in range(runs):
        for dataset in datasets:
            found.append(Cell(run=run, dataset=dataset, generator=REAL, epsilon="-", weights="-"))
            found += [
                Cell(run=run, dataset=dataset, generator=generator, epsilon=epsilon, weights=kind)
                for generator in generators
                for epsilon in epsilons
                for kind in kinds
            ]
    return found


# The folder of results


def _code() -> str:
    """Digest of our sources and of the libraries' versions."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    own = [here / "metrics.py", here / "weights_cells.py"]
    for path in (*own, *sorted((ROOT / "dpiw").rglob("*.py"))):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    for package in ("numpy", "pandas", "scipy", "scikit-learn", "dp-accounting"):
        digest.update(f"{package} {version(package)}\n".encode())
    return digest.hexdigest()


CODE = _code()
"""Taken when the code is loaded, so that an edit during a run is not taken for what ran."""


@cache
def fingerprint(dataset: str, data: Path) -> str:
    """Digest of all that can change a cell: data, schema, settings and code."""
    own = DATASETS[dataset]
    digest = hashlib.sha256(CODE.encode())
    for path in (data / own.file, ROOT / own.schema):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Store:
    """Finished cells, one JSON file each, in a folder per fingerprint."""

    folder: Path
    data: Path

    def _path(self, dataset: str, name: str) -> Path:
        return self.folder / f"{dataset}-{fingerprint(dataset, self.data)}" / f"{name}.json"

    def read(self, dataset: str, name: str) -> dict[str, Any] | None:
        """What was kept under that name, or None."""
        path = self._path(dataset, name)
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def write(self, dataset: str, name: str, record: Mapping[str, Any]) -> None:
        """Whole or not at all: a run may be cut short at any moment."""
        path = self._path(dataset, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(record))
        temporary.replace(path)


# Data, plans, releases


@lru_cache(maxsize=len(DATASETS))
def table(dataset: str, data: Path) -> tuple[PublicSchema, ScaledTable]:
    """Schema and all rows, on the public scale."""
    own = DATASETS[dataset]
    schema = PublicSchema.from_yaml(ROOT / own.schema)
    frame = pd.read_csv(data / own.file, dtype=str, keep_default_na=False)
    return schema, schema.scale(frame)


def spec_for(dataset: str, generator: str, epsilon: str, weights: str) -> ReleaseSpec:
    asked = WEIGHTS[LEFT_OUT.get(weights, weights)]
    method = {"method": generator, "settings": dict(GENERATORS[generator])}
    return spec_of(dataset, method, epsilon, asked)


def spec_of(
    dataset: str, generator: Mapping[str, Any], epsilon: str, weights: Mapping[str, Any]
) -> ReleaseSpec:
    """The spec of a release in memory, of which weights are kept whatever the forecast says."""
    own = DATASETS[dataset]
    return parse_spec(
        {
            "format": 1, "name": dataset, "population": dataset,
            "source": {"path": "unused", "format": "csv"}, "schema": "unused",
            "epsilon": epsilon, "delta": DELTA, "nominal_rows": own.nominal_rows,
            "generator": dict(generator),
            "weights": {**weights, "when_infeasible": "keep"},
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


def release(cell: Cell, halves: Halves, data: Path) -> dict[str, Any]:
    """Draw a release in memory, as the flow would, and measure it, whatever the verdict."""
    plan = plan_for(cell.dataset, cell.generator, cell.epsilon, cell.weights, data)
    left_out = cell.weights in LEFT_OUT
    played = play(
        replace(plan.recipe, weights=None) if left_out else plan.recipe,
        PrivateTable(schema=halves.schema, scaled=halves.train),
        noise=SeededNoise(1000 * cell.run + 1),
        rng=np.random.default_rng([cell.run, 1]),
    )
    weights = played.weights
    facts: dict[str, Any] = {"verdict": "none"}
    if played.estimator is not None:
        facts = _facts(weights) | dict(weights.facts)
    return {
        **facts,
        "generator_digest": played.fitted.digest[:16],
        "metrics": measure(halves, played.rows.scaled, np.exp(weights.log_weights), cell.run),
    }


def _facts(weights: Weights) -> dict[str, Any]:
    found = weights.diagnostics
    signal = found.signal
    return {
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
        "noise": found.noise,
        "signal_p": None if signal is None else signal.p_value,
    }


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's record: from the store, or made and kept."""
    known = store.read(cell.dataset, cell.name)
    if known is not None:
        return known
    started = time.process_time()
    halves = split(cell.dataset, cell.run, store.data)
    if cell.generator == REAL:
        every = np.ones(halves.train.rows)
        found: dict[str, Any] = {"metrics": measure(halves, halves.train, every, cell.run)}
    else:
        found = release(cell, halves, store.data)
    record = (
        {"name": cell.name} | vars(cell) | found | {"cpu_seconds": time.process_time() - started}
    )
    store.write(cell.dataset, cell.name, record)
    return record
