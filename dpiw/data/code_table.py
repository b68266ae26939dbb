"""Codes of a domain's columns by table lookup: equal to `Domain.codes`, and faster.

A code is that of the multiple of 1/256 below, plus one for each code's least number reached since.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Bins, Domain
from dpiw.data.scaled import ScaledTable

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_CELLS = 256
"""Cells of [0, 1]; a power of two, so that a number's cell is exact."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeTable:
    """Codes of some released columns of a domain, one line each."""

    domain: Domain
    columns: tuple[int, ...]

    @cached_property
    def _numbers(self) -> Codes:
        bins = self._bins
        return np.flatnonzero([column.edges is not None for column in bins])

    @cached_property
    def _labels(self) -> Codes:
        return np.flatnonzero([column.edges is None for column in self._bins])

    @cached_property
    def _bins(self) -> tuple[Bins, ...]:
        return tuple(self.domain.columns[j] for j in self.columns)

    @cached_property
    def _missing(self) -> Codes:
        """Each line's code of a missing cell, shape (k, 1)."""
        return np.array([[column.size - 1] for column in self._bins], dtype=np.intp)

    @cached_property
    def _cells(self) -> tuple[Codes, Array]:
        """Code at each cell's lower end, and the numbers within at which it grows by one.

        Shapes (q, cells + 1) and (most, q, cells + 1) for q numeric columns, infinite for none.
        """
        ends = np.arange(_CELLS + 2) / _CELLS
        steps = [_least(self._bins[line]) for line in self._numbers]
        codes = np.stack([np.searchsorted(least, ends[:-1], side="right") for least in steps])
        above = np.stack([np.searchsorted(least, ends[1:], side="left") for least in steps])
        most = int((above - codes).max())
        within = np.full((most, *codes.shape), np.inf)
        for line, least in enumerate(steps):
            for more in range(most):
                places = np.flatnonzero(codes[line] + more < above[line])
                within[more, line, places] = least[codes[line, places] + more]
        return codes, within

    @cached_property
    def starts(self) -> Codes:
        """First code of each column among all columns' codes, and their number, shape (k + 1,)."""
        return np.cumsum([0, *(column.size for column in self._bins)])

    def among_all(self, scaled: ScaledTable) -> Codes:
        """Return codes, shape (k, rows), that no two columns share."""
        codes = self.lines(scaled)
        codes += self.starts[:-1, None]
        return codes

    def lines(self, scaled: ScaledTable) -> Codes:
        """Return codes, shape (k, rows)."""
        names = [self.domain.schema.released[j].name for j in self.columns]
        codes = np.empty((len(names), scaled.rows), dtype=np.intp)
        if self._labels.size:
            labels = np.stack([scaled.columns[names[line]] for line in self._labels])
            last = np.array([[self._bins[line].values - 1] for line in self._labels])
            inside = np.minimum(labels.astype(np.int32), last)
            codes[self._labels] = np.where(inside < 0, self._missing[self._labels], inside)
        if self._numbers.size:
            numbers = np.stack([scaled.columns[names[line]] for line in self._numbers])
            codes[self._numbers] = self._of_numbers(numbers.astype(np.float64, copy=False))
        return codes

    def _of_numbers(self, numbers: Array) -> Codes:
        table, within = self._cells
        inside = np.fmax(np.fmin(numbers, 1.0), 0.0)  # 1, whose code is the last, where missing
        cells = (inside * _CELLS).astype(np.intp)
        cells += np.arange(0, table.size, table.shape[1])[:, None]
        codes = np.take(table, cells)
        for more in within:
            codes += inside >= np.take(more, cells)
        is_missing = np.isnan(numbers)
        if is_missing.any():
            codes = np.where(is_missing, self._missing[self._numbers], codes)
        return codes


def _least(bins: Bins) -> Array:
    """The least number of [0, 1] with each code but the first, ascending; shape (values - 1,)."""
    wanted = np.arange(1, bins.values)
    low = np.zeros(wanted.size, dtype=np.int64)
    high = np.full(wanted.size, np.float64(1.0).view(np.int64))
    while (high - low > 1).any():  # numbers from zero on are in the order of their bits
        middle = (low + high) // 2
        is_reached = bins.codes(middle.view(np.float64)) >= wanted
        low, high = np.where(is_reached, low, middle), np.where(is_reached, middle, high)
    return high.view(np.float64)
