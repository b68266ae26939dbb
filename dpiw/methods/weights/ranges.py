"""Where columns of numbers lie, as far as a generator's rows tell: features work within it.

A schema's bounds hold every possible value, and most rows lie in a small part of them. A product of
two columns that use a tenth of their bounds each varies by a hundredth of what its norm bound, and
so the noise, allows for. Within ranges that the rows fill it varies a hundred times as much. The
generator was paid for before the features are measured, so its rows are public, and the ranges
with them; a value beyond a range counts as its end, so that every norm bound stays.
Source: docs/method.md section 14.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import ReleaseError

_REACH = 3.0
"""Standard deviations on both sides of the mean."""

_LEAST = 1 / 16
"""Width of the narrowest range: a generator that draws one value alone may be wrong."""

_STEP = 2.0**-20
"""Ends are multiples of it."""

_ROWS = 20_000
"""Of the first so many rows: more would move an end by a hundredth of the range."""


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """A range of [0, 1], the schema's scale, for some columns of numbers.

    Attributes:
        bounds: lower and upper end by column, 0 <= lower < upper <= 1. Others have [0, 1].
    """

    bounds: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, rows: SyntheticTable) -> Self:
        """Mean and standard deviations of public rows; nothing of a column without two cells."""
        first = rows.first(_ROWS).scaled
        bounds = {}
        for column in rows.schema.released:
            if column.is_numeric:
                cells = first.columns[column.name]
                ends = _ends(cells[~np.isnan(cells)])
                if ends != (0.0, 1.0):
                    bounds[column.name] = ends
        return cls(bounds=bounds)

    def within(self, scaled: ScaledTable) -> ScaledTable:
        """The rows on their ranges' scale: row by row, cut to [0, 1], missing cells as they are."""
        moved = {
            name: np.clip((scaled.columns[name] - low) * (1 / (high - low)), 0.0, 1.0)
            for name, (low, high) in self.bounds.items()
        }
        return ScaledTable({**scaled.columns, **moved}, scaled.rows)

    def to_json(self) -> dict[str, list[float]]:
        """For measurements and certificates."""
        return {name: [*ends] for name, ends in self.bounds.items()}

    @classmethod
    def from_json(cls, stated: Any, schema: PublicSchema) -> Self:
        """What `to_json` said.

        Raises:
            ReleaseError: it says nothing that columns of this schema could have.
        """
        names = {column.name for column in schema.released if column.is_numeric}
        if not isinstance(stated, Mapping) or not all(map(_is_pair, stated.values())):
            raise ReleaseError("ranges: expected two numbers of a column")
        bounds = {str(name): (float(low), float(high)) for name, (low, high) in stated.items()}
        wide = all(low >= 0 and low + _LEAST <= high <= 1 for low, high in bounds.values())
        if not (bounds.keys() <= names and wide):
            raise ReleaseError(
                f"ranges: expected 0 <= lower < upper <= 1, at least {_LEAST:g} apart, of columns"
                " of numbers"
            )
        return cls(bounds=bounds)


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(end, int | float) and not isinstance(end, bool) for end in value)
        and all(-1 <= end <= 2 for end in value)
    )


def _ends(cells: NDArray[np.float64]) -> tuple[float, float]:
    if cells.size < 2:
        return 0.0, 1.0
    middle = float(cells.mean())
    reach = max(_REACH * float(cells.std()), _LEAST / 2)
    low = min(max(0.0, middle - reach), 1 - _LEAST)
    high = max(min(1.0, middle + reach), _LEAST)
    return math.floor(low / _STEP) * _STEP, math.ceil(high / _STEP) * _STEP
