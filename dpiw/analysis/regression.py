"""Weighted linear, logistic, Poisson and gamma regression, in NumPy, with the rows' influence.

Weighted least squares and Newton's method (iteratively reweighted least squares), unpenalised.
For anything else use `dpiw.analysis.fit_sklearn` or `dpiw.analysis.to_statsmodels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.columns import Column
from dpiw.analysis.compared import compared
from dpiw.analysis.conditions import chosen
from dpiw.analysis.design import Design, dependent, design
from dpiw.analysis.sample import Array, Estimate, Source, WeightedSample, weighted_sample
from dpiw.analysis.separation import separation
from dpiw.errors import WeightError

_STEPS, _TOLERANCE, _ROUNDING = 100, 1e-8, 1e-13
_LARGEST = 500.0
"""Linear predictors are cut here: e^500 is still a number."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A generalised linear model: the log likelihood of a row, concave in its linear predictor t.

    Attributes:
        name: as people say it.
        likelihood: of (y, t), up to a constant in y.
        mean: of y at t.
        score: derivative of the likelihood by t.
        curvature: minus its second derivative, >= 0.
        takes: which y are possible, shape of y.
        expected: the same in words.
        log_link: whether the mean is exp(t).
        ends: values of y that the mean reaches nowhere, the least first.
    """

    name: str
    likelihood: Callable[[Array, Array], Array]
    mean: Callable[[Array], Array]
    score: Callable[[Array, Array], Array]
    curvature: Callable[[Array, Array], Array]
    takes: Callable[[Array], NDArray[np.bool_]]
    expected: str
    log_link: bool = True
    ends: tuple[float, ...] = ()


def _logistic(t: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(t, -_LARGEST, _LARGEST))))


def _exp(t: Array) -> Array:
    return np.asarray(np.exp(np.clip(t, -_LARGEST, _LARGEST)))


LOGISTIC = Family(
    name="logistic regression",
    likelihood=lambda y, t: y * t - np.logaddexp(0.0, t),
    mean=_logistic,
    score=lambda y, t: y - _logistic(t),
    curvature=lambda y, t: _logistic(t) * (1 - _logistic(t)),
    takes=lambda y: (y == 0) | (y == 1),
    expected="a target of truth values, or 0 and 1",
    log_link=False,
    ends=(0.0, 1.0),
)
POISSON = Family(
    name="Poisson regression",
    likelihood=lambda y, t: y * t - _exp(t),
    mean=_exp,
    score=lambda y, t: y - _exp(t),
    curvature=lambda y, t: _exp(t),
    takes=lambda y: y >= 0,
    expected="a target of numbers >= 0",
    ends=(0.0,),
)
GAMMA = Family(
    name="gamma regression",
    likelihood=lambda y, t: -y * _exp(-t) - t,
    mean=_exp,
    score=lambda y, t: y * _exp(-t) - 1,
    curvature=lambda y, t: y * _exp(-t),
    takes=lambda y: y > 0,
    expected="a target of numbers > 0",
)


def _solve(curvature: Array, right: Array) -> Array:
    solution, _, rank, _ = np.linalg.lstsq(curvature, right, rcond=1e-12)
    if rank < len(curvature):
        raise WeightError("regression: a feature is constant or a combination of the others")
    return np.asarray(solution)


def _regression(
    source: Source,
    target: str,
    features: Sequence[str] | None,
    where: Column | None,
    family: Family | None,
) -> Estimate:
    sample = weighted_sample(source)
    parts = design(sample._frame, target, features)
    subset = parts.kept(chosen(sample, where))
    outcome = subset.outcome[subset.present & (sample.weights > 0)]
    if not outcome.size:
        raise WeightError(
            f"regression: target or features are missing in every row that counts, of {target!r}"
        )
    if family is LOGISTIC and np.all(outcome == outcome[0]):
        raise WeightError(
            f"{family.name}: the target of {target!r} is the same, {bool(outcome[0])}, in every row"
            " that counts"
        )
    if family is not None and not np.all(family.takes(outcome)):
        message = f"{family.name}: expected {family.expected}"
        raise WeightError(f"{message}; {target!r} has others")
    told = "" if family is None else separation(subset, sample.weights, family.ends, sample._frame)
    if family is not None and told:
        raise WeightError(f"{family.name}: {told}")
    try:
        return _fitted(sample, subset, family)
    except WeightError as reason:
        fault = dependent(subset, sample.weights)
        raise WeightError(f"regression: {fault}" if fault else str(reason)) from None


def _fitted(sample: WeightedSample, parts: Design, family: Family | None) -> Estimate:
    x, y = parts.matrix, parts.outcome

    def refit(weights: Array) -> Array:
        mass = weights * parts.present
        return fit_linear(x, y, mass) if family is None else fit_glm(x, y, mass, family)

    coefficients = refit(sample.weights)
    mass, t = sample.weights * parts.present, x @ coefficients
    expected = t if family is None else family.mean(t)
    curve = mass if family is None else mass * family.curvature(y, t)
    score = y - t if family is None else family.score(y, t)
    hessian = (x * curve[:, None]).T @ x / len(x)
    influence = _solve(hessian, (x * (score * parts.present)[:, None]).T).T
    residual = float(mass @ (y - expected) ** 2 / mass.sum())
    return Estimate(
        names=parts.names, values=coefficients, influence=influence, refit=refit, sample=sample,
        group=parts.present[:, None], sides=compared(parts, sample.weights),
        facts={"residual_variance": residual, "hessian": hessian},
    )  # fmt: skip


def fit_linear(x: Array, y: Array, weights: Array) -> Array:
    """Weighted least squares.

    Args:
        x: shape (n, p), intercept included.
        y: shape (n,).
        weights: shape (n,), >= 0.

    Raises:
        WeightError: the weighted columns of x are linearly dependent.
    """
    root = np.sqrt(weights)
    scale = np.sqrt(np.einsum("i,ij->j", weights, x**2))
    if not np.all(scale > 0):
        raise WeightError("regression: a feature is zero in every row with weight")
    scaled, _, rank, _ = np.linalg.lstsq(x / scale * root[:, None], y * root, rcond=1e-10)
    if rank < x.shape[1]:
        raise WeightError("regression: a feature is constant or a combination of the others")
    return np.asarray(scaled / scale)


def fit_glm(x: Array, y: Array, weights: Array, family: Family) -> Array:
    """Weighted maximum likelihood of a generalised linear model by damped Newton steps.

    Args:
        x: shape (n, p), intercept included.
        y: shape (n,).
        weights: shape (n,), >= 0.
        family: which model.

    Raises:
        WeightError: the family does not take such a y, x is dependent, or no finite maximum was
            found (for a logistic regression: the classes can be separated).
    """
    if not np.all(family.takes(y[weights > 0])):
        raise WeightError(f"{family.name}: expected {family.expected}")
    scale = np.maximum(np.sqrt(np.einsum("i,ij->j", weights, x**2) / weights.sum()), 1e-300)
    z = x / scale
    share = weights / weights.sum()
    b = np.zeros(x.shape[1])
    if family.log_link:  # the usual start of such fits: near the logarithms of y
        middle = max(float(share @ y), 1e-300)
        b = fit_linear(z, np.log((np.where(weights > 0, y, middle) + middle) / 2), weights)
    value = _likelihood(z, y, share, b, family)
    for _ in range(_STEPS):
        t = z @ b
        gradient = z.T @ (share * family.score(y, t))
        hessian = (z * (share * family.curvature(y, t))[:, None]).T @ z
        try:
            step = _solve(hessian, gradient)
        except WeightError:
            if family.log_link or b.any():  # the start had shown dependent features
                break
            raise
        # Where the classes separate the gradient vanishes too, but the steps stay of length one.
        if np.abs(z @ step).max() <= _TOLERANCE:
            return np.asarray(b / scale)
        length = 1.0
        while length > 1e-8:
            moved = _likelihood(z, y, share, b + length * step, family)
            if moved >= value - _ROUNDING * (1 + abs(value)):
                break
            length /= 2
        b, value = b + length * step, moved
    raise WeightError(
        f"{family.name}: no finite fit; a combination of features separates the target, or leaves a"
        " group without a count: merge levels, or use fewer terms"
    )


def _likelihood(x: Array, y: Array, share: Array, b: Array, family: Family) -> float:
    return float(share @ family.likelihood(y, x @ b))


def linear_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted least squares of `target` on `features` with an intercept.

    Args:
        source: a release, or (table, weights).
        target: numeric or boolean column; or a formula such as `income ~ age * smoker`, which
            takes no `features` (`dpiw.analysis.design.formula_design`).
        features: columns; see `dpiw.analysis.design.design`. Rows with a missing value are left
            out.
        where: rows that count, as in `dpiw.analysis.mean`.

    Returns:
        Coefficients by name. Influence: H^{-1} x s with s the derivative of a row's log likelihood
        by its linear predictor (here y - x.b) and H the weighted mean of -s' x x'.

    Raises:
        ReleaseError: as `design`, or not a condition.
        WeightError: dependent features.
    """
    return _regression(source, target, features, where, None)


def logistic_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted logistic regression of a boolean `target` on `features` with an intercept.

    Arguments, result and errors as `linear_regression`; log odds.
    """
    return _regression(source, target, features, where, LOGISTIC)


def poisson_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted Poisson regression of counts with a logarithmic link.

    Arguments, result and errors as `linear_regression`; logarithms of rates. The variance need not
    be that of a Poisson law: intervals follow from the influence.
    """
    return _regression(source, target, features, where, POISSON)


def gamma_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted gamma regression of numbers > 0 with a logarithmic link.

    Arguments, result and errors as `linear_regression`; logarithms of means. The dispersion is not
    needed for them.
    """
    return _regression(source, target, features, where, GAMMA)
