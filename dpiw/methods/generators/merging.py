"""Rare levels as one: the codes of a column after its noisy counts were seen. Post-processing.

A level whose noisy count is below three standard deviations of its noise is merged with the others
like it, so that tables of two columns spend no noise on cells that are nearly empty; rows of the
merged level are dealt evenly. Source: McKenna, Miklau & Sheldon (2021), section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.consistency import marginal
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.estimation import NoisyMarginal

Array = NDArray[np.float64]

RARE = 3.0
"""Standard deviations below which a level is rare."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Merging:
    """A column's codes and those that they became.

    Attributes:
        codes: the new code of each, shape (old codes,).
    """

    codes: NDArray[np.int32] = field(repr=False)

    @classmethod
    def of(cls, noisy: Array, *, stddev: float) -> Merging:
        """Of noisy counts; every code stays where fewer than two are common."""
        common = noisy >= RARE * stddev
        if common.sum() < 2:
            common = np.ones_like(common)
        codes = np.where(common, np.cumsum(common) - 1, common.sum())
        return cls(codes=codes.astype(np.int32))

    @classmethod
    def none(cls, size: int) -> Merging:
        """Every code stays."""
        return cls(codes=np.arange(size, dtype=np.int32))

    @property
    def members(self) -> Array:
        """How many old codes each new one stands for, shape (new codes,)."""
        return np.bincount(self.codes).astype(np.float64)

    @property
    def size(self) -> int:
        """New codes."""
        return int(self.codes.max()) + 1

    @property
    def changes(self) -> bool:
        """Whether it merges anything."""
        return self.size < self.codes.size

    def summed(self, counts: Array) -> Array:
        """Counts of the new codes."""
        return np.bincount(self.codes, weights=counts).astype(np.float64)


def merging_of(one_way: Sequence[NoisyMarginal]) -> list[Merging]:
    """How each column's rare levels are merged: of its noisy counts, so free."""
    return [Merging.of(table.values, stddev=float(np.sqrt(table.variance))) for table in one_way]


def merged_counts(
    counter: ContingencyCounter, pairs: Sequence[tuple[int, int]], merging: Sequence[Merging]
) -> Iterator[NDArray[np.int64]]:
    """Exact counts of pairs of columns in their new codes, in order.

    Privacy:
        As `ContingencyCounter`: a row is in one cell of each, whatever was merged.
    """
    for (a, b), counts in zip(pairs, counter.each(pairs), strict=True):
        merged = np.zeros((merging[a].size, merging[b].size), dtype=np.int64)
        np.add.at(merged, np.ix_(merging[a].codes, merging[b].codes), counts)
        yield merged


def spread(table: Array, merging: Sequence[Merging]) -> Array:
    """A table of new codes over the old ones: each merged cell's mass dealt evenly."""
    for axis, merger in enumerate(merging):
        shape = tuple(-1 if a == axis else 1 for a in range(table.ndim))
        table = (table / merger.members.reshape(shape)).take(merger.codes, axis=axis)
    return table


def unmerged_votes(
    tables: Sequence[NoisyMarginal], merging: Sequence[Merging]
) -> list[NoisyMarginal]:
    """One-way marginals of tables, of the columns whose codes they show as they were."""
    return [
        NoisyMarginal(
            columns=(j,),
            values=marginal(table.values, axis),
            variance=table.variance * table.values.size / table.values.shape[axis],
        )
        for table in tables
        for axis, j in enumerate(table.columns)
        if not merging[j].changes
    ]
