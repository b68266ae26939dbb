"""Conditions on one column, as a dictionary states them, and the values that they let through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.columns import ColumnKind
from dpiw.data.lattice import Lattice, Mask, Whole
from dpiw.errors import SchemaError

_RANGE = frozenset({"lower", "upper"})


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What a cell is asked: whether it is one of some values, or between bounds.

    Attributes:
        values: levels, numbers, dates, true or false; None: a missing cell.
        lower, upper: inclusive bounds instead, in own units; one may be left out.
    """

    values: tuple[Any, ...] = ()
    lower: Any = None
    upper: Any = None

    @classmethod
    def of(cls, declared: Any) -> Condition:
        """From a value, a list of values, or `{lower: ..., upper: ...}`.

        Raises:
            SchemaError: it is none of these.
        """
        if isinstance(declared, Mapping):
            if not declared or not set(declared) <= _RANGE:
                raise SchemaError("expected the keys lower, upper, or both")
            if any(bound is None for bound in declared.values()):
                raise SchemaError("lower/upper: expected a value")
            return cls(**declared)
        values = declared if isinstance(declared, list | tuple) else (declared,)
        if not values or any(isinstance(value, list | tuple | Mapping) for value in values):
            raise SchemaError("expected a value, a list of values, or {lower: ..., upper: ...}")
        return cls(values=tuple(values))

    def to_json(self) -> Any:
        """What `of` reads as this."""
        bounds = {"lower": self.lower, "upper": self.upper}
        if not self.values:
            return {name: bound for name, bound in bounds.items() if bound is not None}
        return self.values[0] if len(self.values) == 1 else list(self.values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Values of a column: disjoint intervals of whole numbers, increasing and not adjacent.

    Attributes:
        lattice: of the column.
        lows, highs: both inclusive, shape (intervals,).
        missing: whether a missing cell belongs to it.
    """

    lattice: Lattice
    lows: Whole
    highs: Whole
    missing: bool

    @classmethod
    def of(cls, condition: Condition, lattice: Lattice) -> Region:
        """The values of a column that meet a condition.

        Raises:
            SchemaError: an unknown level, a value or bounds that cannot occur, missing in a column
                that is not nullable, or bounds of a column without an order.
        """
        column = lattice.column
        if None in condition.values and not column.nullable:
            raise SchemaError(f"column {column.name}: null: its cells are never missing")
        if condition.values:
            wholes = sorted(
                {lattice.whole(value) for value in condition.values if value is not None}
            )
            pairs = [(whole, whole) for whole in wholes]
        else:
            if column.is_discrete and column.kind is not ColumnKind.ORDINAL:
                raise SchemaError(f"column {column.name}: has no order; expected levels")
            low, high = (
                default if bound is None else lattice.whole(bound)
                for bound, default in (
                    (condition.lower, lattice.low), (condition.upper, lattice.high)
                )
            )  # fmt: skip
            pairs = [(max(low, lattice.low), min(high, lattice.high))]
        if any(not lattice.low <= low <= high <= lattice.high for low, high in pairs):
            raise SchemaError(f"column {column.name}: no such value is within its bounds")
        merged: list[tuple[int, int]] = []
        for low, high in pairs:
            if merged and low == merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        lows, highs = np.array(merged, dtype=np.int64).reshape(-1, 2).T
        return cls(lattice=lattice, lows=lows, highs=highs, missing=None in condition.values)

    def holds(self, whole: Whole, missing: Mask) -> Mask:
        """Which cells belong to it."""
        if not self.lows.size:
            return missing & self.missing
        place = np.maximum(np.searchsorted(self.lows, whole, side="right") - 1, 0)
        inside = (whole >= self.lows[place]) & (whole <= self.highs[place])
        return np.where(missing, self.missing, inside)

    def ways_out(
        self, whole: Whole, missing: Mask
    ) -> list[tuple[Whole, Mask, NDArray[np.float64]]]:
        """For cells that belong to it, those around that do not, and how far they are.

        The next lower value, the next higher one, a missing cell; of a missing cell, the least
        value. A number moves by its share of the range; another level, or to be missing or not,
        counts 1. Infinite: there is none.
        """
        low, high = self.lattice.low, self.lattice.high
        if self.lows.size:
            place = np.maximum(np.searchsorted(self.lows, whole, side="right") - 1, 0)
            below, above = self.lows[place] - 1, self.highs[place] + 1
        else:  # missing cells alone
            below, above = (np.full(whole.shape, edge, dtype=np.int64) for edge in (low, high + 1))
        if missing.any():  # any value that is let through will do; the least one
            ends = np.concatenate([[low], self.highs + 1])
            free = int(ends[~self.holds(ends, np.zeros(ends.shape, dtype=np.bool_))][0])
            below, above = np.where(missing, free, below), np.where(missing, high + 1, above)
        there = np.zeros(whole.shape, dtype=np.bool_)
        gone = np.full(whole.shape, low, dtype=np.int64)
        can_go = self.lattice.column.nullable and not self.missing
        far = np.full(whole.shape, 1.0 if can_go else np.inf)
        numbers = [(value, there, self._far(whole, missing, value)) for value in (below, above)]
        return [*numbers, (gone, ~there, far)]

    def _far(self, whole: Whole, missing: Mask, value: Whole) -> NDArray[np.float64]:
        low, high = self.lattice.low, self.lattice.high
        share = np.abs(value - whole) / max(high - low, 1)
        far = np.where(missing | self.lattice.column.is_discrete, 1.0, share)
        return np.where((value >= low) & (value <= high), far, np.inf)
