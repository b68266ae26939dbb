"""Tiltings of rows by the features of `all_features`, without a feature matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import CodeTable, Domain
from dpiw.data.schema.schema import ScaledTable
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.geometry import ColumnBlock
from dpiw.methods.weights.measured.base_rows import Tilted, checked
from dpiw.methods.weights.measured.features import Stack, all_features

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


_ROWS, _LEAST, _ENTRIES = 16_384, 1024, 2**21
"""Most and fewest rows of a block, and of its centred rows: with fewer, threads mostly wait."""

_FEW = 512
"""Rows whose Fourier features are held at once: twice a core's cache, as threads wait."""


@dataclass(frozen=True, kw_only=True)
class _Moments:
    """Coordinates and products: each a product of two lines, the second perhaps that of ones.

    Lines are the columns of `Stack.lines_of`, and a last line of ones. Scores are the sums of
    X * (T R) over lines, X all lines, R the second ones; sums: X diag(masses) R'.
    """

    stack: Stack
    parts: tuple[str, ...]

    @property
    def _one(self) -> int:
        """Index of the line of ones."""
        return self.stack.lines

    @cached_property
    def _factors(self) -> Indices:
        """The two lines of every feature, shape (features, 2)."""
        return np.concatenate([self._factors_of(part) for part in self.parts])

    def _factors_of(self, part: str) -> Indices:
        if (squares := self.stack.squares_of(part)) is not None:
            return np.repeat(squares, 2).reshape(-1, 2)
        return np.concatenate([*_products(self.stack.blocks_of(part), one=self._one)])

    @cached_property
    def _seconds(self) -> Indices:
        """Lines that are second ones, ascending; the last is that of ones."""
        return np.union1d(self._factors[:, 1], self._one)

    @cached_property
    def _places(self) -> tuple[Indices, Indices]:
        """Of every feature in a matrix of first and second lines."""
        return self._factors[:, 0], np.searchsorted(self._seconds, self._factors[:, 1])

    @cached_property
    def _scales(self) -> Array:
        widths = [self.stack.width(part) for part in self.parts]
        return np.repeat([self.stack.scale(part) for part in self.parts], widths)

    @cached_property
    def _offsets(self) -> Array:
        """What is taken off every product."""
        widths = [self.stack.width(part) for part in self.parts]
        squares = [self.stack.squares_of(part) is not None for part in self.parts]
        return np.repeat(0.125 * np.array(squares), widths)

    def laid_out(self, theta: Array) -> Array:
        """T, shape (second lines, lines)."""
        scaled = theta * self._scales
        matrix = np.zeros((self._one + 1, self._seconds.size))
        np.add.at(matrix, self._places, scaled)
        matrix[-1, -1] -= scaled @ self._offsets
        return np.ascontiguousarray(matrix.T)

    def read(self, scaled: ScaledTable) -> Array:
        """Lines of centred rows, shape (lines, rows)."""
        lines = np.ones((self._one + 1, scaled.rows))
        lines[: self._one] = self.stack.lines_of(scaled).T
        return checked(lines)

    def scores(self, held: NDArray[Any], laid_out: Array) -> Array:
        products = laid_out @ held
        products *= held[self._seconds]
        return np.asarray(products.sum(axis=0))

    def sums(self, held: NDArray[Any], masses: Array) -> Array:
        matrix = held @ (held[self._seconds] * masses).T
        return np.asarray((matrix[self._places] - self._offsets * matrix[-1, -1]) * self._scales)


def _products(
    pairs: list[tuple[ColumnBlock, ColumnBlock | None]], *, one: int
) -> Iterator[Indices]:
    """The lines of columns or products of two; second is the column that all have, if any.

    `one`: the line of ones, the second of a column alone.
    """
    shared = set.intersection(*(set(pair) for pair in pairs))
    for a, b in pairs:
        if b is None:
            places = np.arange(a.start, a.stop)
            yield np.stack([places, np.full_like(places, one)], axis=1)
            continue
        lines = np.mgrid[a.start : a.stop, b.start : b.stop].reshape(2, -1).T
        yield lines[:, ::-1] if a in shared else lines


@dataclass(frozen=True, kw_only=True)
class _Known:
    """Indicators of codes, each column's last left out."""

    law: OneWayLaw

    @cached_property
    def _table(self) -> CodeTable:
        return CodeTable(domain=self.law.domain, columns=self.law.columns)

    @cached_property
    def _kept(self) -> Indices:
        """Which codes are features."""
        return np.delete(np.arange(self._table.starts[-1]), self._table.starts[1:] - 1)

    def laid_out(self, theta: Array) -> Array:
        """Coefficients of all codes; zero of each column's last."""
        padded = np.zeros(self._table.starts[-1])
        padded[self._kept] = theta
        return padded

    def read(self, scaled: ScaledTable) -> NDArray[np.intp]:
        """Codes, among those of all columns, shape (columns, rows)."""
        return self._table.among_all(scaled)

    def scores(self, held: NDArray[Any], laid_out: Array) -> Array:
        return np.asarray(np.take(laid_out, held).sum(axis=0))

    def sums(self, held: NDArray[Any], masses: Array) -> Array:
        weights = np.tile(masses, len(held))
        counts = np.bincount(held.reshape(-1), weights, self._table.starts[-1])
        return np.asarray(counts[self._kept], dtype=np.float64)


_Map = _Moments | _Known
"""Some features of rows, as a tilting needs them.

`laid_out` gives coefficients, and `read` a block's rows, in the form that `scores` reads: terms of
the rows' scores, shape (rows,). `sums` are weighted sums of the features, in order.
"""


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Features of rows, and tiltings block by block: a function of theta gives one of blocks.

    `known`: marginals whose indicators are features, if any.
    """

    stack: Stack
    known: OneWayLaw | None = None

    @cached_property
    def _maps(self) -> list[tuple[_Map, Indices]]:
        """All but the Fourier features, and where they stand."""
        parts, start = self.stack.parts, self.stack.dimension
        maps: list[tuple[_Map, Indices]] = []
        moments = [part for part in parts if part != "fourier"]
        if moments:
            places = np.concatenate([self.stack.places(part) for part in moments])
            maps.append((_Moments(stack=self.stack, parts=tuple(moments)), places))
        if self.known is not None and self.known.dimension:
            places = np.arange(start, start + self.known.dimension)
            maps.append((_Known(law=self.known), places))
        return maps

    def features(self, rows: ScaledTable) -> Array:
        """The features themselves, shape (rows, d): `all_features`."""
        return all_features(self.stack, self.known, rows)

    def codes(self, rows: ScaledTable) -> NDArray[np.intp]:
        """What may be rare: levels, and codes of known marginals, shape (columns, rows).

        No code belongs to two columns.
        """
        if self._rare is None:
            return np.zeros((0, rows.rows), dtype=np.intp)
        return self._rare.among_all(rows)

    @cached_property
    def _rare(self) -> CodeTable | None:
        schema, known = self.stack.schema, () if self.known is None else self.known.columns
        columns = [
            index for index, column in enumerate(schema.released)
            if index in known or not column.is_numeric or column.values
        ]  # fmt: skip
        # The levels of the others are their codes, whatever the bins.
        domain = Domain.from_schema(schema, bins=1 if self.known is None else self.known.bins)
        return CodeTable(domain=domain, columns=tuple(columns)) if columns else None

    @property
    def rows(self) -> int:
        """Most rows of a block."""
        return max(_LEAST, min(_ROWS, _ENTRIES // (self.stack.lines + 1)))

    def __call__(self, theta: Array) -> Callable[[ScaledTable, Array | None], Tilted]:
        """A function that tilts a block of rows with log weights of their own, or None."""
        laid_out = [each.laid_out(theta[places]) for each, places in self._maps]
        waves = np.zeros(0)
        if "fourier" in self.stack.parts:
            waves = theta[self.stack.places("fourier")].reshape(2, -1).T.reshape(-1)

        def tilted(rows: ScaledTable, log_weights: Array | None) -> Tilted:
            ranges = self.stack.ranges
            within = rows if ranges is None else ranges.within(rows)
            scores = np.zeros(rows.rows) if log_weights is None else log_weights.copy()
            held = []
            for (each, _), coefficients in zip(self._maps, laid_out, strict=True):
                held.append(each.read(rows))
                scores += each.scores(held[-1], coefficients)
            sums = np.empty(theta.size)
            if waves.size:
                sums[self.stack.places("fourier")] = self._add_waves(within, waves, scores)
            top = float(scores.max())
            masses = np.exp(scores - top)
            for (each, places), block in zip(self._maps, held, strict=True):
                sums[places] = each.sums(block, masses)
            checked(np.append(sums, top))
            return Tilted(scores=scores, top=top, mass=float(masses.sum()), sums=sums)

        return tilted

    def _add_waves(self, within: ScaledTable, theta: Array, scores: Array) -> Array:
        """Complete the scores: all others were added; theta: cosine beside sine, (2 D,)."""
        tops, sums = [], []
        scale = self.stack.scale("fourier")
        for at, found in self.stack.waves.read(within, scale=scale, most=_FEW):
            pairs, few = found.reshape(len(found), -1), scores[at]
            few += pairs @ theta
            tops.append(few.max())
            sums.append(np.exp(few - tops[-1]) @ pairs)
        shares = np.exp(np.array(tops) - max(tops))
        return np.asarray((shares @ np.array(sums)).reshape(-1, 2).T.reshape(-1))
