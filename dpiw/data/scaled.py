"""Scaled values of a table, column by column: what every method computes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpiw.errors import SchemaError


@dataclass(frozen=True, eq=False, repr=False)
class ScaledTable:
    """Scaled values by column, in released order, shape (rows,) each. As private as its rows.

    Numeric: float64 in [0, 1], NaN = missing; discrete: int32 level indices, -1 = missing.
    """

    columns: Mapping[str, NDArray[Any]]
    rows: int

    def __post_init__(self) -> None:
        columns = {name: np.asarray(values) for name, values in self.columns.items()}
        for name, values in columns.items():
            if values.shape != (self.rows,):
                allowed = "one scaled value for each row of the table, in one dimension"
                raise SchemaError(field=f"column {name}", allowed=allowed)
        object.__setattr__(self, "columns", columns)

    def __repr__(self) -> str:
        return f"ScaledTable({', '.join(self.columns)})"  # names are public, rows are not

    def take(self, indices: ArrayLike) -> ScaledTable:
        """Return the rows at integer `indices` (shape (k,)), or where a boolean mask is true."""
        chosen = np.asarray(indices)
        if chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        chosen = chosen.astype(np.int64)
        return ScaledTable({n: values[chosen] for n, values in self.columns.items()}, len(chosen))

    @classmethod
    def concatenate(cls, tables: Sequence[ScaledTable]) -> ScaledTable:
        """Return the rows of all `tables` (at least one, of the same columns), in order."""
        names = list(tables[0].columns)
        if any(list(table.columns) != names for table in tables):
            raise SchemaError("the tables have different columns", field="concatenate")
        columns = {name: np.concatenate([t.columns[name] for t in tables]) for name in names}
        return cls(columns, sum(table.rows for table in tables))

    def equals(self, other: ScaledTable) -> bool:
        """Whether columns, their order and values are the same; missing equals missing."""
        return list(self.columns) == list(other.columns) and all(
            np.array_equal(values, other.columns[name], equal_nan=values.dtype.kind == "f")
            for name, values in self.columns.items()
        )

    def batches(self, rows: int) -> Iterator[ScaledTable]:
        """Yield the rows in order, at most `rows` at a time, as views; at least one batch."""
        for start in range(0, max(1, self.rows), rows):
            stop = min(start + rows, self.rows)
            views = {name: values[start:stop] for name, values in self.columns.items()}
            yield ScaledTable(views, stop - start)

    def to_arrow(self) -> pa.Table:
        """Return the same arrays without metadata; missing stays NaN and -1, never null."""
        return pa.table({name: _stored(values) for name, values in self.columns.items()})

    @classmethod
    def from_arrow(cls, table: pa.Table) -> ScaledTable:
        """Read what `to_arrow` wrote."""
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        return cls(columns, table.num_rows)


def regrouped(tables: Iterable[ScaledTable], rows: int) -> Iterator[ScaledTable]:
    """Yield the rows of all tables in order, `rows` at a time except the last."""
    waiting: list[ScaledTable] = []
    for table in tables:
        waiting.append(table)
        if sum(part.rows for part in waiting) > rows:
            *full, rest = ScaledTable.concatenate(waiting).batches(rows)
            yield from full
            waiting = [rest]
    yield ScaledTable.concatenate(waiting)


def _stored(values: NDArray[Any]) -> pa.Array:
    texts = values.dtype == object  # an empty array of texts would have no type
    return pa.array(values, type=pa.large_string() if texts else None)
