"""Tiltings of more base rows than are fitted: solved on some, corrected on all, pass by pass.

A pass computes the features of every row once more. Newton steps begin with the solution and the
Hessian of the fitted rows and end, certified, so close to the minimum over all rows that what is
left is small beside the base's own sampling error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import ScaledTable
from dpiw.errors import WeightError
from dpiw.methods.weights.targets import Targets
from dpiw.methods.weights.tilting import BaseRows, Tilt, reached, tilt

Array = NDArray[np.float64]

MOST_FITTED = 100_000
"""Rows that a tilting is solved on, by passes over their features; the others are corrected to."""

_BLOCK, _THREADS = 2048, 4
_PIECE = 4 * _BLOCK

_CLOSE = 0.01
"""Largest certified gap that is left, as a share of d/M: twice what chance makes of it."""


class StreamedRows(BaseRows):
    """The features of rows that are read batch by batch at every pass, and never held.

    Args:
        rows: M, how many there are, at least one.
        batches: the rows in order; asked again at every pass, and to give the same each time.
        features: of rows, shape (n, d), each a function of its own row; computed in threads.
        log_weights: as of `BaseRows`.
    """

    def __init__(
        self,
        rows: int,
        batches: Callable[[], Iterable[ScaledTable]],
        features: Callable[[ScaledTable], Array],
        *,
        log_weights: Array | None = None,
    ) -> None:
        self._passes, self._of = batches, features
        row = next(chain.from_iterable(batch.batches(1) for batch in batches() if batch.rows))
        super().__init__(1, lambda *_: features(row))
        self.rows, self._log_weights = rows, log_weights

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """As of `BaseRows`; sums over them do not depend on the threads."""
        start = 0
        with ThreadPoolExecutor(max_workers=min(_THREADS, os.cpu_count() or 1)) as pool:
            for batch in self._passes():
                for piece in batch.batches(_PIECE):
                    for block in pool.map(self._of, piece.batches(_BLOCK)):
                        if not np.isfinite(block).all():
                            raise WeightError("base rows: expected finite features")
                        if len(block):
                            yield slice(start, start + len(block)), block
                        start += len(block)
        if start != self.rows:
            raise WeightError("base rows: expected as many as were stated")


def corrected(solved: Tilt, base: BaseRows, targets: Targets) -> Tilt:
    """A tilting of some rows of a base, moved to the minimum over all of them.

    Newton steps from the solved one, first with its covariance and with that of all rows where it
    serves badly, to a certified gap that is small beside what the base's own sampling makes of it;
    `tilt` from the beginning where none leads there.

    Args:
        solved: on rows of the same law.
        base: all rows.
        targets: as of `solved`.

    Raises:
        WeightError: the minimum was not reached.
    """
    solution = reached(
        base, targets, solved.credit, solved.coefficients,
        covariance=solved.covariance, gap=_CLOSE * base.dimension / base.rows,
    )  # fmt: skip
    return tilt(base, targets, credit=solved.credit) if solution is None else solution
