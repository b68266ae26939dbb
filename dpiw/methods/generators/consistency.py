"""Post-processing of noisy marginals: non-negative, of one total, agreeing with each other.

Works on released values only, so it costs nothing and may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_RAKING_ROUNDS = 10


def project_to_total(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest table (Euclidean) that is non-negative and sums to `total` > 0.

    Subtracts one constant and clips at zero, with the constant that meets the total ("norm-sub").
    Source: Wang et al. (2020), consistency in local differential privacy, section 4; Duchi et
    al. (2008), figure 1.
    """
    flat = values.ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, flat.size + 1)
    support_size = int(np.count_nonzero(descending > excess))
    projected = np.maximum(values - excess[max(support_size, 1) - 1], 0.0)
    # Rounding of huge noise against a small total may leave nothing; one cell always stays.
    if projected.sum() <= 0:
        projected = (values == values.max()).astype(np.float64)
    return np.asarray(projected * (total / projected.sum()))


def estimate_total(tables: Sequence[NDArray[np.float64]], variances: Sequence[float]) -> float:
    """Precision-weighted mean of the tables' sums, at least 1: the noisy number of rows.

    Args:
        tables: noisy marginals of the same rows.
        variances: noise variance of one cell of each table; a sum of m cells has m times that.
    """
    sums = np.array([table.sum() for table in tables])
    weights = 1.0 / np.array([t.size * v for t, v in zip(tables, variances, strict=True)])
    return max(1.0, float(np.sum(sums * weights) / np.sum(weights)))


def total_variance(tables: Sequence[NDArray[np.float64]], variances: Sequence[float]) -> float:
    """Of `estimate_total`, from the same arguments."""
    return 1 / sum(1 / (t.size * v) for t, v in zip(tables, variances, strict=True))


def combine(
    estimates: Sequence[NDArray[np.float64]], variances: Sequence[float]
) -> NDArray[np.float64]:
    """Precision-weighted mean of noisy estimates of the same vector."""
    weights = 1.0 / np.asarray(variances)
    stacked = np.stack(estimates)
    return np.asarray(np.tensordot(weights / weights.sum(), stacked, axes=1))


def marginal(table: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """One-way marginal of a table along `axis`."""
    return np.asarray(table.sum(axis=tuple(a for a in range(table.ndim) if a != axis)))


def _along(vector: NDArray[np.float64], axis: int, ndim: int) -> NDArray[np.float64]:
    return vector.reshape(tuple(-1 if a == axis else 1 for a in range(ndim)))


def reconcile(
    table: NDArray[np.float64], marginals: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Make a noisy table non-negative with the given one-way marginals.

    First the least-squares correction, which spreads each marginal's error evenly over its slice;
    then the projection onto non-negative tables; then a few rounds of raking, which restore what
    clipping disturbed. A marginal whose slice is empty stays as it is.

    Args:
        table: noisy counts, one axis per column.
        marginals: non-negative marginal of each axis, all of one total.
    """
    result = table
    for axis, target in enumerate(marginals):
        cells = table.size // table.shape[axis]
        gap = (target - marginal(result, axis)) / cells
        result = result + _along(gap, axis, table.ndim)
    result = project_to_total(result, float(marginals[0].sum()))
    for _ in range(_RAKING_ROUNDS):
        for axis, target in enumerate(marginals):
            present = marginal(result, axis)
            factor = np.divide(target, present, out=np.ones_like(target), where=present > 0)
            result = result * _along(factor, axis, table.ndim)
    return result
