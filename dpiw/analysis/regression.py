"""Weighted linear and logistic regression, in NumPy, with the rows' influence.

Weighted least squares and Newton's method (iteratively reweighted least squares), unpenalised.
For anything else use `dpiw.analysis.fit_sklearn` or `dpiw.analysis.to_statsmodels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.estimates import check_columns
from dpiw.analysis.sample import Array, Estimate, Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError, WeightError

INTERCEPT = "intercept"
_STEPS, _TOLERANCE, _ROUNDING = 100, 1e-8, 1e-13


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """A regression's matrix.

    Attributes:
        names: of the columns, `intercept` first.
        matrix: shape (n, p); zero in rows with a missing value.
        outcome: shape (n,); zero in rows with a missing value.
        present: shape (n,), whether nothing is missing.
    """

    names: tuple[str, ...]
    matrix: Array
    outcome: Array
    present: NDArray[np.bool_]


def _columns(table: pd.DataFrame, name: str) -> list[tuple[str, Array]]:
    """Numbers of one column: itself, or an indicator per level but the first in sorted order."""
    check_columns(table.columns, name)
    values = table[name]
    if pd.api.types.is_numeric_dtype(values.dtype):
        return [(name, values.to_numpy(dtype=np.float64, na_value=np.nan))]
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        days = (values - values.min()) / pd.Timedelta(days=1)
        return [(name, days.to_numpy(dtype=np.float64, na_value=np.nan))]
    missing = values.isna().to_numpy()
    columns = []
    for level in sorted(values.dropna().unique(), key=str)[1:]:
        flag = (values == level).to_numpy(dtype=np.float64, na_value=0.0)
        columns.append((f"{name}={level}", np.where(missing, np.nan, flag)))
    return columns


def design(table: pd.DataFrame, target: str, features: Sequence[str]) -> Design:
    """Design matrix: an intercept, numbers as they are, text as indicators of its levels.

    Dates are days since the earliest of the table. `a:b` is the product of two features.

    Raises:
        ReleaseError: no such column, or a target that is neither a number nor a truth value.
    """
    parts: list[tuple[str, Array]] = []
    for feature in features:
        if feature in table.columns or ":" not in feature:
            parts += _columns(table, feature)
            continue
        first, second = (_columns(table, part) for part in feature.split(":", 1))
        parts += [(f"{a}:{b}", x * y) for a, x in first for b, y in second]
    outcome = _columns(table, target)
    if len(outcome) != 1 or outcome[0][0] != target:
        raise ReleaseError(f"column {target!r}: expected a number or a truth value as target")
    y = outcome[0][1]
    matrix = np.column_stack([np.ones(len(table)), *[values for _, values in parts]])
    present = ~(np.isnan(matrix).any(axis=1) | np.isnan(y))
    return Design(
        names=(INTERCEPT, *[name for name, _ in parts]),
        matrix=np.where(present[:, None], matrix, 0.0),
        outcome=np.where(present, y, 0.0),
        present=present,
    )


def _solve(curvature: Array, right: Array) -> Array:
    solution, _, rank, _ = np.linalg.lstsq(curvature, right, rcond=1e-12)
    if rank < len(curvature):
        raise WeightError("regression: a feature is constant or a combination of the others")
    return np.asarray(solution)


def _regression(sample: WeightedSample, parts: Design, *, logistic: bool) -> Estimate:
    fit = fit_logistic if logistic else fit_linear
    x, y = parts.matrix, parts.outcome

    def refit(weights: Array) -> Array:
        return fit(x, y, weights * parts.present)

    coefficients = refit(sample.weights)
    mass = sample.weights * parts.present
    expected = 1 / (1 + np.exp(-(x @ coefficients))) if logistic else x @ coefficients
    curve = mass * expected * (1 - expected) if logistic else mass
    hessian = (x * curve[:, None]).T @ x / len(x)
    score = x * ((y - expected) * parts.present)[:, None]
    influence = _solve(hessian, score.T).T
    residual = float(mass @ (y - expected) ** 2 / mass.sum())
    return Estimate(
        names=parts.names, values=coefficients, influence=influence, refit=refit, sample=sample,
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


def fit_logistic(x: Array, y: Array, weights: Array) -> Array:
    """Weighted maximum likelihood of a logistic regression by damped Newton steps.

    Args:
        x: shape (n, p), intercept included.
        y: shape (n,), 0 or 1.
        weights: shape (n,), >= 0.

    Raises:
        WeightError: y is not 0 or 1, x is dependent, or no finite maximum was found (the classes
            can be separated).
    """
    if not np.all((y == 0) | (y == 1)):
        raise WeightError("logistic regression: expected a target of truth values, or 0 and 1")
    scale = np.maximum(np.sqrt(np.einsum("i,ij->j", weights, x**2) / weights.sum()), 1e-300)
    z = x / scale
    share = weights / weights.sum()
    b = np.zeros(x.shape[1])
    value = _likelihood(z, y, share, b)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(z @ b, -500, 500)))
        gradient = z.T @ (share * (y - p))
        hessian = (z * (share * p * (1 - p))[:, None]).T @ z
        step = _solve(hessian, gradient)
        # Where the classes separate the gradient vanishes too, but the steps stay of length one.
        if np.abs(z @ step).max() <= _TOLERANCE:
            return np.asarray(b / scale)
        length = 1.0
        while length > 1e-8:
            moved = _likelihood(z, y, share, b + length * step)
            if moved >= value - _ROUNDING * (1 + abs(value)):
                break
            length /= 2
        b, value = b + length * step, moved
    raise WeightError("logistic regression: no finite fit; the features separate the classes")


def _likelihood(x: Array, y: Array, share: Array, b: Array) -> float:
    t = x @ b
    return float(share @ (y * t - np.logaddexp(0.0, t)))


def linear_regression(source: Source, target: str, features: Sequence[str]) -> Estimate:
    """Weighted least squares of `target` on `features` with an intercept.

    Args:
        source: a release, or (table, weights).
        target: numeric or boolean column.
        features: columns; see `design`. Rows with a missing value are left out.

    Returns:
        Coefficients by name. Influence: H^{-1} x (y - x.b), H the weighted mean of x x'.

    Raises:
        ReleaseError: as `design`.
        WeightError: dependent features.
    """
    sample = weighted_sample(source)
    return _regression(sample, design(sample.table, target, features), logistic=False)


def logistic_regression(source: Source, target: str, features: Sequence[str]) -> Estimate:
    """Weighted logistic regression of a boolean `target` on `features` with an intercept.

    Arguments, result and errors as `linear_regression`; log odds.
    """
    sample = weighted_sample(source)
    return _regression(sample, design(sample.table, target, features), logistic=True)
