"""What Newton steps know of a Hessian: one near it, and what the steps have told since."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpiw.errors import WeightError

Array = NDArray[np.float64]

_RIGHT, _ROUNDING = 1.5, 1e-10
"""A Hessian that every step found right to such a factor, and corrected, tells how far the minimum
is."""


def factor_of(matrix: Array) -> tuple[Array, bool]:
    """A Cholesky factor, for `cho_solve`; WeightError unless the matrix is positive definite."""
    try:
        factor: tuple[Array, bool] = cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise WeightError("targets: expected a positive definite covariance") from None
    return factor


@dataclass(frozen=True, kw_only=True, eq=False)
class _Told:
    """What a step told.

    Attributes:
        step: shape (d,).
        change: of the gradient, shape (d,), and `along` the step.
        expected: the same by what was known before, and `expected_along`.
    """

    step: Array
    change: Array
    along: float
    expected: Array
    expected_along: float


class Curvature:
    """A Hessian from one near it and what steps have told: BFGS, its inverse in two loops.

    Source: Nocedal & Wright (2006), Numerical Optimization, algorithm 7.4 and formula 6.19.
    """

    def __init__(self, near: Array) -> None:
        self._matrix, self._near = near, factor_of(near)
        self._told: list[_Told] = []

    def renewed(self, near: Array) -> Curvature:
        """With another Hessian near it: what steps told stays true."""
        renewed = Curvature(near)
        for told in self._told:
            renewed.learn(told.step, told.change)
        return renewed

    def learn(self, step: Array, change: Array) -> None:
        """A step, and by what it changed the gradient; what rounding has spoilt tells nothing."""
        along = float(step @ change)
        if along <= _ROUNDING * np.linalg.norm(step) * np.linalg.norm(change):
            return
        expected = self._matrix @ step
        for told in self._told:
            expected += told.change * (float(told.change @ step) / told.along)
            expected -= told.expected * (float(told.expected @ step) / told.expected_along)
        if (expected_along := float(step @ expected)) > 0:
            told = _Told(
                step=step, change=change, along=along,
                expected=expected, expected_along=expected_along,
            )  # fmt: skip
            self._told.append(told)

    @property
    def is_right(self) -> bool:
        """Whether there were steps, and each found what was known before it right to `_RIGHT`."""
        ratios = [told.along / told.expected_along for told in self._told]
        return bool(ratios) and all(1 / _RIGHT < ratio < _RIGHT for ratio in ratios)

    def corrected(self) -> Array:
        """The Hessian that was given, corrected by what steps told: positive definite, (d, d)."""
        matrix = self._matrix.copy()
        for told in self._told:
            matrix += np.outer(told.change / told.along, told.change)
            matrix -= np.outer(told.expected / told.expected_along, told.expected)
        return matrix

    def step(self, gradient: Array) -> Array:
        """Minus the inverse Hessian times a gradient."""
        left, shares = gradient, []
        for told in reversed(self._told):
            shares.append(float(told.step @ left) / told.along)
            left = left - shares[-1] * told.change
        found: Array = cho_solve(self._near, left)
        for told, share in zip(self._told, reversed(shares), strict=True):
            found = found + (share - float(told.change @ found) / told.along) * told.step
        return -found
