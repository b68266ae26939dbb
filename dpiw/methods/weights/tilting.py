"""Exponential tilting: weights of public rows whose feature means come close to noisy ones.

With base rows x_j of weight u_j = 1/M, noisy means m of the features phi and the ridge R, which is
the covariance S of their noise where all features have one credit (`Targets.ridge`), the weights
are w_j = u_j exp(theta.phi_j)/Z, theta the minimiser of

    F(theta) = log sum_j u_j exp(theta.phi_j) - theta.m + (alpha/2) theta'R theta.

It is the dual of min over w of alpha KL(w||u) + (m(w)-m)'R^-1(m(w)-m)/2: strictly convex, and
solvable whatever the noise. alpha, the *credit*, says how many rows' worth of belief the base
deserves. The base is streamed: it is never held as a matrix if it is larger than `_KEEP`.

All of it is post-processing of public numbers. Source: docs/method.md section 14; KLIEP
(Sugiyama et al. 2008), entropy balancing (Hainmueller 2012), calibration (Deville & Sarndal 1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from dpiw.errors import WeightError
from dpiw.methods.weights.curvature import Curvature, factor_of
from dpiw.methods.weights.targets import Targets

Array = NDArray[np.float64]

_BLOCK = 4096
"""Base rows whose features are held at once while streaming."""

_KEEP = 2**27
"""Entries of a feature matrix that is kept between passes: one GiB."""

_GAP = 1e-10
"""Most that F may lie above its minimum, by the certificate of `tilt`, as a share of 1 + |F|."""

_STEPS, _PASSES, _HALVINGS, _FALL = 100, 30, 60, 4.0
_LADDER = _FALL ** np.arange(30.0, -1.0, -1.0)
"""Credits on the way to a small one, as multiples of it."""

_SLOW, _FAR = 0.2, 1.0
"""A step that lowers the decrement to no less than this share of it asks for a new Hessian. And a
decrement that no start near the minimum has."""


class BaseRows:
    """The features of base rows, streamed in blocks; kept whole if they are small.

    Args:
        rows: M, how many rows there are.
        features: of the rows from `start` to `stop`, shape (stop - start, d); asked again at every
            pass, and to give the same numbers each time.
        log_weights: of the rows before they are tilted, shape (M,), of mean one; None: all alike.

    Raises:
        WeightError: there are no rows, or a feature is not finite.
    """

    def __init__(
        self,
        rows: int,
        features: Callable[[int, int], Array],
        *,
        log_weights: Array | None = None,
    ) -> None:
        if rows < 1:
            raise WeightError("weights: expected at least one base row")
        if log_weights is not None and (
            log_weights.shape != (rows,) or not abs(np.exp(log_weights).mean() - 1) < 1e-9
        ):
            raise WeightError("base rows: expected one log weight each, of mean one")
        self.rows, self._features, self._log_weights = rows, features, log_weights
        self.dimension = self._checked(0, 1).shape[1]
        self._kept: Array | None = None
        if rows * self.dimension <= _KEEP:
            self._kept = np.empty((rows, self.dimension))
            for start, stop in self._ranges():
                self._kept[start:stop] = self._checked(start, stop)

    @classmethod
    def of(cls, matrix: Array) -> BaseRows:
        """Rows whose features are at hand, shape (M, d)."""
        return cls(len(matrix), lambda start, stop: matrix[start:stop])

    def _ranges(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.rows, _BLOCK):
            yield start, min(start + _BLOCK, self.rows)

    def _checked(self, start: int, stop: int) -> Array:
        features = np.asarray(self._features(start, stop), dtype=np.float64)
        if features.ndim != 2 or len(features) != stop - start or not np.isfinite(features).all():
            raise WeightError("base rows: expected finite features, one row each")
        return features

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Where a block stands, and its features."""
        for start, stop in self._ranges():
            block = None if self._kept is None else self._kept[start:stop]
            yield slice(start, stop), self._checked(start, stop) if block is None else block

    def tilted(self, theta: Array) -> tuple[Array, float, Array]:
        """Weights in proportion to u_j exp(theta.phi_j), u_j the rows' own, in one pass.

        Returns:
            Log weights, whose exponentials sum to one, shape (M,); the log of the sum they were
            divided by; the weighted means of the features, shape (d,).
        """
        scores, means = np.empty(self.rows), np.zeros(self.dimension)
        top, mass = -math.inf, 0.0
        for at, block in self.blocks():
            block_scores = block @ theta
            if self._log_weights is not None:
                block_scores = block_scores + self._log_weights[at]
            scores[at] = block_scores
            fresh = max(top, float(block_scores.max()))
            masses, rescaling = np.exp(block_scores - fresh), math.exp(top - fresh)
            mass, means = rescaling * mass + float(masses.sum()), rescaling * means + masses @ block
            top = fresh
        # The largest score goes first: beside huge ones the sum's logarithm would be rounded away.
        return (scores - top) - math.log(mass), top + math.log(mass), means / mass

    @cached_property
    def even(self) -> tuple[Array, Array]:
        """Means, shape (d,), and covariance, (d, d), of the features of rows of equal weight."""
        weights = np.full(self.rows, 1 / self.rows)
        means = self.means(weights)
        return means, self.covariance(weights, means)

    def means(self, weights: Array) -> Array:
        """Weighted means of the features, shape (d,); `weights`, shape (M,), sum to one."""
        return np.asarray(sum(weights[at] @ block for at, block in self.blocks()))

    def covariance(self, weights: Array, means: Array) -> Array:
        """Weighted covariance of the features, shape (d, d)."""
        total = np.zeros((self.dimension, self.dimension))
        for at, block in self.blocks():
            scaled = (block - means) * np.sqrt(weights[at])[:, None]
            total += scaled.T @ scaled
        return total

    def covariance_at(self, point: _Point) -> Array:
        """Covariance of the features under a tilting, shape (d, d)."""
        if self._log_weights is None and not point.theta.any():
            return self.even[1]
        return self.covariance(np.exp(point.log_weights), point.means)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tilt:
    """A solved tilting.

    Attributes:
        coefficients: theta, shape (d,).
        log_weights: of the base rows, shape (M,), natural log; the weights sum to one.
        means: of the features under the weights, shape (d,).
        covariance: C of the features under the weights, shape (d, d).
        credit: alpha.
        gap: certified bound on F(theta) - min F.
        steps: Newton steps taken.
    """

    coefficients: Array = field(repr=False)
    log_weights: Array = field(repr=False)
    means: Array = field(repr=False)
    covariance: Array = field(repr=False)
    credit: float
    gap: float
    steps: int

    @property
    def weights(self) -> Array:
        """Of the base rows, shape (M,), summing to one."""
        return np.asarray(np.exp(self.log_weights))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Point:
    """F's exponential part at a theta."""

    theta: Array
    log_weights: Array
    log_mass: float
    means: Array

    @classmethod
    def at(cls, base: BaseRows, theta: Array) -> _Point:
        logs, log_sum, means = base.tilted(theta)
        mass = log_sum - math.log(base.rows)
        return cls(theta=theta, log_weights=logs, log_mass=mass, means=means)


def tilt(base: BaseRows, targets: Targets, *, credit: float) -> Tilt:
    """Minimise F by Newton steps with a line search, to a certified gap.

    F is alpha R-strongly convex, so F(theta) - min F <= g'(alpha R)^-1 g / 2 with g the gradient:
    the certificate needs no trust in the steps. Where the targets lie outside of all that weights
    can reach, and the credit is small, the steps are many; then the credit is lowered to its value
    by and by, each solution the start of the next.

    Args:
        base: the rows to weight.
        targets: what their weighted means should come close to.
        credit: alpha > 0.

    Raises:
        WeightError: shapes do not fit, alpha is not positive and finite, or the minimum was not
            reached.
    """
    if base.dimension != targets.means.size or not (math.isfinite(credit) and credit > 0):
        raise WeightError("tilting: expected base rows of the targets' features, and a credit > 0")
    theta = np.zeros(base.dimension)
    solution = reached(base, targets, credit, theta)
    if solution is not None:
        return solution
    for higher in credit * _LADDER:
        for guess in (theta, _FALL * theta):  # theta stays, or grows as 1/alpha: beyond reach
            solution = reached(base, targets, higher, guess)
            if solution is not None:
                theta = solution.coefficients
                break
    if solution is None:
        raise WeightError("tilting: the minimum was not reached")
    return solution


def reached(
    base: BaseRows, targets: Targets, credit: float, start: Array,
    *, covariance: Array | None = None, renewed: Callable[[], Array] | None = None,
    gap: float = 0.0) -> Tilt | None:  # fmt: skip
    """The minimum from a start, or None; one Hessian is kept for as long as steps lead on fast.

    Args:
        base: the rows to weight.
        targets: what their weighted means should come close to.
        credit: alpha > 0.
        start: theta, shape (d,).
        covariance: near that of many rows, shape (d, d): the answer's, if steps find it right.
        renewed: a better one, asked once, when that one leads on slowly.
        gap: small enough if larger than `_GAP`.
    """
    ridge, noise_factor = credit * targets.ridge, factor_of(targets.ridge)
    point, decrement = _Point.at(base, start), math.inf
    curvature = None if covariance is None else Curvature(covariance + ridge)
    gradient = point.means - targets.means + ridge @ point.theta
    for steps in range(_STEPS if covariance is None else _PASSES):
        remaining_gap = float(gradient @ cho_solve(noise_factor, gradient)) / (2 * credit)
        if remaining_gap <= max(gap, _GAP * (1 + abs(_objective(point, targets, ridge)))):
            return Tilt(
                coefficients=point.theta, log_weights=point.log_weights, means=point.means,
                covariance=covariance if covariance is not None and curvature and curvature.is_near
                else base.covariance_at(point),
                credit=credit, gap=remaining_gap, steps=steps,
            )  # fmt: skip
        if curvature is None:
            try:
                curvature = Curvature(base.covariance_at(point) + ridge)
            except WeightError:  # a credit so small that the features' own rounding outweighs it
                return None
        step = curvature.step(gradient)
        fallen, decrement = decrement, float(-gradient @ step)
        is_far = covariance is not None and decrement > _FAR
        if renewed is not None and not is_far and decrement > _SLOW * fallen:
            covariance, renewed, decrement = renewed(), None, fallen
            curvature = curvature.renewed(covariance + ridge)
            continue
        if is_far or not (moved := _line_search(base, point, step, decrement, targets, ridge)):
            return None
        moved_gradient = moved.means - targets.means + ridge @ moved.theta
        is_full = np.array_equal(moved.theta, point.theta + step)
        curvature.learn(moved.theta - point.theta, moved_gradient - gradient)
        if covariance is None and (decrement > _SLOW * fallen or not is_full):
            curvature = None  # the next step has a Hessian of its own
        point, gradient = moved, moved_gradient
    return None


def _line_search(
    base: BaseRows, point: _Point, step: Array, decrement: float, targets: Targets, ridge: Array
) -> _Point | None:
    """The next point on the way, or None if no step lowers the objective."""
    start = _objective(point, targets, ridge)
    length = 1.0
    for _ in range(_HALVINGS):
        trial = _Point.at(base, point.theta + length * step)
        fall = start - _objective(trial, targets, ridge)
        if fall >= 1e-4 * length * decrement or decrement * length < 1e-14 * (1 + abs(start)):
            return trial
        length /= 2
    return None


def _objective(point: _Point, targets: Targets, ridge: Array) -> float:
    theta = point.theta
    return point.log_mass - float(theta @ targets.means) + float(theta @ ridge @ theta) / 2
