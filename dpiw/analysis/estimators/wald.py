"""Wald tests with the errors of noise-aware intervals: W = d' V^-1 d is chi-square.

V covers both samples, the privacy noise and the shrinkage. With such errors Pearson's statistic has
another law (Rao and Scott 1984), the Wald statistic of a table this one (Koch et al. 1975).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.columns import Bins, Column, Levels, cells, shifted
from dpiw.analysis.conditions import chosen
from dpiw.analysis.errors.intervals import METHODS, NOISE_AWARE, noise_aware_covariance, shown
from dpiw.analysis.estimators.estimates import Estimate, picked, place_of
from dpiw.analysis.estimators.means import mean, moved
from dpiw.analysis.estimators.tables import binned_levels
from dpiw.analysis.names import checked_column
from dpiw.analysis.sample import Array, Source, check_estimate, weighted_sample
from dpiw.errors import ReleaseError, nearest, one_of
from dpiw.methods.weights.diagnostics import Verdict

_DEPENDENT = 1e-10
"""Least eigenvalue of a correlation matrix that counts as a direction."""

_ROUNDING = 1e-15
"""Smaller errors, as a share of the value, are rounding: 9e15 has one digit after the point."""

_LEAST_TOLD = 0.0001
"""Least p-value printed as a number, since the laws are asymptotic."""

_ORDER = (
    *(verdict.value for verdict in (Verdict.USE, Verdict.CARE, Verdict.DO_NOT_USE)),
    "not assessed",
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WaldTest:
    """The outcome of a Wald test.

    Attributes:
        statistic: W, or z with its sign for one value.
        degrees: of freedom.
        p_value: probability of a larger W under the hypothesis.
        estimate: the value tested to be zero.
        method: `noise_aware`, or `sandwich`, which is too narrow for the population.
        verdict: the worst of the estimate's intervals; at `do not use` the p-value means nothing.
        reasons: why it is not `use` (`Interval.told`).
    """

    hypothesis: str
    statistic: float
    degrees: int
    p_value: float
    estimate: Estimate
    method: str
    verdict: str
    reasons: tuple[str, ...] = ()

    def __repr__(self) -> str:
        single = self.degrees == 1
        name, freedom = "z" if single else "W", f", {self.degrees} degrees of freedom"
        test = f"{name} = {self.statistic:.4g}{'' if single else freedom}"
        p_value = f"= {self.p_value:.3g}" if self.p_value >= _LEAST_TOLD else f"< {_LEAST_TOLD:.4f}"
        text = f"{self.hypothesis}: {test}, p {p_value}"
        text += f" ({self.method.replace('_', '-')}; {self.verdict})"
        if single:
            numbers = (self.estimate.value, self.lower, self.upper)
            value, low, high = (shown(number, self.upper - self.lower) for number in numbers)
            text += f"\n{self.estimate.names[0]}: {value}, 95% interval {low} to {high}"
        return "\n".join([text, *self.reasons])

    @property
    def lower(self) -> float:
        """Lower end of the only value's 95% interval; raises ReleaseError as `Estimate.value`."""
        return self._end("lower")

    @property
    def upper(self) -> float:
        """Upper end; same shape."""
        return self._end("upper")

    def _end(self, name: str) -> float:
        _ = self.estimate.value  # there is one
        return float(getattr(self.estimate.interval(method=self.method), name)[0])


def wald_test(
    estimate: Estimate,
    names: Sequence[str] | None = None,
    *,
    method: str | None = None,
    hypothesis: str | None = None,
) -> WaldTest:
    """Test that some of an estimate's values are all zero; they must not depend on each other.

    Args:
        estimate: of this package, such as a regression.
        names: which values; None: all.
        method: `noise_aware` (the default if the weights' law is known) or `sandwich`.
        hypothesis: its name in the result.
    """
    check_estimate(estimate, "wald_test")
    names = [names] if isinstance(names, str) else names
    tested_names = list(estimate.names if names is None else names)
    unknown = sorted(set(tested_names) - set(estimate.names))
    if unknown or not tested_names:
        near = nearest(unknown[0], estimate.names) if unknown else ""
        raise ReleaseError(
            f"names: expected some of {', '.join(estimate.names)}{near}", field="wald_test"
        )
    part = picked(estimate, [place_of(name, estimate.names) for name in tested_names])
    used = method or ("sandwich" if estimate.sample.law is None else NOISE_AWARE)
    if used not in METHODS:
        raise ReleaseError(field="method", allowed=one_of(used, METHODS))
    covariance = part.covariance() if used == "sandwich" else noise_aware_covariance(part)
    size, squared = len(tested_names), _distance(part.values, covariance)
    signed = math.copysign(math.sqrt(squared), part.values[0])
    interval = part.interval(method=used)
    return WaldTest(
        hypothesis=hypothesis or f"{', '.join(tested_names)} = 0",
        statistic=signed if size == 1 else squared,
        degrees=size,
        p_value=chi_square_tail(squared, size),
        estimate=part,
        method=used,
        verdict=max(interval.verdicts, key=_ORDER.index),
        reasons=tuple(interval.told()),
    )


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Probability that a chi-square variable exceeds `statistic`, without SciPy (DLMF 8.8.6)."""
    y, a = statistic / 2, 1.0 if degrees % 2 == 0 else 0.5
    tail = math.exp(-y) if degrees % 2 == 0 else math.erfc(math.sqrt(y))
    while a < degrees / 2:
        tail += math.exp(a * math.log(y) - y - math.lgamma(a + 1)) if y > 0 else 0.0
        a += 1
    return min(tail, 1.0)


def _distance(values: Array, covariance: Array) -> float:
    errors = np.sqrt(np.diag(covariance))
    if not np.all(errors > _ROUNDING * np.abs(values)):
        raise ReleaseError("a value has no error: it is the same in every row", field="wald_test")
    spreads, axes = np.linalg.eigh(covariance / np.outer(errors, errors))
    if spreads[0] < _DEPENDENT:
        raise ReleaseError("a value follows from the others; name fewer", field="wald_test")
    return float(np.sum((axes.T @ (values / errors)) ** 2 / spreads))


def t_test(
    source: Source,
    column: Column,
    by: str | None = None,
    *,
    value: float | None = None,
    where: Column | None = None,
    method: str | None = None,
) -> WaldTest:
    """Test that two groups have the same mean, or that the mean is `value`.

    Groups share the privacy noise, so their joint covariance counts. The reference law is normal:
    with hundreds of people behind a mean Student's law is the same.

    Args:
        source: a release, or (table, weights).
        column: as in `dpiw.analysis.mean`.
        by: a column of two levels (missing values left out); the second's mean less the first's.
        value: the mean under the hypothesis, without `by`; None: 0.
        where: rows that count.
        method: as in `wald_test`.
    """
    label = column if isinstance(column, str) else "value"
    if value is not None and not (isinstance(value, Real) and math.isfinite(value)):
        raise ReleaseError(f"value: expected a number, found {value!r}", field="t_test")
    sample = weighted_sample(source)
    if by is None:
        null = int(value or 0) if isinstance(value, Integral | None) else float(value)
        estimate, part = mean(sample, column, where=where), shifted(cells(sample, column))
        above = moved(mean(sample, part.values, where=where), float(part.origin - null))
        number = f"{null}" if isinstance(null, int) else f"{null:g}"
        less = replace(
            above, limits=None, level=estimate.level, names=(f"{estimate.names[0]} less {number}",)
        )
        return wald_test(less, method=method, hypothesis=f"mean of {label} = {number}")
    if value is not None:
        raise ReleaseError(
            "`value` is for one mean, and `by` compares two groups: give one of them; for"
            " one group against a value: where=... and value=...",
            field="t_test",
        )
    mask = chosen(sample, where) & checked_column(sample.frame, by).notna().to_numpy()
    if not sample.weights[mask].sum() > 0:
        raise ReleaseError(f"column {by!r} is missing in every row that counts", field="t_test")
    values = shifted(cells(sample, column)).values  # the difference has no origin
    means = mean(sample, values, where=mask, by=by, name=label)
    means = picked(means, np.flatnonzero(means.groups.any(axis=0)).tolist())
    if len(means.names) != 2:
        raise ReleaseError(
            f"column {by!r}: expected two levels, found {len(means.names)}; for more,"
            " regress on it and give the coefficients to wald_test",
            field="t_test",
        )
    first, second = (name.removeprefix(f"{label} | {by}=") for name in means.names)
    contrast = np.array([-1.0, 1.0])
    difference = Estimate(
        names=(f"{label}: {second} less {first}",), values=np.array([means.values @ contrast]),
        influence=(means.influence @ contrast)[:, None], sample=sample,
        group=np.asarray(means.groups.any(axis=1))[:, None], sides=means.groups.T[:, :, None],
    )  # fmt: skip
    return wald_test(difference, method=method, hypothesis=f"mean of {label} the same by {by}")


def chi_square_test(
    source: Source,
    rows: str,
    columns: str,
    *,
    bins: Bins = None,
    where: Column | None = None,
    method: str | None = None,
) -> WaldTest:
    """Test that two columns are independent.

    The estimate is p_ij - p_i p_j in all cells but the last row's and column's, with p weighted
    shares; its influence is 1{ij} - p_ij - (1{i} - p_i) p_j - p_i (1{j} - p_j).

    Args:
        source: a release, or (table, weights).
        rows: column of few levels; missing is a level.
        columns: another column of few levels.
        bins: for columns of many numbers, as in `dpiw.analysis.crosstab`.
        where: rows that count.
        method: as in `wald_test`.
    """
    sample = weighted_sample(source)
    if rows == columns:
        raise ReleaseError(
            f"column {rows!r} is named twice; name two columns", field="chi_square_test"
        )
    mask = chosen(sample, where) * 1.0
    (first, a), (second, b) = (
        _all_but_one(name, binned_levels(sample, name, bins), sample.weights * mask)
        for name in (rows, columns)
    )
    cells = (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    mass = sample.weights * mask / (sample.weights @ mask)
    p_ij, p_i, p_j = mass @ cells, mass @ a, mass @ b
    moved = (a - p_i)[:, :, None] * p_j + p_i[:, None] * (b - p_j)[:, None, :]
    influence = mask[:, None] * (cells - p_ij - moved.reshape(len(a), -1))
    estimate = Estimate(
        names=tuple(f"{i}, {j}" for i in first for j in second),
        values=p_ij - np.outer(p_i, p_j).ravel(),
        influence=influence / float((sample.weights * mask).mean()),
        sample=sample, group=mask[:, None] > 0, level=_rarer(a, b, sample.weights * mask),
    )  # fmt: skip
    return wald_test(estimate, method=method, hypothesis=f"{rows} and {columns} independent")


def _rarer(a: Array, b: Array, weights: Array) -> NDArray[np.bool_]:
    """Rows with the rarer level of each pair, shape (n, cells)."""
    a_mass, b_mass = weights @ a, weights @ b
    first = np.less_equal.outer(a_mass, b_mass)
    members = np.where(first, a[:, :, None] > 0, b[:, None, :] > 0) & (weights > 0)[:, None, None]
    return np.asarray(members.reshape(len(a), -1))


def _all_but_one(name: str, parts: Levels, weights: Array) -> tuple[list[Any], Array]:
    """Levels with weight but the last, and which rows have them, shape (n, k - 1)."""
    codes = [k for k in range(len(parts.labels)) if weights[parts.codes == k].sum() > 0][:-1]
    if not codes:
        raise ReleaseError(
            f"column {name!r} has one level in the rows that count; expected two or more",
            field="chi_square_test",
        )
    return [parts.labels[k] for k in codes], np.equal.outer(parts.codes, codes).astype(np.float64)
