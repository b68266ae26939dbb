"""Public truth of a simulated population, never of confidential rows.

A statistic is a mapping:

    {"kind": "mean", "column": "income"}                             mean of a numeric column
    {"kind": "mean", "column": "ill", "level": "true"}               share of a level
    {"kind": "mean", ..., "where": {"smoker": "true"}}               the same among some rows
    {"kind": "correlation", "columns": ["age", "hours"]}             Pearson's correlation
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.scaled import ScaledTable
from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.release.report.marginals import axis


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
    """Return a statistic of `frame`, weighted (shape (rows,)) or not; NaN if no row qualifies.

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


@dataclass(frozen=True, kw_only=True)
class Repair:
    """One statistic: its public truth, and its estimates without and with weights."""

    name: str
    truth: float
    unweighted: float
    weighted: float

    @property
    def change(self) -> float:
        """Absolute error with weights over that without; below 1 means repaired."""
        before = abs(self.unweighted - self.truth)
        return abs(self.weighted - self.truth) / before if before > 0 else float("inf")


@dataclass(frozen=True, kw_only=True)
class PublicTruth:
    """Shares of every column's public bins (`marginals`), and statistics, each with its `value`."""

    marginals: Mapping[str, NDArray[np.float64]]
    statistics: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, path: Path) -> PublicTruth:
        """Read a JSON file with `margins` and `statistics`; else raises SpecError."""
        try:
            truth = json.loads(path.read_bytes())
            marginals = {name: np.array(shares, float) for name, shares in truth["margins"].items()}
            statistics = tuple(truth["statistics"])
            values = [float(item["value"]) for item in statistics]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise SpecError(
                "public_truth: expected a JSON file with margins and statistics"
            ) from None
        if not np.isfinite(values).all():
            raise SpecError("public_truth: expected finite values")
        return cls(marginals=marginals, statistics=statistics)

    def check(self, schema: PublicSchema) -> None:
        """Raise SpecError unless the truth fits the schema; unknown levels allow every truth."""
        if any(column.unseen for column in schema.released):
            return
        for column in schema.released:
            shares, cells = self.marginals.get(column.name), axis(column).cells
            if shares is not None and (shares.shape != (cells,) or not np.isfinite(shares).all()):
                raise SpecError(
                    f"public_truth: margins: column {column.name}: expected {cells} finite shares"
                )
        least = {c.name: np.zeros(1, float if c.is_numeric else int) for c in schema.released}
        frame = schema.unscale(ScaledTable(least, 1))
        for place, item in enumerate(self.statistics, start=1):
            try:
                label(item)
                evaluate(item, frame, None)
            except (SpecError, LookupError, TypeError, ValueError, AttributeError):
                raise SpecError(
                    f"public_truth: statistics: number {place}: expected a mean or a correlation of"
                    " released columns that hold numbers, or a level's share"
                ) from None

    def repairs(self, frame: pd.DataFrame, weights: NDArray[np.float64]) -> tuple[Repair, ...]:
        """Compare every statistic of the synthetic rows, without and with weights, to the truth."""
        return tuple(
            Repair(
                name=label(item),
                truth=float(item["value"]),
                unweighted=evaluate(item, frame, None),
                weighted=evaluate(item, frame, weights),
            )
            for item in self.statistics
        )
