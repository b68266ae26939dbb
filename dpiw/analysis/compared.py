"""Which rows each coefficient of a regression compares: so many are behind it, not all that fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.design import Design
from dpiw.analysis.sample import Array


def compared(parts: Design, weights: Array) -> NDArray[np.bool_]:
    """Two groups of rows for each coefficient, shape (2, n, p) (`Estimate.sides`).

    Of a level: its rows, and those of the level that was left out. Of a number that is the same in
    half of the rows or more, such as one of two values, or a product with a level: those rows, and
    the others. Of every other number, and of the intercept: all rows, twice.

    Args:
        parts: the design.
        weights: shape (n,), >= 0.
    """
    rows = parts.present & (weights > 0)
    sides = np.empty((2, *parts.matrix.shape), dtype=bool)
    terms = np.asarray(parts.terms)
    for term in np.unique(terms):
        places = np.flatnonzero(terms == term)
        block = parts.matrix[:, places]
        left_out = rows & ~block.any(axis=1)
        if _levels(block[rows]) and left_out.any():
            sides[0][:, places] = rows[:, None] & (block > 0)
            sides[1][:, places] = left_out[:, None]
            continue
        for place in places:
            sides[:, :, place] = _unlike_most(parts.matrix[:, place], rows)
    return sides


def _levels(block: Array) -> bool:
    """Whether the columns are indicators of levels that exclude each other."""
    return bool(np.isin(block, (0.0, 1.0)).all() and (block.sum(axis=1) <= 1).all())


def _unlike_most(values: Array, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows with the value that half of them have, and the others; all twice where there is none."""
    row_values = values[rows]
    middle = np.partition(row_values, (row_values.size - 1) // 2)[(row_values.size - 1) // 2]
    usual = rows & (values == middle)
    if 2 * usual.sum() < row_values.size or usual.sum() == row_values.size:
        usual = rows
    others = rows & ~usual
    return np.stack([usual, others if others.any() else rows])
