"""Steps over all rows of a base that are found over some of them: one pass over all for each.

At a theta, the means over some rows are not those over all. With targets moved by the difference, F
over some rows has at theta the gradient of F over all, and nearly its Hessian. Its minimum is where
the next pass over all is made, and costs passes over some. Source: Shamir, Srebro & Zhang (2014),
Communication-efficient distributed optimization using an approximate Newton-type method (DANE).
"""

from __future__ import annotations

import math
from dataclasses import replace

from scipy.linalg import cho_solve

from dpiw.methods.weights.base_rows import BaseRows
from dpiw.methods.weights.curvature import Curvature, factor_of
from dpiw.methods.weights.targets import Targets
from dpiw.methods.weights.tilting import SLOW, Point, Tilt, reached

_STEPS = 4
"""Most, a pass over all rows each. From the minimum over a million one or two are enough."""

_FINER = 0.1
"""Gap that is left over some rows, as a share of that over all."""


def led(
    some: BaseRows, solved: Tilt, base: BaseRows, targets: Targets, *, gap: float
) -> Tilt | None:
    """The minimum over all rows; None if steps lead on slowly, or nowhere.

    Args:
        some: rows that stand for all.
        solved: their tilting, to near the minimum, with a covariance near its own.
        base: all rows.
        targets: what the weighted means of all should come close to.
        gap: small enough, as of `reached`.

    Returns:
        With the covariance that was given, corrected by what steps over all told.

    Raises:
        WeightError: a covariance that rounding has made indefinite.
    """
    ridge = solved.credit * targets.ridge
    ridge_factor = factor_of(ridge)
    curvature, decrement, before = Curvature(solved.covariance + ridge), math.inf, None
    for steps in range(_STEPS + 1):
        point = Point.at(base, solved.coefficients)
        gradient = point.gradient(targets, ridge)
        if before is not None:
            curvature.learn(point.theta - before[0], gradient - before[1])
        fallen, decrement = decrement, float(-gradient @ curvature.step(gradient))
        bound = float(gradient @ cho_solve(ridge_factor, gradient)) / 2
        if bound <= gap or (curvature.is_right and 0 <= decrement / 2 < gap):
            covariance = curvature.corrected() - ridge
            return point.solved(solved.credit, covariance, gap=bound, steps=steps)
        if steps == _STEPS or not decrement < SLOW * fallen:
            break
        before = point.theta, gradient
        moved_targets = replace(targets, means=targets.means + solved.means - point.means)
        moved = reached(
            some, moved_targets, solved.credit, Point.of(solved),
            covariance=solved.covariance, gap=_FINER * gap, is_guide=True,
        )  # fmt: skip
        if moved is None:
            break
        solved = moved
    return None
