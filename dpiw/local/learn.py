"""Learning a linear classifier from local reports by unbiased gradients (IWP-SGD).

The logistic loss has no unbiased estimate (Stefanski 1989). The corrected risk is not convex: hence
the ball, and one pass over fresh reports. Source: docs/method.md section 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
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


class Exponential:
    """exp(-t), estimated by exp(-t - s^2/2), whose variance is exp(s^2) times the clean square."""

    name = "exponential"
    usable = USABLE
    """Largest noise s in the margin that a fit accepts."""

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """Return the unbiased estimate from noisy margins, or its derivative; `noise` is s^2.

        One exponent, so that no factor overflows alone.
        """
        return np.asarray((-1) ** order * np.exp(-t - noise / 2))


class Squared:
    """(1 - t)^2 / 2, estimated by that less s^2 / 2; its variance grows slowly with s."""

    name = "squared"
    usable = math.inf

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """Return the unbiased estimate from noisy margins, or its derivative; `noise` is s^2."""
        if order == 0:
            return np.asarray(((1 - t) ** 2 - noise) / 2)
        return np.asarray(t - 1) if order == 1 else np.full_like(t, order == 2)


Loss = Exponential | Squared
"""A convex loss of the margin t, and its unbiased estimate from a noisy margin."""

EXPONENTIAL, SQUARED = Exponential(), Squared()

LOSSES: dict[str, Loss] = {"exponential": EXPONENTIAL, "squared": SQUARED}


def loss_named(loss: str) -> Loss:
    """Return a loss by its name; ReleaseError for others, and for one without unbiased estimate."""
    if loss == "logistic":
        raise ReleaseError(
            "no estimate of it from features with Gaussian noise is unbiased, as it is not entire",
            field="loss logistic",
            allowed=" or ".join(LOSSES),
        )
    if loss not in LOSSES:
        raise ReleaseError(field="loss", allowed=one_of(loss, LOSSES))
    return LOSSES[loss]


OFFSET = 50
"""k0 of the step 1 / (mu (k + k0)): the first steps are not too long."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectedRisk:
    """The unbiased estimate of a risk, row by row.

    Noisy design `matrix`, (n, d); unbiased `indicator` of y = +1, (n,); noise `variances`, (d,).
    """

    matrix: Array
    indicator: Array
    variances: Array
    loss: Loss

    def values(self, theta: Array, rows: slice | NDArray[np.int64] = slice(None)) -> Array:
        """Return the loss of each row, shape (rows,)."""
        return self._derivative(theta, rows, 0)

    def gradients(self, theta: Array, rows: slice | NDArray[np.int64] = slice(None)) -> Array:
        """Return each row's gradient, shape (rows, d): phi'(t) y x - phi''(t) S theta."""
        slope, curve = self._derivative(theta, rows, 1), self._derivative(theta, rows, 2)
        pull = np.outer(curve, self.variances * theta)
        return np.asarray(slope[:, None] * self.matrix[rows] - pull)

    def hessian(self, theta: Array) -> Array:
        """Return the mean second derivative, shape (d, d)."""
        w, n, pull = self.matrix, len(self.matrix), self.variances * theta
        second, third, fourth = (self._derivative(theta, slice(None), k) for k in (2, 3, 4))
        hessian = (w * second[:, None]).T @ w / n - np.diag(self.variances) * second.mean()
        hessian += np.outer(pull, pull) * fourth.mean()
        mixed = np.outer(w.T @ third / n, pull)
        return np.asarray(hessian - mixed - mixed.T)

    def _derivative(self, theta: Array, rows: slice | NDArray[np.int64], order: int) -> Array:
        """Return the derivative of each row's loss by its margin w.theta, shape (rows,)."""
        t, noise = self.matrix[rows] @ theta, float(self.variances @ theta**2)
        plus, minus = self.loss.corrected(t, noise, order), self.loss.corrected(-t, noise, order)
        c = self.indicator[rows]
        return np.asarray(c * plus + (1 - c) * (-1) ** order * minus)


@dataclass(frozen=True, kw_only=True)
class Feasibility:
    """Whether `fit_margin` accepts a model of some norm and so many reports.

    Attributes:
        noise: standard deviation of the noise in a margin at the ball's edge, sigma times norm.
        inflation: of the exponential loss's variance, exp(noise^2).
        standard_error: of the mean gradient there.
    """

    noise: float
    inflation: float
    standard_error: float
    usable: bool
    reason: str


def feasibility(
    parameters: LocalParameters, *, norm: float, rows: int, loss: str = "exponential"
) -> Feasibility:
    """Return what to expect of a fit of `rows` reports, from public numbers alone.

    `norm`: radius of the ball of models, for features in [-1, 1]. Raises ReleaseError for a norm or
    number of rows that is none, or an unknown loss.
    """
    if not (0 < norm < math.inf and rows > 0):
        raise ReleaseError(field="feasibility", allowed="a finite norm > 0 and rows > 0")
    noise = parameters.stddev * norm
    response = parameters.response
    answer = 1.0 if response is None else 1 / (response.keep - response.exchange)
    square = parameters.radius**2 + parameters.dimension * parameters.stddev**2
    inflation = math.exp(min(noise**2, 700.0))
    error = answer * math.sqrt(square * inflation / rows)
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
    loss: str = "exponential",
    norm: float,
    penalty: float,
    rng: np.random.Generator,
    curvature: float | None = None,
) -> LocalEstimate:
    """Learn a linear classifier by IWP-SGD: minimise E loss(y w.b) + penalty |b|^2 / 2.

    y is +1 where the label is `level`, else -1; w is an intercept and the features in [-1, 1].

    Args:
        sample: reports.
        level: of the label.
        features: None: all.
        loss: `exponential` or `squared`.
        norm: radius of the public ball of parameters.
        penalty: >= 0.
        rng: orders the reports.
        curvature: mu, public lower bound of the risk's curvature with penalty; None: the penalty.

    Returns:
        Coefficients, with the covariance of this recursion (`pass_law`). Verdict `do not use`,
        without an interval: at the ball's edge, where the Hessian is not above mu / 2, or where
        start and ball bias a coefficient by over half a standard error; a quarter: `use with care`.

    Raises:
        ReleaseError: no such level, feature or loss; a setting out of range; parameters that
            cannot be learnt under this noise (`feasibility`); under 2 * 50 batches.
    """
    chosen, places = loss_named(loss), sample.chosen(features)
    assessment = feasibility(sample.parameters, norm=norm, rows=max(len(sample), 1), loss=loss)
    if not assessment.usable:
        raise ReleaseError(assessment.reason, field="norm")
    mu = penalty if curvature is None else curvature
    if not (0 <= penalty < math.inf and 0 < mu < math.inf):
        raise ReleaseError(
            field="penalty", allowed=">= 0, and curvature > 0 where the penalty is 0"
        )
    if len(sample) < 2 * OFFSET:
        raise ReleaseError(field="reports", allowed=f"at least {2 * OFFSET} for one pass")
    risk = CorrectedRisk(
        matrix=np.column_stack([np.ones(len(sample)), sample.features[:, places]]),
        indicator=sample.indicator(level),
        variances=np.array([0.0, *sample.parameters.variances[places]]),
        loss=chosen,
    )
    values, pushes = descend(
        lambda theta, rows: risk.gradients(theta, rows).mean(axis=0) + penalty * theta,
        rng.permutation(len(sample)), dimension=1 + len(places), norm=norm, mu=mu,
    )  # fmt: skip
    names = (INTERCEPT, *(sample.names[place] for place in places))
    hessian = risk.hessian(values) + penalty * np.eye(values.size)
    objections = edge_objection(values, norm) + curvature_objection(hessian, mu)
    covariance = np.full_like(hessian, np.nan)
    if not objections:  # the law holds inside the ball, for steps that forget
        spread = np.atleast_2d(np.cov(risk.gradients(values), rowvar=False))
        law = pass_law(hessian, spread * len(pushes) / len(sample), pushes, mu=mu)
        covariance, objections = law.covariance, bias_objection(law.bias(values), law.covariance)
    return LocalEstimate.judged(names, values, covariance, objections)


# --- one pass, and the law of where it ends ------------------------------------------------------


def batch_count(rows: int) -> int:
    """Return the batches of one pass: at least 100 sqrt(n), or one a report.

    After K batches about 50 / K of the way from the start is missing, at most 1 / (2 sqrt(n)).
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
) -> tuple[Array, Array]:
    """Descend from zero over disjoint batches, steps 1 / (mu (k + 50)), onto the ball of `norm`.

    `gradient` is unbiased, shape (dimension,), from a model and the reports at indices; `order`
    holds these indices, each once, shape (n,). Returns the end, shape (d,), and the ball's pushes
    after each step, shape (K, d).
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
    return theta, pushes


@dataclass(frozen=True, kw_only=True, eq=False)
class PassLaw:
    """The law of a pass's end: b - `missing` b + `pushed` + noise, b the minimiser.

    `covariance` of the noise and `missing` have shape (d, d), `pushed` (by the ball) (d,).
    """

    covariance: Array
    missing: Array
    pushed: Array

    def bias(self, end: Array) -> Array:
        """Return pushed - missing b, shape (d,), for the b that this end implies."""
        minimiser = np.linalg.solve(np.eye(end.size) - self.missing, end - self.pushed)
        return np.asarray(end - minimiser)


def pass_law(hessian: Array, noise: Array, pushes: Array, *, mu: float) -> PassLaw:
    """Return the law of `descend`, to first order around a minimiser inside the ball.

    The error moves by e <- (1 - H / (mu (k + 50))) e + noise / (mu (k + 50)); the sums are exact.
    `hessian` H and `noise`, the covariance of one step's gradient, have shape (d, d); `pushes`, of
    the ball after each step, (K, d). An extreme h / mu gives results that are not finite.
    """
    h, axes = np.linalg.eigh(hessian)
    lengths = 1 / (mu * (np.arange(1, len(pushes) + 1) + OFFSET))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = 1 - np.outer(lengths, h)
        left = np.cumprod(steps[::-1], axis=0)[::-1]  # of an error before each step
        lasting = np.vstack([left[1:], np.ones(h.size)])
        moves = lasting * lengths[:, None]
        turned = (axes.T @ noise @ axes) * (moves.T @ moves)
        return PassLaw(
            covariance=axes @ turned @ axes.T,
            missing=(axes * left[0]) @ axes.T,
            pushed=axes @ ((pushes @ axes) * lasting).sum(axis=0),
        )
