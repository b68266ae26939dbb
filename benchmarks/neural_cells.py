"""One cell of the neural table: a release by a generator, private or not, with or without weights.

A cell is (data set, generator, total epsilon, weights, run), as in `weights_cells`, whose data,
splits, plans and metrics serve here. The run fixes the split, the noise streams and the rows drawn.
Generators are fitted once per budget they get: `none` and `discriminator` leave them all of it,
`linear` shares it in one way, `dp_mlp` and `measured` in others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import weights_cells
from exact_gan import EXACT
from metrics import Array
from weights_cells import DATASETS, REAL, Cell, Halves, Store, measure, spec_of, split, table

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators.base import GenerativeModel, Synthesizer
from dpiw.methods.recipe import ready_to_measure
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.paper.weigh import weigh
from dpiw.methods.weights.registry import make_weights
from dpiw.methods.weights.weigh import Weights
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.promise import compact_json
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

NEURAL = ("dpgan", "dpcgan", "pategan")

MEASURED = "measured"
"""Weights that choose the rows to publish from a base of the generator's."""

GENERATORS: Mapping[str, Mapping[str, Any]] = {
    **{name: weights_cells.GENERATORS[name] for name in weights_cells.TABULAR},
    **{name: {} for name in (*NEURAL, *EXACT)},
}
"""Settings: of the weights table's tabular generators, and the neural generators' defaults."""

WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "none": weights_cells.WEIGHTS["none"],
    "discriminator": {"method": "discriminator"},
    "linear": weights_cells.WEIGHTS["linear"],
    "dp_mlp": {"method": "dp_mlp", "settings": {"replays": 0}},
    MEASURED: weights_cells.WEIGHTS[MEASURED],
}
"""In the order of `FITTED_FOR`. Replays judge a verdict, not asked here, and change no weight."""

FITTED_FOR = {"discriminator": "none"}
"""Weights that leave the generator as much as others do: one fit serves both."""

EPSILONS = ("1", "6")
NO_PRIVACY = "inf"
ORDER = ("banknote", "breast", "iris", "adult")
UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
OWN = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


class NeuralStore(Store):
    """Finished cells, named by this file, too."""

    def _path(self, dataset: str, name: str) -> Path:
        return super()._path(dataset, f"{OWN}-{name}")


def kinds_of(generator: str) -> tuple[str, ...]:
    """The weights a generator can have: `discriminator` needs the logistic loss."""
    if generator in EXACT:
        return ("none", "discriminator")
    if generator not in NEURAL:
        return ("none", "linear", "dp_mlp", MEASURED)
    return tuple(k for k in WEIGHTS if k != "discriminator" or generator != "pategan")


def cells(runs: Mapping[str, int], epsilons: tuple[str, ...]) -> list[Cell]:
    """Every cell, run by run; the runs of a data set are 1 to `runs[dataset]`."""
    grid = []
    for run in range(1, max(runs.values()) + 1):
        for dataset in (name for name in runs if run <= runs[name]):
            grid.append(Cell(run=run, dataset=dataset, generator=REAL, epsilon="-", weights="-"))
            grid += [
                Cell(run=run, dataset=dataset, generator=generator, epsilon=epsilon, weights=kind)
                for generator in GENERATORS
                for epsilon in ((NO_PRIVACY,) if generator in EXACT else epsilons)
                for kind in kinds_of(generator)
            ]
    return grid


# Plans and fits


@cache
def plan_for(dataset: str, generator: str, epsilon: str, weights: str, data: Path) -> Plan:
    """The compiled plan, its noise solved jointly; reads no row."""
    schema, _ = table(dataset, data)
    method = {"method": generator, "settings": dict(GENERATORS[generator])}
    return compile_plan(spec_of(dataset, method, epsilon, WEIGHTS[weights]), schema)


def synthesizer(cell: Cell, weights: str, data: Path) -> Synthesizer:
    """The calibrated generator of a cell, were its weights others; a run has its own start."""
    if cell.generator in NEURAL:
        generator: Any = plan_for(
            cell.dataset, cell.generator, cell.epsilon, weights, data
        ).generator
        started: Synthesizer = replace(generator, start=cell.run)
        return started
    if cell.generator not in EXACT:
        return plan_for(cell.dataset, cell.generator, cell.epsilon, weights, data).generator
    schema, _ = table(cell.dataset, data)
    method = EXACT[cell.generator](**GENERATORS[cell.generator])
    rows = DATASETS[cell.dataset].nominal_rows
    ready = method.calibrate(rho=1.0, schema=schema, unit=UNIT, nominal_rows=rows)
    return replace(ready, start=cell.run)


def estimator(cell: Cell, data: Path) -> WeightEstimator | None:
    """The calibrated weights of a cell."""
    if cell.generator in EXACT:
        return make_weights(cell.weights, {})
    return plan_for(cell.dataset, cell.generator, cell.epsilon, cell.weights, data).weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fitted generator, and what its rows are worth without weights.

    Attributes:
        model: draws rows.
        rows, fitting: rows to publish, and others to fit weights on.
        digest: of the measurement.
        seconds: CPU seconds of `measure`.
        metrics: of `rows`, unweighted.
    """

    model: GenerativeModel
    rows: SyntheticTable
    fitting: SyntheticTable
    digest: str
    seconds: float
    metrics: Mapping[str, float]


@lru_cache(maxsize=2)
def _fit(cell: Cell, data: Path) -> Fit:
    halves, method = split(cell.dataset, cell.run, data), synthesizer(cell, cell.weights, data)
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    started = time.process_time()
    measured: Measurement = method.measure(private, noise=SeededNoise(1000 * cell.run + 1))
    seconds = time.process_time() - started
    model = method.model(measured, schema=halves.schema)
    count = DATASETS[cell.dataset].synthetic_rows
    rows, fitting = (
        model.sample(count, rng=np.random.default_rng([cell.run, part])) for part in (1, 2)
    )
    return Fit(
        model=model,
        rows=rows,
        fitting=fitting,
        digest=measured.digest[:16],
        seconds=seconds,
        metrics=measure(halves, rows.scaled, np.ones(count), cell.run),
    )


def fit(cell: Cell, data: Path) -> Fit:
    """The cell's generator, fitted for it or for other weights that leave it the same budget."""
    weights = FITTED_FOR.get(cell.weights, cell.weights)
    own, served = (synthesizer(cell, kind, data) for kind in (cell.weights, weights))
    if compact_json(own.parameters()) != compact_json(served.parameters()):
        raise SystemExit(f"{cell.name}: its generator is not that of {weights}")
    return _fit(Cell(**(vars(cell) | {"weights": weights})), data)


# Cells


def weighted(cell: Cell, halves: Halves, found: Fit, asked: WeightEstimator, data: Path) -> Weights:
    """The weights of the cell's rows; their noise is a stream of its own."""
    ready = asked.informed(found.model.judge)
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    measured = ready.measure(private, found.fitting, noise=SeededNoise(1000 * cell.run + 2))
    forecast = None
    if cell.generator not in EXACT:
        forecast = plan_for(cell.dataset, cell.generator, cell.epsilon, cell.weights, data).forecast
    return weigh(
        ready.ratio(measured, schema=halves.schema),
        found.rows,
        debias=ready.debias,
        resolution=None if forecast is None else forecast.resolution,
    )


def chosen(cell: Cell, halves: Halves, found: Fit, data: Path) -> tuple[SyntheticTable, Weights]:
    """Rows chosen from a base of the generator's by `measured` weights, as in `dpiw.methods.play`.

    Their noise is the stream of `weighted`.
    """
    recipe = plan_for(cell.dataset, cell.generator, cell.epsilon, cell.weights, data).recipe
    assert recipe.weights is not None
    rng = np.random.default_rng([cell.run, 1])
    rows = recipe.sample(found.model, rng=rng)
    ready, fitting = ready_to_measure(recipe.weights, rows)
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    measured = ready.measure(private, fitting, noise=SeededNoise(1000 * cell.run + 2))
    weights = recipe.weigh(ready, measured, rows, rng=rng)
    return rows.weighed.chosen(weights.chosen), weights


def release(cell: Cell, halves: Halves, data: Path) -> dict[str, Any]:
    """Draw a release in memory, as the flow would, and measure it."""
    fitted, asked = fit(cell, data), estimator(cell, data)
    facts = {"generator_digest": fitted.digest, "generator_seconds": fitted.seconds}
    if asked is None:
        return facts | {"weights_seconds": 0.0, "metrics": fitted.metrics}
    started = time.process_time()
    rows = fitted.rows
    if cell.weights == MEASURED:
        rows, weights = chosen(cell, halves, fitted, data)
    else:
        weights = weighted(cell, halves, fitted, asked, data)
    seconds = time.process_time() - started
    w: Array = np.exp(weights.log_weights)
    return facts | {
        "weights_seconds": seconds,
        "verdict": weights.diagnostics.verdict.value,
        "metrics": measure(halves, rows.scaled, w, cell.run),
        "unweighted": fitted.metrics,
    }


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's record: from the store, or made and kept."""
    known = store.read(cell.dataset, cell.name)
    if known is not None:
        return known
    started, halves = time.process_time(), split(cell.dataset, cell.run, store.data)
    if cell.generator == REAL:
        every = np.ones(halves.train.rows)
        result: dict[str, Any] = {"metrics": measure(halves, halves.train, every, cell.run)}
    else:
        result = release(cell, halves, store.data)
    seconds = time.process_time() - started
    record = {"name": cell.name} | vars(cell) | result | {"cpu_seconds": seconds}
    store.write(cell.dataset, cell.name, record)
    return record
