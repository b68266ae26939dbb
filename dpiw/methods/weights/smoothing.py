"""Pareto smoothed importance sampling: the largest weights replaced by a fitted tail's quantiles.

Applied to released weights it is post-processing and free; on non-private weights its result and
its k-hat would leak (docs/method.md section 11). It lowers the variance that the largest weights
cause and gives up exact unbiasedness. Imports nothing but NumPy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import fit_generalised_pareto, k_hat, tail_length

Array = NDArray[np.float64]


def generalised_pareto_quantile(shares: Array, *, shape: float, scale: float) -> Array:
    """Quantiles of the generalised Pareto law on (0, infinity) at `shares` in (0, 1)."""
    if shape == 0:
        return np.asarray(-scale * np.log1p(-shares))
    return np.asarray(scale * np.expm1(-shape * np.log1p(-shares)) / shape)


def pareto_smooth(log_weights: Array) -> tuple[Array, float | None]:
    """Smooth the upper tail, and the k-hat of the weights before.

    The ceil(min(n/5, 3 sqrt(n))) largest weights become the midpoint quantiles of the generalised
    Pareto law fitted to their excesses over the next largest weight, in the same order, and at
    most the largest weight there was. Nothing is changed where `k_hat` is None: fewer than 25
    rows, or a constant tail.

    Args:
        log_weights: shape (n,), natural log, any scale.

    Returns:
        Log weights on the same scale, shape (n,), and k-hat.

    Raises:
        WeightError: as `k_hat`.

    Source: Vehtari et al. (2024), Pareto smoothed importance sampling, algorithm 1.
    """
    k = k_hat(log_weights)
    if k is None:
        return log_weights, None
    top = float(log_weights.max())
    order = np.argsort(log_weights, kind="stable")
    tail = order[-tail_length(log_weights.size) :]
    cutoff = np.exp(log_weights[order[-tail.size - 1]] - top)
    excesses = np.exp(log_weights[tail] - top) - cutoff
    real = excesses > 1e-12  # ties with the cutoff stay as they are, as in `k_hat`
    tail, excesses = tail[real], excesses[real]
    shape, scale = fit_generalised_pareto(excesses)
    middle = (np.arange(tail.size) + 0.5) / tail.size
    smoothed = cutoff + generalised_pareto_quantile(middle, shape=shape, scale=scale)
    result = log_weights.copy()
    result[tail] = top + np.log(np.minimum(smoothed, 1.0))
    return result, k
