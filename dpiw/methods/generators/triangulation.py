"""The junction tree of a set of marginals, as families in sampling order. Public facts alone.

A graphical model of marginals over cliques factorises along a triangulation of their graph: each
column given its neighbours that come before it. The tables of these families are what a fit holds
in memory, so their cells are its size. Source: Koller & Friedman (2009), section 9.4.3 (greedy
elimination by the size of the table that it makes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod

from dpiw.methods.generators.bayesian_network import Family


def cells_of(family: Family, sizes: Sequence[int]) -> int:
    """Cells of a family's table."""
    return prod(sizes[j] for j in family.members)


def families_of(sizes: Sequence[int], cliques: Iterable[Sequence[int]]) -> tuple[Family, ...]:
    """Every column with its parents, parents first; each clique lies within one family.

    The parents of a column are joined with each other, so that they lie within the family of the
    last of them: the families are a junction tree.

    Args:
        sizes: codes of each column.
        cliques: columns of each marginal.
    """
    near: list[set[int]] = [set() for _ in sizes]
    for clique in cliques:
        for first, second in combinations(clique, 2):
            near[first].add(second)
            near[second].add(first)
    waiting, families = set(range(len(sizes))), []
    while waiting:
        cost = {j: prod(sizes[k] for k in near[j]) * sizes[j] for j in waiting}
        column = min(sorted(waiting), key=cost.__getitem__)
        families.append(Family(child=column, parents=tuple(sorted(near[column]))))
        for parent in near[column]:
            near[parent] |= near[column] - {parent}
            near[parent].discard(column)
        waiting.remove(column)
    return tuple(reversed(families))
