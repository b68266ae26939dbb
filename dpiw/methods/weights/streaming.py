"""Tiltings of more base rows than are fitted: solved on some, corrected on all, pass by pass.

A pass computes the features of every row once more. Newton steps with the Hessian of the fitted
rows come so close to the minimum over all rows that what is left is small beside the base's own
sampling error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpiw.data.schema import ScaledTable
from dpiw.errors import WeightError
from dpiw.methods.weights.tilting import BaseRows, Targets, Tilt

Array = NDArray[np.float64]

MOST_FITTED = 100_000
"""Rows that a tilting is solved on, by passes over their features; the others are corrected to."""

_BLOCK, _THREADS = 2048, 4
_PIECE = 4 * _BLOCK

_PASSES = 8
_CLOSE = 0.02
"""Largest Newton decrement that is left, as a share of d/M: of what chance makes of it."""


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
        first = chain.from_iterable(batch.batches(1) for batch in batches() if batch.rows)
        super().__init__(1, lambda *_: features(next(first)))
        self.rows, self._log_weights = rows, log_weights

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """As of `BaseRows`; sums over them do not depend on the threads."""
        start = 0
        with ThreadPoolExecutor(max_workers=min(_THREADS, os.cpu_count() or 1)) as pool:
            for batch in self._passes():
                for piece in batch.batches(_PIECE):
                    for block in pool.map(self._of, piece.batches(_BLOCK)):
                        if len(block):
                            yield slice(start, start + len(block)), block
                        start += len(block)
        if start != self.rows:
            raise WeightError("base rows: expected as many as were stated")


def corrected(solved: Tilt, base: BaseRows, targets: Targets) -> Tilt:
    """A tilting of some rows of a base, moved to the minimum over all of them.

    Newton steps with the covariance of the solved tilting, until the decrement is small beside the
    share of it that the base's own sampling makes; where they do not get there, the nearest point
    on the way. Its `gap` is certified on all rows.

    Args:
        solved: on rows of the same law.
        base: all rows.
        targets: as of `solved`.
    """
    ridge = solved.credit * targets.covariance
    factor = cho_factor(solved.covariance + ridge, lower=True)
    noise = cho_factor(targets.covariance, lower=True)
    theta, best, least = solved.coefficients, solved, np.inf
    for done in range(1, _PASSES + 1):
        logs, _, means = base.tilted(theta)
        gradient = means - targets.means + ridge @ theta
        step = cho_solve(factor, gradient)
        decrement = float(gradient @ step)
        if decrement < least:
            least = decrement
            best = replace(
                solved, coefficients=theta, log_weights=logs, means=means,
                gap=float(gradient @ cho_solve(noise, gradient)) / (2 * solved.credit),
                steps=solved.steps + done,
            )  # fmt: skip
        if decrement <= _CLOSE * base.dimension / base.rows:
            break
        theta = theta - step
    return best
