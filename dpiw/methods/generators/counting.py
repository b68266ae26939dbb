"""Exact contingency tables of a table of any size, in few passes.

Counts are confidential: callers add noise (`noisy_marginal`) before counts leave the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.tables import PrivateTable
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw

Columns = Sequence[int]
Counts = NDArray[np.int64]
Codes = NDArray[np.integer[Any]]

HELD_BYTES = 1 << 28
"""Most bytes of codes kept for the next pass; each pass reads a larger table again."""

_HELD_CELLS = 1 << 23
"""Most cells that one pass fills, unless a single table has more."""


class ContingencyCounter:
    """Counts marginals of one coded table; memory does not grow with rows.

    Privacy:
        Exact. One row adds 1 to one cell of every marginal: L1 = L2 = max_rows under add/remove;
        L1 = 2 max_rows, L2 = sqrt(2) max_rows under replace-one.
    """

    def __init__(self, batches: Callable[[], Iterable[Codes]], sizes: Sequence[int]) -> None:
        """Take `batches`, which yields codes (rows, d) on every call."""
        self._read, self._sizes = batches, tuple(sizes)
        self._held: list[Codes] | None = None
        self._smallest = np.min_scalar_type(max(self._sizes) - 1)

    @classmethod
    def of(cls, table: PrivateTable, domain: Domain) -> ContingencyCounter:
        """Count a private table's codes in a public domain.

        Privacy:
            Exact, as the class. Reads nothing before the first count.
        """
        return cls(lambda: map(domain.codes, table.batches()), domain.sizes)

    def count(self, columns: Columns) -> Counts:
        """Exact counts of the joint of `columns`, shape their sizes, in the order given."""
        (counts,) = self.each([columns])
        return counts

    def one_way(self) -> Iterator[Counts]:
        """Exact counts of every column by itself."""
        return self.each((j,) for j in range(len(self._sizes)))

    def each(self, marginals: Iterable[Columns]) -> Iterator[Counts]:
        """Exact counts of several joints, in order, as many per pass as memory allows."""
        group: list[Columns] = []
        cells = 0
        for columns in marginals:
            size = prod(self._sizes[j] for j in columns)
            if group and cells + size > _HELD_CELLS:
                yield from self._counted(group)
                group, cells = [], 0
            group.append(columns)
            cells += size
        yield from self._counted(group)

    def _counted(self, group: Sequence[Columns]) -> list[Counts]:
        tables = [np.zeros([self._sizes[j] for j in columns], dtype=np.int64) for columns in group]
        for codes in self._codes() if group else ():
            packed = _Packed(codes, self._sizes)
            for columns, table in zip(group, tables, strict=True):
                code, cells = packed.of(tuple(columns)), table.reshape(-1)
                if cells.size > 4 * len(code):  # few of its cells are met in this batch
                    np.add.at(cells, code, 1)
                else:
                    cells += np.bincount(code, minlength=cells.size)
        return tables

    def _codes(self) -> Iterator[Codes]:
        if self._held is not None:
            yield from self._held
            return
        held, size = [], 0
        for codes in self._read():
            few = codes.astype(self._smallest, order="F")
            size += few.nbytes
            if size <= HELD_BYTES:
                held.append(few)
            else:
                held.clear()
            yield few
        self._held = held if size <= HELD_BYTES else None


class _Packed:
    def __init__(self, codes: Codes, sizes: tuple[int, ...]) -> None:
        self._codes, self._sizes = codes, sizes
        self._columns: dict[int, NDArray[np.intp]] = {}
        self._last: tuple[tuple[int, ...], NDArray[np.intp]] = ((), np.empty(0, dtype=np.intp))

    def of(self, columns: tuple[int, ...]) -> NDArray[np.intp]:
        last = self._column(columns[-1])
        if len(columns) == 1:
            return last
        return self._prefix(columns[:-1]) * self._sizes[columns[-1]] + last

    def _prefix(self, columns: tuple[int, ...]) -> NDArray[np.intp]:
        if len(columns) == 1:
            return self._column(columns[0])
        if self._last[0] != columns:
            self._last = (columns, self.of(columns))
        return self._last[1]

    def _column(self, column: int) -> NDArray[np.intp]:
        # bincount wants machine integers: convert each column once, not at each of 500 counts.
        if column not in self._columns:
            self._columns[column] = self._codes[:, column].astype(np.intp)
        return self._columns[column]


def noisy_marginal(
    counts: Counts, *, kind: NoiseKind, scale: float, noise: NoiseSource
) -> NDArray[np.float64]:
    """Add noise of a scale in rows to exact counts.

    Privacy:
        Unit: that of the caller's scale; sensitivity as `ContingencyCounter`.
        Event: one `GaussianEvent` or `LaplaceEvent` of multiplier scale / sensitivity.
    """
    law = NoiseLaw(kind=kind, scale=scale, dimension=counts.size)
    return mechanisms.noisy_counts(counts, law=law, noise=noise)
