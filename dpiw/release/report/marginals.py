"""Shares of every column's public bins and levels, for the report's plots.

Bins come from the public schema alone, so the axes of a plot reveal nothing of any table.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.levels import marker
from dpiw.data.row_weights import mean_one_weights
from dpiw.data.schema import PublicSchema

BINS = 20
MISSING = "missing"

_SECONDS = {ColumnKind.DATE: 86400, ColumnKind.DATETIME: 1}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The public bins of a numeric column or the levels of a discrete one.

    Attributes:
        labels: levels (`missing` last, if nullable), or the texts of a numeric column's bounds.
        edges: increasing bin edges of a numeric column in own units; empty for discrete ones.
        cells: number of shares, missing included.
    """

    labels: tuple[str, ...]
    edges: tuple[float, ...]
    cells: int
    nullable: bool


def axis(column: Column) -> Axis:
    """Return the public axis of a column."""
    missing = (marker(MISSING, column.level_names),) if column.nullable else ()
    if column.is_discrete:
        labels = (*column.level_names, *missing)
        return Axis(labels=labels, edges=(), cells=len(labels), nullable=column.nullable)
    edges = _edges(column)
    return Axis(
        labels=(_bound(column, column.lower_number), _bound(column, column.upper_number)),
        edges=edges,
        cells=len(edges) - 1 + len(missing),
        nullable=column.nullable,
    )


def marginals(
    frame: pd.DataFrame, *, schema: PublicSchema, weights: NDArray[np.float64] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return each released column's shares, shape (cells,), summing to one.

    `weights`: shape (rows,), nonnegative. `frame` is synthetic or simulated, never confidential.
    """
    mass = np.ones(len(frame)) if weights is None else np.asarray(weights, dtype=np.float64)
    (sums,) = sums_of(frame, mass, schema=schema)
    return {name: total / mass.sum() for name, total in sums.items()}


def sums_of(
    frame: pd.DataFrame, *masses: NDArray[np.float64], schema: PublicSchema
) -> list[dict[str, NDArray[np.float64]]]:
    """Sums of several masses of the rows, shape (rows,), by released column and cell."""
    sums: list[dict[str, NDArray[np.float64]]] = [{} for _ in masses]
    for column in schema.released:
        cells = axis(column)
        codes = _codes(frame[column.name], column, cells)
        for totals, mass in zip(sums, masses, strict=True):
            cell_sums = np.bincount(codes, weights=mass, minlength=cells.cells)
            totals[column.name] = np.asarray(cell_sums, dtype=np.float64)
    return sums


def _edges(column: Column) -> tuple[float, ...]:
    low, high = column.lower_number, column.upper_number
    if column.kind is ColumnKind.CONTINUOUS or column.kind is ColumnKind.DATETIME:
        return tuple(float(edge) for edge in np.linspace(low, high, BINS + 1))
    # Equal whole widths: bins that hold one and two values in turn would look like a comb.
    width = math.ceil((high - low + 1) / BINS)
    count = math.ceil((high - low + 1) / width)
    return tuple(low - 0.5 + width * index for index in range(count + 1))


def _codes(series: pd.Series, column: Column, cells: Axis) -> NDArray[np.intp]:
    missing = series.isna().to_numpy(dtype=bool)
    if column.is_discrete:
        places, distinct = pd.factorize(series)  # texts are made once a level, not once a row
        texts = pd.Index([_level(value) for value in distinct], dtype=object)
        codes = np.append(pd.Index(column.level_names).get_indexer(texts), -1)[places]
    else:
        numbers, codes = _numbers(series, column), np.zeros(len(series), dtype=np.uint8)
        for edge in cells.edges[1:-1]:  # so few that a search would take longer
            codes += numbers >= edge
    codes = np.where(missing, cells.cells - 1, codes)
    return np.asarray(codes, dtype=np.intp)


def _level(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def _numbers(series: pd.Series, column: Column) -> NDArray[np.float64]:
    if column.kind not in _SECONDS:
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    moments = pd.to_datetime(series, utc=True).astype("datetime64[s, UTC]")
    seconds = moments.astype("int64").to_numpy(dtype=np.float64)
    return np.asarray(seconds / _SECONDS[column.kind], dtype=np.float64)


def _bound(column: Column, value: float) -> str:
    if column.kind in _SECONDS:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=value * _SECONDS[column.kind])
        return moment.isoformat(sep=" ", timespec="minutes").removesuffix(" 00:00")
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e19 else f"{value:g}"


class RowsShown:
    """Every column's shares, gathered in one pass.

    `log_weights`: shape (rows,), natural log.
    """

    def __init__(self, schema: PublicSchema, log_weights: NDArray[np.float64]) -> None:
        self.weights = mean_one_weights(log_weights)
        self._schema, self._seen = schema, 0
        names = [column.name for column in schema.released]
        self._sums = [dict.fromkeys(names, np.zeros(1)) for _ in range(2)]

    def passing(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the frames; each is counted when the next is requested, after it was checked."""
        for frame in frames:
            yield frame
            self._count(frame)

    def _count(self, frame: pd.DataFrame) -> None:
        rows = slice(self._seen, self._seen + len(frame))
        parts = sums_of(frame, np.ones(len(frame)), self.weights[rows], schema=self._schema)
        for total, part in zip(self._sums, parts, strict=True):
            total |= {name: total[name] + cells for name, cells in part.items()}
        self._seen += len(frame)

    def shares(self, *, weighted: bool) -> dict[str, NDArray[np.float64]]:
        """Every released column's shares, shape (cells,), of the rows that have passed."""
        mass = self.weights.sum() if weighted else self._seen
        return {name: cells / mass for name, cells in self._sums[weighted].items()}
