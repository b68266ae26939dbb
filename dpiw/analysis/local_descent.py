"""One pass of projected stochastic gradient descent, and the law of where it ends.

Source: docs/method.md section 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

OFFSET = 50
"""k0 of the step 1 / (mu (k + k0)): the first steps are not too long."""


def batch_count(rows: int) -> int:
    """Batches of one pass over so many reports: at least 100 sqrt(n), or one a report.

    After K of them an axis of curvature mu still misses about 50 / K of the way from the start: at
    most 1 / (2 sqrt(n)), below the errors of chance, as mu b is no more than a report's gradient;
    where the curvature is above mu this bias shrinks faster than they do. Batches are of one size,
    but for a few that have one report more.
    """
    size = max(1, rows // max(1, math.isqrt((2 * OFFSET) ** 2 * rows)))
    return rows // size


def descend(
    gradient: Callable[[Array, NDArray[np.int64]], Array],
    order: NDArray[np.int64],
    *,
    dimension: int,
    norm: float,
    mu: float,
    average: bool,
) -> Array:
    """One pass from zero over disjoint batches, projected onto the ball after each step.

    Args:
        gradient: of the risk at given parameters, shape (dimension,), from the reports at given
            places; unbiased.
        order: places of the reports, each once, shape (n,).
        dimension: of the parameters.
        norm: radius of the ball.
        mu: of the steps 1 / (mu (k + 50)).
        average: the mean of the second half of all steps, or the last one.

    Returns:
        Parameters, shape (dimension,).
    """
    theta, total = np.zeros(dimension), np.zeros(dimension)
    batches = np.array_split(order, batch_count(len(order)))
    kept = _kept(len(batches), average)
    for k, rows in enumerate(batches, start=1):
        theta = theta - gradient(theta, rows) / (mu * (k + OFFSET))
        theta *= min(1.0, norm / max(float(np.linalg.norm(theta)), norm))
        if k > len(batches) - kept:
            total += theta
    return total / kept


def _kept(steps: int, average: bool) -> int:
    """How many of the last iterates the result is the mean of."""
    return max(1, steps // 2) if average else 1


@dataclass(frozen=True, kw_only=True, eq=False)
class PassLaw:
    """Where a pass ends beside the minimiser b, if it began at zero: at b - missing b + noise.

    Attributes:
        covariance: of the noise, shape (d, d).
        missing: share of the way from the start that is not gone, by direction, shape (d, d).
    """

    covariance: Array
    missing: Array

    def bias(self, end: Array) -> Array:
        """What an end, shape (d,), still lacks: missing b where end = b - missing b; (d,)."""
        return np.asarray(self.missing @ np.linalg.solve(np.eye(end.size) - self.missing, end))


def pass_law(hessian: Array, noise: Array, *, steps: int, mu: float, average: bool) -> PassLaw:
    """The law of `descend`, to first order around a minimiser inside the ball.

    The error moves by e <- (1 - H / (mu (k + 50))) e + noise / (mu (k + 50)). So in H's own axes
    the last iterate misses the product of 1 - h / (mu (k + 50)) over all steps, about
    (50 / (K + 50))^(h / mu), and K times its covariance tends to S_ij / (mu (h_i + h_j - mu)) where
    every h is above mu / 2. Both are summed exactly here, for these steps.

    Args:
        hessian: H, shape (d, d); not finite results where some h / mu is beyond all reason.
        noise: S, covariance of one step's gradient, shape (d, d).
        steps: K.
        mu: of the steps.
        average: the mean of the second half of all steps, or the last one.
    """
    h, axes = np.linalg.eigh(hessian)
    kept, left = _kept(steps, average), np.zeros(h.size)
    moves = np.empty((steps, h.size))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(steps, 0, -1):  # left: what a unit of error after step k is in the result
            if k > steps - kept:
                left = left + 1 / kept
            moves[k - 1] = left / (mu * (k + OFFSET))
            left = left - h * moves[k - 1]
        turned = (axes.T @ noise @ axes) * (moves.T @ moves)
        covariance, missing = axes @ turned @ axes.T, (axes * left) @ axes.T
    return PassLaw(covariance=covariance, missing=missing)
