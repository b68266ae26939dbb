"""One cell of the paper's tables: one release of one data set, and what it is worth.

Budgets. The paper's columns: the generator spends (epsilon, delta), and private weights spend
(epsilon, delta) once more, each stage as if alone; the text at hand prints one epsilon per table
and does not say more. Our extra columns, `joint_*`: generator and weights together spend one
(epsilon, delta), their noise solved jointly. `none` and `discriminator` spend the generator's.
Noise is always sound: what the paper draws differently: docs/method.md section 12.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from exact_gan import EXACT
from exact_ratio import LogisticRegressionRatio
from metrics import Array, Perceptron
from paper_measure import measure
from paper_sets import SETS, Halves, PaperStore, split, table

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.generators.base import GenerativeModel
from dpiw.methods.generators.gan_model import GANModel
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.weights.measured import Measured
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.mlp import inputs
from dpiw.methods.weights.paper.weigh import weigh
from dpiw.methods.weights.registry import make_weights
from dpiw.methods.weights.weigh_measured import weigh_measured
from dpiw.privacy import accounting
from dpiw.privacy.calibration import calibrate
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
FITTING_ROWS = 4000
"""Synthetic rows that weights are fitted on, other than the published ones; they cost nothing."""

SMALLEST = 1e-12
"""Probabilities of the non-private network are kept this far from 0 and 1, and no farther."""

GENERATORS: Mapping[str, Mapping[str, Any]] = {
    "dpgan": {},
    "dpcgan": {},
    "privbayes": {"degree": 2, "bins": 16},
    "gan": {},
    "cgan": {},
}
CONDITIONAL = frozenset({"dpcgan", "cgan"})
ADVERSARIAL = frozenset({"dpgan", "dpcgan", "gan", "cgan"})
PRIVATE = frozenset({"dpgan", "dpcgan", "privbayes"})
REAL = "real"

ESTIMATORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "beta_noised": ("beta_noised", {}),
    "beta_debiased": ("beta_debiased", {}),
    "dp_mlp": ("dp_mlp", {"replays": 0}),
    "joint_linear": ("beta_debiased", {}),
    "joint_measured": ("measured", {"omega_seed": 1}),
    "joint_dp_mlp": ("dp_mlp", {"replays": 0}),
}
KINDS = (
    "none", "beta_noised", "beta_debiased", "dp_mlp", "discriminator", "logreg", "mlp",
    "joint_linear", "joint_measured",
)  # fmt: skip
NOT_PRIVATE = frozenset({"logreg", "mlp"})


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release; with generator `real`, the confidential rows themselves.

    Attributes:
        epsilon: of each stage, or of both together for `joint_*`.
        share: of the joint effort that `joint_*` weights get; `joint_measured`: their usual one.
    """

    run: int
    dataset: str
    generator: str
    weights: str
    epsilon: float = 1.0
    share: float = 0.5

    @property
    def joint(self) -> bool:
        """Whether one total is shared by both stages."""
        return self.weights.startswith("joint_")

    @property
    def name(self) -> str:
        """A file name."""
        name = f"{self.generator}-{self.weights}-{self.epsilon:g}-{self.share:g}-{self.run}"
        return name.replace(".", "p")


def kinds_of(dataset: str, generator: str) -> tuple[str, ...]:
    """The weights that make sense on a generator's rows; none where it has no such form."""
    if generator in CONDITIONAL and SETS[dataset].regression:
        return ()
    if generator not in PRIVATE:  # no budget to share with
        return ("none", "discriminator", "logreg", "mlp")
    return tuple(k for k in KINDS if k != "discriminator" or generator in ADVERSARIAL)


def cells(datasets: tuple[str, ...], runs: int) -> list[Cell]:
    """Every cell, run by run, so that what is there when a run is cut short is balanced."""
    grid = []
    for run in range(runs):
        for dataset in datasets:
            grid.append(Cell(run=run, dataset=dataset, generator=REAL, weights="none"))
            grid += [
                Cell(run=run, dataset=dataset, generator=generator, weights=kind)
                for generator in GENERATORS
                for kind in kinds_of(dataset, generator)
            ]
    return grid


# Public plans


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Calibrated methods of one setting; reads no row.

    Attributes:
        generator: calibrated.
        weights: calibrated; None for none, and for those that have no calibration.
        spent: epsilon of both stages together at delta; infinite where nothing is private.
    """

    generator: Any
    weights: Any
    spent: float


@lru_cache(maxsize=256)
def _alone(dataset: str, kind: str, method: str, epsilon: float, data: Path) -> Any:
    """A generator or an estimator that spends (epsilon, delta) by itself."""
    schema, facts = table(dataset, data)[0], SETS[dataset]
    stage: Any
    if method in EXACT:
        stage = EXACT[method](**GENERATORS[method])
    elif kind == "generator":
        stage = make_generator(method, dict(GENERATORS[method]), pure=False)
    else:
        stage = make_weights(ESTIMATORS[method][0], dict(ESTIMATORS[method][1]))

    def at(rho: float) -> Any:
        return stage.calibrate(rho=rho, schema=schema, unit=UNIT, nominal_rows=facts.nominal_rows)

    if not stage.private:
        return at(1.0)
    rho = calibrate(
        lambda rho: at(rho).events(schema=schema, unit=UNIT), epsilon=epsilon, delta=facts.delta
    )
    return at(rho)


@lru_cache(maxsize=64)
def _together(
    dataset: str, generator: str, weights: str, epsilon: float, share: float, data: Path
) -> tuple[Any, Any]:
    """Both stages at one total, the effort split by `share`."""
    schema, own = table(dataset, data)[0], SETS[dataset]
    makers = (
        make_generator(generator, dict(GENERATORS[generator]), pure=False),
        make_weights(ESTIMATORS[weights][0], dict(ESTIMATORS[weights][1])),
    )

    def at(rho: float) -> list[Any]:
        parts = zip(makers, (1 - share, share), strict=True)
        return [
            stage.calibrate(rho=rho * part, schema=schema, unit=UNIT, nominal_rows=own.nominal_rows)
            for stage, part in parts
        ]

    def events(rho: float) -> list[Any]:
        return [event for stage in at(rho) for event in stage.events(schema=schema, unit=UNIT)]

    rho = calibrate(events, epsilon=epsilon, delta=own.delta)
    first, second = at(rho)
    return first, second


def plan(cell: Cell, data: Path) -> tuple[Any, Any]:
    """Calibrated generator and weights; None for weights without a calibration.

    A GAN's public start is the run's own, so that the errors over runs hold it.
    """
    key = (cell.dataset, cell.generator, cell.weights, cell.epsilon)
    if cell.joint:
        share = Measured.effort if cell.weights == "joint_measured" else cell.share
        generator, weights = _together(*key, share, data)
    else:
        generator = _alone(cell.dataset, "generator", cell.generator, cell.epsilon, data)
        weights = None
        if cell.weights in ESTIMATORS:
            weights = _alone(cell.dataset, "weights", cell.weights, cell.epsilon, data)
    if cell.generator in ADVERSARIAL:
        generator = replace(generator, start=cell.run)
    return generator, weights


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
def fitted(cell: Cell, data: Path) -> GenerativeModel:
    """The generator of a release; `cell.weights` is `none` unless the budget is shared."""
    halves = split(cell.dataset, cell.run, data)
    stage = plan(cell, data)[0]
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    noise = SeededNoise(_seed("generator", cell.dataset, cell.generator, cell.run))
    model: GenerativeModel = stage.model(stage.measure(private, noise=noise), schema=halves.schema)
    return model


def perceptron_weights(
    halves: Halves, fitting: SyntheticTable, rows: SyntheticTable, seed: int
) -> Array:
    """The paper's MLP: odds of a network trained on the exact rows; not private. Shape (n,)."""
    real, drawn = inputs(halves.schema, halves.train), inputs(halves.schema, fitting.scaled)
    x = np.vstack([real, drawn])
    y = np.repeat([1.0, 0.0], [len(real), len(drawn)])
    w = np.where(y > 0, len(drawn) / len(real), 1.0)
    order = np.random.default_rng(seed).permutation(len(x))
    network = Perceptron(rows=len(x))
    p = network.score(
        x[order], y[order], w[order], inputs(halves.schema, rows.scaled),
        regression=False, seed=seed,
    )  # fmt: skip
    assert p is not None
    p = np.clip(p, SMALLEST, 1 - SMALLEST)
    logits = np.log(p) - np.log1p(-p)
    return np.exp(logits - logits.max())


def weights_of(
    cell: Cell, model: GenerativeModel, fitting: SyntheticTable, rows: SyntheticTable, data: Path
) -> Array:
    """Weights of the published rows, shape (n,)."""
    halves = split(cell.dataset, cell.run, data)
    if cell.weights == "none":
        return np.ones(rows.rows)
    if cell.weights == "mlp":
        return perceptron_weights(halves, fitting, rows, cell.run)
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    estimator = plan(cell, data)[1]
    if cell.weights == "logreg":
        estimator = LogisticRegressionRatio()
    if cell.weights == "discriminator":
        assert isinstance(model, GANModel)
        estimator = DiscriminatorWeights().informed(model)
    same = ESTIMATORS.get(cell.weights, (cell.weights,))[0].removesuffix("_noised")
    noise = SeededNoise(_seed("weights", same.removesuffix("_debiased"), cell.joint, cell.run))
    measured = estimator.measure(private, fitting, noise=noise)
    ratio = estimator.ratio(measured, schema=halves.schema)
    return np.exp(weigh(ratio, rows, debias=estimator.debias).log_weights)


def release(cell: Cell, data: Path) -> tuple[SyntheticTable, Array]:
    """Published rows and their weights."""
    alone = Cell(
        run=cell.run,
        dataset=cell.dataset,
        generator=cell.generator,
        weights="none",
        epsilon=cell.epsilon,
    )
    generator_cell = cell if cell.joint else alone
    model = fitted(generator_cell, data)
    rng = np.random.default_rng([cell.run, 1])
    if cell.weights == "joint_measured":
        return _measured(cell, model, rng, data)
    rows = model.sample(SETS[cell.dataset].nominal_rows, rng=rng)
    fitting = model.sample(FITTING_ROWS, rng=rng)
    return rows, weights_of(cell, model, fitting, rows, data)


def _measured(
    cell: Cell, model: GenerativeModel, rng: np.random.Generator, data: Path
) -> tuple[SyntheticTable, Array]:
    """Rows chosen from a base, and their weights."""
    published, estimator = SETS[cell.dataset].nominal_rows, plan(cell, data)[1]
    base = model.sample(estimator.base_rows_for(published), rng=rng)
    halves = split(cell.dataset, cell.run, data)
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    noise = SeededNoise(_seed("weights", "measured", cell.joint, cell.run))
    drawn = estimator.measure(private, base, noise=noise)
    weights = weigh_measured(estimator, drawn, base, rows=published, rng=rng, known=model.one_way)
    rows = SyntheticTable(schema=base.schema, scaled=base.scaled.take(weights.chosen))
    return rows, np.exp(weights.log_weights)


def compute(cell: Cell, store: PaperStore) -> dict[str, Any]:
    """The cell's record: from the store, or made and kept."""
    known = store.read(cell.dataset, cell.name)
    if known is not None:
        return known
    started = time.process_time()
    halves = split(cell.dataset, cell.run, store.data)
    result: dict[str, Any] = {"refused": ""}
    if cell.generator == REAL:
        rows, w = halves.ruler.rows(halves.train), np.ones(halves.train.rows)
    else:
        try:
            drawn, w = release(cell, store.data)
            rows = halves.ruler.rows(drawn.scaled)
        except WeightError as error:
            result["refused"] = str(error)
    if not result["refused"]:
        result["metrics"] = measure(halves, rows, w, run=cell.run, data=store.data)
    record = vars(cell) | result | {"cpu_seconds": time.process_time() - started}
    store.write(cell.dataset, cell.name, record)
    return record
