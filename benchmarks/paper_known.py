"""Known ratios: the toy figure, and log weights against the truth. Simulated rows, no data file.

Toy: confidential rows uniform on the triangle below the diagonal, synthetic ones on the square; the
true weight is 2 below and 0 above. Log weights: real rows of density proportional to exp(b.x) on
[0, 1]^d with norm(b) = 2, synthetic ones uniform, so that the log ratio is b.x up to a constant.

`paper_printed` is what the paper prints (iid Laplace of scale 2 sqrt(d)/(N_D lambda epsilon) at
lambda = 0.1): it is not epsilon-DP (docs/method.md section 4) and is here for comparison alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from exact_ratio import LogisticRegressionRatio
from metrics import Array, Perceptron
from paper_sets import PaperStore
from sklearn.linear_model import LogisticRegression

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.paper.mlp import inputs
from dpiw.methods.weights.paper.weigh import weigh
from dpiw.methods.weights.registry import make_weights
from dpiw.privacy.calibration import calibrate
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
FOLDER = "known"
NORM = 2.0
LAMBDA = 0.1
SIZES = ((2, 1000), (2, 10_000), (10, 1000), (10, 10_000), (30, 1000), (30, 10_000))
"""Columns and confidential rows."""

PRIVATE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "beta_noised": ("beta_noised", {}),
    "beta_debiased": ("beta_debiased", {}),
    "beta_debiased, spherical": ("beta_debiased", {"noise": "spherical"}),
    "beta_debiased, laplace": ("beta_debiased", {"noise": "laplace"}),
    "dp_mlp": ("dp_mlp", {"replays": 0}),
}
EXACT = ("none", "logreg, lambda 0.1", "logreg", "mlp")
PRINTED = "paper_printed"
METHODS = (*EXACT, *PRIVATE, PRINTED)
TOY_METHODS = ("none", "beta_noised", "beta_debiased", "dp_mlp", "logreg", "mlp")
TOY_ROWS = 1000
EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class Known:
    """Rows of a known problem, every column in [0, 1], shapes (n, d)."""

    real: Array
    fitting: Array
    published: Array

    @property
    def schema(self) -> PublicSchema:
        """Columns on [0, 1]."""
        names = [f"x{j}" for j in range(self.real.shape[1])]
        kind = ColumnKind.CONTINUOUS
        columns = [Column(name=name, kind=kind, lower=0, upper=1) for name in names]
        return PublicSchema(name="known", columns=tuple(columns))

    def scaled(self, rows: Array) -> ScaledTable:
        """Rows as the package holds them."""
        return ScaledTable({f"x{j}": x.copy() for j, x in enumerate(rows.T)}, len(rows))


def log_linear(d: int, rows: int, rng: np.random.Generator) -> tuple[Known, Array]:
    """A problem with log ratio b.x, and b, shape (d,): independent truncated exponentials."""
    b = rng.standard_normal(d)
    b *= NORM / np.linalg.norm(b)
    u = rng.random((rows, d))
    real = np.log1p(u * np.expm1(b)) / b
    return Known(real=real, fitting=rng.random((rows, d)), published=rng.random((2000, d))), b


def triangle(rows: int, rng: np.random.Generator) -> Known:
    """Real rows below the diagonal of the unit square, synthetic ones anywhere in it."""
    corner = np.sort(rng.random((rows, 2)), axis=1)[:, ::-1]
    return Known(real=corner, fitting=rng.random((4000, 2)), published=rng.random((2000, 2)))


@lru_cache(maxsize=64)
def _calibrated(method: str, schema: PublicSchema, rows: int) -> Any:
    name, settings = PRIVATE[method]
    pure = settings.get("noise") in ("spherical", "laplace")
    estimator = make_weights(name, dict(settings))
    assert estimator is not None

    def at(rho: float) -> Any:
        return estimator.calibrate(rho=rho, schema=schema, unit=UNIT, nominal_rows=rows)

    rho = calibrate(
        lambda rho: at(rho).events(schema=schema, unit=UNIT),
        epsilon=EPSILON,
        delta=0.0 if pure else 1e-6 / rows,
    )
    return at(rho)


def _printed(known: Known, rng: np.random.Generator, *, noise: bool) -> Array:
    """Mean objective over both classes with penalty 0.1, constant appended; the paper's noise."""
    n, d = known.real.shape
    x = np.vstack([known.real, known.fitting])
    x = np.hstack([x, np.ones((len(x), 1))])
    y = np.repeat([1, 0], [n, len(known.fitting)])
    model = LogisticRegression(C=1 / (LAMBDA * len(x)), fit_intercept=False, max_iter=5000)
    b = model.fit(x, y).coef_[0]
    if noise:
        b = b + rng.laplace(scale=2 * np.sqrt(d) / (n * LAMBDA * EPSILON), size=b.shape)
    return np.asarray(known.published @ b[:-1])


def _network(known: Known, seed: int) -> Array:
    schema = known.schema
    real = inputs(schema, known.scaled(known.real))
    x = np.vstack([real, inputs(schema, known.scaled(known.fitting))])
    y = np.repeat([1.0, 0.0], [len(real), len(known.fitting)])
    w = np.where(y > 0, len(known.fitting) / len(real), 1.0)
    order = np.random.default_rng(seed).permutation(len(x))
    rows = inputs(schema, known.scaled(known.published))
    network = Perceptron(rows=len(x))
    p = network.score(x[order], y[order], w[order], rows, regression=False, seed=seed)
    assert p is not None
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(p) - np.log1p(-p))


def log_weights(method: str, known: Known, seed: int) -> Array:
    """Of the published rows, mean weight one, shape (m,)."""
    rng = np.random.default_rng([seed, 7])
    if method == "none":
        return np.zeros(len(known.published))
    if method in (PRINTED, "logreg, lambda 0.1"):
        return normalised(_printed(known, rng, noise=method == PRINTED))
    if method == "mlp":
        return normalised(_network(known, seed))
    schema = known.schema
    estimator: Any = (
        LogisticRegressionRatio()
        if method == "logreg"
        else _calibrated(method, schema, len(known.real))
    )
    private = PrivateTable(schema=schema, scaled=known.scaled(known.real))
    fitting = SyntheticTable(schema=schema, scaled=known.scaled(known.fitting))
    rows = SyntheticTable(schema=schema, scaled=known.scaled(known.published))
    measured = estimator.measure(private, fitting, noise=SeededNoise(100 + seed))
    ratio = estimator.ratio(measured, schema=schema)
    return np.asarray(weigh(ratio, rows, debias=estimator.debias).log_weights)


def normalised(found: Array) -> Array:
    """Log weights scaled to mean weight one."""
    top = found.max()
    return np.asarray(found - top - np.log(np.exp(found - top).mean()))


def known_name(method: str, d: int, rows: int, run: int) -> str:
    """A file name."""
    slug = method.replace(", ", "-").replace(" ", "").replace(".", "p")
    return f"{slug}-{d}-{rows}-{run}"


def compute_known(method: str, d: int, rows: int, run: int, store: PaperStore) -> dict[str, Any]:
    """Mean squared error of log weights, of one method on one draw: kept, or made and kept."""
    name = known_name(method, d, rows, run)
    entry = store.read(FOLDER, name)
    if entry is not None:
        return entry
    started = time.process_time()
    known, b = log_linear(d, rows, np.random.default_rng([run, d, rows]))
    error = log_weights(method, known, run) - normalised(known.published @ b)
    mse, seconds = float((error**2).mean()), time.process_time() - started
    entry = {"method": method, "d": d, "rows": rows, "run": run, "mse": mse, "cpu_seconds": seconds}
    store.write(FOLDER, name, entry)
    return entry


def toy(seed: int) -> tuple[Known, dict[str, Array]]:
    """The toy problem and every method's weights of its published rows."""
    known = triangle(TOY_ROWS, np.random.default_rng(seed))
    return known, {method: np.exp(log_weights(method, known, seed)) for method in TOY_METHODS}


def mass_outside(known: Known, w: Array) -> float:
    """Share of the weight above the diagonal, where there is nothing: 0 if right, 1/2 without."""
    above = known.published[:, 1] > known.published[:, 0]
    return float(w[above].sum() / w.sum())
