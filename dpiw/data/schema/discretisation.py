"""Public discretisation: codes whose number follows from the schema alone; row-local."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.encoding import to_unit, unscale_cells
from dpiw.data.schema.schema import Column, PublicSchema, ScaledTable
from dpiw.errors import SchemaError

_MOST_BINS = 1 << 20

FEW_VALUES = 20
"""Most possible values of a whole number that count as levels without being listed."""


def value_points(column: Column) -> NDArray[np.float64]:
    """Scaled values, ascending, of listed or of few whole numbers; of other columns none."""
    if column.values:
        return to_unit(column, np.asarray(column.values, np.int64 if column.is_whole else float))
    span = column.upper_number - column.lower_number if column.kind is ColumnKind.INTEGER else 0
    return np.arange(span + 1) / span if 0 < span < FEW_VALUES else np.zeros(0)


def value_codes(points: NDArray[np.float64], cells: NDArray[np.float64]) -> NDArray[np.intp]:
    """Index of the point nearest to each scaled number; of a missing one, the number of points."""
    codes = np.searchsorted((points[1:] + points[:-1]) / 2, cells, side="right")
    return np.where(np.isnan(cells), len(points), codes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bins:
    """The codes of one column.

    Attributes:
        edges: numeric columns only, shape (values + 1,), increasing: bin j is
            [edges[j], edges[j+1]). Continuous: scaled units, the last bin closed. Whole: offsets
            from the lower bound.
        values: number of codes without the missing one.
        span: upper minus lower bound in own units for whole columns, else 0.
        nullable: whether the last code, one more, means missing.
    """

    edges: NDArray[np.float64] | None
    values: int
    span: int
    nullable: bool

    @property
    def size(self) -> int:
        """Number of codes, the missing one included."""
        return self.values + int(self.nullable)

    def codes(self, values: NDArray[np.generic]) -> NDArray[np.int32]:
        """Return codes of scaled values, shape (rows,). Total: every input gets a code."""
        if self.edges is None:
            codes = values.astype(np.int32)
            missing = codes < 0
        else:
            numbers = np.clip(values.astype(np.float64), 0.0, 1.0)
            missing = np.isnan(numbers)
            offsets = np.rint(numbers * self.span) if self.span else numbers
            codes = np.searchsorted(self.edges[1:-1], offsets, side="right").astype(np.int32)
        # Without a missing code the last value stands in: a cell never fails, and never leaves the
        # domain. `PublicSchema.scale` fills such cells before they get here.
        return np.where(
            missing, np.int32(self.size - 1), np.minimum(codes, self.values - 1)
        ).astype(np.int32)


def _declared_edges(column: Column, bins: int) -> NDArray[np.float64]:
    """Edges in offsets from the lower bound, own units, both ends included."""
    span = column.upper_number - column.lower_number
    # A whole number bin holds its lower edge and not its upper one, so the range ends one later.
    end = span + 1.0 if column.is_whole else span
    if column.cuts:
        inner = np.asarray(column.cut_numbers, dtype=np.float64) - column.lower_number
    else:
        count = column.bins if column.bins is not None else bins
        count = min(count, int(end)) if column.is_whole else count
        inner = np.arange(1, count, dtype=np.float64) * (end / count)
    if column.is_whole:
        inner = np.ceil(inner - 1e-9)  # a cut at 2.5 starts its bin at 3
    inner = inner[(inner > 0) & (inner < end)]
    return np.unique(np.concatenate([[0.0], inner, [end]]))


def _bins(column: Column, bins: int) -> Bins:
    if column.is_discrete:
        return Bins(edges=None, values=column.cardinality, span=0, nullable=column.nullable)
    edges, span = _declared_edges(column, bins), 0
    if column.values:
        points = value_points(column)
        edges = np.concatenate([[0.0], (points[1:] + points[:-1]) / 2, [1.0]])
    elif column.is_whole:
        span = round(column.upper_number - column.lower_number)
    else:
        edges = edges / (column.upper_number - column.lower_number)
    return Bins(edges=edges, values=len(edges) - 1, span=span, nullable=column.nullable)


def _column_values(
    codes: NDArray[np.int32], bins: Bins, rng: np.random.Generator | None
) -> NDArray[np.float64] | NDArray[np.int32]:
    missing = codes >= bins.values
    if bins.edges is None:
        return np.where(missing, np.int32(-1), codes).astype(np.int32)
    inside = np.where(missing, 0, codes)
    low, high = bins.edges[inside], bins.edges[inside + 1]
    place = (0.5 if rng is None else rng.random(len(codes))) * (high - low)
    if bins.span:
        numbers = np.minimum(low + np.floor(place), high - 1) / bins.span
    else:
        # Rounding may carry low + place onto the next bin's edge; stay inside this one.
        numbers = np.minimum(low + place, np.nextafter(high, low))
    return np.where(missing, np.nan, numbers).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The product of every released column's codes, in order."""

    schema: PublicSchema
    columns: tuple[Bins, ...]

    @classmethod
    def from_schema(cls, schema: PublicSchema, *, bins: int) -> Domain:
        """Discretise by levels, else `cuts`, else `bins` equal-width bins; last code: missing.

        Raises SchemaError if `bins` of the call or of a column is not admissible.
        """
        if not 1 <= bins <= _MOST_BINS:
            raise SchemaError(field=f"bins={bins}", allowed=f"1 to {_MOST_BINS}")
        return cls(schema=schema, columns=tuple(_bins(c, bins) for c in schema.released))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each released column."""
        return tuple(column.size for column in self.columns)

    def codes(self, scaled: ScaledTable) -> NDArray[np.int32]:
        """Return codes, shape (rows, d), Fortran order. Privacy: row-local; still confidential."""
        result = np.empty((scaled.rows, len(self.columns)), dtype=np.int32, order="F")
        for index, (name, bins) in enumerate(self._by_name):
            result[:, index] = bins.codes(scaled.columns[name])
        return result

    def fill(self, codes: NDArray[np.int32], *, rng: np.random.Generator) -> ScaledTable:
        """Turn codes, shape (rows, d), into scaled values, uniform inside each bin."""
        columns: Mapping[str, NDArray[np.generic]] = {
            name: _column_values(codes[:, index], bins, rng)
            for index, (name, bins) in enumerate(self._by_name)
        }
        return ScaledTable(columns=columns, rows=len(codes))

    def cells(self, name: str) -> NDArray[Any]:
        """Return a cell of a column for each of its codes; numbers are in the middle of a bin."""
        (column,) = (column for column in self.schema.released if column.name == name)
        bins = dict(self._by_name)[name]
        values = _column_values(np.arange(bins.size, dtype=np.int32), bins, None)
        return unscale_cells(column, values).to_numpy()

    @property
    def _by_name(self) -> list[tuple[str, Bins]]:
        names = (column.name for column in self.schema.released)
        return [*zip(names, self.columns, strict=True)]


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
        return np.flatnonzero([column.edges is not None for column in self._bins])

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
    def _cells(self) -> tuple[Codes, NDArray[np.float64]]:
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

    def _of_numbers(self, numbers: NDArray[np.float64]) -> Codes:
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


def _least(bins: Bins) -> NDArray[np.float64]:
    """The least number of [0, 1] with each code but the first, ascending; shape (values - 1,)."""
    wanted = np.arange(1, bins.values)
    low = np.zeros(wanted.size, dtype=np.int64)
    high = np.full(wanted.size, np.float64(1.0).view(np.int64))
    while (high - low > 1).any():  # numbers from zero on are in the order of their bits
        middle = (low + high) // 2
        is_reached = bins.codes(middle.view(np.float64)) >= wanted
        low, high = np.where(is_reached, low, middle), np.where(is_reached, middle, high)
    return high.view(np.float64)
