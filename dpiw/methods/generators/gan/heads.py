"""Maps between rows of a public schema and the numbers that networks read and write.

A number is one coordinate in [-1, 1], levels are one-hot; nullable columns add a flag, 1 if missing
(the number is then 0). The discriminator must see rows on the released grid, because it recognises
shares of levels as synthetic; derivatives are straight-through (Jang et al. 2017, Maddison et al.
2017). With known distributions, numbers are ranks in noisy laws (docs/method.md section 20).

Privacy: layout and grid are public, laws are post-processing of released counts, and a row's
coordinates depend on that row only, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.discretisation import Bins, Domain
from dpiw.data.schema.schema import ScaledTable
from dpiw.methods.neural.backend import CPU
from dpiw.methods.neural.backend import Array as Tensor

Array = NDArray[np.float64]

KNOTS = 257
"""Quantiles of a number's output that its map to ranks goes through."""

_LEAST = 1e-6
"""Smallest share of a code: laws are strictly positive, and can be inverted."""

_ROUNDS, _CLOSE, _ROWS = 100, 1e-4, 8192
"""Limits of levelling: rounds, step at which it ends, rows read at once (all correct it later)."""

_GRID = np.linspace(0.0, 1.0, KNOTS)
_LOGISTIC = np.log(np.maximum(_GRID, 1e-4) / np.maximum(1 - _GRID, 1e-4))


def line(values: Array, start: Array, end: Array) -> Array:
    """Piecewise linear map from increasing `start` to `end`, constant beyond, value by value.

    Do not use `np.interp`: a value's bits must not depend on the other values (privacy).
    """
    clipped = np.clip(values, start[0], start[-1])
    place = np.minimum(np.searchsorted(start, clipped, side="right") - 1, len(start) - 2)
    slope = (end[place + 1] - end[place]) / (start[place + 1] - start[place])
    return np.asarray(np.clip(end[place] + (clipped - start[place]) * slope, end[0], end[-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberLaw:
    """The noisy distribution of one number among present cells.

    Attributes:
        place: its coordinate in a row; `nullable` if the next one flags missing cells.
        edges: of the bins, as `Bins.edges`; ordered levels are whole numbers.
        cumulative: share below each edge, from 0 to 1, increasing.
        whole: whether values are whole numbers from 0 to `steps`.
        steps: of its grid; 0 if a network cannot see the grid.
    """

    place: int
    nullable: bool
    edges: Array
    cumulative: Array
    whole: bool
    steps: float

    @classmethod
    def of(cls, part: Head, bins: Bins, law: Array) -> Self:
        """From the head of one number, the column's codes and their shares."""
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
        """Ranks in [-1, 1] of coordinates; a whole number's is the middle of its bin."""
        unit = (values + 1.0) / 2.0
        if self.whole:
            unit = np.rint(unit * self.steps) + 0.5
        return 2.0 * line(unit, self.edges, self.cumulative) - 1.0

    def values(self, ranks: Array) -> Array:
        """Coordinates of ranks."""
        unit = line((ranks + 1.0) / 2.0, self.cumulative, self.edges)
        if self.whole:
            unit = np.minimum(np.floor(unit), self.steps) / max(self.steps, 1.0)
        elif self.steps:
            unit = np.rint(unit * self.steps) / self.steps
        return 2.0 * unit - 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnDistributions:
    """Known laws of the columns of some heads, and the map that gives rows these laws.

    Attributes:
        numbers: law of each number, in the heads' order.
        shares: of levels and of missing numbers, shape (width,); 0 at numbers.
        offsets: added to the network's outputs, shape (width,); 0 at numbers.
        knots: increasing quantiles of each number's perturbed output, shape (numbers, KNOTS).
    """

    numbers: tuple[NumberLaw, ...]
    shares: Array
    offsets: Array
    knots: Array

    @classmethod
    def of(cls, heads: Heads, domain: Domain, laws: Sequence[Array]) -> Self:
        """Level for a network whose outputs are zero; `laws` are counts of released columns."""
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
        missing = shares[heads.flags]
        offsets[heads.flags] = np.log(missing) - np.log1p(-missing)
        knots = np.tile(_LOGISTIC, (len(numbers), 1))
        return cls(numbers=tuple(numbers), shares=shares, offsets=offsets, knots=knots)

    @cached_property
    def spreads(self) -> Array:
        """Scales of logistic laws with their quartiles."""
        quarter = KNOTS // 4
        width = self.knots[:, -1 - quarter] - self.knots[:, quarter]
        return np.asarray(np.maximum(width / (2 * np.log(3.0)), 1e-6))

    def mapped(self, rows: Array, transform: Callable[[NumberLaw, Array], Array]) -> Array:
        """Rows, shape (n, width), with numbers mapped by `NumberLaw.ranks` or back; row by row."""
        rows = rows.copy()
        for law in self.numbers:
            column = transform(law, rows[:, law.place])
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
        """Level public outputs and `Heads.draw_noise`, shape (n, width) each, to the known laws."""
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


def _softmax(logits: Array) -> Array:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _offsets(logits: Array, shares: Array) -> Array:
    """Find offsets, (s,), whose mean softmax over logits (n, s) is `shares` (concave dual)."""
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


MARGIN = 0.02
"""How far the sigmoid reaches beyond both bounds, in units of the range; then it is clamped."""

TEMPERATURE = 2 / 3
"""Of the relaxed draws of levels."""

_FINEST_GRID = 1000
"""A finer grid looks continuous to a network, and is left to `PublicSchema.project`."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where one column lies in a row: from `start` to before `stop`.

    A `numeric` head has one number, and a flag if nullable; others have levels, missing last.
    """

    column: Column
    start: int
    stop: int
    numeric: bool

    def encode(self, values: NDArray[Any], rows: Array) -> None:
        """Write scaled values, shape (n,), into zeros of shape (n, width)."""
        missing = np.isnan(values) if self.column.is_numeric else values < 0
        if not self.numeric:
            codes = np.where(missing, self.column.cardinality, values).astype(np.int64)
            last = self.stop - self.start - 1  # an inadmissible cell stays in its own column
            rows[np.arange(len(rows)), self.start + np.minimum(codes, last)] = 1.0
            return
        if not self.column.is_numeric:
            values = values / (self.column.cardinality - 1)
        rows[:, self.start] = np.where(missing, 0.0, 2.0 * values - 1.0)
        if self.column.nullable:
            rows[:, self.start + 1] = missing

    def decode(self, rows: Array) -> NDArray[Any]:
        """Scaled values, shape (n,), of rows as `encode` writes them."""
        part, column = rows[:, self.start : self.stop], self.column
        if not self.numeric:
            codes = np.argmax(part, axis=1)
            return np.where(codes >= column.cardinality, -1, codes).astype(np.int32)
        missing = part[:, 1] > 0.5 if column.nullable else np.zeros(len(part), dtype=bool)
        unit = (part[:, 0] + 1.0) / 2.0
        if column.is_numeric:
            return np.where(missing, np.nan, unit)
        codes = np.rint(unit * (column.cardinality - 1))
        return np.where(missing, -1, codes).astype(np.int32)

    @property
    def steps(self) -> float:
        """Steps of a number's grid over its range; 0 where it looks continuous."""
        column = self.column
        if not column.is_numeric:
            return float(column.cardinality - 1)
        if column.values:
            return 0.0
        if column.kind is ColumnKind.CONTINUOUS:
            span, decimals = column.upper_number - column.lower_number, column.decimals
            steps = 0.0 if decimals is None else span * 10.0**decimals
        else:
            steps = column.upper_number - column.lower_number
        return steps if steps <= _FINEST_GRID and steps == round(steps) else 0.0


@dataclass(frozen=True, kw_only=True)
class Heads:
    """The heads of some released columns, in order.

    Attributes:
        levels: whether ordinal columns are levels instead of numbers (those of one level always
            are).
        distributions: known laws; numbers are then ranks, drawn by logistic noise.
    """

    columns: tuple[Column, ...]
    levels: bool = False
    distributions: ColumnDistributions | None = None

    @cached_property
    def parts(self) -> tuple[Head, ...]:
        """One head per column."""
        heads: list[Head] = []
        for column in self.columns:
            ordinal = column.kind is ColumnKind.ORDINAL and column.cardinality > 1
            numeric = column.is_numeric or (ordinal and not self.levels)
            size = (1 if numeric else column.cardinality) + int(column.nullable)
            start = heads[-1].stop if heads else 0
            heads.append(Head(column=column, start=start, stop=start + size, numeric=numeric))
        return tuple(heads)

    @property
    def width(self) -> int:
        """Coordinates of a row, and outputs of a generator's network."""
        return self.parts[-1].stop if self.parts else 0

    def encode(self, scaled: ScaledTable) -> Array:
        """Encode scaled values, shape (n, width); row i depends on row i only.

        Privacy:
            Releases nothing: the rows are as confidential as the table.
        """
        rows = np.zeros((scaled.rows, self.width))
        for part in self.parts:
            part.encode(scaled.columns[part.column.name], rows)
        laws = self.distributions
        return rows if laws is None else laws.mapped(rows, NumberLaw.ranks)

    def decode(self, rows: Array) -> dict[str, NDArray[Any]]:
        """Scaled columns of drawn rows; `PublicSchema.project` puts them on their grids."""
        laws = self.distributions
        rows = rows if laws is None else laws.mapped(rows, NumberLaw.values)
        return {part.column.name: part.decode(rows) for part in self.parts}

    def draw_noise(self, rows: int, rng: np.random.Generator) -> Array:
        """Public noise that `draw` adds to levels, flags and ranks, shape (rows, width)."""
        noise = rng.gumbel(size=(rows, self.width))
        for binary in (self.flags,) if self.distributions is None else (self.flags, self._numbers):
            noise[:, binary] -= rng.gumbel(size=(rows, binary.size))
        return noise

    def draw(self, outputs: Array, noise: Array) -> Array:
        """Draw rows from network outputs and `draw_noise`; all of shape (n, width).

        Rows are as they would be released, up to grids finer than a network can see.
        """
        rows, perturbed = np.zeros_like(outputs), outputs + noise
        numbers, flags = self._numbers, self.flags
        if self.distributions is None:
            bend = np.tanh(outputs[:, numbers] / 2)
            value = np.clip((1 + 2 * MARGIN) * bend, -1.0, 1.0)
            on_grid = self._steps > 0
            steps = self._steps[on_grid] / 2
            value[:, on_grid] = np.rint((value[:, on_grid] + 1) * steps) / steps - 1
        else:
            perturbed += self.distributions.offsets
            value = self.distributions.drawn(perturbed[:, numbers])
        rows[:, numbers] = value
        rows[:, flags] = perturbed[:, flags] > 0
        rows[:, flags - 1] *= 1 - rows[:, flags]
        row_indices = np.arange(len(rows))
        for start, stop in self.groups:
            rows[row_indices, start + np.argmax(perturbed[:, start:stop], axis=1)] = 1.0
        return rows

    def relaxed(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return differentiable rows: shares of levels, unclamped numbers; all (n, width)."""
        numbers, flags, laws = self._numbers, self.flags, self.distributions
        perturbed = outputs + noise
        if laws is None:
            bend = (1 + 2 * MARGIN) * (outputs[:, numbers] / 2).tanh()
        else:
            perturbed = perturbed + CPU.array(laws.offsets)
            centred = perturbed[:, numbers] - CPU.array(laws.knots[:, KNOTS // 2])  # medians
            bend = (centred / (2 * CPU.array(laws.spreads))).tanh()
        rows = outputs * 0.0
        rows[:, numbers] = bend
        perturbed = perturbed / TEMPERATURE
        rows[:, flags] = perturbed[:, flags].sigmoid()
        rows[:, flags - 1] = rows[:, flags - 1] * (1 - rows[:, flags])
        for start, stop in self.groups:
            rows[:, start:stop] = perturbed[:, start:stop].softmax(1)
        return rows

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return np.array([p.start for p in self.parts if p.numeric], dtype=np.int64)

    @cached_property
    def _steps(self) -> Array:
        return np.array([p.steps for p in self.parts if p.numeric])

    @cached_property
    def flags(self) -> NDArray[np.int64]:
        """Coordinates that flag a missing number; each flags the one before it."""
        flagged = [p.start + 1 for p in self.parts if p.numeric and p.column.nullable]
        return np.array(flagged, dtype=np.int64)

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of the columns of levels."""
        return tuple((p.start, p.stop) for p in self.parts if not p.numeric)
