"""Random Fourier features (Rahimi & Recht 2007) of rows, exact to the last bit.

All terms of a phase are multiples of a power of two, so features depend on their row alone, in any
order and block size; another processor may draw another last bit of a frequency. The public
`omega_seed` fixes the frequencies: no privacy noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import SpecError, WeightError, setting_error
from dpiw.methods.weights.geometry import ColumnBlock, blocks


def public_normals(seed: int, size: int) -> NDArray[np.float64]:
    """Standard normals, shape (size,), by Box and Muller on raw words of Philox.

    NumPy never changes Philox's stream. `seed` is public, in [0, 2^64).
    """
    words = np.random.Philox(key=seed).random_raw(2 * size)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:size]))
    return np.asarray(radius * np.cos(2 * np.pi * uniform[size:]))


Array = NDArray[np.float64]
Item = TypeVar("Item", bound=np.generic)

UNIT = 2.0**-24
"""Features of a private row are rounded to multiples of it, so that sums are exact integers.

A row's part then depends neither on other rows nor on the order of adding."""

STEPS = 4096
"""Steps of a turn: a phase moves to the middle of its step, by at most 0.0008 radians."""

_CELL = 2.0**-20
"""Scaled cells are rounded to a multiple of it."""

_FEW, _ADDED = 256, 512
"""Rows at once, to stay in a core's cache; more where rows are only added, as threads wait."""

_TOGETHER = 256
"""Most lines of a table that columns share: it then stays in a core's cache."""

_BITS = 52
"""Bits of a double below its highest."""

_HALF = 2**31
"""Values that the lower half of an integer holds."""

_FARTHEST = 2.0**40
"""Most steps of a phase: below them it has bits enough for the cells."""


def _rounded(values: Array, unit: float) -> Array:
    return np.asarray(np.rint(values / unit) * unit)


def _frozen(values: Array) -> Array:
    """Read-only: threads share it."""
    values.setflags(write=False)
    return values


def public_scale(schema: PublicSchema) -> float:
    """s, s^2 = (5/3) / E norm(z)^2 for a uniform centred row z; SpecError if no column varies."""
    spread = math.fsum(part.reference_squared_norm for part in blocks(schema))
    if spread <= 0:
        fault = "`fourier` needs a column that can vary; name other features, such as linear"
        raise SpecError(fault, field="weights.settings.features")
    return math.sqrt(5.0 / 3.0 / spread)


@dataclass(frozen=True, kw_only=True)
class Waves:
    """Cosines and sines of D random phases of the centred row, over the root of D: norm 1.

    `scales` are in public scales (`public_scale`), of the frequencies in turn. `bundles`: a seed
    for each of as many equal groups of frequencies, whose scales are `scales`; none: one group.
    """

    schema: PublicSchema
    frequencies: int
    scales: tuple[float, ...]
    omega_seed: int
    bundles: tuple[int, ...] = ()

    @cached_property
    def omega(self) -> Array:
        """Frequencies, radians per unit of the centred row, shape (p, D)."""
        width, lines = self.frequencies // max(1, len(self.bundles)), self._blocks[-1].stop
        groups = [
            public_normals(seed, lines * width).reshape(-1, width)
            for seed in self.bundles or (self.omega_seed,)
        ]
        scales = np.asarray(self.scales)
        of_each = np.repeat(scales, width) if self.bundles else np.resize(scales, width)
        return np.asarray(public_scale(self.schema) * np.hstack(groups) * of_each)

    @cached_property
    def _blocks(self) -> tuple[ColumnBlock, ...]:
        return blocks(self.schema)

    def _turns(self, start: int, stop: int) -> Array:
        """Each level's term of a one-hot block: (onehot - 1/L)/sqrt(2) Omega, in steps."""
        steps = self.omega[start:stop] * (STEPS / (2 * math.pi))
        return np.asarray((steps - steps.mean(axis=0)) / math.sqrt(2))

    @cached_property
    def _offset(self) -> float:
        """A power of two of steps: 1.5 of it are whole turns, and no phase exceeds half of it.

        SpecError for phases of more than `_FARTHEST` steps.
        """
        reach = 0.0
        for block in self._blocks:
            if block.numeric:
                reach += float(np.abs(self.omega[block.start]).max()) / (4 * math.pi) * STEPS
            if block.levels:
                first = block.stop - block.levels
                reach += float(np.abs(self._turns(first, block.stop)).max())
        if reach > _FARTHEST:
            raise setting_error(self, "weights.settings.scales", "smaller numbers")
        return 2.0 ** math.ceil(math.log2(2 * max(reach, STEPS / 2) + STEPS))

    @property
    def _unit(self) -> float:
        """The unit of every phase, in steps: the least for which phases are exact."""
        return 2.0 * self._offset * 2.0**-_BITS

    @cached_property
    def _numbers(self) -> Array:
        """Terms of a unit of each numeric cell, of each missing one, and the start."""
        values, missing = [], []
        start = np.full(self.frequencies, 1.5 * self._offset)
        for block in self._blocks:
            if not block.numeric:
                continue
            steps = self.omega[block.start] * (STEPS / (2 * math.pi))
            values.append(_rounded(steps, self._unit / _CELL))
            if block.levels:
                present, absent = _rounded(self._turns(block.start + 1, block.stop), self._unit)
                start += present
                missing.append(absent - present)
        return _frozen(np.stack([*values, *missing, start]))

    @cached_property
    def _shared(self) -> tuple[tuple[int, ...], ...]:
        """Indices of blocks without numbers, grouped by the table they share."""
        groups: list[tuple[int, ...]] = []
        lines: list[int] = []
        for column, block in enumerate(self._blocks):
            if block.numeric:
                continue
            for group, held in enumerate(lines):
                if held * block.levels <= _TOGETHER:
                    groups[group] += (column,)
                    lines[group] *= block.levels
                    break
            else:
                groups.append((column,))
                lines.append(block.levels)
        return tuple(groups)

    @cached_property
    def _levels(self) -> tuple[Array, ...]:
        """Terms of the other columns' levels, or combinations, missing last; shapes (levels, D)."""
        tables = []
        for group in self._shared:
            together = np.zeros((1, self.frequencies))
            for block in (self._blocks[column] for column in group):
                table = _rounded(self._turns(block.start, block.stop), self._unit)
                together = (together[:, None, :] + table).reshape(-1, self.frequencies)
            tables.append(_frozen(together))
        return tuple(tables)

    @cached_property
    def _circle(self) -> Array:
        """Cosine and sine in the middle of each step, over the root of D; (STEPS, 2)."""
        angle = (np.arange(STEPS) + 0.5) * (2 * math.pi / STEPS)
        pairs = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return _frozen(pairs / math.sqrt(self.frequencies))

    def _cells(self, scaled: ScaledTable) -> Array:
        """Numeric cells less a half, flags of missing ones, and one; shape (k, rows)."""
        numbers = [
            (scaled.columns[column.name], block.levels > 0)
            for column, block in zip(self.schema.released, self._blocks, strict=True)
            if block.numeric
        ]
        count = len(numbers)
        is_nullable = np.array([levels for _, levels in numbers], dtype=bool)
        lines = np.ones((count + int(is_nullable.sum()) + 1, scaled.rows))
        cells = lines[:count]
        for line, (values, _) in zip(cells, numbers, strict=True):
            line[:] = values
        absent = np.isnan(cells)
        lines[count:-1] = absent[is_nullable]
        cells -= 0.5
        np.clip(cells, -0.5, 0.5, out=cells)
        np.copyto(cells, 0.0, where=absent)
        cells *= 1 / _CELL
        np.rint(cells, out=cells)
        cells *= _CELL
        return lines

    def _codes(self, scaled: ScaledTable) -> list[NDArray[np.int64]]:
        """A row's line in each table of levels; missing is a column's last."""
        lines = []
        for group in self._shared:
            line = np.zeros(scaled.rows, dtype=np.int64)
            for column in group:
                size = self._blocks[column].levels
                levels = scaled.columns[self.schema.released[column].name]
                codes = levels.astype(np.int64, casting="same_kind")
                line *= size
                line += np.clip(np.where(codes < 0, size, codes), 0, size - 1)
            lines.append(line)
        return lines

    def _read(
        self, scaled: ScaledTable, circle: NDArray[Item], most: int
    ) -> Iterator[tuple[slice, NDArray[Item]]]:
        """Rows, few at a time, and the circle's entries at their phases, (few, D), overwritten."""
        cells, codes = self._cells(scaled), self._codes(scaled)
        steps, added = np.empty((2, most, self.frequencies))
        # Of all phases the offset is the highest bit: the bits of their steps stand at one place.
        places, below = steps.view(np.int64), _BITS - int(math.log2(self._offset))
        found = np.empty(steps.shape, circle.dtype)
        for start in range(0, scaled.rows, most):
            rows = slice(start, min(start + most, scaled.rows))
            few = slice(0, rows.stop - start)
            np.matmul(cells[:, rows].T, self._numbers, out=steps[few])
            for lines, table in zip(codes, self._levels, strict=True):
                np.take(table, lines[rows], axis=0, out=added[few], mode="clip")
                steps[few] += added[few]
            places[few] >>= below
            places[few] &= STEPS - 1
            np.take(circle, places[few], out=found[few], mode="clip")
            yield rows, found[few]

    def read(
        self, scaled: ScaledTable, *, scale: float = 1.0, most: int = _FEW
    ) -> Iterator[tuple[slice, Array]]:
        """Rows, `most` at a time, and scaled cosines and sines, (rows, D, 2), overwritten."""
        circle = (scale * self._circle).view(np.complex128).reshape(-1)
        for rows, found in self._read(scaled, circle, most):
            yield rows, found.view(np.float64).reshape(-1, self.frequencies, 2)

    def write(self, scaled: ScaledTable, features: Array, *, scale: float = 1.0) -> None:
        """All cosines, then all sines, times a scale, into an array of shape (rows, 2 D)."""
        for rows, found in self.read(scaled, scale=scale):
            features[rows, : self.frequencies] = found[:, :, 0]
            features[rows, self.frequencies :] = found[:, :, 1]

    def sum_in(self, scaled: ScaledTable, *, unit: float, scale: float) -> NDArray[np.int64]:
        """Sums over rows of the features times a scale, each rounded to whole units; shape (2 D,).

        A cosine and its sine are added as one integer, the sine in its lower half, which `most`
        rows cannot fill. WeightError for a scale and unit that give a feature of 2^31 units or
        more.
        """
        units = np.rint(scale * self._circle * (1 / unit))
        largest = float(np.abs(units).max())
        if not largest < _HALF:
            raise WeightError(field="weights", allowed="a larger `unit`, or a smaller `scale`")
        circle = units.astype(np.int64) @ np.array([2 * _HALF, 1])
        most = min(_ADDED, (_HALF - 1) // max(1, int(largest)))
        total = np.zeros((2, self.frequencies), dtype=np.int64)
        for _, found in self._read(scaled, circle, most):
            both = found.sum(axis=0)
            sines = (both + _HALF) % (2 * _HALF) - _HALF
            total += (both - sines) // (2 * _HALF), sines
        return total.reshape(-1)
