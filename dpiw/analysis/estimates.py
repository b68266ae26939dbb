"""Weighted estimates and resampling. Imports nothing but NumPy."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpiw.errors import ReleaseError, WeightError, nearest


def check_columns(known: Iterable[str], *names: str) -> None:
    """Raise ReleaseError, with the nearest column, unless all `names` are among `known`."""
    columns = list(known)
    for name in names:
        if name not in columns:
            told = nearest(name, columns) or f"; its columns: {', '.join(columns)}"
            raise ReleaseError(f"column {name!r}: not in this table{told}")


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


def _matching(values: ArrayLike, rows: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (rows,):
        raise WeightError("values: expected one number per weight")
    return numbers


def weighted_mean(values: ArrayLike, log_weights: NDArray[np.float64]) -> float:
    """Self-normalised mean sum(w h) / sum(w).

    Args:
        values: h per row, shape (n,); NaN gives NaN.
        log_weights: shape (n,), natural log, any scale.

    Raises:
        WeightError: no rows, a log weight that is not finite, or shapes that differ.
    """
    shares = _probabilities(log_weights)
    return float(shares @ _matching(values, shares.size))


def weighted_mean_standard_error(values: ArrayLike, log_weights: NDArray[np.float64]) -> float:
    """Standard error of `weighted_mean` over the synthetic rows alone.

    sqrt(sum w^2 (h - mean)^2) / sum w. It covers neither the privacy noise in the weights nor
    the generator's, which do not shrink with more synthetic rows (docs/method.md section 5).
    """
    shares = _probabilities(log_weights)
    numbers = _matching(values, shares.size)
    return float(np.sqrt(np.sum((shares * (numbers - shares @ numbers)) ** 2)))


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
        WeightError: as `weighted_mean`, or `rows` < 0.
    """
    shares = _probabilities(log_weights)
    if rows < 0:
        raise WeightError(f"rows={rows}: expected a whole number >= 0")
    points = (
        (np.arange(rows) + rng.random()) / max(rows, 1)
        if method is Resampling.SYSTEMATIC
        else np.sort(rng.random(rows))
    )
    cumulative = np.cumsum(shares)
    cumulative /= cumulative[-1]  # rounding must not leave the last point beyond the end
    return np.searchsorted(cumulative, points, side="right").astype(np.int64)
