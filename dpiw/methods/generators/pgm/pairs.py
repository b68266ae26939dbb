"""Pairs of columns for MST and AIM: candidates, merged rare levels, and scores.

The score is || c - N q ||_1, c exact counts and N q the public model's, in whole numbers over 2^20:
exact, of sensitivity max_rows (add/remove) or 2 max_rows (replace-one; docs/method.md section 18).
Merging reads noisy counts only: post-processing.
Source: McKenna, Miklau & Sheldon (2021), algorithm 2, section 4.3; McKenna et al. (2022), 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.estimation import NoisyMarginal

UNIT = 1 << 20
"""One row, in the whole numbers of scores."""

_MOST = 2.0**41
"""Most rows of a model's cell; more is cut, publicly."""


def distance(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> int:
    """Return the score, in rows over `UNIT`; `expected` is public, both have the same shape.

    Privacy:
        Exact, hence confidential; sensitivity above. Only for `mechanisms.select`.
    """
    public = np.rint(np.clip(expected, 0.0, _MOST) * UNIT).astype(np.int64)
    return int(np.abs(counts * UNIT - public).sum())


def admissible_pairs(sizes: Sequence[int], most_cells: int) -> Iterator[tuple[int, int]]:
    """Pairs of columns whose table is small enough; public."""
    for pair in combinations(range(len(sizes)), 2):
        if sizes[pair[0]] * sizes[pair[1]] <= most_cells:
            yield pair


def spanning_pairs(sizes: Sequence[int], most_cells: int) -> int:
    """Number of pairs of any spanning forest of the admissible ones; public."""
    from scipy.cluster.hierarchy import DisjointSet

    trees = DisjointSet(range(len(sizes)))
    return sum(bool(trees.merge(*pair)) for pair in admissible_pairs(sizes, most_cells))


Array = NDArray[np.float64]

RARE = 3.0
"""Standard deviations below which a level is rare."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Merging:
    """A column's merged codes: the new code of each old one."""

    codes: NDArray[np.int32] = field(repr=False)

    @classmethod
    def of(cls, column: NoisyMarginal) -> Merging:
        """Merge rare noisy counts, so free; nothing where fewer than two codes are common."""
        common = column.values >= RARE * np.sqrt(column.variance)
        if common.sum() < 2:
            common = np.ones_like(common)
        codes = np.where(common, np.cumsum(common) - 1, common.sum())
        return cls(codes=codes.astype(np.int32))

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


def merged_counts(
    counter: ContingencyCounter, pairs: Sequence[tuple[int, int]], merging: Sequence[Merging]
) -> Iterator[NDArray[np.int64]]:
    """Exact counts of pairs of columns in their new codes, in order.

    Privacy:
        As `ContingencyCounter`: a row is in one cell of each.
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
    """One-way marginals of tables, of the columns that have no merged codes."""
    singles = (table.along(axis) for table in tables for axis in range(len(table.columns)))
    return [single for single in singles if not merging[single.columns[0]].changes]
