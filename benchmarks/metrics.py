"""What a weighted table is worth, measured against held-out rows; shared by the benchmarks.

Weights may have any positive scale. Everything works on the schema's public [0, 1] scale, so no
metric depends on a minimum or maximum of the data. Lower is better but for AUC and R2.
A target of more than two levels is scored one level against the rest (`auc`).
"""

from __future__ import annotations

import itertools
import math
import statistics
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema, ScaledTable

Array = NDArray[np.float64]

PENALTY_PER_ROW = 1e-3
"""One penalty *per row* for every linear fit. With a penalty fixed in total the comparison of two
fits measures the sizes of their tables (docs/method.md section 8)."""


def design(schema: PublicSchema, scaled: ScaledTable) -> tuple[Array, Array]:
    """Features in [0, 1], shape (rows, p), one-hot for levels; the target, shape (rows,).

    The target is a number of a level if it has levels (0/1 of two), else in [0, 1].
    """
    target = schema.target
    assert target is not None
    own = [block for block in schema.blocks if block.column == target.name]
    kept = np.ones(schema.width, dtype=bool)
    for block in own:
        kept[block.start : block.stop] = False
    return schema.encode(scaled)[:, kept], scaled.columns[target.name].astype(float)


def is_regression(schema: PublicSchema) -> bool:
    """Whether the target is a number; otherwise it has levels."""
    target = schema.target
    assert target is not None
    return target.is_numeric


def levels_of(schema: PublicSchema) -> int:
    """Levels of the target; two for a number, of which nobody asks them."""
    target = schema.target
    assert target is not None
    return 2 if target.is_numeric else target.cardinality


def level_scores(model: Any, x: Array, levels: int) -> Array:
    """Probability of every level, shape (rows, levels); zero where a fit never saw the level."""
    found = np.zeros((len(x), levels))
    found[:, model.classes_.astype(int)] = model.predict_proba(x)
    return found


# Linear models


@dataclass(frozen=True, kw_only=True)
class LinearFit:
    """A fitted linear model: its coefficients with the intercept last, and its predictor."""

    coefficients: Array
    model: Any
    levels: int = 2

    def score(self, x: Array) -> Array:
        """Log odds, or the predicted number; of more than two levels see `level_scores`."""
        if self.levels > 2:
            return level_scores(self.model, x, self.levels)
        decide = getattr(self.model, "decision_function", self.model.predict)
        return np.asarray(decide(x))


def linear_fit(
    x: Array,
    y: Array,
    w: Array,
    *,
    regression: bool,
    solver: str = "newton-cholesky",
    levels: int = 2,
) -> LinearFit | None:
    """Logistic or ridge regression with `PENALTY_PER_ROW` and a free intercept.

    Minimises mean(w loss) + PENALTY_PER_ROW/2 norm(slopes)^2, w of mean one, with the log loss or
    half the squared error. None if rows of one class alone are there.
    """
    w = w / w.mean()
    model: Any
    if regression:
        model = Ridge(alpha=PENALTY_PER_ROW * len(x))
    elif len(np.unique(y)) < 2:
        return None
    else:
        model = LogisticRegression(C=1 / (PENALTY_PER_ROW * len(x)), max_iter=5000, solver=solver)
    model.fit(x, y, sample_weight=w)
    found = np.append(np.ravel(model.coef_), model.intercept_)
    return LinearFit(coefficients=found, model=model, levels=levels)


def coefficient_errors(found: Array | None, truth: Array) -> tuple[float, float]:
    """Mean squared error of coefficients, and squared distance over norm(truth)^2.

    None (no fit) counts as coefficients of zero: a relative error of one.
    """
    distance = float((((0.0 if found is None else found) - truth) ** 2).sum())
    return distance / truth.size, distance / float((truth**2).sum())


def auc(y: Array, score: Array | None) -> float:
    """Area under the ROC curve; one half without a score.

    Of a score per level, shape (rows, levels): the mean over the levels that `y` has of the area
    of each level against the rest (one-vs-rest, macro).
    """
    if score is None:
        return 0.5
    if score.ndim == 1:
        return float(roc_auc_score(y, score))
    return statistics.fmean(roc_auc_score(y == k, score[:, int(k)]) for k in np.unique(y))


def squared_error(y: Array, predicted: Array) -> float:
    """Mean squared error, in units of the scaled target."""
    return float(((y - predicted) ** 2).mean())


# Multi-layer perceptron


@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """One hidden layer of ReLU, trained by Adam for a fixed number of steps, seeded.

    A fixed number of steps, not of epochs: a small table is not trained less than a large one.
    Weights enter the loss (`sample_weight`, scikit-learn 1.7 and later).
    """

    hidden: int = 32
    steps: int = 500
    batch: int = 200
    learning_rate: float = 0.01
    rows: int = 4000
    """Only that many first rows are used; rows come in random order."""

    def score(
        self,
        x: Array,
        y: Array,
        w: Array,
        test: Array,
        *,
        regression: bool,
        seed: int,
        levels: int = 2,
    ) -> Array | None:
        """Probability of class 1 (of more than two levels: of each), or the predicted number.

        At `test`; None if rows of one class alone are there.
        """
        x, y, w = x[: self.rows], y[: self.rows], w[: self.rows]
        if not regression and len(np.unique(y)) < 2:
            return None
        epochs = math.ceil(self.steps / math.ceil(len(x) / self.batch))
        kind = MLPRegressor if regression else MLPClassifier
        model = kind(
            hidden_layer_sizes=(self.hidden,), batch_size=min(self.batch, len(x)),
            learning_rate_init=self.learning_rate, max_iter=epochs, n_iter_no_change=epochs,
            random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, y, sample_weight=w / w.mean())
        if not regression and levels > 2:
            return level_scores(model, test, levels)
        return np.asarray(model.predict(test) if regression else model.predict_proba(test)[:, 1])


# Distances of distributions


def _is_line(column: Column) -> bool:
    """Whether the column's values lie on a line: numbers, and levels in order."""
    return column.is_numeric or (column.kind is ColumnKind.ORDINAL and not column.nullable)


def _position(column: Column, values: NDArray[Any]) -> Array:
    if column.is_discrete:
        return values / max(1, column.cardinality - 1)
    return np.where(np.isnan(values), 0.5, values)


def shares(codes: NDArray[Any], size: int, w: Array | None = None) -> Array:
    """Weighted share of each code 0 .. size - 1."""
    found = np.bincount(codes, weights=w, minlength=size).astype(float)
    return found / found.sum()


def wasserstein_1d_sum(
    schema: PublicSchema, rows: ScaledTable, w: Array, test: ScaledTable
) -> float:
    """Sum over columns of the 1-D Wasserstein-1 distance on the public [0, 1] scale.

    Unordered levels (missing is one) are all at distance one: there it is the total variation.
    """
    total = 0.0
    for column in schema.released:
        one, two = rows.columns[column.name], test.columns[column.name]
        if _is_line(column):
            gap_1d = wasserstein_distance(_position(column, one), _position(column, two), w)
            total += float(gap_1d)
        else:
            size = column.cardinality + 1
            gap = shares(one % size, size, w) - shares(two % size, size)  # -1 (missing) is last
            total += float(np.abs(gap).sum() / 2)
    return total


def sliced_wasserstein(one: Array, w: Array, two: Array, *, directions: int, seed: int) -> float:
    """Mean over random unit directions of the Wasserstein-1 distance of the projections.

    Of rows `one`, shape (n, p), by weights w, from rows `two`, shape (m, p), of weight one.
    """
    axes = np.random.default_rng(seed).standard_normal((one.shape[1], directions))
    axes /= np.linalg.norm(axes, axis=0)
    left, right = one @ axes, two @ axes
    return statistics.fmean(
        wasserstein_distance(left[:, j], right[:, j], w) for j in range(directions)
    )


def exact_wasserstein(one: Array, w: Array, two: Array) -> float:
    """Exact Wasserstein-1 distance, Euclidean ground metric; needs the `bench` extra (POT)."""
    import ot

    cost = ot.dist(one, two, metric="euclidean")
    share = np.full(len(two), 1 / len(two))
    return float(ot.emd2(w / w.sum(), share, cost, numItermax=1_000_000))


def total_variation(
    one: NDArray[Any], two: NDArray[Any], sizes: tuple[int, ...], w: Array | None = None
) -> tuple[float, float]:
    """Mean total variation over all one-way and over all two-way margins.

    Of codes `one`, shape (n, d), by weights w, from codes `two`, shape (m, d), of weight one.
    """

    def distance(columns: tuple[int, ...]) -> float:
        count = math.prod(sizes[j] for j in columns)
        tables = []
        for codes, own in ((one, w), (two, None)):
            packed = np.zeros(len(codes), dtype=np.intp)
            for j in columns:
                packed = packed * sizes[j] + codes[:, j]
            tables.append(shares(packed, count, own))
        return float(np.abs(tables[0] - tables[1]).sum() / 2)

    indices = range(len(sizes))
    return (
        statistics.fmean(distance((j,)) for j in indices),
        statistics.fmean(distance(pair) for pair in itertools.combinations(indices, 2)),
    )


def ess_share(w: Array) -> float:
    """Kish's effective sample size as a share of the rows."""
    return float(w.sum() ** 2 / (w**2).sum() / len(w))
