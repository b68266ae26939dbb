"""Tiltings of more base rows than are fitted: solved on some, corrected on all, pass by pass.

A pass computes the features of every row once more. Newton steps begin with the solution and the
Hessian of the fitted rows and end, certified, so close to the minimum over all rows that what is
left is small beside the base's own sampling error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import ScaledTable
from dpiw.errors import WeightError
from dpiw.methods.weights.curvature import Curvature
from dpiw.methods.weights.targets import Targets
from dpiw.methods.weights.tilting import BaseRows, Tilt, reached, tilt

Array = NDArray[np.float64]

MOST_FITTED = 100_000
"""Rows that a tilting is solved on, by passes over their features; the others are corrected to."""

_BLOCK, _THREADS = 2048, 4
_PIECE = 4 * _BLOCK

_RARE, _FAINT = 0.1, 10.0
"""A kurtosis as a share of the rows: a variance's own squared relative error. And a variance as a
multiple of the ridge: below it rows that were not fitted may add as much."""

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

    Steps from the solved one, with its covariance, to a certified gap that is small beside what the
    base's own sampling makes of it; where that leads on slowly, with one that knows of what the
    fitted rows hardly show (`_seen_by_all`), and where it leads nowhere from a start that does too;
    `tilt` from the beginning where none of it serves.

    Args:
        solved: on rows of the same law.
        base: all rows.
        targets: as of `solved`.

    Raises:
        WeightError: the minimum was not reached.
    """
    ridge = solved.credit * targets.ridge
    renewed = cache(partial(_seen_by_all, solved, base, ridge))
    ask = partial(
        reached, base, targets, solved.credit, gap=_CLOSE * base.dimension / base.rows
    )  # fmt: skip
    try:
        solution = ask(solved.coefficients, covariance=solved.covariance, renewed=renewed)
        if solution is None:
            # Along an axis that no fitted row varies on, theta went as far as the ridge let it.
            slopes = (solved.covariance + ridge) @ solved.coefficients
            start = Curvature(renewed() + ridge).step(-slopes)
            solution = ask(start, covariance=renewed())
    except WeightError:  # a covariance that rounding has made indefinite; of all else `tilt` tells
        solution = None
    return tilt(base, targets, credit=solved.credit) if solution is None else solution


def _seen_by_all(solved: Tilt, base: BaseRows, ridge: Array) -> Array:
    """A tilting's covariance, with that of all rows along axes of which its own rows tell little.

    Those on which few of them vary, as of a rare level, or none.
    """
    rows = min(solved.log_weights.size, MOST_FITTED)
    variances, axes = np.linalg.eigh(solved.covariance)
    squares, fourths = np.zeros((2, base.dimension))
    for at, block in base.blocks():
        places = ((block - solved.means) @ axes) ** 2
        squares += places.sum(axis=0)
        fourths += (places**2).sum(axis=0)
        if at.stop >= rows:
            break
    is_faint = variances < _FAINT * ((axes.T @ ridge) * axes.T).sum(axis=1)
    is_rare = is_faint | (at.stop * fourths > _RARE * rows * squares**2)
    if not is_rare.any():
        return solved.covariance
    rare, common = axes[:, is_rare], axes[:, ~is_rare]
    of_all = _covariance_along(rare, base, solved.means)
    kept = common * np.maximum(variances[~is_rare], 0.0) @ common.T
    return np.asarray(kept + rare @ of_all @ rare.T)


def _covariance_along(axes: Array, base: BaseRows, centre: Array) -> Array:
    """Of rows of equal weight, along k axes of shape (d, k): shape (k, k).

    The centre, shape (d,), is near their mean: nothing is lost to cancellation.
    """
    count = axes.shape[1]
    sums, products = np.zeros(count), np.zeros((count, count))
    for _, block in base.blocks():
        places = (block - centre) @ axes
        sums += places.sum(axis=0)
        products += places.T @ places
    return np.asarray(products / base.rows - np.outer(sums, sums) / base.rows**2)
