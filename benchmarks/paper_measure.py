"""The paper's metrics of weighted synthetic rows against the test part.

- `wst`: exact Wasserstein-1, Euclidean, every column with the target on [0, 1] by minimum and
  maximum. Identified in the data's README: it reproduces the paper's rows without weights.
- `beta_mse`: mean squared difference of slopes; scikit-learn's default penalty (C = 1) for a
  logistic model, least squares for a number, fitted on the weighted rows and on the test rows.
- `mlp`: area under the ROC curve of a perceptron on the test rows, or its mean squared error.

`wst_least` is the mean distance from a test row to its nearest row: the least Wasserstein distance
that any weights of these rows can reach, for each test row's mass must come at least from there.

`beta_relative` is the fair form of `beta_mse` (docs/method.md section 8): one penalty per row on
both sides, squared distance over squared norm.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from metrics import (
    Array,
    Perceptron,
    auc,
    coefficient_errors,
    ess_share,
    exact_wasserstein,
    linear_fit,
    squared_error,
)
from paper_sets import Halves, split
from scipy.spatial.distance import cdist
from sklearn.linear_model import LinearRegression, LogisticRegression

METRICS = ("beta_mse", "wst", "mlp", "wst_least", "beta_relative", "ess_share")
PAPER_METRICS = ("beta_mse", "wst", "mlp")
PERCEPTRON = Perceptron()


def higher_is_better(metric: str, *, regression: bool) -> bool:
    """Of the metrics only the area under the curve, and the effective sample size."""
    return metric == "ess_share" or (metric == "mlp" and not regression)


def slopes(x: Array, y: Array, w: Array, *, regression: bool) -> Array | None:
    """Slopes as the paper most likely fits them: default penalty; None if a class is missing."""
    w = w / w.mean()
    if regression:
        return np.asarray(LinearRegression().fit(x, y, sample_weight=w).coef_)
    if len(np.unique(y)) < 2:
        return None
    model = LogisticRegression(max_iter=5000).fit(x, y, sample_weight=w)
    return np.asarray(model.coef_[0])


@lru_cache(maxsize=4)
def _truths(name: str, run: int, data: Path) -> tuple[Array, Array]:
    halves = split(name, run, data)
    x, y = halves.ruler.parts(halves.test)
    ones, regression = np.ones(len(x)), halves.regression
    printed, fair = (
        slopes(x, y, ones, regression=regression),
        linear_fit(x, y, ones, regression=regression),
    )
    assert printed is not None
    assert fair is not None
    return printed, fair.coefficients


def measure(halves: Halves, rows: Array, w: Array, *, run: int, data: Path) -> dict[str, float]:
    """Every metric of weighted rows on the metrics' scale.

    Args:
        halves: the split.
        rows: with the target, shape (n, columns).
        w: weights > 0 of any scale, shape (n,).
        run: seeds the perceptron.
        data: folder, for the test part's own fits.
    """
    x, y = halves.ruler.parts(rows)
    tx, ty = halves.ruler.parts(halves.test)
    regression = halves.regression
    printed, fair = _truths(halves.name, run, data)
    fit = linear_fit(x, y, w, regression=regression)
    deep = PERCEPTRON.score(x, y, w, tx, regression=regression, seed=run)
    if regression:
        assert deep is not None
    return {
        "beta_mse": coefficient_errors(slopes(x, y, w, regression=regression), printed)[0],
        "wst": exact_wasserstein(rows, w, halves.test),
        "wst_least": float(cdist(halves.test, rows).min(axis=1).mean()),
        "mlp": squared_error(ty, deep) if regression and deep is not None else auc(ty, deep),
        "beta_relative": coefficient_errors(None if fit is None else fit.coefficients, fair)[1],
        "ess_share": ess_share(w),
    }
