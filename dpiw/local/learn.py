"""Learning a linear classifier from local reports by unbiased gradients (IWP-SGD).

A loss of the margin t = y x'b needs an unbiased estimate when x is told with Gaussian noise. For
noise of variance s^2 in t, W f(t) = E f(t + s Z); the inverse is the sum over k of
(-s^2 / 2)^k / k! times the 2k-th derivative. It exists for entire functions alone: the
exponential and polynomials have it in closed form, and the logistic loss has none (Stefanski 1989).

Source: docs/method.md section 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import Protocol

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.polynomial import polyder, polyval
from numpy.typing import NDArray

from dpiw.errors import ReleaseError, one_of
from dpiw.local.estimate import (
    INTERCEPT,
    LocalEstimate,
    LocalSample,
    bias_objection,
    curvature_objection,
    edge_objection,
)
from dpiw.local.parameters import USABLE, LocalParameters

Array = NDArray[np.float64]


class Loss(Protocol):
    """A convex loss of the margin, and its unbiased estimate from a noised one."""

    @property
    def name(self) -> str:
        """As people say it."""
        ...

    @property
    def usable(self) -> float:
        """Largest noise in the margin, s, at which the variance is still bearable."""
        ...

    @property
    def reach(self) -> float:
        """Largest |t| of a record before the noise for which it is the loss it is named after."""
        ...

    def clean(self, t: Array) -> Array:
        """The loss itself."""
        ...

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """The unbiased estimate from t + s Z, or its derivative by t.

        Args:
            t: told margins.
            noise: s^2.
            order: of the derivative.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """exp(-t), estimated by exp(-t - s^2/2), whose variance is exp(s^2) times the clean square."""

    name: str = "exponential"
    usable: float = USABLE
    reach: float = math.inf

    def clean(self, t: Array) -> Array:
        """See `Loss`."""
        return np.asarray(np.exp(-t))

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """See `Loss`; one exponent, so that neither factor overflows alone."""
        return np.asarray((-1) ** order * np.exp(-t - noise / 2))


@dataclass(frozen=True, kw_only=True)
class PolynomialLoss:
    """A polynomial in t, estimated by Hermite polynomials: s^m He_m(t / s) for t^m.

    Attributes:
        coefficients: of t^0, t^1, ...
        error: largest distance from the loss it is named after, for |t| <= `reach`; 0: it is it.
    """

    coefficients: tuple[float, ...]
    name: str
    usable: float = USABLE
    reach: float = math.inf
    error: float = 0.0

    def clean(self, t: Array) -> Array:
        """See `Loss`."""
        return np.asarray(polyval(t, self.coefficients))

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """See `Loss`."""
        terms, degrees = self._terms
        coefficients = (-noise / 2) ** degrees @ terms
        for _ in range(order):
            coefficients = np.append(coefficients[1:] * np.arange(1, coefficients.size), 0.0)
        return np.asarray(polyval(t, coefficients))

    @cached_property
    def _terms(self) -> tuple[Array, Array]:
        """Coefficients of the 2k-th derivative over k!, shape (k, degree + 1), and the ks."""
        degree = len(self.coefficients) - 1
        rows = [polyder(self.coefficients, 2 * k) / factorial(k) for k in range(degree // 2 + 1)]
        padded = [np.pad(row, (0, degree + 1 - row.size)) for row in rows]
        return np.array(padded), np.arange(degree // 2 + 1.0)


EXPONENTIAL = Exponential()
SQUARED = PolynomialLoss(coefficients=(0.5, -1.0, 0.5), name="squared", usable=math.inf)
"""(1 - t)^2 / 2: least squares for labels of -1 and 1. Its variance grows slowly with s."""

LOSSES: dict[str, Loss] = {"exponential": EXPONENTIAL, "squared": SQUARED}

NO_LOGISTIC = (
    "no estimate of the logistic loss from features with Gaussian noise is unbiased, as it is not"
    " entire; logistic_surrogate(reach) is a polynomial that states its distance from it"
)


def loss_named(loss: str | Loss) -> Loss:
    """A loss by its name, or the loss itself.

    Raises:
        ReleaseError: no such loss, or one that has no unbiased estimate.
    """
    if not isinstance(loss, str):
        return loss
    if loss == "logistic":
        raise ReleaseError(f"loss logistic: {NO_LOGISTIC}")
    if loss not in LOSSES:
        raise ReleaseError(f"loss: {one_of(loss, LOSSES)}")
    return LOSSES[loss]


def logistic_surrogate(reach: float, *, degree: int = 6) -> PolynomialLoss:
    """A polynomial near log(1 + exp(-t)) for |t| <= reach: interpolated at Chebyshev's points.

    What is learnt with it is unbiased for the polynomial; its `error` bounds how far that is from
    the logistic loss of records before the noise.

    Args:
        reach: radius of the ball of records times the norm of the parameters, > 0, at most 20.
        degree: even, from 2 to 20; a higher one is nearer, and noisier.

    Raises:
        ReleaseError: reach or degree is out of range.
    """
    if not 0 < reach <= 20 or degree not in range(2, 21, 2):
        raise ReleaseError("logistic_surrogate: expected reach in (0, 20], an even degree to 20")

    def logistic(t: Array) -> Array:
        return np.asarray(np.logaddexp(0.0, -t))

    near = Chebyshev.interpolate(logistic, degree, domain=[-reach, reach])
    polynomial = near.convert(domain=[-1, 1], kind=Polynomial, window=[-1, 1])
    grid = np.linspace(-reach, reach, 20_001)
    # Where the difference is largest its slope is 0, or an end of the grid. So half a step of the
    # grid from there it is less by at most step^2 / 8 times its second derivative: 1/4 for the loss
    # and, of the polynomial, the sum of its Chebyshev coefficients.
    curve = 0.25 + float(np.abs(near.deriv(2).coef).sum())
    error = (
        float(np.abs(polynomial(grid) - logistic(grid)).max())
        + (grid[1] - grid[0]) ** 2 / 8 * curve
    )
    return PolynomialLoss(
        coefficients=tuple(float(coefficient) for coefficient in polynomial.coef),
        name=f"logistic within {error:.2g}", reach=reach, error=error,
    )  # fmt: skip


Array = NDArray[np.float64]

OFFSET = 50
"""k0 of the step 1 / (mu (k + k0)): the first steps are not too long."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectedRisk:
    """The unbiased estimate of a risk, row by row.

    Attributes:
        matrix: told design, shape (n, d).
        indicator: unbiased indicator of y = +1, shape (n,); 1 minus it is that of -1.
        variances: of the noise in each column of the design, shape (d,); 0: told as it is.
        loss: of the margin.
    """

    matrix: Array
    indicator: Array
    variances: Array
    loss: Loss

    def values(self, theta: Array, rows: slice | NDArray[np.int64] = slice(None)) -> Array:
        """Loss of each row, shape (rows,)."""
        plus, minus = self._both(theta, rows, 0)
        c = self.indicator[rows]
        return np.asarray(c * plus + (1 - c) * minus)

    def gradients(self, theta: Array, rows: slice | NDArray[np.int64] = slice(None)) -> Array:
        """Gradient of each row's loss, shape (rows, d): phi'(t) y x - phi''(t) S theta."""
        w, c = self.matrix[rows], self.indicator[rows]
        plus, minus = self._both(theta, rows, 1)
        second_plus, second_minus = self._both(theta, rows, 2)
        slope, curve = c * plus - (1 - c) * minus, c * second_plus + (1 - c) * second_minus
        return np.asarray(slope[:, None] * w - np.outer(curve, self.variances * theta))

    def hessian(self, theta: Array) -> Array:
        """Mean second derivative, shape (d, d)."""
        w, c, n = self.matrix, self.indicator, len(self.matrix)
        pull = self.variances * theta
        (p2, m2), (p3, m3), (p4, m4) = (self._both(theta, slice(None), k) for k in (2, 3, 4))
        second, fourth = c * p2 + (1 - c) * m2, c * p4 + (1 - c) * m4
        third = w.T @ (c * p3 - (1 - c) * m3) / n
        hessian = (w * second[:, None]).T @ w / n - np.diag(self.variances) * second.mean()
        hessian += np.outer(pull, pull) * fourth.mean()
        return np.asarray(hessian - np.outer(third, pull) - np.outer(pull, third))

    def _both(
        self, theta: Array, rows: slice | NDArray[np.int64], order: int
    ) -> tuple[Array, Array]:
        t, noise = self.matrix[rows] @ theta, float(self.variances @ theta**2)
        return self.loss.corrected(t, noise, order), self.loss.corrected(-t, noise, order)


@dataclass(frozen=True, kw_only=True)
class Feasibility:
    """Whether parameters of some norm can be learnt from so many reports.

    Attributes:
        noise: standard deviation of the noise in a margin at the ball's edge, sigma times norm.
        inflation: what that does to the variance of the exponential loss, exp(noise^2).
        standard_error: of a gradient there, averaged over all reports; a step that matters is
            larger than this.
        usable: whether a fit is admitted.
        reason: why, or why not.
    """

    noise: float
    inflation: float
    standard_error: float
    usable: bool
    reason: str


def feasibility(
    parameters: LocalParameters, *, norm: float, rows: int, loss: str | Loss = "exponential"
) -> Feasibility:
    """What can be expected before a fit: public numbers alone.

    Args:
        parameters: of the collection.
        norm: of the ball in which parameters are sought, for features in [-1, 1].
        rows: number of reports.
        loss: a loss or its name; `logistic` is answered, too.

    Raises:
        ReleaseError: a norm or number of rows that is none, or no such loss.
    """
    if not (0 < norm < math.inf and rows > 0):
        raise ReleaseError("feasibility: expected a finite norm > 0 and rows > 0")
    noise = parameters.stddev * norm
    response = parameters.response
    answer = 1.0 if response is None else 1 / (response.keep - response.exchange)
    square = parameters.radius**2 + parameters.dimension * parameters.stddev**2
    inflation = math.exp(min(noise**2, 700.0))
    error = answer * math.sqrt(square * inflation / rows)
    if loss == "logistic":
        usable, reason = False, NO_LOGISTIC
    else:
        most = loss_named(loss).usable
        usable = noise <= most * (1 + 1e-9)
        reason = f"noise times norm is {noise:.3g}, and at most {most:.3g} can be borne"
        if not usable:
            reason += f": a ball of norm {most / parameters.stddev:.3g}, or a larger epsilon"
    return Feasibility(
        noise=noise, inflation=inflation, standard_error=error, usable=usable, reason=reason
    )


def fit_margin(
    sample: LocalSample,
    level: str,
    features: Sequence[str] | None = None,
    *,
    loss: str | Loss = "exponential",
    norm: float,
    penalty: float,
    rng: np.random.Generator,
    curvature: float | None = None,
) -> LocalEstimate:
    """Learn a linear classifier by IWP-SGD: minimise E loss(y w.b) + penalty |b|^2 / 2.

    y is +1 where the label is `level`, else -1; w is an intercept and the features in [-1, 1]. One
    pass in random order over disjoint batches, step 1 / (mu (k + 50)), projected onto the ball.

    Args:
        sample: reports.
        level: of the label.
        features: None: all.
        loss: `exponential`, `squared`, or a `Loss` such as `logistic_surrogate(reach)`.
        norm: radius of the public ball of parameters.
        penalty: >= 0.
        rng: orders the reports.
        curvature: mu, a public lower bound of the risk's curvature, penalty included; None: the
            penalty.

    Returns:
        Coefficients. Covariance: of this very recursion, from the Hessian H and the gradients'
        covariance S at the end; it tends to H^-1 S H^-1 / n where mu is the curvature. Verdict:
        `do not use`, without an interval, at the ball's edge, where H is not above mu / 2, or where
        what is missing of the way from the start, and what the ball did on it, is above half a
        standard error of some coefficient; above a quarter, `use with care`.

    Raises:
        ReleaseError: no such level, feature or loss; a setting out of range; parameters that
            cannot be learnt under this noise (`feasibility`); a surrogate that reaches too short;
            under 2 * 50 batches.
    """
    chosen, places = loss_named(loss), sample.chosen(features)
    assessment = feasibility(sample.parameters, norm=norm, rows=max(len(sample), 1), loss=chosen)
    if not assessment.usable:
        raise ReleaseError(f"norm: {assessment.reason}")
    mu = penalty if curvature is None else curvature
    if not (0 <= penalty < math.inf and 0 < mu < math.inf):
        raise ReleaseError("penalty: expected >= 0, and curvature > 0 where the penalty is 0")
    if _farthest(sample.parameters, places) * norm > chosen.reach * (1 + 1e-9):
        raise ReleaseError("loss: the surrogate must reach norm times the longest record")
    if len(sample) < 2 * OFFSET:
        raise ReleaseError(f"reports: expected at least {2 * OFFSET} for one pass")
    risk = CorrectedRisk(
        matrix=np.column_stack([np.ones(len(sample)), sample.features[:, places]]),
        indicator=sample.indicator(level),
        variances=np.array([0.0, *sample.parameters.variances[places]]),
        loss=chosen,
    )
    descent = descend(
        lambda theta, rows: risk.gradients(theta, rows).mean(axis=0) + penalty * theta,
        rng.permutation(len(sample)), dimension=1 + len(places), norm=norm, mu=mu,
    )  # fmt: skip
    values, names = descent.end, (INTERCEPT, *(sample.names[place] for place in places))
    hessian = risk.hessian(values) + penalty * np.eye(values.size)
    objections = edge_objection(values, norm) + curvature_objection(hessian, mu)
    covariance = np.full_like(hessian, np.nan)
    if not objections:  # the law is of the inside of the ball, and of steps that forget
        law = _law(risk, descent, hessian, mu=mu)
        covariance, objections = law.covariance, bias_objection(law.bias(values), law.covariance)
    return LocalEstimate.judged(names, values, covariance, objections)


def _law(risk: CorrectedRisk, descent: Descent, hessian: Array, *, mu: float) -> PassLaw:
    """Of this pass over all reports of the risk."""
    spread = np.atleast_2d(np.cov(risk.gradients(descent.end), rowvar=False))
    noise = spread * len(descent.pushes) / len(risk.matrix)
    return pass_law(hessian, noise, descent.pushes, mu=mu)


def _farthest(parameters: LocalParameters, places: Sequence[int]) -> float:
    """Longest design row before the noise: intercept, ball, and features told as they are."""
    private = parameters.private[list(places)]
    ball = min(parameters.radius**2, float(private.sum()))
    return math.sqrt(1 + ball + float((~private).sum()))


# --- one pass, and the law of where it ends ------------------------------------------------------


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
) -> Descent:
    """One pass from zero over disjoint batches, projected onto the ball after each step.

    Args:
        gradient: of the risk at given parameters, shape (dimension,), from the reports at given
            places; unbiased.
        order: places of the reports, each once, shape (n,).
        dimension: of the parameters.
        norm: radius of the ball.
        mu: of the steps 1 / (mu (k + 50)).
    """
    theta = np.zeros(dimension)
    batches = np.array_split(order, batch_count(len(order)))
    pushes = np.zeros((len(batches), dimension))
    for k, rows in enumerate(batches, start=1):
        theta = theta - gradient(theta, rows) / (mu * (k + OFFSET))
        length = float(np.linalg.norm(theta))
        if length > norm:
            pushes[k - 1] = theta * (norm / length - 1)
            theta = theta * (norm / length)
    return Descent(end=theta, pushes=pushes)


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


def pass_law(hessian: Array, noise: Array, pushes: Array, *, mu: float) -> PassLaw:
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
    """
    h, axes = np.linalg.eigh(hessian)
    lengths = 1 / (mu * (np.arange(1, len(pushes) + 1) + OFFSET))
    with np.errstate(over="ignore", invalid="ignore"):
        left = np.cumprod(1 - np.outer(lengths, h)[::-1], axis=0)[
            ::-1
        ]  # of an error before each step
        lasting = np.vstack([left[1:], np.ones(h.size)])
        moves = lasting * lengths[:, None]
        turned = (axes.T @ noise @ axes) * (moves.T @ moves)
        return PassLaw(
            covariance=axes @ turned @ axes.T,
            missing=(axes * left[0]) @ axes.T,
            pushed=axes @ ((pushes @ axes) * lasting).sum(axis=0),
        )
