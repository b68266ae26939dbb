"""Graphical models of noisy marginals, fitted in a separate process (`inference_process`).

The process alone loads mbi and jax, and receives only noisy counts and public facts: free
post-processing. Models factorise along a triangulation of the cliques' graph.
Source: Koller & Friedman (2009), section 9.4.3 (greedy elimination by the size of the new table).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations
from math import prod
from string import ascii_letters
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError, StageFailedError, install
from dpiw.methods.generators.bayesian_network import Conditional, Family, NetworkModel
from dpiw.methods.generators.estimation import NoisyMarginal, estimate_total
from dpiw.methods.generators.pgm.inference_process import receive, send
from dpiw.methods.generators.pgm.pairs import Merging, spread
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.measurement import Measurement


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

ITERATIONS = 1000
"""Iterations of mirror descent between rounds."""

FINAL_ITERATIONS = 2500
"""Iterations of the fit that rows are drawn from; compiling takes longer on most tables."""

PROBE_ITERATIONS = 100
"""Iterations of the fit that tests the process."""

BLOCK_CELLS = 1 << 23
"""Numbers that pairs hold on their way through a tree; more only where its tables have more."""


def check_installed(method: str) -> None:
    """Raise SpecError where mbi is not installed, before anything is reserved."""
    if importlib.util.find_spec("mbi") is None:
        raise SpecError(
            f"fitting it needs private-pgm, which is not installed; run: {install('marginals')}",
            field=f"generator.method={method}",
        )


@cache
def check_fits() -> None:
    """Fit public counts once before a method's first draw; StageFailedError if that fails."""
    with Inference() as process:
        process.probe()


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


class Inference:
    """A context manager: a process that fits models."""

    def __init__(self) -> None:
        self._process: Any = None

    def __enter__(self) -> Self:
        """Start the process; it inherits and receives no more than its parent has."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dpiw.methods.generators.pgm.inference_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def probe(self) -> None:
        """Fit two codes of public counts; StageFailedError if the process or its library fails."""
        marginal = NoisyMarginal(columns=(0,), values=np.array([3.0, 1.0]), variance=0.01)
        (table,) = self.fit([marginal], (2,), total=4.0, iterations=PROBE_ITERATIONS).tables
        if not np.allclose(table, (0.75, 0.25), atol=0.01):
            raise StageFailedError("fit", StageFailedError.exit_code)

    def fit(
        self,
        marginals: Sequence[NoisyMarginal],
        sizes: Sequence[int],
        *,
        total: float,
        iterations: int = ITERATIONS,
    ) -> FittedModel:
        """Return the maximal-entropy model whose marginals are nearest to the noisy ones.

        StageFailedError if the process ended, or its answer is no distribution.
        """
        families = families_of(sizes, [marginal.columns for marginal in marginals])
        question = Measurement(
            kind="fit",
            arrays={
                f"{name}_{i}": np.ravel(values)
                for i, marginal in enumerate(marginals)
                for name, values in (("values", marginal.values), ("stddev", marginal.stddev))
            },
            facts={
                "sizes": list(sizes),
                "cliques": [list(marginal.columns) for marginal in marginals],
                "families": [list(family.members) for family in families],
                "total": total,
                "iterations": iterations,
            },
            publishable=True,
        )
        try:
            send(self._process.stdin, question)
            answer = receive(self._process.stdout)
        except OSError:
            answer = None
        if answer is None or not all(np.isfinite(array).all() for array in answer.arrays.values()):
            raise StageFailedError("fit", StageFailedError.exit_code)
        tables = tuple(answer.arrays[f"table_{i}"] for i in range(len(families)))
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
        """The fit as a network in junction-tree order.

        Rows are drawn from it, not by mbi, whose default gives children of one parent equal ranks.
        """
        with Inference() as process:
            fitted = process.fit(
                self.marginals,
                [merger.size for merger in self.merging],
                total=rows_of(self.marginals),
                iterations=FINAL_ITERATIONS,
            )
        conditionals = []
        for family, table in zip(fitted.families, fitted.tables, strict=True):
            joint = spread(table, [self.merging[j] for j in family.members])
            law = joint.reshape(-1, joint.shape[-1]).sum(axis=0)
            conditionals.append(Conditional.from_table(family, joint, law))
        return NetworkModel(domain=self.domain, conditionals=conditionals, one_way=self.one_way)

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent rows, reproducible by `rng`; StageFailedError without a fit."""
        return self.network.sample(rows, rng=rng)


def rows_of(marginals: Sequence[NoisyMarginal]) -> float:
    """Noisy number of rows by all marginals together, at least 1."""
    return estimate_total(
        [marginal.values for marginal in marginals],
        [marginal.variance * float(np.mean(marginal.merged)) for marginal in marginals],
    )
