"""The doors to other libraries: scikit-learn by `sample_weight`, statsmodels by its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.columns import checked_column
from dpiw.analysis.conditions import chosen
from dpiw.analysis.design import INTERCEPT, Design, design, orthonormal
from dpiw.analysis.optional import optional
from dpiw.analysis.sample import Array, Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError, one_of

_MOST_SHIFTED, _MOST_APART = 1e9, 2e12
"""Largest condition numbers of columns of one length, and as they are, for statsmodels: its errors
grow with both, and from 1e15 on it drops directions without a word."""

_FAMILIES = ("gaussian", "binomial", "poisson", "gamma")


def fit_sklearn(
    estimator: Any, source: Source, target: str, features: Sequence[str] | None = None
) -> Any:
    """Fit a scikit-learn estimator on weighted rows, through `sample_weight`.

    A penalty such as C counts rows, so weights of mean one keep its meaning.

    Args:
        estimator: anything with `fit(X, y, sample_weight=...)`; it is fitted in place. A
            Pipeline takes the weights in its last step.
        source: a release, or (table, weights).
        target: the column to predict.
        features: columns to predict from, all others if None. They are handed over as they are
            (a DataFrame): encode text and fill missing values in the estimator's pipeline.

    Returns:
        The estimator.

    Raises:
        ReleaseError: not an estimator, no such column, a missing target, or an estimator without
            `sample_weight`.
    """
    _check_fits(estimator)
    sample = weighted_sample(source)
    others = [c for c in sample._frame.columns if c != target]
    feature_names = [features] if isinstance(features, str) else features
    names = others if feature_names is None else list(feature_names)
    for column in (target, *names):
        checked_column(sample._frame, column)
    present = sample._frame[target].notna().to_numpy()
    x, y = sample._frame.loc[present, names], sample._frame.loc[present, target]
    steps = getattr(estimator, "steps", None)
    name = "sample_weight" if steps is None else f"{steps[-1][0]}__sample_weight"
    _check_takes_weights(estimator if steps is None else steps[-1][1])
    return estimator.fit(x, y, **{name: sample.weights[present]})


def _check_fits(estimator: Any) -> None:
    name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
    if isinstance(estimator, type) and hasattr(estimator, "fit"):
        raise ReleaseError(f"fit_sklearn: estimator: expected an instance: write {name}()")
    if not callable(getattr(estimator, "fit", None)):
        raise ReleaseError(
            "fit_sklearn: estimator: expected one of scikit-learn's, with a method fit, then the"
            f" source, as in fit_sklearn(LogisticRegression(), release, 'ill'); found {name}"
        )


def _check_takes_weights(estimator: Any) -> None:
    import inspect

    if "sample_weight" not in inspect.signature(estimator.fit).parameters:
        raise ReleaseError(
            f"{type(estimator).__name__}: its fit takes no sample_weight; use `release.resample`"
        )


def to_statsmodels(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    family: str = "gaussian",
) -> Any:
    """Fit with statsmodels and return its results, with a sandwich covariance.

    `gaussian` is WLS, others are GLM with `var_weights`. Both with covariance HC0, which equals
    this package's sandwich: statsmodels' default treats weights as known inverse variances, and
    `freq_weights` would count a row of weight 3 as three people. Neither knows the privacy
    noise: its intervals are too narrow; see `dpiw.analysis.confidence_interval`.

    Args:
        source: a release, or (table, weights).
        target: numeric or boolean column; or a formula, without `features`.
        features: as `dpiw.analysis.linear_regression`.
        family: `gaussian`, `binomial`, `poisson` or `gamma` (the last two with a log link).

    Raises:
        ReleaseError: statsmodels is not installed, unknown family, a column that its arithmetic on
            raw units would lose, or as `design`.
        WeightError: dependent features.
    """
    if family not in _FAMILIES:
        raise ReleaseError(f"family: {one_of(family, _FAMILIES)}")
    sm = optional("statsmodels.api", extra="statsmodels")
    sample = weighted_sample(source)
    parts = design(sample._frame, target, features).kept(chosen(sample, None))
    x, y, weights = _rows(sample, parts)
    _check_raw_units(parts, sample.weights, x.to_numpy() * np.sqrt(weights)[:, None])
    if family == "gaussian":
        return sm.WLS(y, x, weights=weights).fit(cov_type="HC0")
    families = sm.families
    model = {
        "binomial": families.Binomial(),
        "poisson": families.Poisson(),
        "gamma": families.Gamma(families.links.Log()),
    }[family]
    return sm.GLM(y, x, family=model, var_weights=weights).fit(cov_type="HC0")


def _check_raw_units(parts: Design, weights: Array, raw: Array) -> None:
    """Refuses columns whose units, raw as statsmodels takes them, would cost a coefficient."""
    scale = orthonormal(parts, weights).scale  # which names dependent columns
    norms = np.linalg.norm(raw, axis=0)
    if np.linalg.cond(raw / norms) < _MOST_SHIFTED and np.linalg.cond(raw) < _MOST_APART:
        return
    shares = norms / np.sqrt((raw**2).sum() / raw.shape[1]) + norms / scale
    name = parts.names[int(np.argmax(shares * (parts.constant == 0)))]
    raise ReleaseError(
        f"to_statsmodels: {name!r} lies so far from zero beside its spread, or in a unit so far"
        " from the others', that statsmodels would lose it; subtract a number from it, or divide"
        " it, in a table of yours: (table, weights)"
    )


def _rows(sample: WeightedSample, parts: Design) -> tuple[pd.DataFrame, pd.Series, Any]:
    present = parts.present
    names = ["const" if name == INTERCEPT else name for name in parts.names]
    x = pd.DataFrame(parts.matrix[present], columns=names)
    return x, pd.Series(parts.outcome[present]), sample.weights[present]
