"""Named statistics of a table, with or without weights: means, conditional means, correlations.

Used to show, on data whose truth is public, what the weights repaired. A statistic is a mapping:

    {"kind": "mean", "column": "income"}                             mean of a numeric column
    {"kind": "mean", "column": "ill", "level": "true"}               share of a level
    {"kind": "mean", ..., "where": {"smoker": "true"}}               the same among some rows
    {"kind": "correlation", "columns": ["age", "hours"]}             Pearson's correlation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.errors import SpecError


def _text(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.astype("string").str.lower()


def _numbers(column: pd.Series[Any]) -> NDArray[np.float64]:
    return np.asarray(column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan))


def _rows(frame: pd.DataFrame, where: Mapping[str, str]) -> NDArray[np.bool_]:
    chosen = np.ones(len(frame), dtype=np.bool_)
    for name, level in where.items():
        chosen &= (_text(frame[name]) == level.lower()).fillna(False).to_numpy(dtype=np.bool_)
    return chosen


def _values(frame: pd.DataFrame, statistic: Mapping[str, Any]) -> NDArray[np.float64]:
    column = frame[statistic["column"]]
    if "level" not in statistic:
        return _numbers(column)
    hit = _text(column) == str(statistic["level"]).lower()
    return _numbers(hit)


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    is_present = ~np.isnan(values)
    total = weights[is_present].sum()
    return (
        float((weights[is_present] * values[is_present]).sum() / total)
        if total > 0
        else float("nan")
    )


def _correlation(
    left: NDArray[np.float64], right: NDArray[np.float64], weights: NDArray[np.float64]
) -> float:
    is_present = ~(np.isnan(left) | np.isnan(right))
    a, b, w = left[is_present], right[is_present], weights[is_present]
    if w.sum() <= 0:
        return float("nan")
    w = w / w.sum()
    a, b = a - (w * a).sum(), b - (w * b).sum()
    scale = np.sqrt((w * a * a).sum() * (w * b * b).sum())
    return float((w * a * b).sum() / scale) if scale > 0 else float("nan")


def evaluate(
    statistic: Mapping[str, Any], frame: pd.DataFrame, weights: NDArray[np.float64] | None
) -> float:
    """Return one statistic of `frame`, weighted by `weights` (shape (rows,)) or unweighted.

    Missing cells are left out. The result is NaN where no row qualifies.

    Raises:
        SpecError: the kind of statistic is unknown, or a column is not in the table.
    """
    used = np.ones(len(frame)) if weights is None else np.asarray(weights, dtype=np.float64)
    names = [*statistic.get("columns", ()), *statistic.get("where", {})]
    names += [statistic["column"]] if "column" in statistic else []
    for name in names:
        if name not in frame.columns:
            raise SpecError(f"statistic on {name}: expected one of {', '.join(frame.columns)}")
    chosen = _rows(frame, statistic.get("where", {}))
    part, used = frame[chosen], used[chosen]
    match statistic.get("kind"):
        case "mean":
            return _mean(_values(part, statistic), used)
        case "correlation":
            left, right = statistic["columns"]
            return _correlation(_numbers(part[left]), _numbers(part[right]), used)
        case other:
            raise SpecError(f"statistic kind {other!r}: expected mean or correlation")


def label(statistic: Mapping[str, Any]) -> str:
    """A short name for people: `mean income | education = master`."""
    if statistic["kind"] == "correlation":
        return "correlation of " + " and ".join(statistic["columns"])
    level = f" = {statistic['level']}" if "level" in statistic else ""
    where = ", ".join(f"{name} = {value}" for name, value in statistic.get("where", {}).items())
    kind = "share" if level else "mean"
    return f"{kind} {statistic['column']}{level}" + (f" | {where}" if where else "")
