"""Rows redrawn by weight, to be used without weights. Imports nothing but NumPy."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError


class Resampling(enum.Enum):
    """How rows are redrawn by weight.

    `SYSTEMATIC`: one uniform draw, evenly spaced; every row appears floor or ceil of its expected
    number of times. `MULTINOMIAL`: independent draws with replacement.
    """

    SYSTEMATIC = "systematic"
    MULTINOMIAL = "multinomial"


def _probabilities(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    log_weights = np.asarray(log_weights, dtype=np.float64)
    if log_weights.ndim != 1 or log_weights.size == 0 or not np.all(np.isfinite(log_weights)):
        raise WeightError("weights: expected a vector of finite log weights, at least one row")
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


def resample(
    log_weights: NDArray[np.float64],
    rows: int,
    *,
    rng: np.random.Generator,
    method: Resampling = Resampling.SYSTEMATIC,
) -> NDArray[np.int64]:
    """Row indices drawn with probability proportional to the weights, shape (rows,), ascending.

    Each row is expected rows * w_i / sum(w) times under both methods.

    Args:
        log_weights: shape (n,), natural log, any scale.
        rows: number of indices, >= 0.
        rng: the analyst's generator; no privacy noise.
        method: systematic (least variance) or multinomial.

    Raises:
        WeightError: no rows, a log weight that is not finite, `rows` < 0, or an `rng` that is none.
    """
    shares = _probabilities(log_weights)
    if not isinstance(rows, int | np.integer) or rows < 0:
        raise WeightError(f"rows={rows}: expected a whole number >= 0")
    if not isinstance(rng, np.random.Generator):
        raise WeightError(
            f"rng: expected a NumPy Generator, made of a seed, found {type(rng).__name__}"
        )
    points = (
        (np.arange(rows) + rng.random()) / max(rows, 1)
        if method is Resampling.SYSTEMATIC
        else np.sort(rng.random(rows))
    )
    cumulative = np.cumsum(shares)
    cumulative /= cumulative[-1]  # rounding must not leave the last point beyond the end
    return np.searchsorted(cumulative, points, side="right").astype(np.int64)
