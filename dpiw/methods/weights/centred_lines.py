"""The centred rows as lines, one for each coordinate: made in few steps for all columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.errors import WeightError
from dpiw.methods.weights.geometry import ColumnBlock, blocks

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class CentredLines:
    """What `PublicSchema.centred` has as columns, and below it a line of ones.

    Attributes:
        schema: the public schema.
    """

    schema: PublicSchema

    @cached_property
    def _columns(self) -> list[tuple[str, ColumnBlock]]:
        names = [column.name for column in self.schema.released]
        return [*zip(names, blocks(self.schema), strict=True)]

    @cached_property
    def _numbers(self) -> tuple[list[str], Indices]:
        """Columns of numbers, and the lines of their values."""
        numbers = [(name, block) for name, block in self._columns if block.numeric]
        return [name for name, _ in numbers], _indices(block.start for _, block in numbers)

    @cached_property
    def _labels(self) -> tuple[list[str], Indices]:
        """The other columns, and how many lines each has."""
        labels = [(name, block) for name, block in self._columns if not block.numeric]
        return [name for name, _ in labels], _indices(block.levels for _, block in labels)

    @cached_property
    def _nullable(self) -> Indices:
        """Which of the columns of numbers have two lines more: there, and missing."""
        numbers = [block for _, block in self._columns if block.numeric]
        return np.flatnonzero([block.levels > 0 for block in numbers])

    @cached_property
    def _starts(self) -> Indices:
        """Where lines of levels begin, shape (c, 1): of the other columns, then of flags."""
        labels = [block.start for _, block in self._columns if not block.numeric]
        flags = [block.start + 1 for _, block in self._columns if block.numeric and block.levels]
        return _indices([*labels, *flags])[:, None]

    @cached_property
    def _low(self) -> Array:
        """Each line where no level is held, shape (p + 1, 1)."""
        low = np.zeros((self.one + 1, 1))
        for _, block in self._columns:
            if block.levels:
                low[block.stop - block.levels : block.stop] = -1 / block.levels / math.sqrt(2)
        low[self.one] = 1.0
        return low

    @property
    def one(self) -> int:
        """Which line is that of ones: p, the last."""
        return self.schema.width

    def of(self, scaled: ScaledTable) -> Array:
        """Shape (p + 1, rows).

        Raises:
            WeightError: a number is infinite.
        """
        lines = np.empty((self.one + 1, scaled.rows))
        lines[:] = self._low
        codes = []
        names, sizes = self._labels
        if names:
            levels = np.stack([scaled.columns[name] for name in names]).astype(np.intp)
            last = sizes[:, None] - 1
            codes.append(np.where(levels < 0, last, np.minimum(levels, last)))
        names, places = self._numbers
        if names:
            values = np.stack([scaled.columns[name] for name in names]) - 0.5
            is_missing = np.isnan(values)
            values[is_missing] = 0.0
            if not np.isfinite(values).all():
                raise WeightError("base rows: expected finite features")
            lines[places] = values
            codes.append(is_missing[self._nullable].astype(np.intp))
        held = np.concatenate(codes) + self._starts
        lines[held, np.arange(scaled.rows)] = (self._low + 1 / math.sqrt(2)).take(held)
        return lines


def _indices(values: Iterable[int]) -> Indices:
    return np.array([*values], dtype=np.intp)
