"""Discrete Bayesian networks: structure by the exponential mechanism, and ancestral sampling.

The score of family (X, P), in rows, is 1/2 || c_{X,P} - p_X (x) c_P ||_1, c exact counts and p_X
the *already released* distribution of X. Sensitivity: max_rows (add/remove) or 2 max_rows
(replace-one), because p_X is a distribution; p_X holds whole numbers over 2^20, so scores are exact
(docs/method.md section 9).
Source: Zhang et al. (2017), PrivBayes, algorithm 4 and section 4.3; penalty: McKenna et al. (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb, floor, prod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.tables import SyntheticTable
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.histospline import Histospline, fill, histosplines
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

SHARE_UNIT = 1 << 20
"""One, in the whole-number distributions that scores use."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A column and its parents, as indices into the released columns."""

    child: int
    parents: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Parents first, child last: the axis order of the family's table."""
        return (*self.parents, self.child)


def score_sensitivity(unit: PrivacyUnit) -> float:
    """Sensitivity of `dependence` under the unit's relation."""
    rows = float(unit.max_rows)
    return rows if unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE else 2.0 * rows


def candidate_count(columns: int, degree: int) -> int:
    """Upper bound on the families that are ever scored: each set of columns at most once."""
    return sum(comb(columns, size) for size in range(2, degree + 2))


def whole_shares(distribution: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round a distribution to whole numbers >= 0 that sum to exactly `SHARE_UNIT`."""
    shares = np.floor(distribution * SHARE_UNIT).astype(np.int64)
    shares[int(np.argmax(shares))] += SHARE_UNIT - int(shares.sum())
    return shares


def dependence(table: NDArray[np.int64], shares: NDArray[np.int64]) -> float:
    """Return the score of exact counts, (*parents, child); `shares` from `whole_shares`, in rows.

    Privacy:
        Exact, hence confidential; sensitivity `score_sensitivity`. Only for `mechanisms.select`.
    """
    rows = table.reshape(-1, table.shape[-1])
    moved = np.abs(rows * SHARE_UNIT - rows.sum(axis=1, keepdims=True) * shares).sum()
    return float(moved) / (2 * SHARE_UNIT)


def _new_families(
    placed: Sequence[int], waiting: Sequence[int], sizes: Sequence[int], degree: int, max_cells: int
) -> Iterator[Family]:
    """Families that the newest column makes possible; depends on public facts only."""
    *earlier, newest = placed
    for others in range(min(degree, len(placed))):
        for rest in combinations(earlier, others):
            parents = (*rest, newest)
            cells = prod(sizes[j] for j in parents)
            yield from (
                Family(child=child, parents=parents)
                for child in waiting
                if cells * sizes[child] <= max_cells
            )


def choose_network(
    counter: ContingencyCounter,
    *,
    sizes: Sequence[int],
    shares: Sequence[NDArray[np.int64]],
    root: int,
    degree: int,
    max_cells: int,
    cell_penalty: float,
    select: Callable[[NDArray[np.float64]], int],
) -> tuple[Family, ...]:
    """Return families in sampling order: each column, greedily, with the parents that explain most.

    Args:
        counter: exact counts of the private table.
        sizes: codes per column.
        shares: public distribution of each column, from `whole_shares`.
        root: the first column, without parents; chosen publicly and free.
        degree: most parents of a column.
        max_cells: families with more cells are no candidates (public).
        cell_penalty: rows of score a candidate loses per cell it would measure (public).
        select: the exponential mechanism, calibrated to `score_sensitivity`; larger is better.

    Privacy:
        Calls `select` exactly len(sizes) - 1 times. Candidates follow from earlier selections and
        public facts only; scores do not change between steps.
    """
    families = [Family(child=root, parents=())]
    waiting = [j for j in range(len(sizes)) if j != root]
    # 'No parents' is always a candidate: it explains nothing and needs no further measurement.
    pool = [(Family(child=child, parents=()), 0.0) for child in waiting]
    while waiting:
        placed = [family.child for family in families]
        new = [*_new_families(placed, waiting, sizes, degree, max_cells)]
        tables = counter.each(family.members for family in new)
        for family, table in zip(new, tables, strict=True):
            # On the scores' own grid, so that the difference is exact.
            penalty = floor(cell_penalty * table.size * 2 * SHARE_UNIT) / (2 * SHARE_UNIT)
            pool.append((family, dependence(table, shares[family.child]) - penalty))
        chosen = pool[select(np.array([score for _, score in pool]))][0]
        families.append(chosen)
        waiting.remove(chosen.child)
        pool = [entry for entry in pool if entry[0].child != chosen.child]
    return tuple(families)


_UNIFORM_BITS = 32

MOST_CELLS = 1 << 20
"""Cells of one conditional table; row offset plus a 32-bit uniform is then exact in a double."""


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """The law of a child given its parents.

    `steps` are cumulative probabilities, flattened; configuration r runs from r to r + 1.
    """

    family: Family
    steps: NDArray[np.float64]

    @classmethod
    def from_table(
        cls, family: Family, table: NDArray[np.float64], fallback: NDArray[np.float64]
    ) -> Conditional:
        """Normalise a non-negative table, (*parents, child); empty rows use `fallback`."""
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
        points = parents + uniform * 2.0**-_UNIFORM_BITS
        places = np.searchsorted(self.steps, points, side="right")
        return (places - parents * size).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class NetworkModel:
    """A fitted network, parents before children: a pure function of a measurement."""

    domain: Domain
    conditionals: Sequence[Conditional]
    one_way: OneWayMarginals | None

    judge: ClassVar[None] = None
    at_hand: ClassVar[None] = None

    @classmethod
    def independent(
        cls, domain: Domain, laws: Sequence[NDArray[np.float64]], one_way: OneWayMarginals | None
    ) -> Self:
        """A network of columns without parents, from non-negative masses, none all zero."""
        conditionals = tuple(
            Conditional.from_table(Family(child=j, parents=()), law, law)
            for j, law in enumerate(laws)
        )
        return cls(domain=domain, conditionals=conditionals, one_way=one_way)

    @cached_property
    def splines(self) -> Mapping[int, Histospline]:
        """Splines of numbers in their bins, by column."""
        return histosplines(self.domain, self.one_way)

    def sample_codes(self, rows: int, *, rng: np.random.Generator) -> NDArray[np.int32]:
        """Independent rows as codes, shape (rows, d)."""
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
