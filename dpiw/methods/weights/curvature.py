"""What Newton steps know of a Hessian: one near it, and what the steps have told since."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpiw.errors import WeightError

Array = NDArray[np.float64]

_NEAR, _ROUNDING = 1.25, 1e-10
"""The noise of log weights was within 2% then, root mean square (docs/method.md section 14)."""


def factor_of(matrix: Array) -> tuple[Array, bool]:
    """A Cholesky factor, for `cho_solve`; WeightError unless the matrix is positive definite."""
    try:
        factor: tuple[Array, bool] = cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise WeightError("targets: expected a positive definite covariance") from None
    return factor


class Curvature:
    """A Hessian from one near it and what steps have told: BFGS, its inverse in two loops.

    Source: Nocedal & Wright (2006), Numerical Optimization, algorithm 7.4 and formula 6.19.
    """

    def __init__(self, near: Array, told: Sequence[tuple[Array, Array, float]] = ()) -> None:
        self._matrix, self._near = near, factor_of(near)
        self._told = list(told)

    def renewed(self, near: Array) -> Curvature:
        """With another Hessian near it: what steps told stays true."""
        return Curvature(near, self._told)

    def learn(self, step: Array, change: Array) -> None:
        """A step, and by what it changed the gradient; what rounding has spoilt tells nothing."""
        along = float(step @ change)
        if along > _ROUNDING * np.linalg.norm(step) * np.linalg.norm(change):
            self._told.append((step, change, along))

    def corrected(self) -> tuple[Array, bool]:
        """The Hessian that was given, corrected by what steps told: positive definite, (d, d).

        And whether there were steps, and each found what was known before it right to `_NEAR`.
        """
        matrix, ratios = self._matrix, list[float]()
        for step, change, along in self._told:
            expected = matrix @ step
            expected_along = float(step @ expected)
            ratios.append(along / expected_along)
            matrix = matrix + (
                np.outer(change, change) / along - np.outer(expected, expected) / expected_along
            )
        return matrix, bool(ratios) and all(1 / _NEAR < ratio < _NEAR for ratio in ratios)

    def step(self, gradient: Array) -> Array:
        """Minus the inverse Hessian times a gradient."""
        left, shares = gradient, []
        for step, change, along in reversed(self._told):
            shares.append(float(step @ left) / along)
            left = left - shares[-1] * change
        found: Array = cho_solve(self._near, left)
        for (step, change, along), share in zip(self._told, reversed(shares), strict=True):
            found = found + (share - float(change @ found) / along) * step
        return -found
