"""Column distributions of a network's rows, known beforehand from a noisy histogram.

A network trained under noise is a poor judge of distributions: shares of levels and the shape of a
column. A histogram of every column is a good one, and cheap. With its laws known the network makes
*ranks*: a number's coordinate is its place in the noisy distribution, uniform on [-1, 1] whatever
the column looks like; and the network's outputs are levelled, so that what it draws has the noisy
law in every column: numbers by the quantiles of its own outputs, levels and missing cells by one
offset each. Both are found on public draws of the network. What is left to learn is dependence
alone, and a network whose outputs are zero draws exactly the histogram's independent rows.

Everything here is post-processing of released counts; a row's ranks depend on that row alone, to
the last bit. It is a copula by a network: Sklar's theorem says that marginals and dependence are
apart. docs/method.md section 20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Bins, Domain

if TYPE_CHECKING:
    from dpiw.methods.generators.heads import Head, Heads

Array = NDArray[np.float64]

KNOTS = 257
"""Quantiles of a number's output that its map to ranks goes through."""

_LEAST = 1e-6
"""Smallest share of a code: laws are strictly positive, and can be inverted."""

_ROUNDS, _CLOSE, _ROWS = 100, 1e-4, 8192
"""Most rounds of levelling, the step at which they end, and rows that are looked at together: on
the first of them offsets are found, and then mended on all, which takes few rounds more."""

_GRID = np.linspace(0.0, 1.0, KNOTS)
_LOGISTIC = np.log(np.maximum(_GRID, 1e-4) / np.maximum(1 - _GRID, 1e-4))


def line(values: Array, start: Array, end: Array) -> Array:
    """Piecewise linear from the increasing `start` to `end`, constant beyond; value by value.

    `np.interp` without its shortcuts: a value's image has the same bits in every company.
    """
    clipped = np.clip(values, start[0], start[-1])
    place = np.minimum(np.searchsorted(start, clipped, side="right") - 1, len(start) - 2)
    slope = (end[place + 1] - end[place]) / (start[place + 1] - start[place])
    return np.asarray(np.clip(end[place] + (clipped - start[place]) * slope, end[0], end[-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberLaw:
    """The noisy distribution of one number where it is not missing.

    Attributes:
        place: its coordinate in a row.
        nullable: whether the next coordinate flags missing cells.
        edges: of the bins, as `Bins.edges`; levels in order are whole numbers.
        cumulative: share below each edge, from 0 to 1, increasing.
        whole: whether it lies on whole numbers, from 0 to `steps`.
        steps: of its grid; 0 where it has none that a network can see.
    """

    place: int
    nullable: bool
    edges: Array
    cumulative: Array
    whole: bool
    steps: float

    @classmethod
    def of(cls, part: Head, bins: Bins, law: Array) -> Self:
        """Of a head of one number, the column's codes and their shares."""
        shares, ordinal = law[: bins.values], bins.edges is None
        whole = ordinal or bins.span > 0
        span = bins.values - 1.0 if ordinal else float(bins.span)
        return cls(
            place=part.start,
            nullable=part.column.nullable,
            edges=np.arange(bins.values + 1.0) if bins.edges is None else bins.edges,
            cumulative=np.concatenate([[0.0], np.cumsum(shares)[:-1] / shares.sum(), [1.0]]),
            whole=whole,
            steps=span if whole else part.steps,
        )

    def ranks(self, values: Array) -> Array:
        """Places in the distribution, in [-1, 1], of coordinates; of a whole number its middle."""
        unit = (values + 1.0) / 2.0
        if self.whole:
            unit = np.rint(unit * self.steps) + 0.5
        return 2.0 * line(unit, self.edges, self.cumulative) - 1.0

    def values(self, ranks: Array) -> Array:
        """Coordinates of places in the distribution."""
        unit = line((ranks + 1.0) / 2.0, self.cumulative, self.edges)
        if self.whole:
            unit = np.minimum(np.floor(unit), self.steps) / max(self.steps, 1.0)
        elif self.steps:
            unit = np.rint(unit * self.steps) / self.steps
        return 2.0 * unit - 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnDistributions:
    """Known laws of the columns that some heads make, and what gives a network's rows these laws.

    Attributes:
        numbers: of each number, in the heads' order.
        shares: of levels and of missing numbers, shape (width,); 0 at numbers.
        offsets: added to the network's outputs, shape (width,); 0 at numbers.
        knots: quantiles of each number's perturbed output, shape (numbers, KNOTS), increasing.
    """

    numbers: tuple[NumberLaw, ...]
    shares: Array
    offsets: Array
    knots: Array

    @classmethod
    def of(cls, heads: Heads, domain: Domain, laws: Sequence[Array]) -> Self:
        """Levelled for a network that says nothing: outputs of zero.

        Args:
            heads: of some of the domain's columns.
            domain: the histogram's codes.
            laws: non-negative counts of every released column's codes.
        """
        names = [column.name for column in domain.schema.released]
        shares, numbers = np.zeros(heads.width), []
        for part in heads.parts:
            j = names.index(part.column.name)
            law = np.maximum(laws[j] / laws[j].sum(), _LEAST)
            law = law / law.sum()
            if part.numeric:
                numbers.append(NumberLaw.of(part, domain.columns[j], law))
                shares[part.start + 1 : part.stop] = law[-1]
            else:
                shares[part.start : part.stop] = law
        offsets = np.zeros(heads.width)
        for start, stop in heads.groups:
            offsets[start:stop] = np.log(shares[start:stop])
        offsets[heads.flags] = _logit(shares[heads.flags])
        knots = np.tile(_LOGISTIC, (len(numbers), 1))
        return cls(numbers=tuple(numbers), shares=shares, offsets=offsets, knots=knots)

    @cached_property
    def centres(self) -> Array:
        """Medians of the numbers' perturbed outputs."""
        return np.asarray(self.knots[:, KNOTS // 2])

    @cached_property
    def spreads(self) -> Array:
        """Scales of logistic laws with their quartiles."""
        quarter = KNOTS // 4
        width = self.knots[:, -1 - quarter] - self.knots[:, quarter]
        return np.asarray(np.maximum(width / (2 * np.log(3.0)), 1e-6))

    def ranked(self, rows: Array) -> Array:
        """Rows of coordinates, shape (n, width), with ranks for numbers; row by row."""
        return self._mapped(rows, [law.ranks for law in self.numbers])

    def valued(self, rows: Array) -> Array:
        """Rows of ranks with coordinates for numbers again."""
        return self._mapped(rows, [law.values for law in self.numbers])

    def _mapped(self, rows: Array, maps: Sequence[Any]) -> Array:
        rows = rows.copy()
        for law, transform in zip(self.numbers, maps, strict=True):
            column = transform(rows[:, law.place])
            if law.nullable:
                column = np.where(rows[:, law.place + 1] > 0.5, 0.0, column)
            rows[:, law.place] = column
        return rows

    def drawn(self, perturbed: Array) -> Array:
        """Ranks of the numbers' perturbed outputs, shape (n, numbers), on the columns' grids."""
        grid_ranks = np.empty_like(perturbed)
        for j, law in enumerate(self.numbers):
            ranks = line(perturbed[:, j], self.knots[j], 2.0 * _GRID - 1.0)
            grid_ranks[:, j] = law.ranks(law.values(ranks)) if law.steps else ranks
        return grid_ranks

    def levelled(self, heads: Heads, outputs: Array, noise: Array) -> Self:
        """With the offsets and quantiles that give these public outputs the known laws.

        Args:
            heads: whose marginals they are.
            outputs: of a network, shape (n, width).
            noise: of `Heads.draw_noise`, same shape.
        """
        offsets = np.zeros(heads.width)
        for start, stop in heads.groups:
            offsets[start:stop] = _offsets(outputs[:, start:stop], self.shares[start:stop])
        knots = np.empty_like(self.knots)
        for j, law in enumerate(self.numbers):
            present = np.ones(len(outputs))
            if law.nullable:
                share = np.array([1 - self.shares[law.place + 1], self.shares[law.place + 1]])
                logits = np.stack([np.zeros(len(outputs)), outputs[:, law.place + 1]], axis=1)
                low, high = _offsets(logits, share)
                offsets[law.place + 1] = high - low
                present = _softmax(logits + np.array([low, high]))[:, 0]
            perturbed = outputs[:, law.place] + noise[:, law.place]
            knots[j] = _quantiles(perturbed, np.maximum(present, 1e-12))
        return replace(self, offsets=offsets, knots=knots)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """What was found by levelling."""
        return {"offsets": self.offsets, "knots": self.knots}


def _logit(share: Array) -> Array:
    return np.asarray(np.log(share) - np.log1p(-share))


def _softmax(logits: Array) -> Array:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _offsets(logits: Array, shares: Array) -> Array:
    """What to add to logits, shape (n, s), so that the mean softmax is `shares`, shape (s,).

    Coordinate ascent on the concave dual: each round moves every offset by its log error.
    """
    offsets = np.log(shares)
    for part in (logits[:_ROWS], logits)[: 1 + (len(logits) > _ROWS)]:
        for _ in range(_ROUNDS):
            step = np.log(shares / np.maximum(_mean_softmax(part + offsets), 1e-300))
            step = np.clip(step, -5.0, 5.0)  # a level that no row wants yet must not run away
            offsets = offsets + step
            if np.abs(step).max() < _CLOSE:
                break
    return np.asarray(offsets - offsets.mean())


def _mean_softmax(logits: Array) -> Array:
    starts = range(0, len(logits), _ROWS)
    total = sum(_softmax(logits[start : start + _ROWS]).sum(axis=0) for start in starts)
    return np.asarray(total / len(logits))


def _quantiles(values: Array, weights: Array) -> Array:
    """KNOTS weighted quantiles from the smallest value to the largest, strictly increasing."""
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(weights[order])
    middle = (mass - weights[order] / 2) / mass[-1]
    quantiles = np.interp(_GRID, middle, values[order])
    return np.asarray(
        quantiles + 1e-9 * np.maximum(1.0, np.abs(quantiles).max()) * np.arange(KNOTS)
    )
