"""Weights of rows, of mean one, and their replicates.

Variance of an estimate: `scale` times the sum of squared differences between its replicates and
the full estimate. Source: Rao & Wu (1988); Wolter (2007), chapter 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import ReleaseError

Array = NDArray[np.float64]

MOST_NUMBERS = 250_000_000
"""Most rows times replicates of one release: a file of 1 GB."""


def mean_one_weights(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights of mean one, shape (rows,), from finite natural logs, else ReleaseError."""
    logs = np.asarray(log_weights, dtype=np.float64)
    if logs.ndim != 1 or logs.size == 0 or not np.isfinite(logs).all():
        allowed = "one finite number per row, and at least one row"
        raise ReleaseError(field="log_weights", allowed=allowed)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def published_weights(
    log_weights: NDArray[np.float64], *, self_normalised: bool
) -> NDArray[np.float64]:
    """Return the column `weight`, of mean one or exponentials; ReleaseError if not finite."""
    normalised = mean_one_weights(log_weights)
    if self_normalised:
        return normalised
    if not np.max(log_weights) < 700:
        allowed = "numbers below 700, or weights.normalisation: self in the spec"
        raise ReleaseError("a weight is too large", field="log_weights", allowed=allowed)
    return np.exp(np.asarray(log_weights, dtype=np.float64))


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplicateWeights:
    """Replicate weights, shape (n, R), of mean one each, which already include the full weights."""

    weights: NDArray[Any] = field(repr=False)
    scale: float

    @property
    def count(self) -> int:
        """R."""
        return int(self.weights.shape[1])

    def estimates(self, statistic: Callable[[Array], Any]) -> Array:
        """Return a statistic, from (n,) to (p,), of each replicate; shape (R, p)."""
        columns = (np.asarray(self.weights[:, r], dtype=np.float64) for r in range(self.count))
        return np.array([np.atleast_1d(statistic(c)) for c in columns], dtype=np.float64)

    def variance(self, statistic: Callable[[Array], Any], full: Array) -> Array:
        """Return a smooth statistic's variance, shape (p,); replicates of quantiles barely move."""
        differences = self.estimates(statistic) - np.atleast_1d(statistic(full))
        return np.asarray(self.scale * (differences**2).sum(axis=0))
