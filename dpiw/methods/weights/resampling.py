"""Rows redrawn by weight, to be used without weights. Imports nothing but NumPy."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError

Array = NDArray[np.float64]


class Scheme(enum.Enum):
    """How rows are redrawn.

    `SYSTEMATIC`: one uniform draw, evenly spaced: each row floor or ceil of its expected number
    of times; the least variance.
    `MULTINOMIAL`: independent draws with replacement: sampling importance resampling (Rubin 1987).
    `WITHOUT_REPLACEMENT`: successive sampling: each draw by weight among the rows that are left.
    No row twice, and no longer proportional to weight: large weights are pulled towards the
    others, the more so the larger the share of rows drawn (Gelman et al., Bayesian Data Analysis).
    """

    SYSTEMATIC = "systematic"
    MULTINOMIAL = "multinomial"
    WITHOUT_REPLACEMENT = "without_replacement"


def resample_rows(
    log_weights: Array, rows: int, *, scheme: Scheme, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Indices of the drawn rows, shape (rows,), ascending; the same for the same `rng` state.

    Args:
        log_weights: shape (n,), natural log, any scale.
        rows: how many, >= 1.
        scheme: how.
        rng: no privacy noise; may be seeded from public values.

    Raises:
        WeightError: no rows or log weights that are not finite; fewer than one row asked for, or
            more than there are without replacement.
    """
    if log_weights.ndim != 1 or log_weights.size == 0 or not np.all(np.isfinite(log_weights)):
        raise WeightError("weights: expected a vector of finite log weights, at least one row")
    limit = log_weights.size if scheme is Scheme.WITHOUT_REPLACEMENT else None
    if rows < 1 or (limit is not None and rows > limit):
        up_to = "" if limit is None else f" and at most the {limit} there are"
        raise WeightError(f"resample: rows={rows}: expected at least 1{up_to}")
    if scheme is Scheme.WITHOUT_REPLACEMENT:
        # The largest of log w + Gumbel noise are successive draws (Efraimidis & Spirakis 2006).
        keys = log_weights + rng.gumbel(size=log_weights.size)
        return np.sort(np.argsort(-keys, kind="stable")[:rows]).astype(np.int64)
    weights = np.exp(log_weights - log_weights.max())
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]  # rounding must not leave the last point beyond the end
    systematic = scheme is Scheme.SYSTEMATIC
    points = (np.arange(rows) + rng.random()) / rows if systematic else np.sort(rng.random(rows))
    return np.searchsorted(cumulative, points, side="right").astype(np.int64)
