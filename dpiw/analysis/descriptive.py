"""Weighted means, totals, quantiles, tables of counts and correlations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.estimates import check_columns
from dpiw.analysis.sample import (
    Array,
    Estimate,
    Source,
    WeightedSample,
    numbers,
    weighted_sample,
)
from dpiw.errors import ReleaseError

Column = str | Callable[[pd.DataFrame], Any]


def _present(values: Array, what: str, sample: WeightedSample) -> Array:
    present = ~np.isnan(values)
    if not sample.weights[present].sum() > 0:
        raise ReleaseError(f"{what}: every value is missing or has weight zero")
    return present


def _label(column: Column, name: str | None = None) -> str:
    return name or (column if isinstance(column, str) else "value")


def mean(
    source: Source, column: Column, *, where: Column | None = None, name: str | None = None
) -> Estimate:
    """Weighted mean sum(w h)/sum(w) of a column, in all rows or in those of a group.

    Args:
        source: a release, or (table, weights).
        column: a numeric or boolean column, or a function of the table. Missing values are
            left out.
        where: a boolean column or function; the mean is then over the rows where it is true.
        name: what the estimate is called; the column's name if there is one.

    Raises:
        ReleaseError: not numbers, or nothing to average.
    """
    sample = weighted_sample(source)
    values = numbers(sample, column)
    if where is not None:
        values = np.where(numbers(sample, where) == 1, values, np.nan)
    return _mean(sample, values, name or f"mean({_label(column)})")


def _mean(sample: WeightedSample, values: Array, name: str) -> Estimate:
    present = _present(values, name, sample)
    filled = np.where(present, values, 0.0)

    def refit(weights: Array) -> Array:
        mass = weights * present
        return np.array([mass @ filled / mass.sum()])

    estimate = refit(sample.weights)
    share = float((sample.weights * present).mean())
    influence = np.where(present, filled - estimate[0], 0.0) / share
    return Estimate(
        names=(name,), values=estimate, influence=influence[:, None], refit=refit, sample=sample
    )


def total(
    source: Source,
    column: Column,
    *,
    population: float | None = None,
    name: str | None = None,
) -> Estimate:
    """Estimated total of a column over the real population; missing values count as zero.

    Args:
        source: a release, or (table, weights).
        column: as in `mean`.
        population: the public number of rows of the confidential table, if it is public: the
            total is then this times the mean. None: n0 times mean(w h), which needs a release
            whose weights are `unnormalised` (docs/method.md sections 2 and 5).
        name: what the estimate is called.

    Raises:
        ReleaseError: `population` is not given and the weights hold no scale; or as `mean`.
    """
    sample = weighted_sample(source)
    values = numbers(sample, column)
    filled = np.where(np.isnan(values), 0.0, values)
    told = name or f"total({_label(column)})"
    if population is not None:
        part = _mean(sample, filled, told)
        return Estimate(
            names=(told,), values=population * part.values, influence=population * part.influence,
            refit=lambda weights: population * part.refit(weights), sample=sample,
        )  # fmt: skip
    release = sample.release
    if release is None or sample.totals is None:
        raise ReleaseError(
            "total: self-normalised weights hold no scale; give the public `population`, or use a"
            " release with weights.normalisation: unnormalised"
        )
    if sample.tilt is not None:
        raise ReleaseError("total: `unshrunk` weights hold no scale; give the public `population`")
    sample = replace(sample, weights=sample.totals)
    size = release.certificate.nominal_rows * sample.scale

    def refit(weights: Array) -> Array:
        return np.array([size * np.mean(weights * filled)])

    return Estimate(
        names=(told,), values=refit(sample.weights), influence=size * filled[:, None], refit=refit,
        sample=sample, facts={"normalised": False},
    )  # fmt: skip


def weighted_quantile(values: Array, weights: Array, probabilities: Array) -> Array:
    """Smallest value whose weighted share of rows at or below it reaches each probability."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, probabilities * reached[-1] * (1 - 1e-12), side="left")
    return np.asarray(values[order][np.minimum(place, values.size - 1)])


def quantile(
    source: Source, column: Column, probability: float = 0.5, *, name: str | None = None
) -> Estimate:
    """Weighted quantile: the smallest value that a share `probability` of the weight reaches.

    Its standard error divides that of the share by the density there, taken from the quantiles
    on both sides (Woodruff 1952, in its symmetric form). On integer columns it is a bound only:
    a quantile cannot move by less than one.

    Raises:
        ReleaseError: `probability` is not inside (0, 1), or as `mean`.
    """
    if not 0 < probability < 1:
        raise ReleaseError("quantile: expected 0 < probability < 1")
    sample = weighted_sample(source)
    values = numbers(sample, column)
    present = _present(values, "quantile", sample)
    kept = values[present]

    def refit(weights: Array) -> Array:
        return weighted_quantile(kept, weights[present], np.array([probability]))

    mass = sample.weights[present]
    estimate = refit(sample.weights)
    density = _density(kept, mass, probability)
    share = float((sample.weights * present).mean())
    below = np.where(present, values <= estimate[0], probability)
    reached = float(mass @ (kept <= estimate[0]) / mass.sum())
    pull = np.where(present, (reached - below) / (density * share), 0.0)
    return Estimate(
        names=(name or f"quantile({_label(column)}, {probability:g})",), values=estimate,
        influence=pull[:, None], refit=refit, sample=sample,
        facts={"density": density, "smooth": False},
    )  # fmt: skip


def _density(values: Array, weights: Array, probability: float) -> float:
    """Density at a quantile: a share over the distance of the quantiles on its two sides."""
    size = float(weights.sum() ** 2 / (weights**2).sum())
    half = min(size ** (-1 / 3) * 0.5, probability / 2, (1 - probability) / 2)
    for _ in range(8):  # a column with ties needs a wider step
        low, high = weighted_quantile(
            values, weights, np.array([probability - half, probability + half])
        )
        if high > low:
            return float(2 * half / (high - low))
        half = min(2 * half, 0.999 * min(probability, 1 - probability))
    return np.inf


def crosstab(source: Source, rows: str, columns: str, *, normalise: bool = True) -> pd.DataFrame:
    """Weighted counts of two columns' levels; missing is a level of its own.

    Args:
        source: a release, or (table, weights).
        rows: column whose levels index the result.
        columns: column whose levels head it.
        normalise: shares of all rows; False: sums of weights, whose mean is one.

    Raises:
        ReleaseError: no such column.
    """
    sample = weighted_sample(source)
    check_columns(sample.table.columns, rows, columns)
    first, second = (
        sample.table[name].astype(object).where(sample.table[name].notna(), "missing")
        for name in (rows, columns)
    )
    mass = pd.Series(sample.weights, index=sample.table.index)
    counts: pd.DataFrame = mass.groupby([first, second]).sum().unstack(fill_value=0)
    counts = counts.rename_axis(index=rows, columns=columns)
    return counts / sample.weights.sum() if normalise else counts


def correlation(source: Source, first: Column, second: Column) -> Estimate:
    """Weighted Pearson correlation over the rows where both are present.

    Raises:
        ReleaseError: not numbers, nothing present, or one of them does not vary.
    """
    sample = weighted_sample(source)
    x, y = numbers(sample, first), numbers(sample, second)
    present = _present(x + y, "correlation", sample)
    x, y = np.where(present, x, 0.0), np.where(present, y, 0.0)

    def moments(weights: Array) -> tuple[Array, Array, float]:
        mass = weights * present / (weights * present).sum()
        u, v = x - mass @ x, y - mass @ y
        spread = np.sqrt([mass @ u**2, mass @ v**2])
        if not np.all(spread > 1e-12 * np.abs([x, y]).max(axis=1)):
            raise ReleaseError("correlation: a column does not vary")
        u, v = u / spread[0], v / spread[1]
        return u, v, float(mass @ (u * v))

    u, v, estimate = moments(sample.weights)
    share = float((sample.weights * present).mean())
    influence = np.where(present, u * v - estimate * (u**2 + v**2) / 2, 0.0) / share
    return Estimate(
        names=(f"correlation({_label(first)}, {_label(second)})",), values=np.array([estimate]),
        influence=influence[:, None], refit=lambda w: np.array([moments(w)[2]]), sample=sample,
    )  # fmt: skip
