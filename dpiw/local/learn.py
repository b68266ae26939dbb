"""Learning a linear classifier from local reports by unbiased gradients (IWP-SGD).

The logistic loss has no unbiased estimate (Stefanski 1989). The corrected risk is not convex: hence
the ball, and one pass over fresh reports. Source: docs/method.md section 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import factorial

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.polynomial import polyder, polyval
from numpy.typing import NDArray

from dpiw.errors import ReleaseError, one_of
from dpiw.local.estimate import INTERCEPT, LocalEstimate, LocalSample, bias_objection
from dpiw.local.parameters import USABLE, LocalParameters
from dpiw.methods.weights.diagnostics import objection

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """exp(-t), estimated by exp(-t - s^2/2), whose variance is exp(s^2) times the clean square.

    `usable`: largest noise s in the margin that a fit accepts; `reach`: largest |t| before the
    noise at which a surrogate's error holds.
    """

    name: str = "exponential"
    usable: float = USABLE
    reach: float = math.inf

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """Return the unbiased estimate from noisy margins, or its derivative; `noise` is s^2.

        One exponent, so that no factor overflows alone.
        """
        return np.asarray((-1) ** order * np.exp(-t - noise / 2))


@dataclass(frozen=True, kw_only=True)
class PolynomialLoss:
    """A polynomial in t, with s^m He_m(t / s) as the estimate of t^m (Hermite polynomials).

    `coefficients` are of t^0, t^1, ...; `error` bounds the distance from the loss to |t| = `reach`.
    """

    coefficients: tuple[float, ...]
    name: str
    usable: float = USABLE
    reach: float = math.inf
    error: float = 0.0

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """Return the Hermite estimate."""
        terms, degrees = self._terms
        coefficients = (-noise / 2) ** degrees @ terms
        return np.asarray(polyval(t, polyder(coefficients, order)))

    @cached_property
    def _terms(self) -> tuple[Array, Array]:
        """Coefficients of the 2k-th derivative over k!, shape (k, degree + 1), and the ks."""
        degree = len(self.coefficients) - 1
        rows = [polyder(self.coefficients, 2 * k) / factorial(k) for k in range(degree // 2 + 1)]
        padded = [np.pad(row, (0, degree + 1 - row.size)) for row in rows]
        return np.array(padded), np.arange(degree // 2 + 1.0)


Loss = Exponential | PolynomialLoss
"""A convex loss of the margin, and its unbiased estimate from a noisy margin."""

EXPONENTIAL = Exponential()
SQUARED = PolynomialLoss(coefficients=(0.5, -1.0, 0.5), name="squared", usable=math.inf)
"""(1 - t)^2 / 2; its variance grows slowly with s."""

LOSSES: dict[str, Loss] = {"exponential": EXPONENTIAL, "squared": SQUARED}

NO_LOGISTIC = (
    "the logistic loss has no unbiased estimate from features with Gaussian noise, as it is not"
    " entire; use loss=logistic_surrogate(reach), a polynomial that states its distance from it"
)


def loss_named(loss: str | Loss) -> Loss:
    """Return a loss by its name, or the loss itself; ReleaseError without unbiased estimate."""
    if not isinstance(loss, str):
        return loss
    if loss == "logistic":
        raise ReleaseError(NO_LOGISTIC, field="loss logistic")
    if loss not in LOSSES:
        raise ReleaseError(field="loss", allowed=one_of(loss, LOSSES))
    return LOSSES[loss]


def logistic_surrogate(reach: float, *, degree: int = 6) -> PolynomialLoss:
    """Return a polynomial near log(1 + exp(-t)) for |t| <= reach (Chebyshev interpolation).

    A fit is unbiased for the polynomial; `error` bounds its distance from the logistic loss.
    `reach`: radius of the ball of records times the norm of the parameters, in (0, 20]. `degree`:
    even, from 2 to 20; higher is nearer and noisier. Raises ReleaseError out of these ranges.
    """
    if not 0 < reach <= 20 or degree not in range(2, 21, 2):
        raise ReleaseError(
            field="logistic_surrogate", allowed="reach in (0, 20], an even degree to 20"
        )

    def logistic(t: Array) -> Array:
        return np.asarray(np.logaddexp(0.0, -t))

    near = Chebyshev.interpolate(logistic, degree, domain=[-reach, reach])
    polynomial = near.convert(domain=[-1, 1], kind=Polynomial, window=[-1, 1])
    grid = np.linspace(-reach, reach, 20_001)
    # Between grid points the difference exceeds it by at most step^2 / 8 times its curvature,
    # 1/4 of the loss plus the sum of the polynomial's Chebyshev coefficients.
    curve = 0.25 + float(np.abs(near.deriv(2).coef).sum())
    error = (
        float(np.abs(polynomial(grid) - logistic(grid)).max())
        + (grid[1] - grid[0]) ** 2 / 8 * curve
    )
    return PolynomialLoss(
        coefficients=tuple(float(coefficient) for coefficient in polynomial.coef),
        name=f"logistic within {error:.2g}", reach=reach, error=error,
    )  # fmt: skip


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
        plus, minus = self._both(theta, rows, 0)
        c = self.indicator[rows]
        return np.asarray(c * plus + (1 - c) * minus)

    def gradients(self, theta: Array, rows: slice | NDArray[np.int64] = slice(None)) -> Array:
        """Return each row's gradient, shape (rows, d): phi'(t) y x - phi''(t) S theta."""
        w, c = self.matrix[rows], self.indicator[rows]
        plus, minus = self._both(theta, rows, 1)
        second_plus, second_minus = self._both(theta, rows, 2)
        slope, curve = c * plus - (1 - c) * minus, c * second_plus + (1 - c) * second_minus
        return np.asarray(slope[:, None] * w - np.outer(curve, self.variances * theta))

    def hessian(self, theta: Array) -> Array:
        """Return the mean second derivative, shape (d, d)."""
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
    parameters: LocalParameters, *, norm: float, rows: int, loss: str | Loss = "exponential"
) -> Feasibility:
    """Return what to expect of a fit of `rows` reports, from public numbers alone.

    `norm`: radius of the ball of models, for features in [-1, 1]. Raises ReleaseError for a norm or
    number of rows that is none, or an unknown loss.
    """
    if not (0 < norm < math.inf and rows > 0):
        raise ReleaseError(field="norm, rows", allowed="a finite norm > 0 and rows > 0")
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
        reason = f"noise times norm is {noise:.3g}, and this loss allows at most {most:.3g}"
        if not usable:
            reason += f": set norm below {most / parameters.stddev:.3g}, or use a larger epsilon"
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

    y is +1 where the label is `level`, else -1; w is an intercept and the features in [-1, 1].

    Args:
        sample: reports.
        level: of the label.
        features: None: all.
        loss: `exponential`, `squared`, or a `Loss` such as `logistic_surrogate(reach)`.
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
            cannot be learnt under this noise (`feasibility`); a surrogate that reaches too short;
            under 2 * 50 batches.
    """
    chosen, places = loss_named(loss), sample.chosen(features)
    assessment = feasibility(sample.parameters, norm=norm, rows=max(len(sample), 1), loss=chosen)
    if not assessment.usable:
        raise ReleaseError(assessment.reason, field="norm")
    mu = penalty if curvature is None else curvature
    if not (0 <= penalty < math.inf and 0 < mu < math.inf):
        raise ReleaseError(
            field="penalty", allowed="a number >= 0; if it is 0, also give curvature > 0"
        )
    if _farthest(sample.parameters, places) * norm > chosen.reach * (1 + 1e-9):
        least = _farthest(sample.parameters, places) * norm
        raise ReleaseError(field="loss", allowed=f"a surrogate of reach above {least:.3g}")
    if len(sample) < 2 * OFFSET:
        found = f"found {len(sample):,}"
        raise ReleaseError(found, field="reports", allowed=f"at least {2 * OFFSET} for one pass")
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
    inside = float(np.linalg.norm(values)) < norm * (1 - 1e-9)
    objections = objection(False, not inside, f"at the edge of the ball of norm {norm:g}")
    least = float(np.linalg.eigvalsh(hessian).min())  # where it is small, steps forget too slowly
    text = f"curvature {least:.3g} (expected > {mu / 2:.3g})"
    objections += objection(False, not least > mu / 2, text)
    covariance = np.full_like(hessian, np.nan)
    if not objections:  # the law holds inside the ball, for steps that forget
        spread = np.atleast_2d(np.cov(risk.gradients(values), rowvar=False))
        noise = spread * len(descent.pushes) / len(sample)
        law = pass_law(hessian, noise, descent.pushes, mu=mu)
        covariance, objections = law.covariance, bias_objection(law.bias(values), law.covariance)
    return LocalEstimate.judged(names, values, covariance, objections)


def _farthest(parameters: LocalParameters, places: Sequence[int]) -> float:
    """Return the norm of the longest design row before the noise, intercept included."""
    private = parameters.private[list(places)]
    ball = min(parameters.radius**2, float(private.sum()))
    return math.sqrt(1 + ball + float((~private).sum()))


# --- one pass, and the law of where it ends ------------------------------------------------------


def batch_count(rows: int) -> int:
    """Return the batches of one pass: at least 100 sqrt(n), or one a report.

    After K batches about 50 / K of the way from the start is missing, at most 1 / (2 sqrt(n)).
    """
    size = max(1, rows // max(1, math.isqrt((2 * OFFSET) ** 2 * rows)))
    return rows // size


@dataclass(frozen=True, kw_only=True, eq=False)
class Descent:
    """One pass: its `end`, shape (d,), and the ball's `pushes` after each step, shape (K, d)."""

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
    """Descend from zero over disjoint batches, steps 1 / (mu (k + 50)), onto the ball of `norm`.

    `gradient` is unbiased, shape (dimension,), from a model and the reports at indices; `order`
    holds these indices, each once, shape (n,).
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
