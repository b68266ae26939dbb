"""Weighted linear, logistic, Poisson and gamma regression, with the rows' influence; unpenalised.

A fit is infinite if, along some direction, every row whose linear predictor moves becomes more
likely or stays as likely (Albert and Anderson 1984); `separation` looks for the cheap directions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.columns import Column
from dpiw.analysis.conditions import chosen
from dpiw.analysis.estimators.design import INTERCEPT, Design, Standard, design, orthonormal
from dpiw.analysis.estimators.estimates import Estimate
from dpiw.analysis.names import checked_column, known_name, private_formula
from dpiw.analysis.sample import Array, Source, WeightedSample, weighted_sample
from dpiw.errors import WeightError

_LEVEL = re.compile(r"(?:C\()?(?P<column>.+?)(?:[,)].*)?(?:\[(?:T\.)?.+\]|=.+)")
"""The column of a level: of `region=south`, or of a formula's `C(region)[T.south]`."""

Rows = NDArray[np.bool_]
Ends = Mapping[float, str]


def separation(parts: Design, weights: Array, family: Family, table: pd.DataFrame) -> str:
    """Describe what separates the target or its level; empty if no single column or level does."""
    ends = family.ends
    for code, level in enumerate(family.levels):
        flag = replace(parts, response=(parts.outcome == code) * 1.0, origin=0.0)
        either = replace(LOGISTIC, ends={0.0: f"other than {level!r}", 1.0: repr(level)})
        if told := separation(flag, weights, either, table):
            return told
    if not ends:
        return ""
    counted = parts.present & (weights > 0)
    target, x = parts.outcome[counted], parts.matrix[counted]
    levels = sorted(_levels(parts, x, target, ends), key=lambda level: level[0].count(":"))
    if levels:
        columns, rows, otherwise = levels[0]
        value = ends[target[rows][0]]
        others = f", and in {len(levels) - 1} more levels or combinations" * (len(levels) > 1)
        place = _named(columns, table[counted], rows) or otherwise
        return (
            f"the target is {value} in every row that counts of {place} ({int(rows.sum()):,}"
            f" synthetic rows){others}: no finite coefficient fits that (separation); merge levels,"
            " or use fewer terms"
        )
    return _threshold(parts, x, target, ends) if len(ends) > 1 else ""


def _levels(parts: Design, x: Array, target: Array, ends: Ends) -> Iterator[tuple[str, Rows, str]]:
    """Yield where the target has one value of `ends`: a column's name, rows, and words for them."""
    is_flag = np.asarray(np.isin(x, (0.0, 1.0)).all(axis=0))
    shifts = bool(parts.constant.any())
    for name, column in zip(parts.names, x.T, strict=True):
        for end in () if name == INTERCEPT else _bare_ends(column, shifts=shifts):
            if _is_constant(target[column != end], ends):
                yield name, column != end, f"{name!r} other than {_text(end) if end else 'zero'}"
    if parts.names[0] != INTERCEPT:
        return
    terms = np.array(parts.terms)
    for term in dict.fromkeys(parts.terms[1:]):
        places, name = np.flatnonzero(terms == term), parts.names[parts.terms.index(term)]
        rows = x[:, places].sum(axis=1) == 0
        is_split = is_flag[places].all() and (x[:, places].sum(axis=1) <= 1).all()
        if is_split and ":" not in name and _is_constant(target[rows], ends):
            yield name, rows, f"the reference level, with which {name!r} is compared"


def _bare_ends(column: Array, *, shifts: bool) -> tuple[float, ...]:
    """Values of a column beyond which it has one sign; with an intercept, both its ends."""
    low, high = float(column.min()), float(column.max())
    if shifts and not np.isin(column, (0.0, 1.0)).all():
        return low, high
    return (0.0,) if low >= 0 or high <= 0 else ()


def _text(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e18 else f"{value:.10g}"


def _is_constant(values: Array, ends: Ends) -> bool:
    return bool(values.size and values[0] in ends and np.all(values == values[0]))


def _named(columns: str, table: pd.DataFrame, rows: Rows) -> str:
    levels = []
    for name in columns.split(":"):
        match = _LEVEL.fullmatch(name)
        column = name if match is None else match["column"]
        values = table[column][rows].unique().tolist() if column in table.columns else []
        if len(values) != 1:
            return ""
        levels.append(f"{column} = {values[0]!r}")
    return " and ".join(levels)


def _threshold(parts: Design, x: Array, target: Array, ends: Ends) -> str:
    if parts.names[0] != INTERCEPT:
        return ""
    for name, column in zip(parts.names[1:], x.T[1:], strict=True):
        no, yes = column[target == 0], column[target == 1]
        for low, high, below in ((no, yes, 0.0), (yes, no, 1.0)):
            if low.max() <= high.min() and low.min() < high.max():
                last, first = _text(float(low.max())), _text(float(high.min()))
                return (
                    f"{name!r} alone tells the target: it is {ends[below]} up to {last} and"
                    f" {ends[1 - below]} from {first} on; no finite coefficient fits that"
                    " (separation); leave it out"
                )
    return ""


_STEPS, _TOLERANCE, _ROUNDING = 100, 1e-8, 1e-13
_LARGEST = 500.0
"""Limit of linear predictors: e^500 is still a number."""
_MOST_LEVELS = 20
"""Of a target: a fit takes 8 (levels - 1)^2 bytes a row."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A generalised linear model: a row's log likelihood, concave in its linear predictor t.

    Attributes:
        likelihood: of (y, t), up to a constant in y.
        score: derivative of the likelihood by t, shape of t.
        curvature: minus its second derivative, >= 0; shape (n,), or (n, k, k) of k predictors.
        takes: which y are possible, shape of y; `expected` says so in words.
        log_link: whether the mean is exp(t).
        ends: values of y that the mean never reaches, the least first, in words.
        levels: of a target of k + 1 levels, whose log odds against the first t, shape (n, k), are;
            y is their place. Empty: t has shape (n,).
    """

    name: str
    likelihood: Callable[[Array, Array], Array]
    score: Callable[[Array, Array], Array]
    curvature: Callable[[Array, Array], Array]
    takes: Callable[[Array], NDArray[np.bool_]]
    expected: str
    log_link: bool = True
    ends: Ends = field(default_factory=dict)
    levels: tuple[Any, ...] = ()

    def names(self, terms: Sequence[str]) -> tuple[str, ...]:
        """Names of the coefficients, such as `south vs north: age`, the first predictor's first."""
        stems = [f"{level} vs {self.levels[0]}: " for level in self.levels[1:]] or [""]
        return tuple(f"{stem}{term}" for stem in stems for term in terms)

    def predictors(self, x: Array, b: Array) -> Array:
        """Linear predictors t of coefficients in the order of `names`."""
        return np.asarray(x @ b.reshape(-1, x.shape[1]).T if self.levels else x @ b)

    def information(self, x: Array, y: Array, mass: Array, b: Array) -> Array:
        """Minus the second derivative of the likelihood by b, rows counted by `mass`."""
        curve, k = mass * self.curvature(y, self.predictors(x, b)).T, b.size // x.shape[1]
        return np.block(
            [[(x * part[:, None]).T @ x for part in line] for line in curve.reshape(k, k, len(x))]
        )


def _logistic(t: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(t, -_LARGEST, _LARGEST))))


def _exp(t: Array) -> Array:
    return np.asarray(np.exp(np.clip(t, -_LARGEST, _LARGEST)))


LOGISTIC = Family(
    name="logistic regression",
    likelihood=lambda y, t: y * t - np.logaddexp(0.0, t),
    score=lambda y, t: y - _logistic(t),
    curvature=lambda y, t: _logistic(t) * (1 - _logistic(t)),
    takes=lambda y: (y == 0) | (y == 1),
    expected="a target of truth values, 0 and 1, or text",
    log_link=False,
    ends={0.0: "False", 1.0: "True"},
)
MULTINOMIAL = Family(
    name="multinomial logistic regression",
    likelihood=lambda y, t: (_at(y, t) * t).sum(axis=1) - np.logaddexp.reduce(t, 1, initial=0.0),
    score=lambda y, t: _at(y, t) - _chances(t),
    curvature=lambda y, t: _chances(t)[:, None] * (np.eye(t.shape[1]) - _chances(t)[:, :, None]),
    takes=lambda y: y >= 0,
    expected="a target of text",
    log_link=False,
)
"""Baseline-category logits (Agresti 2013, section 8.1); `logistic_design` adds the `levels`."""


def _at(y: Array, t: Array) -> Array:
    """Whether a row is at each level but the first, shape of t."""
    return np.equal.outer(y, np.arange(1, t.shape[1] + 1)) * 1.0


def _chances(t: Array) -> Array:
    """Probabilities of the levels but the first, shape of t."""
    return np.asarray(np.exp(t - np.logaddexp.reduce(t, 1, initial=0.0, keepdims=True)))


POISSON = Family(
    name="Poisson regression",
    likelihood=lambda y, t: y * t - _exp(t),
    score=lambda y, t: y - _exp(t),
    curvature=lambda y, t: _exp(t),
    takes=lambda y: y >= 0,
    expected="a target of numbers >= 0",
    ends={0.0: "0"},
)
GAMMA = Family(
    name="gamma regression",
    likelihood=lambda y, t: -y * _exp(-t) - t,
    score=lambda y, t: y * _exp(-t) - 1,
    curvature=lambda y, t: y * _exp(-t),
    takes=lambda y: y > 0,
    expected="a target of numbers > 0",
)


def _regression(
    source: Source,
    target: str,
    features: Sequence[str] | None,
    where: Column | None,
    family: Family | None,
) -> Estimate:
    sample = weighted_sample(source)
    rows = chosen(sample, where)
    if family is LOGISTIC:
        subset, family = logistic_design(sample.frame, rows, sample.weights, target, features)
    else:
        subset = design(sample.frame, target, features).kept(rows)
    outcome = subset.outcome[subset.present & (sample.weights > 0)]
    if not outcome.size:
        raise WeightError(
            f"the target of {target!r} or a feature is missing in every row that counts; leave out"
            " the feature, or choose more rows with `where`",
            field="regression",
        )
    if family is LOGISTIC and np.all(outcome == outcome[0]):
        raise WeightError(
            f"the target of {target!r} is {bool(outcome[0])} in every row that counts; choose rows"
            " with both values with `where`",
            field=family.name,
        )
    if family is not None and not np.all(family.takes(outcome)):
        message = f"{family.name}: expected {family.expected}"
        raise WeightError(f"{message}; the target of {target!r} has other values")
    if family is not None:
        orthonormal(subset, sample.weights)  # names dependent features first
        if told := separation(subset, sample.weights, family, sample.frame):
            raise WeightError(told, field=family.name)
    return _fitted(sample, subset, family)


def logistic_design(
    frame: pd.DataFrame, rows: Rows, weights: Array, target: str, features: Sequence[str] | None
) -> tuple[Design, Family]:
    """Return the design of some rows, shape (n,), and LOGISTIC, or for text MULTINOMIAL.

    The outcome of text is the place of its level among those of rows with weight, sorted; no other
    row is `present`. Raises WeightError for one level, or more than 20.
    """
    name = target
    if features is None and isinstance(target, str):
        coded, names = private_formula(frame, target)
        name = names.get(coded.partition("~")[0].strip(), target)
    name = known_name(frame, name) if isinstance(name, str) else ""
    if name not in frame.columns or checked_column(frame, name).dtype.kind != "O":
        return design(frame, target, features).kept(rows), LOGISTIC
    labels = sorted(frame[name].dropna().unique(), key=str)
    codes = frame[name].map({label: float(code) for code, label in enumerate(labels)})
    parts = design(frame.assign(**{name: codes.astype(float)}), target, features).kept(rows)
    found = np.unique(parts.outcome[parts.present & (weights > 0)])
    if not 2 <= len(found) <= _MOST_LEVELS:
        raise WeightError(
            f"the target of {target!r} has {len(found)} of its levels in the rows that count",
            field=MULTINOMIAL.name,
            allowed=f"2 to {_MOST_LEVELS}; choose rows with `where`, or merge levels",
        )
    parts = parts.kept(np.isin(parts.outcome, found))
    places = np.asarray(np.searchsorted(found, parts.outcome), dtype=np.float64)
    levels = tuple(labels[int(code)] for code in found)
    return replace(parts, response=places, origin=0.0), replace(MULTINOMIAL, levels=levels)


def _fitted(sample: WeightedSample, parts: Design, family: Family | None) -> Estimate:
    columns, coefficients, b = _fit(parts, sample.weights, family)
    x, y, mass = columns.matrix, parts.outcome, sample.weights * parts.present
    if family is None:
        score, information = columns.response - x @ b, (x * mass[:, None]).T @ x
    else:
        score = family.score(y, family.predictors(x, b))
        information = family.information(x, y, mass, b)
    score = score.reshape(len(x), -1) * parts.present[:, None]
    gradient = (score[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    influence = np.linalg.solve(information / len(x), gradient.T).T
    sides = compared(parts, sample.weights)
    if family is not None and family.levels:
        places = range(1, len(family.levels))
        sides = np.concatenate([sides & np.isin(y, (0, k))[:, None] for k in places], axis=2)
    return Estimate(
        names=parts.names if family is None else family.names(parts.names),
        values=coefficients, influence=influence @ columns.back.T,
        sample=sample, group=parts.present[:, None], sides=sides,
    )  # fmt: skip


def _fit(parts: Design, weights: Array, family: Family | None) -> tuple[Standard, Array, Array]:
    """Orthonormal columns (`back` is of all predictors); coefficients in own units and in these."""
    columns = orthonormal(parts, weights)
    mass = weights * parts.present
    if family is None:
        b = columns.matrix.T @ (mass * columns.response) / mass.sum()
        return columns, columns.back @ b + columns.level, b
    b = fit_glm(columns.matrix, parts.outcome, mass / mass.sum(), family)
    back = np.asarray(np.kron(np.eye(b.size // len(columns.scale)), columns.back))
    return replace(columns, back=back), back @ b, b


def fit_glm(x: Array, y: Array, share: Array, family: Family, prior: Array | None = None) -> Array:
    """Maximise the weighted likelihood of a generalised linear model by damped Newton steps.

    Columns of `x`, shape (n, p), have mean square near one under `share`, shape (n,), which sums to
    one. `prior` P, shape of the information: b'Pb / 2 is subtracted from the mean likelihood.
    Raises WeightError if no finite maximum was found (logistic regression: separable classes).
    """
    b = np.zeros(x.shape[1] * max(len(family.levels) - 1, 1))
    prior = np.zeros((b.size, b.size)) if prior is None else prior
    if family.log_link:  # the usual start of such fits: near the logarithms of y
        middle = max(float(share @ y), 1e-300)
        b = x.T @ (share * np.log((np.where(share > 0, y, middle) + middle) / 2))

    def height(b: Array) -> float:
        return float(share @ family.likelihood(y, family.predictors(x, b)) - b @ prior @ b / 2)

    value = height(b)
    for _ in range(_STEPS):
        score = family.score(y, family.predictors(x, b))
        gradient = (x.T @ (share * score.T).T).T.ravel() - prior @ b
        hessian = family.information(x, y, share, b) + prior
        step, _, rank, _ = np.linalg.lstsq(hessian, gradient, rcond=1e-12)
        if rank < b.size:
            break
        # Where the classes separate the gradient vanishes too, but the steps stay of length one.
        if np.abs(x @ step.reshape(-1, x.shape[1]).T).max() <= _TOLERANCE:
            return np.asarray(b + step)
        length = 1.0
        while length > 1e-8:
            moved = height(b + length * step)
            if moved >= value - _ROUNDING * (1 + abs(value)):
                break
            length /= 2
        b, value = b + length * step, moved
    raise WeightError(
        "no finite coefficients fit best, because a combination of features separates the values"
        " of the target, or has a group without counts; merge levels, or use fewer terms",
        field=family.name,
    )


def compared(parts: Design, weights: Array) -> NDArray[np.bool_]:
    """Two groups of rows for each coefficient, shape (2, n, p) (`Estimate.sides`).

    A level: its rows, and the level left out. A number equal in half of the rows or more: those
    rows, and the others. Other numbers, and the intercept: all rows, twice.
    """
    rows = parts.present & (weights > 0)
    sides = np.empty((2, *parts.matrix.shape), dtype=bool)
    terms = np.asarray(parts.terms)
    for term in np.unique(terms):
        places = np.flatnonzero(terms == term)
        block = parts.matrix[:, places]
        left_out = rows & ~block.any(axis=1)
        is_flag = np.isin(block[rows], (0.0, 1.0)).all() and (block[rows].sum(axis=1) <= 1).all()
        if is_flag and left_out.any():
            sides[0][:, places] = rows[:, None] & (block > 0)
            sides[1][:, places] = left_out[:, None]
            continue
        for place in places:
            sides[:, :, place] = _unlike_most(parts.matrix[:, place], rows)
    return sides


def _unlike_most(values: Array, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    row_values = values[rows]
    middle = np.partition(row_values, (row_values.size - 1) // 2)[(row_values.size - 1) // 2]
    usual = rows & (values == middle)
    if 2 * usual.sum() < row_values.size or usual.sum() == row_values.size:
        usual = rows
    others = rows & ~usual
    return np.stack([usual, others if others.any() else rows])


def linear_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted least squares of `target` on `features` with an intercept; coefficients by name.

    Influence: H^{-1} x s, with s the derivative of a row's log likelihood by its linear predictor
    (here y - x.b) and H the weighted mean of -s' x x'. Dependent features raise WeightError.

    Args:
        source: a release, or (table, weights).
        target: numeric or boolean column; or, without `features`, `income ~ age * smoker`.
        features: columns, and products such as `a:b`; rows with a missing value are left out.
        where: rows that count, as in `dpiw.analysis.mean`.
    """
    return _regression(source, target, features, where, None)


def logistic_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted logistic regression of a boolean `target`: log odds; as `linear_regression`.

    Text: the multinomial model of 2 to 20 levels, log odds of each against the first in
    alphabetical order of those in the rows that count, by names such as `south vs north: age`.
    """
    return _regression(source, target, features, where, LOGISTIC)


def poisson_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted Poisson regression of counts: logarithms of rates; as `linear_regression`."""
    return _regression(source, target, features, where, POISSON)


def gamma_regression(
    source: Source,
    target: str,
    features: Sequence[str] | None = None,
    *,
    where: Column | None = None,
) -> Estimate:
    """Weighted gamma regression of numbers > 0: logarithms of means; as `linear_regression`."""
    return _regression(source, target, features, where, GAMMA)
