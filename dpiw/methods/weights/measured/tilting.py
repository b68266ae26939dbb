"""Exponential tilting: weights of public rows whose feature means come close to noisy ones.

Minimises F(theta) = log sum_j u_j exp(theta.phi_j) - theta.m + (alpha/2) theta'R theta. Source:
docs/method.md section 14; Sugiyama et al. (2008), Hainmueller (2012), Deville & Sarndal (1992).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.targets import Targets, factor_of

Array = NDArray[np.float64]

_ROUNDING = 1e-10
"""Rounding of steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Told:
    """A step and its change of the gradient, (d,); `expected`: by the Hessian before it."""

    step: Array
    change: Array
    along: float
    expected: Array
    expected_along: float


class Curvature:
    """A Hessian corrected by steps: BFGS.

    Source: Nocedal & Wright (2006), Numerical Optimization, algorithm 7.4 and formula 6.19.
    """

    def __init__(self, near: Array) -> None:
        self._matrix, self._near = near, factor_of(near)
        self._told: list[_Told] = []

    def learn(self, step: Array, change: Array) -> None:
        """Add a step and its change of the gradient; ignored where rounding has spoilt it."""
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

    def corrected(self) -> Array:
        """The given Hessian, corrected by the steps: positive definite, (d, d)."""
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


_GAP = 1e-10
"""Largest certified F - min F, as a share of 1 + |F|."""

_STEPS, _TRIALS, _FALL = 100, 60, 4.0
_LADDER = _FALL ** np.arange(30.0, -1.0, -1.0)
"""Credits on the way to a small one, as multiples of it."""

_SLOW, _FAR = 0.2, 1.0
"""Share of its decrement below which a step keeps the Hessian; a decrement far from the minimum."""

UNREACHED = "the minimum was not reached; a larger weights.settings.credit makes it easier"

_SHORTEST, _LONGEST = 0.1, 0.9
"""Bounds of the next length, as shares of one that went too far."""

_RENEWAL, _TRUSTED, _LEAST = 10, 3, 1e-300
"""Cost of a Hessian in passes over its rows; steps that judge it; least decrement, not 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """F's exponential part at some coefficients.

    Attributes:
        theta: shape (d,).
        log_weights: of the base rows, shape (M,), natural log; the weights sum to one.
        log_mass: the log of the mean of exp(theta.phi_j), by the rows' own weights.
        means: of the features under the weights, shape (d,).
    """

    theta: Array = field(repr=False)
    log_weights: Array = field(repr=False)
    log_mass: float
    means: Array = field(repr=False)

    @classmethod
    def at(cls, base: BaseRows, theta: Array) -> Point:
        """In one pass over the base."""
        logs, log_sum, means = base.tilted(theta)
        mass = log_sum - math.log(base.rows)
        return Point(theta=theta, log_weights=logs, log_mass=mass, means=means)

    @property
    def weights(self) -> Array:
        """Of the base rows, shape (M,), summing to one."""
        return np.asarray(np.exp(self.log_weights))

    def gradient(self, targets: Targets, ridge: Array) -> Array:
        """Of F, shape (d,); `ridge` is alpha R."""
        return np.asarray(self.means - targets.means + ridge @ self.theta)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tilt(Point):
    """A solved tilting.

    Attributes:
        covariance: C of the features, (d, d), or near it: positive definite with the ridge alone.
        credit: alpha.
        gap: certified bound on F(theta) - min F.
        distance: `Targets.distance` from the minimum's means; 0 where the gap says all.
    """

    covariance: Array = field(repr=False)
    credit: float
    gap: float
    steps: int
    distance: float = 0.0

    @classmethod
    def of(
        cls, point: Point, covariance: Array,
        *, credit: float, gap: float, steps: int, distance: float = 0.0) -> Tilt:  # fmt: skip
        """A point as the minimum."""
        return cls(
            theta=point.theta, log_weights=point.log_weights, log_mass=point.log_mass,
            means=point.means, covariance=covariance, credit=credit, gap=gap, steps=steps,
            distance=distance,
        )  # fmt: skip


def tilt(base: BaseRows, targets: Targets, *, credit: float) -> Tilt:
    """Minimise F by Newton steps with a line search, to a certified gap, or raise WeightError.

    F(theta) - min F <= g'(alpha R)^-1 g / 2, g the gradient. Small credits are approached
    gradually.
    """
    theta = np.zeros(base.dimension)
    solution = reached(base, targets, credit, theta)
    if solution is not None:
        return solution
    for higher in credit * _LADDER:
        for guess in (theta, _FALL * theta):  # theta stays, or grows as 1/alpha: beyond reach
            solution = reached(base, targets, higher, guess)
            if solution is not None:
                theta = solution.theta
                break
    if solution is None:
        raise WeightError(UNREACHED, field="tilting")
    return solution


def reached(
    base: BaseRows, targets: Targets, credit: float, start: Array | Point,
    *, covariance: Array | None = None) -> Tilt | None:  # fmt: skip
    """The minimum from a start, or None; one Hessian is kept while steps are fast.

    `covariance`, near that of the rows, (d, d), serves first and is returned corrected by the
    steps, as it is if `targets.error` says where steps may end.
    """
    ridge = credit * targets.ridge
    ridge_factor = factor_of(ridge)
    point = start if isinstance(start, Point) else Point.at(base, start)
    is_guess, is_rough = covariance is not None, targets.error is not None
    curvature = None if covariance is None else Curvature(covariance + ridge)
    is_exact = not (is_guess or is_rough)
    decrement, decrements = math.inf, list[float]()
    gradient = point.gradient(targets, ridge)
    for steps in range(_STEPS):
        certified = float(gradient @ cho_solve(ridge_factor, gradient)) / 2
        left = certified / (_GAP * (1 + abs(_objective(point, targets, ridge))))
        left = min(left, targets.distance(gradient))
        if left <= 1:
            if curvature is None or is_exact:
                covariance = _covariance_at(base, point)
            else:
                covariance = curvature.corrected() - ridge
            return Tilt.of(point, covariance, credit=credit, gap=certified, steps=steps)
        if curvature is None:
            try:
                curvature = Curvature(_covariance_at(base, point) + ridge)
            except WeightError:  # a credit so small that the features' own rounding outweighs it
                return None
            decrements = []
        step = curvature.step(gradient)
        fallen, decrement = decrement, float(-gradient @ step)
        decrements.append(decrement)
        if is_guess and decrement > _FAR:
            curvature, is_guess, decrement = None, False, math.inf
            continue
        if not (moved := _line_search(base, point, step, decrement, targets, ridge)):
            return None
        moved_gradient = moved.gradient(targets, ridge)
        is_full = np.array_equal(moved.theta, point.theta + step)
        curvature.learn(moved.theta - point.theta, moved_gradient - gradient)
        if is_rough or is_guess:
            is_slow = _is_slow(decrements, math.log(left))
        else:
            is_slow = decrement > _SLOW * fallen or not is_full
        if is_slow:
            curvature, is_guess = None, False  # the next step has a Hessian of its own
        point, gradient = moved, moved_gradient
    return None


def _is_slow(decrements: list[float], left: float) -> bool:
    """Whether steps by one Hessian, at their latest speed, will cost more than another would.

    `left`: log of the factor by which what ends the steps must still fall.
    """
    if len(decrements) <= _TRUSTED:
        return False
    fall = decrements[-1 - _TRUSTED] / max(decrements[-1], _LEAST)
    return left > _RENEWAL * math.log(max(fall, 1.0)) / _TRUSTED


def _covariance_at(base: BaseRows, point: Point) -> Array:
    if not point.theta.any():
        return base.untilted[1]
    return base.covariance(np.exp(point.log_weights), point.means)


def _line_search(
    base: BaseRows, point: Point, step: Array, decrement: float, targets: Targets, ridge: Array
) -> Point | None:
    """The next point along the step, not far beyond its minimum; None if none lowers F."""
    start = _objective(point, targets, ridge)
    length = 1.0
    for _ in range(_TRIALS):
        trial = Point.at(base, point.theta + length * step)
        fall = start - _objective(trial, targets, ridge)
        slope = float(trial.gradient(targets, ridge) @ step)
        is_lower = fall >= 1e-4 * length * decrement and slope <= decrement / 2
        if is_lower or decrement * length < 1e-14 * (1 + abs(start)):
            return trial
        least = _least_of_cubic(fall / length, decrement, slope)  # no number: then the shortest
        length *= max(_SHORTEST, min(least, _LONGEST))
    return None


def _least_of_cubic(fall: float, decrement: float, slope: float) -> float:
    """Minimum of a cubic on a step of length one. Source: Nocedal & Wright (2006), formula 3.59."""
    bend = slope - decrement + 3 * fall
    root = math.sqrt(max(bend * bend + decrement * slope, 0.0))
    return 1 - (slope + root - bend) / max(slope + decrement + 2 * root, _LEAST)


def _objective(point: Point, targets: Targets, ridge: Array) -> float:
    theta = point.theta
    return point.log_mass - float(theta @ targets.means) + float(theta @ ridge @ theta) / 2
