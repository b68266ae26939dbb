"""Weights of synthetic rows, in the form that every method returns, and rows redrawn by them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.methods.weights.diagnostics import Diagnostics, diagnose, relative_weights

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Importance weights of synthetic rows.

    Attributes:
        log_weights: shape (n,), natural log; mean weight one after self-normalisation.
        noise: standard deviation of each log weight's privacy noise, shape (n,), or of fewer,
            evenly spaced rows; of resampled rows, that of the log weight they were drawn by.
        diagnostics: of the weights before resampling.
        chosen: shape (n,), indices of the resampled rows, ascending, with repeats; None: all rows.
    """

    log_weights: Array
    steps: tuple[str, ...]
    noise: Array
    diagnostics: Diagnostics
    chosen: NDArray[np.int64] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of weighted rows."""
        return int(self.log_weights.size)


def uniform_weights(rows: int) -> Weights:
    """Weight one for every row."""
    if rows < 1:
        raise WeightError(field="weights", allowed="at least one synthetic row")
    log_weights = np.zeros(rows)
    return Weights(
        log_weights=log_weights,
        steps=("none",),
        noise=np.zeros(rows),
        diagnostics=diagnose(log_weights),
    )


def normalised(log_weights: Array) -> Array:
    """Shift log weights so that the weights have mean one, shape (n,)."""
    mean = np.mean(relative_weights(log_weights))
    return np.asarray(log_weights - (log_weights.max() + np.log(mean)))


def resample(log_weights: Array, rows: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of rows drawn evenly spaced by weight, shape (rows,), ascending, with repeats.

    `rng` draws no privacy noise.

    Raises:
        WeightError: no rows, a log weight that is not finite, no generator, or `rows` below 0.
    """
    cumulative = np.cumsum(relative_weights(np.asarray(log_weights, dtype=np.float64)))
    if not isinstance(rows, int | np.integer) or rows < 0:
        raise WeightError(field=f"rows={rows}", allowed="a whole number >= 0")
    if not isinstance(rng, np.random.Generator):
        raise WeightError(
            field="rng", allowed=f"a NumPy Generator, made of a seed, found {type(rng).__name__}"
        )
    cumulative /= cumulative[-1]  # rounding must not leave the last point beyond the end
    points = (np.arange(rows) + rng.random()) / max(rows, 1)
    return np.searchsorted(cumulative, points, side="right").astype(np.int64)
