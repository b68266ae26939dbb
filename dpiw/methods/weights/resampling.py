"""Rows redrawn by weight, to be used without weights. Imports nothing but NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError

Array = NDArray[np.float64]


def resample(log_weights: Array, rows: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of rows drawn evenly spaced by weight, shape (rows,), ascending, with repeats.

    `rng` draws no privacy noise.

    Raises:
        WeightError: no rows, a log weight that is not finite, no generator, or `rows` below 0.
    """
    log_weights = np.asarray(log_weights, dtype=np.float64)
    if log_weights.ndim != 1 or log_weights.size == 0 or not np.all(np.isfinite(log_weights)):
        raise WeightError("weights: expected a vector of finite log weights, at least one row")
    if not isinstance(rows, int | np.integer) or rows < 0:
        raise WeightError(f"rows={rows}: expected a whole number >= 0")
    if not isinstance(rng, np.random.Generator):
        raise WeightError(
            f"rng: expected a NumPy Generator, made of a seed, found {type(rng).__name__}"
        )
    weights = np.exp(log_weights - log_weights.max())
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]  # rounding must not leave the last point beyond the end
    points = (np.arange(rows) + rng.random()) / max(rows, 1)
    return np.searchsorted(cumulative, points, side="right").astype(np.int64)
