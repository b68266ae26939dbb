"""Column values as whole numbers, so that constraints are decided exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.encoding import from_unit, to_unit
from dpiw.errors import SchemaError, nearest

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LARGEST = 2**60


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """The whole numbers of one released column; a continuous column must declare `decimals`."""

    column: Column

    def __post_init__(self) -> None:
        """Raises SchemaError: no decimals on a continuous column, or bounds too large."""
        if self.column.kind is ColumnKind.CONTINUOUS and self.column.decimals is None:
            raise SchemaError(
                f"column {self.column.name}: decimals: expected a number, as a constraint names"
                " this continuous column and is decided exactly"
            )
        if max(abs(self.low), abs(self.high)) > _LARGEST:
            raise SchemaError(f"column {self.column.name}: bounds beyond 2^60 in a constraint")

    @property
    def decimals(self) -> int:
        """A value is its whole number over 10^decimals."""
        return self.column.decimals or 0

    @cached_property
    def low(self) -> int:
        """Smallest value."""
        return 0 if self.column.is_discrete else self.whole(self.column.lower)

    @cached_property
    def high(self) -> int:
        """Largest value."""
        column = self.column
        return column.cardinality - 1 if column.is_discrete else self.whole(column.upper)

    def whole(self, value: Any) -> int:
        """Return a declared value's whole number, even out of bounds; SchemaError for none."""
        column = self.column
        if column.kind is ColumnKind.BOOLEAN:
            if not isinstance(value, bool):
                raise SchemaError(f"column {column.name}: expected true or false")
            return int(value)
        if column.is_discrete:
            if value not in column.levels:
                near = nearest(value, column.levels) if isinstance(value, str) else ""
                raise SchemaError(f"column {column.name}: expected a level, as text{near}")
            return column.levels.index(value)
        steps = Decimal(str(column.number(value))).scaleb(self.decimals)
        if not steps.is_finite() or steps != steps.to_integral_value():
            raise SchemaError(
                f"column {column.name}: expected a value of {self.decimals} decimals at most"
            )
        return int(steps)

    def read(self, values: NDArray[Any]) -> tuple[Whole, Mask]:
        """Return whole numbers of admissible scaled values and a mask of missing ones."""
        column = self.column
        if column.is_discrete:
            return np.asarray(values, dtype=np.int64), np.asarray(values < 0)
        missing = np.isnan(values)
        numbers = from_unit(column, np.where(missing, 0.0, values))
        if not column.is_whole:
            numbers = np.rint(numbers * 10.0**self.decimals)
        return np.asarray(numbers, dtype=np.int64), missing

    def write(self, whole: Whole, missing: Mask) -> NDArray[Any]:
        """Inverse of `read`."""
        column = self.column
        if column.is_discrete:
            return np.where(missing, np.int32(-1), whole.astype(np.int32))
        scaled = to_unit(column, whole if column.is_whole else whole / 10.0**self.decimals)
        return np.where(missing, np.nan, scaled)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Rows of some columns in whole numbers; arrays by column name, each of shape (rows,)."""

    whole: Mapping[str, Whole]
    missing: Mapping[str, Mask]

    def take(self, rows: Mask | Whole) -> Cells:
        """Return rows by mask or by index."""
        return Cells(
            whole={name: values[rows] for name, values in self.whole.items()},
            missing={name: mask[rows] for name, mask in self.missing.items()},
        )

    def put(self, rows: Mask, others: Cells) -> Cells:
        """Replace the masked rows by `others`."""

        def replaced(mine: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
            mine = mine.copy()
            mine[rows] = theirs
            return mine

        return Cells(
            whole={n: replaced(v, others.whole[n]) for n, v in self.whole.items()},
            missing={n: replaced(m, others.missing[n]) for n, m in self.missing.items()},
        )

    def changed(self, name: str, whole: Whole, missing: Mask) -> Cells:
        """Replace one column."""
        return Cells(whole={**self.whole, name: whole}, missing={**self.missing, name: missing})
