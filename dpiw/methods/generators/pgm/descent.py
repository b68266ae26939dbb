"""The fit of a graphical model by mirror descent on a junction tree, from noisy counts alone.

A pure function of released counts and public sizes: free post-processing.
Sources: McKenna, Sheldon & Miklau (2019), algorithm 1, least squares in units of the noise;
momentum in the natural parameters (Nesterov 1983), dropped where it overshoots (O'Donoghue &
Candes 2015). The model stays the one of maximal entropy: its logarithm is a sum of potentials of
the measured columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import StageFailedError
from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.estimation import NoisyMarginal

Array = NDArray[np.float64]

MOST_STEPS = 2000
"""Passes through the tree; 26 marginals of ten columns took 660."""

GROWTH = 1.1
"""Of the step after a descent; it is halved where the loss falls by less than it should."""

ENOUGH, PATIENCE = 0.5, 50
"""The fit ends once so many steps lower the loss by less. The loss is half a chi-square of as many
degrees as there are cells, so noise moves it by far more."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a table of some columns lies in the table of a family."""

    family: int
    away: tuple[int, ...]
    order: tuple[int, ...]
    back: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, columns: Sequence[int], family: int, members: Sequence[int], whole: Array) -> Self:
        kept = [j for j in members if j in columns]
        return cls(
            family=family,
            away=tuple(axis for axis, j in enumerate(members) if j not in columns),
            order=tuple(kept.index(j) for j in columns),
            back=tuple([*columns].index(j) for j in kept),
            shape=tuple(n if j in kept else 1 for j, n in zip(members, whole.shape, strict=True)),
        )

    def summed(self, tables: Sequence[Array]) -> Array:
        """Return the family's table over these columns alone."""
        table = tables[self.family]
        return (table.sum(axis=self.away) if self.away else table).transpose(self.order)

    def add(self, tables: Sequence[Array], values: Array) -> None:
        """Add a table of these columns to the family's."""
        table = tables[self.family]
        table += values.transpose(self.back).reshape(self.shape)


class _Tree:
    """Message passing on families, parents first: potentials of cliques to their shares."""

    def __init__(
        self, families: Sequence[Family], sizes: Sequence[int], cliques: Sequence[Sequence[int]]
    ) -> None:
        members = [family.members for family in families]
        self.shapes = [tuple(sizes[j] for j in columns) for columns in members]
        empty = [np.broadcast_to(0.0, shape) for shape in self.shapes]
        number = {family.child: i for i, family in enumerate(families)}
        self.hosts: list[_Place | None] = []
        for family in families:
            last = max((number[parent] for parent in family.parents), default=None)
            self.hosts.append(
                None
                if last is None
                else _Place.of(family.parents, last, members[last], empty[last])
            )
        self.places = []
        for clique in cliques:
            around = [i for i, columns in enumerate(members) if {*clique} <= {*columns}]
            i = min(around, key=lambda i: prod(self.shapes[i]))
            self.places.append(_Place.of(clique, i, members[i], empty[i]))

    def tables(self, potentials: Sequence[Array]) -> list[Array]:
        """Shares of every family, (*parents, child)."""
        tables = [np.zeros(shape) for shape in self.shapes]
        for place, values in zip(self.places, potentials, strict=True):
            place.add(tables, values)
        for table, host in zip(reversed(tables), reversed(self.hosts), strict=True):
            top = table.max(axis=-1, keepdims=True)
            table -= top
            np.exp(table, out=table)
            base = table.sum(axis=-1, keepdims=True)
            table /= base  # of the child, given its parents
            if host is not None:
                host.add(tables, (top + np.log(base))[..., 0])
        for table, host in zip(tables, self.hosts, strict=True):
            if host is not None:
                table *= host.summed(tables)[..., None]
        return tables


@dataclass(frozen=True, kw_only=True, eq=False)
class _Point:
    """A model by its potentials; shares and gradient of every measured marginal."""

    potentials: list[Array]
    shares: list[Array]
    gradient: list[Array]
    loss: float

    def moved(self, by: float, along: Sequence[Array]) -> list[Array]:
        return [values + by * other for values, other in zip(self.potentials, along, strict=True)]

    def promises(self, other: _Point) -> float:
        """By how much the loss falls on the way to another, to first order, in shares."""
        return sum(
            float(np.vdot(slope, one - two))
            for slope, one, two in zip(self.gradient, self.shares, other.shares, strict=True)
        )


@np.errstate(over="ignore", invalid="ignore")
def nearest_tables(
    families: Sequence[Family],
    sizes: Sequence[int],
    marginals: Sequence[NoisyMarginal],
    *,
    total: float,
) -> tuple[Array, ...]:
    """Return shares of every family in the model of maximal entropy nearest to the marginals.

    Args:
        families: a junction tree of the marginals' columns, parents first.
        sizes: codes of every column.
        marginals: noisy counts; their squared distances are in units of their noise.
        total: number of rows, of noisy counts.

    Raises:
        StageFailedError: the fit is not finite, so it has no rows.
    """
    tree = _Tree(families, sizes, [marginal.columns for marginal in marginals])
    weights = [1 / marginal.stddev**2 for marginal in marginals]

    def at(potentials: list[Array]) -> _Point:
        tables = tree.tables(potentials)
        shares = [place.summed(tables) for place in tree.places]
        gaps = [total * each - m.values for each, m in zip(shares, marginals, strict=True)]
        gradient = [weight * gap for weight, gap in zip(weights, gaps, strict=True)]
        loss = sum(float(np.vdot(*pair)) for pair in zip(gradient, gaps, strict=True)) / 2
        return _Point(potentials=potentials, shares=shares, gradient=gradient, loss=loss)

    best = point = at([np.zeros(marginal.values.shape) for marginal in marginals])
    step, momentum, last = 1 / (total * max(float(w.max()) for w in weights)), 1.0, np.inf
    for number in range(MOST_STEPS):
        if number % PATIENCE == 0:
            if not last - best.loss >= ENOUGH:  # NaN ends it too
                break
            last = best.loss
        new = at(point.moved(-step, point.gradient))
        if new.loss > point.loss - total * point.promises(new) / 2:
            step /= 2
        elif new.loss > best.loss:
            point, momentum = best, 1.0
        else:
            before, best, step = best, new, GROWTH * step
            following = (1 + sqrt(1 + 4 * momentum**2)) / 2
            share, momentum = (momentum - 1) / following, following
            ahead = [a - b for a, b in zip(best.potentials, before.potentials, strict=True)]
            point = at(best.moved(share, ahead)) if share else best
    tables = tree.tables(best.potentials)
    if not (isfinite(best.loss) and all(np.isfinite(table).all() for table in tables)):
        raise StageFailedError("fit", StageFailedError.exit_code)
    return tuple(tables)
