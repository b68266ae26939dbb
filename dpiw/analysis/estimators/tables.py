"""Tables of weighted rows: descriptions of columns, shares of levels, cross tables."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from dpiw.analysis.columns import SHARE, Bins, Column, Levels, crossed, declared_as, levels, shifted
from dpiw.analysis.conditions import chosen
from dpiw.analysis.estimators.estimates import Estimate
from dpiw.analysis.estimators.quantiles import weighted_quantile
from dpiw.analysis.names import checked_column, spelt
from dpiw.analysis.sample import Array, Source, WeightedSample, effective_rows, weighted_sample
from dpiw.data.schema.columns import Column as Declared
from dpiw.errors import ReleaseError

QUARTERS = np.array([0.25, 0.5, 0.75])


def describe(source: Source, *columns: str, where: Column | None = None) -> pd.DataFrame:
    """Describe each column: share known; mean, spread and quarters of numbers; the main level.

    Numbers are of rows, without intervals; `effective rows`: of the mean, or of the main level's
    share. Least and largest are left out, since in synthetic rows they are the public bounds, and
    so is the most frequent date.

    Args:
        source: a release, or (table, weights).
        columns: their names; default: all.
        where: rows that count, as in `dpiw.analysis.mean`.
    """
    sample = weighted_sample(source)
    weights = sample.weights * chosen(sample, where)
    table = sample.frame
    names = columns or tuple(table.columns)
    rows = {
        name: _described(checked_column(table, name), weights, declared_as(sample, name))
        for name in names
    }
    several = f" (of rows, up to {sample.max_rows} a person)" if sample.max_rows > 1 else ""
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(f"column{several}")


def _described(values: pd.Series, weights: Array, declared: Declared | None) -> dict[str, object]:
    is_present = values.notna().to_numpy()
    mass = weights * is_present
    facts: dict[str, object] = {"known": float(mass.sum() / weights.sum())}
    if not mass.sum() > 0:
        return facts
    if pd.api.types.is_numeric_dtype(values.dtype):
        raw = values.to_numpy(dtype=np.float64, na_value=np.nan)[is_present]
        part = shifted(values)
        less = part.values[is_present]
        center = float(np.average(less, weights=mass[is_present]))
        spread = float(np.sqrt(np.average((less - center) ** 2, weights=mass[is_present])))
        quarters = weighted_quantile(raw, mass[is_present], QUARTERS)
        facts |= {"mean": float(part.origin) + center, "std": spread}
        facts |= {f"{p:.0%}": q for p, q in zip(QUARTERS, quarters, strict=True)}
        return facts | {"effective rows": float(effective_rows(mass[is_present], less - center))}
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return facts | {"levels": values.nunique()}
    codes, labels = pd.factorize(values, sort=True)
    shares = (
        np.bincount(codes[is_present], weights=mass[is_present], minlength=len(labels)) / mass.sum()
    )
    top = int(np.argmax(shares))
    size = len(labels) if declared is None else max(len(labels), declared.cardinality)
    facts |= {"levels": size, "top": labels[top], "top share": float(shares[top])}
    return facts | {"effective rows": float(effective_rows(mass, (codes == top) - shares[top]))}


def value_counts(
    source: Source, column: str, *, bins: Bins = None, where: Column | None = None
) -> Estimate:
    """Return the share of rows at each level of a column, with intervals; missing is a level.

    Every level that the schema declares has a line, in its order, also without rows. Influence:
    (1{level} - share) over the share of the rows that count.

    Args:
        source: a release, or (table, weights).
        column: its name.
        bins: for numbers or dates: number of equal parts of the rows' range, or edges.
        where: rows that count, as in `dpiw.analysis.mean`.
    """
    if not isinstance(column, str):
        raise ReleaseError(field="column", allowed="the name of one column")
    return shares(source, [column], bins=bins, where=where)


def shares(
    source: Source, columns: Sequence[str], *, bins: Bins = None, where: Column | None = None
) -> Estimate:
    """Return the share of rows in each cell of one or more columns' levels, as `value_counts`."""
    sample = weighted_sample(source)
    parts, mask = crossed(sample, columns, bins), chosen(sample, where)
    names = tuple(str(label) for label in parts.labels)
    indicators = np.equal.outer(parts.codes, np.arange(len(names))) * mask[:, None] * 1.0
    values = np.asarray(sample.weights @ indicators / (sample.weights @ mask))
    influence = (indicators - np.outer(mask, values)) / float((sample.weights * mask).mean())
    return Estimate(
        names=names, values=values, influence=influence, sample=sample,
        group=mask[:, None], level=indicators > 0, limits=SHARE,
    )  # fmt: skip


@spelt(normalize="normalise")
def crosstab(
    source: Source,
    rows: str,
    columns: str,
    *,
    normalise: bool | Literal["rows"] = True,
    bins: Bins = None,
    where: Column | None = None,
) -> pd.DataFrame:
    """Return weighted counts of two columns' levels; missing is a level.

    Every declared level is there, in the schema's order. A count of 0 means that no synthetic row
    is there, not that no person is.

    Args:
        source: a release, or (table, weights).
        rows: column whose levels index the result.
        columns: column whose levels head it.
        normalise: True: shares of all rows; `rows`: shares within a level of `rows`; False: sums of
            weights, whose mean is one. Intervals of shares: `value_counts`.
        bins: for columns of many numbers or dates: number of equal parts, or edges.
        where: rows that count, as in `dpiw.analysis.mean`.
    """
    sample = weighted_sample(source)
    first, second = (binned_levels(sample, name, bins) for name in (rows, columns))
    counts = np.zeros((len(first.labels), len(second.labels)))
    np.add.at(counts, (first.codes, second.codes), sample.weights * chosen(sample, where))
    table = pd.DataFrame(
        counts,
        index=pd.Index(list(first.labels), name=rows),
        columns=pd.Index(list(second.labels), name=columns),
    )
    if normalise not in (True, False, "rows"):
        raise ReleaseError("normalise: expected True, False or 'rows'", field="crosstab")
    if normalise == "rows":
        return table.div(table.sum(axis=1), axis=0)
    return table / counts.sum() if normalise else table


def binned_levels(sample: WeightedSample, name: str, bins: Bins) -> Levels:
    """Return `levels`, with `bins` applied to numbers and dates only."""
    values = checked_column(sample.frame, name)
    is_wide = values.dtype.kind in "fiuM" and values.nunique() > 2
    return levels(sample, name, bins if is_wide else None)
