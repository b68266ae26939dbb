"""Weighted plots with Matplotlib, loaded when the first is drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.columns import (
    Bins,
    check_told_apart,
    checked_bins,
    declared_as,
    declared_edges,
    is_count,
    levels,
    numbers,
)
from dpiw.analysis.estimators.quantiles import weighted_quantile
from dpiw.analysis.names import checked_column
from dpiw.analysis.sample import Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError, optional

_PARTS = 30

_BOX = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def histogram(source: Source, column: str, *, bins: Bins = None, ax: Any = None) -> Any:
    """Draw the weighted shares of a column of numbers or dates, or of levels; return the Axes.

    Args:
        source: a release, or (table, weights).
        column: its name; every level that the schema declares has a bar.
        bins: for numbers and dates: number of equal parts, or increasing edges (dates as ISO text).
            None: the `cuts` that the schema declares, else 30 parts.
        ax: Matplotlib Axes; None: a new figure.
    """
    sample = weighted_sample(source)
    ax = _axes() if ax is None else ax
    _histogram(ax, sample, column, bins)
    _name_axes(ax, column, "share")
    return ax


def _name_axes(ax: Any, x: str, y: str) -> None:
    """Label the axes literally: two dollar signs are no formula."""
    ax.set_xlabel(x, parse_math=False)
    ax.set_ylabel(y, parse_math=False)


def _histogram(ax: Any, sample: WeightedSample, column: str, bins: Bins) -> None:
    values = checked_column(sample.frame, column)
    share = sample.weights / sample.weights.sum()
    if values.dtype.kind not in "fiuM":
        parts = levels(sample, column)
        heights = np.bincount(parts.codes, weights=share, minlength=len(parts.labels))
        ax.bar(range(heights.size), heights)
        ax.set_xticks(range(heights.size), [str(label) for label in parts.labels], parse_math=False)
        return
    is_dated = values.dtype.kind == "M"  # shown by the local clock
    cells = values.dt.tz_localize(None) if is_dated else pd.Series(numbers(sample, column))
    edges = _declared_bins(sample, column)
    if bins is not None:
        edges = checked_bins(cells, bins, field="histogram: bins")
    is_present = cells.notna().to_numpy()
    held: NDArray[Any] = cells[is_present].to_numpy()
    if isinstance(edges, int) and not is_dated:
        check_told_apart(column, held, edges)
    drawn = edges if isinstance(edges, int) else edges.to_numpy()
    ax.hist(held, bins=drawn, weights=share[is_present])


def _declared_bins(sample: WeightedSample, column: str) -> int | pd.Index:
    declared = declared_as(sample, column)
    edges = None if declared is None else declared_edges(declared)
    if edges is None:
        return _PARTS
    if not edges.is_unique:  # the last one holds one whole number, and no width
        edges = edges[:-1].append(edges[-1:] + (edges[-1] - edges[0]) / len(edges))
    return edges


def box(source: Source, column: str, *, by: str | None = None, ax: Any = None) -> Any:
    """Draw weighted quantiles, 5, 25, 50, 75 and 95%, as box and whiskers; return the Axes.

    No points are drawn beyond the whiskers: an extreme synthetic row is no person.

    Args:
        source: a release, or (table, weights).
        column: a column of numbers.
        by: a column; one box for each of its levels.
        ax: Matplotlib Axes; None: a new figure.
    """
    sample = weighted_sample(source)
    values = numbers(sample, column)
    is_present = ~np.isnan(values) & (sample.weights > 0)
    groups: dict[str, NDArray[np.bool_]] = {column: is_present}
    if by is not None:
        parts = levels(sample, by)
        groups = {
            str(label): is_present & (parts.codes == k) for k, label in enumerate(parts.labels)
        }
    if not any(rows.any() for rows in groups.values()):
        raise ReleaseError(
            f"column {column!r}: every value is missing or has weight zero", field="box"
        )
    boxes = []
    for label, rows in groups.items():
        ends = np.full(_BOX.size, np.nan)
        if rows.any():
            ends = weighted_quantile(values[rows], sample.weights[rows], _BOX)
        places = zip(("whislo", "q1", "med", "q3", "whishi"), ends, strict=True)
        boxes.append({"label": label, **dict(places)})
    ax = _axes() if ax is None else ax
    ax.bxp(boxes, showfliers=False)
    for label in ax.get_xticklabels():
        label.set_parse_math(False)
    _name_axes(ax, by or "", column)
    return ax


def pairs(source: Source, columns: Sequence[str], *, bins: int = 30) -> Any:
    """Draw pairs of columns, weighted counts below histograms on the diagonal; return the Figure.

    Args:
        source: a release, or (table, weights).
        columns: two or more columns of numbers.
        bins: along each axis.
    """
    sample = weighted_sample(source)
    if isinstance(columns, str) or len(columns) < 2:
        raise ReleaseError(
            f"columns: expected a list of two or more, such as ['age', 'hours']; found {columns!r}",
            field="pairs",
        )
    if not is_count(bins):
        raise ReleaseError(field="pairs: bins", allowed=f"a whole number >= 1; found {bins!r}")
    values = [numbers(sample, column) for column in columns]
    for column, cells in zip(columns, values, strict=True):
        check_told_apart(column, cells[~np.isnan(cells)], bins)
    size = len(columns)
    figure, grid = _pyplot().subplots(size, size, figsize=(2.2 * size, 2.2 * size))
    for i in range(size):
        for j in range(size):
            ax = grid[i, j]
            is_present = ~np.isnan(values[i] + values[j])
            if i < j:
                ax.set_axis_off()
            elif i == j:
                ax.hist(values[i][is_present], bins=bins, weights=sample.weights[is_present])
            else:
                ax.hist2d(
                    values[j][is_present],
                    values[i][is_present],
                    bins=bins,
                    weights=sample.weights[is_present],
                )
            _name_axes(ax, columns[j] if i == size - 1 else "", "" if j else columns[i])
    figure.tight_layout()
    return figure


def _pyplot() -> Any:
    return optional("matplotlib.pyplot", extra="plot")


def _axes() -> Any:
    return _pyplot().subplots()[1]
