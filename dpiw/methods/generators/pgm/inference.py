"""Graphical models of noisy marginals: their junction trees, fits, pairs and rows.

Fits (`descent`) receive only noisy counts and public facts: free post-processing. Models factorise
along a triangulation of the cliques' graph.
Source: Koller & Friedman (2009), section 9.4.3 (greedy elimination by the size of the new table).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod
from string import ascii_letters
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.tables import SyntheticTable
from dpiw.methods.generators.bayesian_network import Conditional, Family, NetworkModel
from dpiw.methods.generators.estimation import NoisyMarginal, estimate_total
from dpiw.methods.generators.pgm.descent import nearest_tables
from dpiw.methods.generators.pgm.pairs import Merging, spread
from dpiw.methods.one_way import OneWayMarginals


def families_of(sizes: Sequence[int], cliques: Iterable[Sequence[int]]) -> tuple[Family, ...]:
    """Return a junction tree: each column with its parents, parents first; cliques fit in families.

    Joins the parents of a column, so that they lie within the family of the last of them.
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


Array = NDArray[np.float64]

BLOCK_CELLS = 1 << 23
"""Numbers that pairs hold on their way through a tree; more only where its tables have more."""


def pairs_cells(model_cells: int, largest: int) -> int:
    """Most numbers that `FittedModel.pairs` holds besides its answer; public."""
    return max(model_cells, BLOCK_CELLS) + 4 * largest


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedModel:
    """Tables of a junction tree's families, parents first, (*parents, child), summing to 1."""

    families: tuple[Family, ...]
    tables: tuple[Array, ...] = field(repr=False)

    def pairs(self, column: int, others: Collection[int]) -> dict[int, Array]:
        """Return joint shares of a column with some others, shape (its size, the other's).

        Walks outwards from families that hold the column: P(a, X) = sum over S of P(a, S) P(X | S),
        S the columns that neighbours share. Holds at most `pairs_cells` numbers besides the answer.
        """
        alone = _over(self._table(column), (column,))
        laws = {other: _over(self._table(other), (other,)) for other in others}
        joints = {other: np.outer(alone, law) for other, law in laws.items()}
        shared = sum(
            table.size // table.shape[-1]
            for family, table in zip(self.families, self.tables, strict=True)
            if column not in family.parents
        )
        step = max(1, BLOCK_CELLS // shared)
        for start in range(0, alone.size, step):
            codes = slice(start, start + step)
            for other, joint in self._outwards(column, codes, others):
                joints[other][codes] = joint
        return joints

    @cached_property
    def _place(self) -> dict[int, int]:
        return {family.child: i for i, family in enumerate(self.families)}

    @cached_property
    def _near(self) -> list[list[int]]:
        near: list[list[int]] = [[] for _ in self.families]
        for i, family in enumerate(self.families):
            if family.parents:
                last = max(self._place[parent] for parent in family.parents)
                near[last].append(i)
                near[i].append(last)
        return near

    def _table(self, child: int) -> _Table:
        place = self._place[child]
        return _Table(columns=self.families[place].members, values=self.tables[place])

    def _outwards(
        self, column: int, codes: slice, others: Collection[int]
    ) -> Iterator[tuple[int, Array]]:
        first = self._place[column]
        waiting: list[tuple[int, int, _Table | None]] = [(first, first, None)]
        while waiting:
            here, before, message = waiting.pop()
            child = self.families[here].child
            table = self._table(child)
            if child in others and child != column:
                yield child, _joint(table, (child,), column, codes, message)
            for there in (there for there in self._near[here] if there != before):
                members, next_message = self.families[there].members, None
                if column not in members:
                    shared = tuple(j for j in table.columns if j in members)
                    values = _joint(table, shared, column, codes, message)
                    next_message = _Table(columns=shared, values=values)
                waiting.append((there, here, next_message))


_LETTERS = ascii_letters[1:]  # "a": the codes of one column


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    columns: tuple[int, ...]
    values: Array


def _over(table: _Table, columns: Sequence[int]) -> Array:
    return np.asarray(
        np.einsum(f"{_axes(table.columns, table)}->{_axes(columns, table)}", table.values)
    )


def _axes(columns: Sequence[int], table: _Table) -> str:
    return "".join(_LETTERS[table.columns.index(j)] for j in columns)


def _joint(
    table: _Table, wanted: tuple[int, ...], column: int, codes: slice, message: _Table | None
) -> Array:
    """Return P(a, wanted) for some codes a of a column, shape (codes, *wanted).

    `message` is P(a, S) of the neighbour nearer to the column; None if the table holds the column.
    """
    if message is None:
        before = (slice(None),) * table.columns.index(column)
        some = _Table(columns=table.columns, values=table.values[(*before, codes)])
        return _over(some, (column, *wanted))
    scope = (*message.columns, *(j for j in wanted if j not in message.columns))
    law = _over(table, scope)
    base = law.sum(axis=tuple(range(len(message.columns), law.ndim)), keepdims=True)
    law = np.divide(law, base, out=np.zeros_like(law), where=base > 0)
    rule = _Table(columns=scope, values=law)
    near, behind, both = (_axes(columns, rule) for columns in (message.columns, wanted, scope))
    return np.asarray(np.einsum(f"a{near},{both}->a{behind}", message.values, law))


def fit(marginals: Sequence[NoisyMarginal], sizes: Sequence[int], *, total: float) -> FittedModel:
    """Return the maximal-entropy model whose marginals are nearest to the noisy ones.

    Raises:
        StageFailedError: it is not finite.
    """
    families = families_of(sizes, [marginal.columns for marginal in marginals])
    tables = nearest_tables(families, sizes, marginals, total=total)
    return FittedModel(families=families, tables=tables)


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphicalModel:
    """A graphical model of noisy marginals in merged codes: a pure function of a measurement."""

    domain: Domain
    marginals: Sequence[NoisyMarginal] = field(repr=False)
    merging: Sequence[Merging] = field(repr=False)
    one_way: OneWayMarginals

    judge: ClassVar[None] = None
    at_hand: ClassVar[None] = None

    @cached_property
    def network(self) -> NetworkModel:
        """The fit as a network in junction-tree order."""
        sizes = [merger.size for merger in self.merging]
        fitted = fit(self.marginals, sizes, total=rows_of(self.marginals))
        conditionals = []
        for family, table in zip(fitted.families, fitted.tables, strict=True):
            joint = spread(table, [self.merging[j] for j in family.members])
            law = joint.reshape(-1, joint.shape[-1]).sum(axis=0)
            conditionals.append(Conditional.from_table(family, joint, law))
        return NetworkModel(domain=self.domain, conditionals=conditionals, one_way=self.one_way)

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent rows, reproducible by `rng`."""
        return self.network.sample(rows, rng=rng)


def rows_of(marginals: Sequence[NoisyMarginal]) -> float:
    """Noisy number of rows by all marginals together, at least 1."""
    return estimate_total(
        [marginal.values for marginal in marginals],
        [marginal.variance * float(np.mean(marginal.merged)) for marginal in marginals],
    )
