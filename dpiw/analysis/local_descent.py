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
    most 1 / (2 sqrt(n)). As mu b is at most the mean gradient at zero, that is below the errors of
    chance unless reports are nearly certain; where the curvature is above mu it shrinks faster than
    they do. Batches are of one size, but for a few that have one report more.
    """
    size = max(1, rows // max(1, math.isqrt((2 * OFFSET) ** 2 * rows)))
    return rows // size


@dataclass(frozen=True, kw_only=True, eq=False)
class Descent:
    """One pass.

    Attributes:
        end: the parameters, shape (d,).
        pushes: by which the ball moved them after each step, shape (K, d).
    """

    end: Array
    pushes: Array


def descend(
    gradient: Callable[[Array, NDArray[np.int64]], Array],
    order: NDArray[np.int64],
    *,
    dimension: int,
    norm: float,
    mu: float,
    average: bool,
) -> Descent:
    """One pass from zero over disjoint batches, projected onto the ball after each step.

    Args:
        gradient: of the risk at given parameters, shape (dimension,), from the reports at given
            places; unbiased.
        order: places of the reports, each once, shape (n,).
        dimension: of the parameters.
        norm: radius of the ball.
        mu: of the steps 1 / (mu (k + 50)).
        average: the mean of the second half of all steps, or the last one.
    """
    theta, total = np.zeros(dimension), np.zeros(dimension)
    batches = np.array_split(order, batch_count(len(order)))
    tail, pushes = _tail_length(len(batches), average), np.zeros((len(batches), dimension))
    for k, rows in enumerate(batches, start=1):
        theta = theta - gradient(theta, rows) / (mu * (k + OFFSET))
        length = float(np.linalg.norm(theta))
        if length > norm:
            pushes[k - 1] = theta * (norm / length - 1)
            theta = theta * (norm / length)
        if k > len(batches) - tail:
            total += theta
    return Descent(end=total / tail, pushes=pushes)


def _tail_length(steps: int, average: bool) -> int:
    """How many of the last iterates the result is the mean of."""
    return max(1, steps // 2) if average else 1


@dataclass(frozen=True, kw_only=True, eq=False)
class PassLaw:
    """Where a pass ends that began at zero: at b - missing b + pushed + noise, b the minimiser.

    Attributes:
        covariance: of the noise, shape (d, d).
        missing: share of the way from the start that is not gone, by direction, shape (d, d).
        pushed: what is left at the end of all that the ball did, shape (d,).
    """

    covariance: Array
    missing: Array
    pushed: Array

    def bias(self, end: Array) -> Array:
        """Pushes less missing b, of the b that this end, shape (d,), tells of; shape (d,)."""
        minimiser = np.linalg.solve(np.eye(end.size) - self.missing, end - self.pushed)
        return np.asarray(end - minimiser)


def pass_law(hessian: Array, noise: Array, pushes: Array, *, mu: float, average: bool) -> PassLaw:
    """The law of `descend`, to first order around a minimiser inside the ball.

    The error moves by e <- (1 - H / (mu (k + 50))) e + noise / (mu (k + 50)). So in H's own axes
    the last iterate misses the product of 1 - h / (mu (k + 50)) over all steps, about
    (50 / (K + 50))^(h / mu), and K times its covariance tends to S_ij / (mu (h_i + h_j - mu)) where
    every h is above mu / 2. All is summed exactly here, for these steps.

    Args:
        hessian: H, shape (d, d); not finite results where some h / mu is beyond all reason.
        noise: S, covariance of one step's gradient, shape (d, d).
        pushes: of the ball after each step, shape (K, d).
        mu: of the steps.
        average: the mean of the second half of all steps, or the last one.
    """
    h, axes = np.linalg.eigh(hessian)
    lengths = 1 / (mu * (np.arange(1, len(pushes) + 1) + OFFSET))
    with np.errstate(over="ignore", invalid="ignore"):
        start, lasting = _lasting(h, lengths, _tail_length(len(pushes), average))
        moves = lasting * lengths[:, None]
        turned = (axes.T @ noise @ axes) * (moves.T @ moves)
        return PassLaw(
            covariance=axes @ turned @ axes.T,
            missing=(axes * start) @ axes.T,
            pushed=axes @ ((pushes @ axes) * lasting).sum(axis=0),
        )


def _lasting(h: Array, lengths: Array, tail: int) -> tuple[Array, Array]:
    """What a unit of error at the start, (d,), and after each step, (K, d), is in the result."""
    steps = len(lengths)
    effect, lasting = np.zeros(h.size), np.empty((steps, h.size))
    for k in range(steps - 1, -1, -1):
        lasting[k] = effect = effect + 1 / tail if k >= steps - tail else effect
        effect = effect * (1 - h * lengths[k])
    return effect, lasting
