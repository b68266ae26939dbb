"""The range of each number that features see: from public rows, so that norm bounds hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import ReleaseError
from dpiw.methods.weights.measured.halves import LAST_HALVES

Array = NDArray[np.float64]

_REACH = 3.0
"""Standard deviations on both sides of the mean."""

_LEAST = 1 / 16
"""Width of the narrowest range: a generator that draws one value alone may be wrong."""

_STEP = 2.0**-20
"""Unit of the ends."""

MOST_ROWS = 20_000
"""Most rows read: more would move an end by a hundredth of the range."""


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """A range 0 <= lower < upper <= 1 of the schema's scale by numeric column; others: [0, 1].

    `asked`: of numbers that questions ask for, which keep more of their tails. `cuts`: on the
    schema's scale, ascending, between parts of numbers whose quantiles are asked for.
    """

    bounds: Mapping[str, tuple[float, float]]
    asked: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    cuts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: SyntheticTable) -> Self:
        """From mean and standard deviation of public rows; none for a column of under two cells."""
        first = rows.first(MOST_ROWS).scaled
        bounds = {}
        for column in rows.schema.released:
            if column.is_numeric:
                cells = first.columns[column.name]
                ends = ends_of(cells[~np.isnan(cells)])
                if ends != (0.0, 1.0):
                    bounds[column.name] = ends
        return cls(bounds=bounds)

    def within(self, scaled: ScaledTable) -> ScaledTable:
        """The rows on their ranges' scale, cut to [0, 1]; missing cells stay."""
        moved = {name: cut_to(scaled.columns[name], ends) for name, ends in self.bounds.items()}
        return ScaledTable({**scaled.columns, **moved}, scaled.rows)

    def to_json(self) -> dict[str, dict[str, list[float]]]:
        """JSON values for measurements and certificates, by the name of the fact."""
        stated: dict[str, dict[str, list[float]]] = {
            "ranges": {name: [*ends] for name, ends in self.bounds.items()},
            "asked_ranges": {name: [*ends] for name, ends in self.asked.items()},
            "cuts": {name: [*cuts] for name, cuts in self.cuts.items()},
        }
        return {name: by for name, by in stated.items() if by or name == "ranges"}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], schema: PublicSchema) -> Self:
        """Read what `to_json` wrote; ReleaseError if it does not fit this schema."""
        names = {column.name for column in schema.released if column.is_numeric}
        return cls(
            bounds=_read_ends(facts.get("ranges", {}), names),
            asked=_read_ends(facts.get("asked_ranges", {}), names),
            cuts=_read_cuts(facts.get("cuts", {}), names),
        )


def cut_to(cells: Any, ends: tuple[float, float]) -> Array:
    """Cells on the scale of a range, cut to [0, 1]; missing cells stay."""
    low, high = ends
    return np.asarray(np.clip((cells - low) * (1 / (high - low)), 0.0, 1.0))


def _read_ends(stated: Any, names: set[str]) -> dict[str, tuple[float, float]]:
    try:
        bounds = {name: (low + 0.0, high + 0.0) for name, (low, high) in stated.items()}
        wide = all(low >= 0 and low + _LEAST <= high <= 1 for low, high in bounds.values())
        flags = [isinstance(end, bool) for ends in stated.values() for end in ends]
        good = bounds.keys() <= names and wide and not any(flags)
    except (AttributeError, TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ReleaseError(
            field="ranges",
            allowed=f"0 <= lower < upper <= 1, at least {_LEAST:g} apart, of columns of numbers",
        )
    return bounds


def _read_cuts(stated: Any, names: set[str]) -> dict[str, tuple[float, ...]]:
    try:
        cuts = {name: tuple(end + 0.0 for end in of) for name, of in stated.items()}
        flags = [isinstance(end, bool) for of in stated.values() for end in of]
        full = all(len(of) == LAST_HALVES - 1 for of in cuts.values())
        rising = all(0 <= a <= b <= 1 for of in cuts.values() for a, b in pairwise(of))
        good = full and rising and cuts.keys() <= names and not any(flags)
    except (AttributeError, TypeError, ValueError, OverflowError):
        good = False
    if not good:
        allowed = f"{LAST_HALVES - 1} ascending numbers in [0, 1] by column of numbers"
        raise ReleaseError(field="cuts", allowed=allowed)
    return cuts


def ends_of(cells: Array, deviations: float = _REACH) -> tuple[float, float]:
    """Ends so many standard deviations from the mean of public cells; [0, 1] for fewer than two."""
    if cells.size < 2:
        return 0.0, 1.0
    middle = float(cells.mean())
    reach = max(deviations * float(cells.std()), _LEAST / 2)
    low = min(max(0.0, middle - reach), 1 - _LEAST)
    high = max(min(1.0, middle + reach), _LEAST)
    return math.floor(low / _STEP) * _STEP, math.ceil(high / _STEP) * _STEP
