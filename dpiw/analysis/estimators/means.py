"""Weighted means, totals, variances and correlations."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.columns import (
    ROUNDINGS,
    Column,
    bounds,
    cells,
    declared_as,
    is_share,
    numbers,
    shifted,
)
from dpiw.analysis.conditions import chosen
from dpiw.analysis.estimators.estimates import By, Estimate, asked, grouped, label_of, present_rows
from dpiw.analysis.sample import Array, Source, WeightedSample, weighted_sample
from dpiw.data.schema.columns import Column as Declared
from dpiw.errors import ReleaseError


def mean(
    source: Source,
    column: Column,
    *,
    where: Column | None = None,
    by: By = None,
    name: str | None = None,
) -> Estimate:
    """Return the weighted mean sum(w h)/sum(w) of a column, in all rows or in groups.

    Args:
        source: a release, or (table, weights).
        column: a numeric or boolean column, or a function of the table; missing values left out.
        where: rows that count: a condition such as `age > 40 and region == 'south'`, a boolean
            column, or a function of the table (`dpiw.analysis.conditions.condition`).
        by: a column, or a list of them; one value for each combination of their levels.
        name: of the estimate; default: from the column's name.
    """
    sample, label = weighted_sample(source), name or asked(f"mean({label_of(column)})", where)
    values = cells(sample, column)
    part = shifted(values)
    estimate = moved(grouped(sample, part.values, where, by, label, _mean), float(part.origin))
    declared = declared_as(sample, column)
    estimate = replace(estimate, limits=bounds(values, declared))
    if not is_share(values, declared):
        return estimate
    return replace(estimate, level=estimate.groups & (numbers(sample, values) > 0)[:, None])


def moved(estimate: Estimate, by: float) -> Estimate:
    """Return an estimate with a constant added to its values."""
    return replace(estimate, values=estimate.values + by)


def _mean(sample: WeightedSample, values: Array, name: str) -> Estimate:
    present = present_rows(values, name, sample)
    filled, mass = np.where(present, values, 0.0), sample.weights * present
    estimate = mass @ filled / mass.sum()
    influence = np.where(present, filled - estimate, 0.0) / float(mass.mean())
    return Estimate(
        names=(name,), values=np.array([estimate]), influence=influence[:, None], sample=sample,
        group=present[:, None],
    )  # fmt: skip


def total(
    source: Source,
    column: Column,
    *,
    rows: float | None = None,
    population: float | None = None,
    where: Column | None = None,
    name: str | None = None,
) -> Estimate:
    """Return the estimated total of a column over the confidential rows; missing values are zero.

    Args:
        source: a release, or (table, weights).
        column: as in `mean`.
        rows: public number of confidential rows, times the mean. None: n0 times mean(w h), which
            needs a release with `unnormalised` weights (docs/method.md sections 2 and 5).
        population: instead of `rows`, a number of people; only if a person has one row.
        where: as in `mean`.
        name: of the estimate.
    """
    sample = weighted_sample(source)
    given = cells(sample, column)
    values = numbers(sample, given)
    mask = chosen(sample, where)
    filled = np.where(mask & ~np.isnan(values), values, 0.0)
    label = name or asked(f"total({label_of(column)})", where)
    declared, group = declared_as(sample, column), mask[:, None]
    is_counted, reach = is_share(given, declared), _reach(given, declared, filled)
    level = group & (filled > 0)[:, None] if is_counted else None
    count = _public_count(rows, population, sample)
    if count is not None:
        part = _mean(sample, filled, label)
        return Estimate(
            names=(label,), values=count * part.values, influence=count * part.influence,
            sample=sample, group=group, level=level, limits=count * reach,
            facts={"span": count * float(np.average(mask, weights=sample.weights)) * reach},
        )  # fmt: skip
    release = sample.release
    if release is None or sample.totals is None:
        count_of = "population" if sample.max_rows == 1 else "rows"
        raise ReleaseError(
            "these weights give shares, not numbers; pass the public number of the table's"
            f" {'people' if sample.max_rows == 1 else 'rows'} as `{count_of}`, or use a release"
            " with weights.normalisation: unnormalised",
            field="total",
        )
    sample = replace(sample, weights=sample.totals)
    size = release.certificate.nominal_rows * sample.scale
    return Estimate(
        names=(label,), values=np.array([size * np.mean(sample.weights * filled)]),
        influence=size * filled[:, None], sample=sample, group=group, level=level,
        limits=np.where(reach > 0, np.inf, np.where(reach < 0, -np.inf, 0.0)),
        facts={"normalised": False, "span": size * np.mean(sample.weights * mask) * reach},
    )  # fmt: skip


def _reach(given: pd.Series, declared: Declared | None, values: Array) -> Array:
    """Least and largest contribution of one row to a total, shape (2, 1), from public bounds."""
    if (known := bounds(given, declared)) is not None:
        return np.array([np.minimum(known[0], 0.0), np.maximum(known[1], 0.0)])
    return np.array([[0.0 if values.min() >= 0 else -np.inf], [np.inf]])


def _public_count(rows: Any, population: Any, sample: WeightedSample) -> float | None:
    if rows is not None and population is not None:
        raise ReleaseError("rows, population: expected one of them, found both", field="total")
    if population is not None and sample.max_rows > 1:
        raise ReleaseError(
            "population: found a number of people, but a person may have "
            f"{sample.max_rows} rows in this release",
            field="total",
            allowed="rows= instead, the public number of rows of the confidential table",
        )
    what, count = ("population", population) if rows is None else ("rows", rows)
    if count is None:
        return None
    if not isinstance(count, int | float | np.number) or not 0 < count < math.inf:
        raise ReleaseError(f"{what}: expected a finite number > 0", field="total")
    return float(count)


def variance(
    source: Source, column: Column, *, where: Column | None = None, by: By = None
) -> Estimate:
    """Return the weighted variance sum(w (h - mean)^2)/sum(w), of the rows; arguments as `mean`.

    Influence: ((h - mean)^2 - variance) over the group's share.
    """
    label = asked(f"variance({label_of(column)})", where)
    sample = weighted_sample(source)
    return grouped(sample, shifted(cells(sample, column)).values, where, by, label, _variance)


def std(source: Source, column: Column, *, where: Column | None = None, by: By = None) -> Estimate:
    """Return the weighted standard deviation. Arguments and errors as `mean`."""
    label = asked(f"std({label_of(column)})", where)
    sample = weighted_sample(source)
    return grouped(sample, shifted(cells(sample, column)).values, where, by, label, _std)


def _variance(sample: WeightedSample, values: Array, name: str) -> Estimate:
    present = present_rows(values, name, sample)
    filled, share = np.where(present, values, 0.0), float((sample.weights * present).mean())
    mass = sample.weights * present / (sample.weights * present).sum()
    around = (filled - mass @ filled) ** 2
    estimate = float(mass @ around)
    influence = np.where(present, around - estimate, 0.0) / share
    return Estimate(
        names=(name,), values=np.array([estimate]), influence=influence[:, None],
        sample=sample, group=present[:, None], limits=np.array([[0.0], [np.inf]]),
    )  # fmt: skip


def _std(sample: WeightedSample, values: Array, name: str) -> Estimate:
    square = _variance(sample, values, name)
    root = np.sqrt(square.values)
    influence = square.influence / (2 * np.maximum(root, np.finfo(float).tiny))
    return replace(square, values=root, influence=influence)


def correlation(
    source: Source, first: Column, second: Column, *, where: Column | None = None
) -> Estimate:
    """Return the weighted Pearson correlation of rows where both are present."""
    sample = weighted_sample(source)
    one, other = (shifted(cells(sample, column)) for column in (first, second))
    either = np.where(chosen(sample, where), one.values + other.values, np.nan)
    present = present_rows(either, "correlation", sample)
    x, y = (np.where(present, part.values, 0.0) for part in (one, other))
    mass = sample.weights * present / (sample.weights * present).sum()
    u, v = x - mass @ x, y - mass @ y
    for column, part in ((first, one), (second, other)):
        if np.ptp(part.values[mass > 0]) <= ROUNDINGS * part.grain:
            raise ReleaseError(
                f"column {label_of(column)!r} has one value in every row that counts, so there"
                " is no correlation; choose another column, or more rows with `where`",
                field="correlation",
            )
    spread = np.sqrt([mass @ u**2, mass @ v**2])
    u, v = u / spread[0], v / spread[1]
    estimate, share = float(mass @ (u * v)), float((sample.weights * present).mean())
    influence = np.where(present, u * v - estimate * (u**2 + v**2) / 2, 0.0) / share
    return Estimate(
        names=(asked(f"correlation({label_of(first)}, {label_of(second)})", where),),
        values=np.array([estimate]), influence=influence[:, None], sample=sample,
        group=present[:, None], limits=np.array([[-1.0], [1.0]]),
    )  # fmt: skip
