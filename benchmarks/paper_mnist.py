"""Table 3, MNIST: the weights of the paper on digits drawn by DPCGAN at epsilon 9.64.

The set-up is that of `mnist.py`: on a CPU its reduced size (14 x 14 pixels, small networks), and
every text says so. Metrics: slopes of a multinomial logistic regression of the digit on the pixels
(scikit-learn's default penalty), weighted synthetic digits against the real test digits; and the
perceptron's area under the ROC curve, one digit against the rest, on the real test digits.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import mnist
import numpy as np
from exact_ratio import LogisticRegressionRatio
from metrics import Array, Perceptron, design, ess_share
from mnist_files import FILES, images
from mnist_judge import classified, linear, slopes
from paper_sets import PaperStore
from weights_cells import CODE, Store

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.mlp import inputs
from dpiw.methods.weights.paper.weigh import weigh
from dpiw.methods.weights.registry import make_weights
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.sections import WeightsSpec
from dpiw.privacy.calibration import calibrate
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
SIZE = "half"
ESTIMATORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "beta_noised": ("beta_noised", {}),
    "beta_debiased": ("beta_debiased", {}),
    "dp_mlp": ("dp_mlp", {"replays": 0}),
}
KINDS = (
    "none", "beta_noised", "beta_debiased", "dp_mlp", "discriminator", "logreg", "mlp",
    "joint_linear",
)  # fmt: skip
TOLD = (
    "**Reduced for a CPU**: 14 x 14 pixels instead of 28 x 28 and small networks"
    " (`mnist.py --sizes half`), all 60,000 training digits, 10,000 digits drawn. Beta MSE is"
    " over the slopes of the smaller images: not the paper's unit. Epsilon 9.64 and delta"
    " 10^-6 / 60,000 for each stage; `one total`: for both together."
)
REAL_ROWS = 10_000
"""Confidential digits for the floor: as many as are drawn."""


@dataclass(frozen=True, kw_only=True)
class MnistCell:
    """One release; the runs of a table differ in noise and rows, the test digits are MNIST's."""

    run: int
    weights: str
    generator: str = "dpcgan"
    dataset: str = "mnist"

    @property
    def name(self) -> str:
        """A file name."""
        return f"{self.generator}-{self.weights}-{self.run}"


def mnist_cells(runs: int) -> list[MnistCell]:
    """Every cell, run by run; the confidential digits first."""
    first = [MnistCell(run=0, weights="none", generator="real")]
    return first + [MnistCell(run=run, weights=kind) for run in range(runs) for kind in KINDS]


def _digest() -> str:
    here, digest = Path(__file__).resolve().parent, hashlib.sha256(CODE.encode())
    for name in ("mnist.py", "mnist_files.py", "mnist_judge.py", "paper_mnist.py"):
        digest.update((here / name).read_bytes())
    return digest.hexdigest()[:16]


DIGEST = _digest()


@cache
def _keyed(data: Path) -> str:
    """Digest of code and data."""
    digest = hashlib.sha256(DIGEST.encode())
    for name in sorted(FILES.values()):
        for part in ("images-idx3", "labels-idx1"):
            digest.update((data / f"{name}-{part}-ubyte.gz").read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class MnistStore(Store):
    """Finished cells in a folder of their own."""

    def _path(self, dataset: str, name: str) -> Path:
        return self.folder / f"{dataset}-{_keyed(self.data)}" / f"{name}.json"

    @classmethod
    def beside(cls, store: PaperStore) -> MnistStore:
        """In the same cache."""
        return cls(folder=store.folder, data=store.data)


@cache
def _real(part: str, data: Path) -> Any:
    size = mnist.SIZES[SIZE]
    return mnist.scaled(*images(data, part, size.side))


@lru_cache(maxsize=2)
def _plan(joint: bool) -> Plan:
    size = mnist.SIZES[SIZE]
    alone = mnist.plan_of(size, "cpu")
    if not joint:
        return alone
    weights = WeightsSpec(method="beta_debiased", when_infeasible="keep")
    return compile_plan(alone.spec.model_copy(update={"weights": weights}), size.schema)


@lru_cache(maxsize=1)
def _model(joint: bool, run: int, data: Path) -> Any:
    schema = mnist.SIZES[SIZE].schema
    generator: Any = replace(_plan(joint).generator, start=run)  # the errors hold it, too
    private = PrivateTable(schema=schema, scaled=_real("train", data))
    measured = generator.measure(private, noise=SeededNoise(1000 * run + 1))
    return generator.model(measured, schema=schema)


@cache
def _alone(kind: str) -> Any:
    """An estimator that spends the table's (epsilon, delta) by itself."""
    name, settings = ESTIMATORS[kind]
    estimator, schema = make_weights(name, dict(settings)), mnist.SIZES[SIZE].schema
    assert estimator is not None

    def at(rho: float) -> Any:
        return estimator.calibrate(rho=rho, schema=schema, unit=UNIT, nominal_rows=mnist.ROWS)

    rho = calibrate(
        lambda rho: at(rho).events(schema=schema, unit=UNIT),
        epsilon=float(mnist.EPSILON),
        delta=float(mnist.DELTA),
    )
    return at(rho)


def _network(fitting: SyntheticTable, rows: SyntheticTable, run: int, data: Path) -> Array:
    """The paper's MLP: odds of a network on exact rows; not private."""
    schema = mnist.SIZES[SIZE].schema
    rng = np.random.default_rng([run, 3])
    train = _real("train", data)
    train = train.take(rng.permutation(train.rows)[: fitting.rows])
    x = np.vstack([inputs(schema, train), inputs(schema, fitting.scaled)])
    y = np.repeat([1.0, 0.0], [train.rows, fitting.rows])
    order = rng.permutation(len(x))
    network = Perceptron(rows=len(x), hidden=64, steps=1000, learning_rate=0.003)
    p = network.score(
        x[order], y[order], np.ones(len(x)), inputs(schema, rows.scaled), regression=False, seed=run
    )
    assert p is not None
    p = np.clip(p, 1e-12, 1 - 1e-12)
    logits = np.log(p) - np.log1p(-p)
    return np.exp(logits - logits.max())


def _weights(cell: MnistCell, model: Any, rows: Any, fitting: Any, data: Path) -> Array:
    """Weights of the drawn digits, shape (n,)."""
    schema = mnist.SIZES[SIZE].schema
    if cell.weights == "none":
        return np.ones(rows.rows)
    if cell.weights == "mlp":
        return _network(fitting, rows, cell.run, data)
    private = PrivateTable(schema=schema, scaled=_real("train", data))
    estimator: Any
    if cell.weights == "discriminator":
        estimator = DiscriminatorWeights().informed(model)
    elif cell.weights == "logreg":
        estimator = LogisticRegressionRatio()
    else:
        joint = cell.weights.startswith("joint_")
        estimator = _plan(True).weights if joint else _alone(cell.weights)
    measured = estimator.measure(private, fitting, noise=SeededNoise(1000 * cell.run + 2))
    ratio = estimator.ratio(measured, schema=schema)
    return np.exp(weigh(ratio, rows, debias=estimator.debias).log_weights)


def _slopes(x: Array, y: Array, w: Array) -> Array:
    return slopes(linear(x, y, w))


@cache
def _truth(data: Path) -> Array:
    x, y = design(mnist.SIZES[SIZE].schema, _real("test", data))
    return _slopes(x, y, np.ones(len(x)))


def _measure(rows: Any, w: Array, data: Path) -> dict[str, float]:
    schema = mnist.SIZES[SIZE].schema
    x, y = design(schema, rows)
    figures = classified((x, y), w, design(schema, _real("test", data)))
    error = float(((_slopes(x, y, w) - _truth(data)) ** 2).mean())
    return {"beta_mse": error, "mlp": figures["auc"], "ess_share": ess_share(w)}


def compute_mnist(cell: MnistCell, store: Store) -> dict[str, Any]:
    """The cell's record: from the store, or made and kept."""
    known = store.read(cell.dataset, cell.name)
    if known is not None:
        return known
    started, record = time.process_time(), vars(cell) | {"refused": ""}
    try:
        if cell.generator == "real":
            rows = _real("train", store.data)
            rows = rows.take(np.random.default_rng(cell.run).permutation(rows.rows)[:REAL_ROWS])
            w = np.ones(REAL_ROWS)
        else:
            model = _model(cell.weights.startswith("joint_"), cell.run, store.data)
            rng = np.random.default_rng([cell.run, 1])
            drawn = model.sample(mnist.SYNTHETIC_ROWS, rng=rng)
            fitting = model.sample(mnist.SYNTHETIC_ROWS, rng=rng)
            rows, w = drawn.scaled, _weights(cell, model, drawn, fitting, store.data)
        record["metrics"] = _measure(rows, w, store.data)
    except WeightError as error:
        record["refused"] = str(error)
    record["cpu_seconds"] = time.process_time() - started
    store.write(cell.dataset, cell.name, record)
    return record
