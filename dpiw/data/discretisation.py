"""Public discretisation: codes whose number follows from the schema alone; row-local."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import Column, PublicSchema, ScaledTable
from dpiw.errors import SchemaError

_MOST_BINS = 1 << 20


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
    inner: NDArray[np.float64]
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
    edges = _declared_edges(column, bins)
    span = column.upper_number - column.lower_number
    is_whole = column.is_whole
    return Bins(
        edges=edges if is_whole else edges / span,
        values=len(edges) - 1,
        span=round(span) if is_whole else 0,
        nullable=column.nullable,
    )


def _column_values(
    codes: NDArray[np.int32], bins: Bins, rng: np.random.Generator
) -> NDArray[np.float64] | NDArray[np.int32]:
    missing = codes >= bins.values
    if bins.edges is None:
        return np.where(missing, np.int32(-1), codes).astype(np.int32)
    inside = np.where(missing, 0, codes)
    low, high = bins.edges[inside], bins.edges[inside + 1]
    place = rng.random(len(codes)) * (high - low)
    numbers: NDArray[np.float64]
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
            raise SchemaError(f"bins={bins}: expected 1 to {_MOST_BINS}")
        return cls(schema=schema, columns=tuple(_bins(c, bins) for c in schema.released))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each released column."""
        return tuple(column.size for column in self.columns)

    def codes(self, scaled: ScaledTable) -> NDArray[np.int32]:
        """Return codes, shape (rows, d), Fortran order. Privacy: row-local; still confidential."""
        result = np.empty((scaled.rows, len(self.columns)), dtype=np.int32, order="F")
        for index, (column, bins) in enumerate(
            zip(self.schema.released, self.columns, strict=True)
        ):
            result[:, index] = bins.codes(scaled.columns[column.name])
        return result

    def fill(self, codes: NDArray[np.int32], *, rng: np.random.Generator) -> ScaledTable:
        """Turn codes, shape (rows, d), into scaled values, uniform inside each bin."""
        columns: Mapping[str, NDArray[np.generic]] = {
            column.name: _column_values(codes[:, index], bins, rng)
            for index, (column, bins) in enumerate(
                zip(self.schema.released, self.columns, strict=True)
            )
        }
        return ScaledTable(columns=columns, rows=len(codes))
