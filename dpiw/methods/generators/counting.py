"""Exact contingency tables from integer codes, fast.

Everything here is exact and therefore confidential: callers add noise through
`dpiw.privacy.mechanisms` before anything leaves the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw


class ContingencyCounter:
    """Counts marginals of one coded table; keeps the combined codes of pairs it has met.

    Privacy:
        Holds the exact table. One row adds 1 to one cell of every marginal, so a marginal has
        L1 = L2 = max_rows under add/remove; 2 max_rows and sqrt(2) max_rows under replace-one.
    """

    def __init__(self, codes: NDArray[np.int32], sizes: Sequence[int]) -> None:
        """Take codes, shape (rows, d), column j in 0 .. sizes[j] - 1."""
        self._sizes = tuple(sizes)
        # bincount wants machine integers: convert each column once, not at each of 500 counts.
        self._columns = [
            np.ascontiguousarray(codes[:, j], dtype=np.intp) for j in range(len(sizes))
        ]
        self._last: tuple[tuple[int, ...], NDArray[np.intp]] = ((), np.empty(0, dtype=np.intp))

    def count(self, columns: Sequence[int]) -> NDArray[np.int64]:
        """Exact counts of the joint of `columns`, shape their sizes, in the order given."""
        shape = tuple(self._sizes[j] for j in columns)
        packed = self._prefix(tuple(columns[:-1]))
        last = self._columns[columns[-1]]
        code = last if packed is None else packed * shape[-1] + last
        return np.bincount(code, minlength=prod(shape)).astype(np.int64, copy=False).reshape(shape)

    def _prefix(self, columns: tuple[int, ...]) -> NDArray[np.intp] | None:
        """One code per row for the joint of `columns`; the latest is kept for the next count."""
        if not columns:
            return None
        if len(columns) == 1:
            return self._columns[columns[0]]
        if self._last[0] != columns:
            head = self._prefix(columns[:-1])
            assert head is not None
            packed = head * self._sizes[columns[-1]] + self._columns[columns[-1]]
            self._last = (columns, packed)
        return self._last[1]


def noisy_marginal(
    counter: ContingencyCounter,
    columns: Sequence[int],
    *,
    kind: NoiseKind,
    scale: float,
    noise: NoiseSource,
) -> NDArray[np.float64]:
    """Release the joint counts of `columns`, shape their sizes, with noise of a scale in rows.

    Privacy:
        Unit: as the caller's scale; see `ContingencyCounter`.
        Event: one `GaussianEvent` or `LaplaceEvent` of multiplier scale / sensitivity.
    """
    counts = counter.count(columns)
    law = NoiseLaw(kind=kind, scale=scale, dimension=counts.size)
    return mechanisms.noisy_counts(counts, law=law, noise=noise)
