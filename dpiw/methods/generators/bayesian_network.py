"""The structure of a Bayesian network, chosen by the exponential mechanism.

Source: Zhang et al. (2017), PrivBayes, algorithm 4 (GreedyBayes) with the score R of section 4.3;
the penalty for noise follows AIM (McKenna et al. 2022); the cap on cells is PrivBayes' own
theta-usefulness.

Score of a family (X, P), in rows:

    score = 1/2 * || c_{X,P} - p_X (x) c_P ||_1

with c exact counts and p_X the *already released* noisy distribution of X. It is the number of
rows one would have to move for X to be independent of P with the released law of X.

Sensitivity (derived). One more row, at (x0, p0), adds 1 to c_{X,P}(x0, p0) and p_X(.) to the slice
p0 of the second term. The difference moves by 1 - p_X(x0) at x0 and by p_X(x) at every other x of
the slice, in all 2 (1 - p_X(x0)), halved: at most 1 per row, because p_X is a distribution. So
add/remove: max_rows. Replace-one is one removal and one addition: 2 max_rows. p_X is kept as whole
numbers over 2^20, so the score is a whole number over 2^21 and no rounding enters the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, floor, prod

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.counting import ContingencyCounter
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
    """Sensitivity of `dependence` under the unit's relation (derivation above)."""
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
    """The score of the module's docstring, in rows.

    Args:
        table: exact counts, shape (*parents, child).
        shares: public distribution of the child, from `whole_shares`.

    Privacy:
        Exact, hence confidential; sensitivity `score_sensitivity`. Only for `mechanisms.select`.
    """
    rows = table.reshape(-1, table.shape[-1])
    moved = np.abs(rows * SHARE_UNIT - rows.sum(axis=1, keepdims=True) * shares).sum()
    return float(moved) / (2 * SHARE_UNIT)


def _new_families(
    placed: Sequence[int], waiting: Sequence[int], sizes: Sequence[int], degree: int, max_cells: int
) -> Iterator[Family]:
    """Families that the column placed last makes possible. Depends on public facts only."""
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
    """Place every column, greedily, each with the parents that explain most.

    Args:
        counter: exact counts of the private table.
        sizes: codes per column.
        shares: public distribution of each column, from `whole_shares`.
        root: the first column, chosen publicly, so its choice costs nothing.
        degree: most parents of a column.
        max_cells: families with more cells are no candidates (public).
        cell_penalty: rows of score a candidate loses per cell it would have to measure (public).
        select: the exponential mechanism, calibrated to `score_sensitivity`; larger is better.

    Returns:
        Families in sampling order; the first is the root without parents.

    Privacy:
        Calls `select` exactly len(sizes) - 1 times. Candidates follow from earlier selections and
        public facts alone; scores do not change between steps, so each is computed once.
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
