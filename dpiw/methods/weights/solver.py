"""The ridge logistic regression of docs/method.md section 3, solved to a certified gradient.

    J(b) = sum_private softplus(-b.x) + s0 sum_synthetic softplus(b.x) + (Lam/2) norm(b)^2

J is Lam-strongly convex, so norm(grad J(b)) <= g means that b is within g/Lam of the minimiser.
That distance is part of the sensitivity, which is why the solver certifies it instead of trusting
a stopping rule: at scikit-learn's default lbfgs tolerance the error exceeds the sensitivity itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError

Vector = NDArray[np.float64]

GRADIENT_TOLERANCE = 1e-6
"""The certificate: norm(grad J) <= GRADIENT_TOLERANCE * R, R the public row norm bound."""

_CHUNK_ROWS = 8192
_MAX_STEPS = 500
_MAX_HALVINGS = 60


def sigmoid(t: Vector) -> Vector:
    """1/(1+exp(-t)) without overflow for either sign."""
    tail = np.exp(-np.abs(t))
    return np.where(t >= 0, 1.0, tail) / (1.0 + tail)


@dataclass(frozen=True, kw_only=True)
class Regression:
    """One regression problem. Holds confidential rows: lives only inside `measure`.

    Attributes:
        private: feature rows of the private table, shape (N_D, d'); may have no row.
        synthetic: feature rows of the synthetic table, shape (N_G, d').
        synthetic_weight: s0 > 0, weight of each synthetic row.
        penalty: Lam > 0.
        centre: public point the penalty pulls to, shape (d',); None for the origin. It changes
            neither convexity nor any row's gradient, so no sensitivity.
    """

    private: Vector = field(repr=False)
    synthetic: Vector = field(repr=False)
    synthetic_weight: float
    penalty: float
    centre: Vector | None = None

    def gradient(self, b: Vector) -> Vector:
        """Gradient of J at `b`, shape (d',)."""
        total = self.penalty * (b if self.centre is None else b - self.centre)
        total = total - self.private.T @ sigmoid(-(self.private @ b))
        pull = self.synthetic_weight * sigmoid(self.synthetic @ b)
        return np.asarray(total + self.synthetic.T @ pull)

    def hessian(self, b: Vector) -> Vector:
        """Hessian of J at `b`, shape (d', d'); needs memory for one chunk of rows beside it."""
        total = self.penalty * np.eye(b.size)
        for rows, weight in ((self.private, 1.0), (self.synthetic, self.synthetic_weight)):
            for start in range(0, len(rows), _CHUNK_ROWS):
                chunk = rows[start : start + _CHUNK_ROWS]
                share = sigmoid(chunk @ b)
                root = chunk * np.sqrt(weight * share * (1.0 - share))[:, None]
                total += root.T @ root
        return total


def _factor(matrix: Vector) -> Callable[[Vector], Vector]:
    from scipy.linalg import cho_factor, cho_solve  # heavy: only a curator's stage needs it

    factor = cho_factor(matrix, lower=True, check_finite=False)
    return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))


def solve(problem: Regression, *, tolerance: float) -> Vector:
    """Return b with norm(grad J(b)) <= `tolerance`.

    Newton's method on grad J = 0, damped by halving until the gradient's norm falls. J has
    Lam I <= hessian <= const I, so the norm falls along every exact Newton direction and the
    iteration reaches any tolerance above rounding error. A factored Hessian is kept for as long as
    one full step with it still cuts the gradient tenfold: with many features the Hessian is most
    of the work.

    Args:
        problem: the regression.
        tolerance: bound on the Euclidean norm of the gradient of the sum objective.

    Returns:
        Coefficients, shape (d',).

    Raises:
        WeightError: the certificate was not reached. The message is the same for every table.

    Privacy:
        Releases nothing: the result is exact and stays in the confidential stage. Two
        neighbouring tables' results differ by at most Delta2 + 2 tolerance/Lam (docs/method.md
        section 3, "Solver"). Number of steps and final gradient depend on the data: never
        report them.
    """
    b = np.zeros(problem.synthetic.shape[1])
    gradient = problem.gradient(b)
    norm = math.sqrt(gradient @ gradient)
    inverse: Callable[[Vector], Vector] | None = None
    for _ in range(_MAX_STEPS):
        if norm <= tolerance:
            return b
        fresh = inverse is None
        if inverse is None:
            inverse = _factor(problem.hessian(b))
        moved, gradient_moved, norm_moved = _step(problem, b, -inverse(gradient), norm, fresh=fresh)
        if norm_moved > 0.1 * norm:
            inverse = None
        if norm_moved < norm:
            b, gradient, norm = moved, gradient_moved, norm_moved
        elif fresh:
            break
    if norm <= tolerance:
        return b
    raise WeightError("weights: the regression did not reach its certified gradient")


def _step(
    problem: Regression, b: Vector, direction: Vector, norm: float, *, fresh: bool
) -> tuple[Vector, Vector, float]:
    # A kept Hessian gets one full step and no damping: if that fails, it is renewed.
    length = 1.0
    for _ in range(_MAX_HALVINGS if fresh else 1):
        moved = b + length * direction
        gradient = problem.gradient(moved)
        norm_moved = math.sqrt(gradient @ gradient)
        if norm_moved <= (1.0 - 0.1 * length) * norm:
            break
        length /= 2
    return moved, gradient, norm_moved
