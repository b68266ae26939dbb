"""Ancestral sampling from a discrete Bayesian network, vectorised over rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError
from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.histospline import Histospline, fill, histosplines
from dpiw.methods.one_way import OneWayMarginals

_UNIFORM_BITS = 32
_GUIDE, _SPARSE = 1 << 14, 4
"""Cells of a table that guides a search, and how many a step there are at least."""

MOST_CELLS = 1 << 20
"""Cells of one conditional table; row offset plus a 32-bit uniform is then exact in a double."""


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """The law of a child given its parents.

    Attributes:
        family: child and parents.
        steps: cumulative probabilities, one row per parent configuration, flattened; row r runs
            from r to r + 1, so the whole array increases and one search serves all rows.
    """

    family: Family
    steps: NDArray[np.float64]

    @classmethod
    def from_table(
        cls, family: Family, table: NDArray[np.float64], fallback: NDArray[np.float64]
    ) -> Conditional:
        """Normalise a non-negative table, shape (*parents, child).

        Parent configurations without mass take `fallback`, the child's one-way distribution.
        """
        rows = table.reshape(-1, table.shape[-1])
        rows = np.where(rows.sum(axis=1, keepdims=True) > 0, rows, fallback)
        cumulative = np.cumsum(rows, axis=1)
        cumulative /= cumulative[:, -1:]
        steps = cumulative + np.arange(len(rows))[:, None]
        return cls(family=family, steps=steps.ravel())

    def draw(
        self, parents: NDArray[np.intp], size: int, rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """One child code per row, given each row's packed parent code; inverse CDF."""
        uniform = rng.integers(0, 1 << _UNIFORM_BITS, size=len(parents), dtype=np.uint32)
        places = self._places(parents + uniform * 2.0**-_UNIFORM_BITS)
        return (places - parents * size).astype(np.int32)

    def _places(self, points: NDArray[np.float64]) -> NDArray[np.intp]:
        """How many steps are at most each point, below the last step; by table where one serves."""
        cells, places, is_sure = self._guide
        if not cells:
            return np.searchsorted(self.steps, points, side="right")
        at = (points * cells).astype(np.intp)
        found, others = places[at], np.flatnonzero(~is_sure[at])
        found[others] = np.searchsorted(self.steps, points[others], side="right")
        return found

    @cached_property
    def _guide(self) -> tuple[int, NDArray[np.intp], NDArray[np.bool_]]:
        """Cells of equal width in a unit, a power of two, so that a point's cell is exact.

        And each cell's place, which is sure where no step lies within it. No cells: of so many
        steps few would be sure.
        """
        units = round(float(self.steps[-1]))
        cells = 1 << max(0, (_GUIDE // units).bit_length() - 1)
        if cells * units < _SPARSE * len(self.steps):
            return 0, np.empty(0, dtype=np.intp), np.empty(0, dtype=np.bool_)
        edges = np.arange(cells * units + 1) / cells
        places = np.searchsorted(self.steps, edges[:-1], side="right")
        return cells, places, places == np.searchsorted(self.steps, edges[1:], side="left")


@dataclass(frozen=True, kw_only=True)
class NetworkModel:
    """A fitted network: a pure function of a measurement.

    Attributes:
        domain: the public discretisation.
        conditionals: one per column, parents before children.
        one_way: the one-way distributions that it was made of, and how well they are known; None
            if none were measured.
    """

    domain: Domain
    conditionals: Sequence[Conditional]
    one_way: OneWayMarginals | None

    judge: ClassVar[None] = None
    """It has no discriminator."""

    @cached_property
    def splines(self) -> Mapping[int, Histospline]:
        """Where in their bins numbers lie, by column."""
        return histosplines(self.domain, self.one_way)

    def sample_codes(self, rows: int, *, rng: np.random.Generator) -> NDArray[np.int32]:
        """Independent rows as codes, shape (rows, d)."""
        if rows < 0:
            raise SpecError(f"rows={rows}: expected a whole number >= 0")
        sizes = self.domain.sizes
        codes = np.zeros((rows, len(sizes)), dtype=np.int32, order="F")
        for conditional in self.conditionals:
            packed = np.zeros(rows, dtype=np.intp)
            for parent in conditional.family.parents:
                packed *= sizes[parent]
                packed += codes[:, parent]
            child = conditional.family.child
            codes[:, child] = conditional.draw(packed, sizes[child], rng)
        return codes

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent synthetic rows; the same `rng` state gives the same rows."""
        codes = self.sample_codes(rows, rng=rng)
        scaled = fill(self.domain, codes, self.splines, rng=rng)
        return SyntheticTable(schema=self.domain.schema, scaled=scaled)
