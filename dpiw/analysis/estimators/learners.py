"""Fits by other libraries: scikit-learn with `sample_weight`, statsmodels with its own weights."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.conditions import chosen
from dpiw.analysis.estimators.design import INTERCEPT, Design, design, orthonormal
from dpiw.analysis.names import column_name
from dpiw.analysis.sample import Array, Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError, one_of, optional

_MOST_SHIFTED, _MOST_APART = 1e9, 2e12
"""Largest condition numbers, of columns scaled to length one and as they are, for statsmodels. Its
errors grow with both, and from 1e15 on it silently drops directions.
"""

_FAMILIES = ("gaussian", "binomial", "poisson", "gamma")


def fit_sklearn(
    estimator: Any, source: Source, target: str, features: Sequence[str] | None = None
) -> Any:
    """Fit a scikit-learn estimator in place on weighted rows, through `sample_weight`; return it.

    Weights have mean one, so that a penalty such as C keeps its meaning. Every part whose fit takes
    weights, and the scores of a search, get them by metadata routing and request them from then on.
    Raises ReleaseError if a model would be fitted without weights, or the target is missing.

    Args:
        estimator: anything with `fit(X, y, sample_weight=...)`; or a pipeline, search or stack.
        source: a release, or (table, weights).
        target: the column to predict.
        features: columns to predict from, passed unchanged (a DataFrame); None: all others.
    """
    if isinstance(estimator, type) or not callable(getattr(estimator, "fit", None)):
        raise ReleaseError(
            f"estimator: found {estimator!r:.80}; expected an instance of a scikit-learn class with"
            " a method `fit`, as in fit_sklearn(LogisticRegression(), release, 'ill')",
            field="fit_sklearn",
        )
    sample = weighted_sample(source)
    target = column_name(sample.frame, target)
    others = [c for c in sample.frame.columns if c != target]
    feature_names = [features] if isinstance(features, str) else features
    names = others if feature_names is None else list(feature_names)
    names = [column_name(sample.frame, name) for name in names]
    present = sample.frame[target].notna().to_numpy()
    x, y = sample.frame.loc[present, names], sample.frame.loc[present, target]
    weights = sample.weights[present]
    parts = _parts(estimator)
    _check_takes_weights(estimator, parts)
    if len(parts) == 1 and _takes(estimator):
        return estimator.fit(x, y, sample_weight=weights)
    return _routed(estimator, parts, x, y, weights)


def _parts(estimator: Any) -> list[Any]:
    """An estimator, and all inside it or that it may try, the outermost first."""
    found, waiting = {id(estimator): estimator}, [estimator]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):  # steps, and their alternatives in a search
            waiting += value
        elif hasattr(value, "fit") and not isinstance(value, type):
            found[id(value)] = value
            waiting += value.get_params(deep=False).values() if hasattr(value, "get_params") else ()
    return list(found.values())


def _takes(estimator: Any) -> bool:
    return "sample_weight" in inspect.signature(estimator.fit).parameters


def _hands_on(estimator: Any) -> bool:
    if not hasattr(estimator, "get_metadata_routing"):
        return False
    routing = optional("sklearn.utils.metadata_routing", extra="pipeline")
    with optional("sklearn", extra="pipeline").config_context(enable_metadata_routing=True):
        try:
            return isinstance(estimator.get_metadata_routing(), routing.MetadataRouter)
        except NotImplementedError:
            return False


def _check_takes_weights(estimator: Any, parts: Sequence[Any]) -> None:
    """Refuse a model that would be fitted, or tried by a score, without weights.

    Models made of models, without routing, must be scikit-learn's own: others may drop weights.
    """
    for part in parts:
        if not all(hasattr(way, "set_score_request") for way in _functions(part)):
            fault = "its `scoring` is a function, which gets no sample_weight; write scoring='f1'"
            raise _unweighted(part, estimator, fault)
        is_model = part is estimator or hasattr(part, "predict")
        if not is_model or _hands_on(part):
            continue
        models = [inner for inner in _parts(part)[1:] if hasattr(inner, "fit")]
        is_own = type(part).__module__.startswith("sklearn.")
        if not _takes(part):
            raise _unweighted(part, estimator, "its `fit` takes no sample_weight; use another")
        if models and not (is_own and all(map(_takes, models))):
            raise _unweighted(part, estimator, "its parts may get no sample_weight; use another")


def _functions(part: Any) -> list[Any]:
    """The scorings of a part that are no names."""
    scoring = getattr(part, "scoring", None)
    ways = list(scoring.values()) if isinstance(scoring, Mapping) else scoring
    return [way for way in (ways if isinstance(ways, list | tuple) else [ways]) if callable(way)]


def _unweighted(part: Any, estimator: Any, fault: str) -> ReleaseError:
    inside = "" if part is estimator else f" inside {type(estimator).__name__}"
    advice = f"{fault}, or fit it on `release.resample(rows, rng)`, which needs no weights"
    return ReleaseError(advice, field=f"{type(part).__name__}{inside}")


def _routed(estimator: Any, parts: Sequence[Any], x: Any, y: Any, weights: Any) -> Any:
    """Fit under metadata routing, which raises if a part gets weights that it did not request."""
    if not _hands_on(estimator):
        return estimator.fit(x, y, sample_weight=weights)
    unset = optional("sklearn.exceptions", extra="pipeline").UnsetMetadataPassedError
    metrics = optional("sklearn.metrics", extra="pipeline")
    named = [(part, getattr(part, "scoring", None)) for part in parts]
    known = metrics.get_scorer_names()
    scorings = [(part, way) for part, way in named if isinstance(way, str) and way in known]
    with optional("sklearn", extra="pipeline").config_context(enable_metadata_routing=True):
        for part in parts:
            if _takes(part) and hasattr(part, "set_fit_request"):
                part.set_fit_request(sample_weight=True)
            if hasattr(part, "set_score_request") and not _hands_on(part):
                part.set_score_request(sample_weight=True)
        try:
            for part, scoring in scorings:
                scorer = copy.copy(metrics.get_scorer(scoring))
                part.scoring = scorer.set_score_request(sample_weight=True)
            return estimator.fit(x, y, sample_weight=weights)
        except (unset, NotImplementedError, TypeError) as no:
            fault = str(no).partition("\n")[0]
            raise ReleaseError(
                f"scikit-learn cannot pass sample_weight to all of its parts ({fault}); use other"
                " parts, or fit it on `release.resample(rows, rng)`, which needs no weights",
                field=type(estimator).__name__,
            ) from None
        finally:
            for part, scoring in scorings:
                part.scoring = scoring


def to_statsmodels(
    source: Source, target: str, features: Sequence[str] | None = None, *, family: str = "gaussian"
) -> Any:
    """Fit with statsmodels and return its results, with a sandwich covariance (HC0).

    `gaussian` is WLS, others are GLM with `var_weights`: `freq_weights` would count a row of weight
    3 as three people. Its intervals ignore the privacy noise, and that a person may have several
    rows, and so are too narrow; see `dpiw.analysis.confidence_interval`. Raises ReleaseError for a
    column whose digits statsmodels would lose in raw units.

    Args:
        source: a release, or (table, weights).
        target: numeric or boolean column; or a formula, without `features`.
        features: as `dpiw.analysis.linear_regression`.
        family: `gaussian`, `binomial`, `poisson` or `gamma` (the last two with a log link).
    """
    if family not in _FAMILIES:
        raise ReleaseError(field="family", allowed=one_of(family, _FAMILIES))
    sm = optional("statsmodels.api", extra="statsmodels")
    sample = weighted_sample(source)
    parts = design(sample.frame, target, features).kept(chosen(sample, None))
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
    """Refuse columns whose raw units, which statsmodels uses, would cost coefficients digits."""
    scale = orthonormal(parts, weights).scale  # which names dependent columns
    norms = np.linalg.norm(raw, axis=0)
    if np.linalg.cond(raw / norms) < _MOST_SHIFTED and np.linalg.cond(raw) < _MOST_APART:
        return
    shares = norms / np.sqrt((raw**2).sum() / raw.shape[1]) + norms / scale
    name = parts.names[int(np.argmax(shares * (parts.constant == 0)))]
    raise ReleaseError(
        f"{name!r} has numbers too large for statsmodels' precision, beside their own spread or"
        " the other columns; subtract a constant, or divide by one, in a copy of the table, and"
        " pass (table, weights)",
        field="to_statsmodels",
    )


def _rows(sample: WeightedSample, parts: Design) -> tuple[pd.DataFrame, pd.Series, Any]:
    present = parts.present
    names = list(parts.names)
    names[:1] = ["const" if name == INTERCEPT else name for name in names[:1]]
    x = pd.DataFrame(parts.matrix[present], columns=names)
    return x, pd.Series(parts.outcome[present]), sample.weights[present]
