"""Rows redrawn by weight, to be used without weights. Imports nothing but NumPy."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError

Array = NDArray[np.float64]


class Resampling(enum.Enum):
    """How rows are redrawn: evenly spaced, independently (Rubin 1987), or each row at most once.

    `WITHOUT_REPLACEMENT` pulls large weights towards the others (Gelman et al., Bayesian Data
    Analysis).
    """

    SYSTEMATIC = "systematic"
    MULTINOMIAL = "multinomial"
    WITHOUT_REPLACEMENT = "without_replacement"


def resample(
    log_weights: Array,
    rows: int,
    *,
    rng: np.random.Generator,
    method: Resampling = Resampling.SYSTEMATIC,
) -> NDArray[np.int64]:
    """Indices of the drawn rows, shape (rows,), ascending; `rng` draws no privacy noise.

    Raises:
        WeightError: no rows, a log weight that is not finite, no generator, or too many `rows`.
    """
    log_weights = np.asarray(log_weights, dtype=np.float64)
    if log_weights.ndim != 1 or log_weights.size == 0 or not np.all(np.isfinite(log_weights)):
        raise WeightError("weights: expected a vector of finite log weights, at least one row")
    once = method is Resampling.WITHOUT_REPLACEMENT
    limit = log_weights.size if once else np.inf
    if not isinstance(rows, int | np.integer) or not 0 <= rows <= limit:
        up_to = f", at most the {limit} there are" if once else ""
        raise WeightError(f"rows={rows}: expected a whole number >= 0{up_to}")
    if not isinstance(rng, np.random.Generator):
        raise WeightError(
            f"rng: expected a NumPy Generator, made of a seed, found {type(rng).__name__}"
        )
    if once:
        # The largest of log w + Gumbel noise are successive draws (Efraimidis & Spirakis 2006).
        keys = log_weights + rng.gumbel(size=log_weights.size)
        return np.sort(np.argsort(-keys, kind="stable")[:rows]).astype(np.int64)
    weights = np.exp(log_weights - log_weights.max())
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]  # rounding must not leave the last point beyond the end
    if method is Resampling.SYSTEMATIC:
        points = (np.arange(rows) + rng.random()) / max(rows, 1)
    else:
        points = np.sort(rng.random(rows))
    return np.searchsorted(cumulative, points, side="right").astype(np.int64)
