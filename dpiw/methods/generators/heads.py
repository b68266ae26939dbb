"""Between rows of a public schema and the numbers a network reads and writes.

A row is a vector. A number (continuous, integer, date, datetime, ordinal) is one coordinate in
[-1, 1]; levels (categorical, boolean) are one coordinate each, one of them 1. A column that may be
missing has one more coordinate, 1 where the cell is missing; a missing number is then 0.

A generator's network has one output per coordinate: a number is tanh of half its output (a sigmoid
on [-1, 1]) widened by a margin and clamped, levels have softmax probabilities, a missing number has
a sigmoid one. Levels and missing cells are drawn, by adding standard Gumbel noise and taking the
largest: exactly by those probabilities. What a discriminator sees are such drawn rows, on the
column's own grid, as they would be released: were they shares of levels it would tell them from
real rows by that alone.

The derivative is that of the relaxed row: softmax at a temperature for the draw, and no rounding
(the straight-through estimator of Jang et al. 2017, the concrete law of Maddison et al. 2017).
Everything acts row by row, without seeing data; layout and grid are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.schema import ScaledTable
from dpiw.errors import SpecError
from dpiw.methods.generators.column_distributions import ColumnDistributions
from dpiw.methods.neural.backend import CPU
from dpiw.methods.neural.backend import Array as Tensor

Array = NDArray[np.float64]

MARGIN = 0.02
"""How far the sigmoid reaches beyond both bounds, in units of the range; then it is clamped."""

_FINEST_GRID = 1000
"""A finer grid looks continuous to a network, and is left to `PublicSchema.project`."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where one column lies in a row.

    Attributes:
        column: the column.
        start, stop: half-open range of coordinates.
        numeric: one number, and a flag if nullable; otherwise levels, missing last if nullable.
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
        columns: the columns.
        temperature: of the relaxed draws, > 0.
        levels: whether ordinal columns are levels, too, instead of numbers; those of one level are.
        distributions: known ones of the columns; numbers are then ranks in them, each drawn by
            adding logistic noise to its output, and what is drawn has these distributions.
    """

    columns: tuple[Column, ...]
    temperature: float = 2 / 3
    levels: bool = False
    distributions: ColumnDistributions | None = None

    def __post_init__(self) -> None:
        """Raises SpecError: the temperature is out of range."""
        if not 0 < self.temperature <= 10:
            raise SpecError("heads.temperature: expected above 0, at most 10")

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
        """Rows of scaled values, shape (n, width); row i depends on row i alone.

        Privacy:
            Releases nothing: the rows are as confidential as the table.
        """
        rows = np.zeros((scaled.rows, self.width))
        for part in self.parts:
            part.encode(scaled.columns[part.column.name], rows)
        return rows if self.distributions is None else self.distributions.ranked(rows)

    def decode(self, rows: Array) -> dict[str, NDArray[Any]]:
        """Scaled columns of drawn rows; `PublicSchema.project` puts them on their grids."""
        rows = rows if self.distributions is None else self.distributions.valued(rows)
        return {part.column.name: part.decode(rows) for part in self.parts}

    def draw_noise(self, rows: int, rng: np.random.Generator) -> Array:
        """What `draw` perturbs levels, flags and ranks by, shape (rows, width); public."""
        noise = rng.gumbel(size=(rows, self.width))
        for binary in (self.flags,) if self.distributions is None else (self.flags, self._numbers):
            noise[:, binary] -= rng.gumbel(size=(rows, binary.size))
        return noise

    def draw(self, outputs: Array, noise: Array) -> Drawn:
        """The rows that network outputs and noise stand for.

        Args:
            outputs: of the generator's network, shape (n, width).
            noise: of `draw_noise`, same shape.
        """
        return Drawn(heads=self, outputs=outputs, noise=noise)

    def relaxed(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The differentiable rows, shape (n, width): shares of levels, numbers before clamping.

        Args:
            outputs: of the generator's network, a tensor of shape (n, width).
            noise: of `draw_noise`, same shape.
        """
        numbers, flags, laws = self._numbers, self.flags, self.distributions
        perturbed = outputs + noise
        if laws is None:
            bend = (1 + 2 * MARGIN) * (outputs[:, numbers] / 2).tanh()
        else:
            perturbed = perturbed + CPU.array(laws.offsets)
            centred = perturbed[:, numbers] - CPU.array(laws.centres)
            bend = (centred / (2 * CPU.array(laws.spreads))).tanh()
        rows = outputs * 0.0
        rows[:, numbers] = bend
        perturbed = perturbed / self.temperature
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """Rows drawn from a generator's outputs.

    Attributes:
        heads: what the coordinates mean.
        outputs, noise: shape (n, width).
    """

    heads: Heads
    outputs: Array
    noise: Array

    @property
    def _reach(self) -> float:
        return 1 + 2 * MARGIN if self.heads.distributions is None else 1.0

    @cached_property
    def _perturbed(self) -> Array:
        perturbed, distributions = self.outputs + self.noise, self.heads.distributions
        return perturbed if distributions is None else perturbed + distributions.offsets

    @cached_property
    def _bend(self) -> Array:
        """Numbers, shape (n, numbers), from -1 to 1; of ranks by a logistic law."""
        numbers, distributions = self.heads._numbers, self.heads.distributions
        if distributions is None:
            return np.tanh(self.outputs[:, numbers] / 2)
        return np.tanh(
            (self._perturbed[:, numbers] - distributions.centres) / (2 * distributions.spreads)
        )

    @cached_property
    def rows(self) -> Array:
        """The rows as they would be released, up to grids finer than a network can see."""
        heads = self.heads
        rows = np.zeros_like(self.outputs)
        numbers, flags = heads._numbers, heads.flags
        perturbed = self._perturbed
        if heads.distributions is None:
            value = np.clip(self._reach * self._bend, -1.0, 1.0)
            on_grid = heads._steps > 0
            steps = heads._steps[on_grid] / 2
            value[:, on_grid] = np.rint((value[:, on_grid] + 1) * steps) / steps - 1
        else:
            value = heads.distributions.drawn(perturbed[:, numbers])
        rows[:, numbers] = value
        rows[:, flags] = perturbed[:, flags] > 0
        rows[:, flags - 1] *= 1 - rows[:, flags]
        row_indices = np.arange(len(rows))
        for start, stop in heads.groups:
            rows[row_indices, start + np.argmax(perturbed[:, start:stop], axis=1)] = 1.0
        return rows
