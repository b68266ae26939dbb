"""Tiltings of more base rows than are fitted: solved on some, corrected on all, pass by pass.

A pass reads every row once more. Steps begin with the solution and the Hessian of the fitted rows
and end, certified, so close to the minimum over all rows that what is left is small beside the
base's own sampling error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import ScaledTable
from dpiw.data.threads import in_threads
from dpiw.errors import WeightError
from dpiw.methods.weights.base_rows import BaseRows, Found, Tilted
from dpiw.methods.weights.curvature import Curvature
from dpiw.methods.weights.surrogate import Lead, led
from dpiw.methods.weights.targets import Targets
from dpiw.methods.weights.tilting import Tilt, reached, tilt

Array = NDArray[np.float64]

MOST_FITTED = 100_000
"""Rows that a tilting is solved on, by passes over their features; the others are corrected to."""

_BLOCK = 1024

_RARE, _FAINT = 0.1, 10.0
"""A kurtosis as a share of the rows: a variance's own squared relative error. And a variance as a
multiple of the ridge: below it rows that were not fitted may add as much."""

_CLOSE, _NEARER = 0.025, 0.1
"""Largest gap that is left, as a share of d/M: twice what chance makes of it. And over some of the
rows, of which the next step begins."""

_GROWTH, _WORTH = 10, 4
"""How many times as many rows a solution is moved to, and how many times as many are left then."""


class Scored(Protocol):
    """Tiltings of rows whose features are not written down."""

    @property
    def rows(self) -> int:
        """Of a block, at most."""

    def __call__(self, theta: Array) -> Callable[[ScaledTable, Array | None], Tilted]:
        """What tilts a block of rows that have log weights of their own, or None."""


class StreamedRows(BaseRows):
    """The features of rows that are read batch by batch at every pass, and never held.

    Args:
        rows: M, how many there are, at least one.
        batches: the rows in order; asked again at every pass, and to give the same each time.
        features: of rows, shape (n, d), each a function of its own row; computed in threads.
        log_weights: as of `BaseRows`.
        scored: of the same features, where they need not be written down (`weights.scoring`).
    """

    def __init__(
        self,
        rows: int,
        batches: Callable[[], Iterable[ScaledTable]],
        features: Callable[[ScaledTable], Array],
        *,
        log_weights: Array | None = None,
        scored: Scored | None = None,
    ) -> None:
        self._passes, self._of, self._scored = batches, features, scored
        row = next(chain.from_iterable(batch.batches(1) for batch in batches() if batch.rows))
        super().__init__(1, lambda *_: features(row))
        self.rows, self._log_weights = rows, log_weights

    def first(self, rows: int) -> StreamedRows:
        """The first rows, at least one, as a base of their own."""
        if rows < 1:
            raise WeightError("base rows: expected at least one")
        logs = None if self._log_weights is None else self._log_weights[:rows]
        logs = logs if logs is None else logs - math.log(np.exp(logs).mean())
        batches = partial(_first, self._passes, rows)
        return StreamedRows(rows, batches, self._of, log_weights=logs, scored=self._scored)

    def mapped(
        self, function: Callable[[slice, Array], Found], *, is_large: bool = False
    ) -> Iterator[Found]:
        """As of `BaseRows`."""

        def of(placed: tuple[slice, ScaledTable]) -> Found:
            block = self._of(placed[1])
            if not np.isfinite(block).all():
                raise WeightError("base rows: expected finite features")
            return function(placed[0], block)

        return in_threads(of, self._placed(_BLOCK), is_large=is_large)

    def _tilted(self, theta: Array) -> Iterator[tuple[slice, Tilted]]:
        """As of `BaseRows`."""
        if self._scored is None:
            return super()._tilted(theta)
        tilted, logs = self._scored(theta), self._log_weights

        def of(placed: tuple[slice, ScaledTable]) -> tuple[slice, Tilted]:
            at, rows = placed
            return at, tilted(rows, None if logs is None else logs[at])

        return in_threads(of, self._placed(self._scored.rows))

    def _placed(self, most: int) -> Iterator[tuple[slice, ScaledTable]]:
        """Where a block of at most so many rows stands, and its rows."""
        start = 0
        for batch in self._passes():
            for rows in batch.batches(most) if batch.rows else ():
                yield slice(start, start + rows.rows), rows
                start += rows.rows
        if start != self.rows:
            raise WeightError("base rows: expected as many as were stated")


def _first(passes: Callable[[], Iterable[ScaledTable]], rows: int) -> Iterator[ScaledTable]:
    left = rows
    for batch in passes():
        yield next(batch.batches(left))
        left -= batch.rows
        if left <= 0:
            return


def corrected(solved: Tilt, base: StreamedRows, targets: Targets) -> Tilt:
    """A tilting of some rows of a base, moved to the minimum over all of them.

    First to that over ten times as many; steps over these then lead to all (`weights.surrogate`).
    Steps end at a gap that is small beside what the base's own sampling makes of it. Where they
    lead nowhere over all rows, `tilt` from the beginning.

    Args:
        solved: on rows of the same law.
        base: all rows, in an order that says nothing.
        targets: as of `solved`.

    Raises:
        WeightError: the minimum was not reached.
    """
    solution: Tilt | None = None
    lead: Lead | None = None
    for level in _levels(base):
        is_last = level is base
        gap = (_CLOSE if is_last else _NEARER) * base.dimension / level.rows
        found = None if lead is None else _led(lead, level, targets, gap=gap)
        if found is not None:
            solution, lead = found
        else:
            solution = _moved(solved, level, targets, gap=gap, is_rough=not is_last)
            lead = None if solution is None else Lead(base=level, solved=solution)
        solved = solution or solved
    return tilt(base, targets, credit=solved.credit) if solution is None else solution


def _led(
    lead: Lead, base: StreamedRows, targets: Targets, *, gap: float
) -> tuple[Tilt, Lead] | None:
    try:
        return led(lead, base, targets, gap=gap)
    except WeightError:  # as of `_moved`
        return None


def _levels(base: StreamedRows) -> Iterator[StreamedRows]:
    """Ten times as many rows as were fitted, and so on; all rows last."""
    rows = _GROWTH * MOST_FITTED
    while rows * _WORTH <= base.rows:
        yield base.first(rows)
        rows *= _GROWTH
    yield base


def _moved(
    solved: Tilt, base: StreamedRows, targets: Targets, *, gap: float, is_rough: bool
) -> Tilt | None:
    """To the minimum over a base by a few steps, or None; `gap` and `is_rough` as of `reached`.

    Steps from the solved one, with its covariance; where that leads on slowly, with one that knows
    of what the rows it is of hardly show (`_seen_by_all`), and where it leads nowhere from a start
    that does too.
    """
    ridge = solved.credit * targets.ridge
    renewed = cache(partial(_seen_by_all, solved, base, ridge))
    ask = partial(reached, base, targets, solved.credit, gap=gap, is_rough=is_rough)
    try:
        solution = ask(solved.coefficients, covariance=solved.covariance, renewed=renewed)
        if solution is None:
            # Along an axis that no fitted row varies on, theta went as far as the ridge let it.
            slopes = (solved.covariance + ridge) @ solved.coefficients
            start = Curvature(renewed() + ridge).step(-slopes)
            solution = ask(start, covariance=renewed())
    except WeightError:  # a covariance that rounding has made indefinite; of all else `tilt` tells
        return None
    return solution


def _seen_by_all(solved: Tilt, base: StreamedRows, ridge: Array) -> Array:
    """A tilting's covariance, with that of all rows along axes of which its own rows tell little.

    Those on which few of them vary, as of a rare level, or none.
    """
    rows = min(solved.log_weights.size, base.rows, MOST_FITTED)
    variances, axes = np.linalg.eigh(solved.covariance)

    def moments(_: slice, block: Array) -> tuple[Array, Array]:
        places = ((block - solved.means) @ axes) ** 2
        return places.sum(axis=0), (places**2).sum(axis=0)

    squares, fourths = np.zeros((2, base.dimension))
    for block_squares, block_fourths in base.first(rows).mapped(moments):
        squares += block_squares
        fourths += block_fourths
    is_faint = variances < _FAINT * ((axes.T @ ridge) * axes.T).sum(axis=1)
    is_rare = is_faint | (fourths > _RARE * squares**2)
    if not is_rare.any():
        return solved.covariance
    rare, common = axes[:, is_rare], axes[:, ~is_rare]
    of_all = _covariance_along(rare, base, solved.means)
    kept = common * np.maximum(variances[~is_rare], 0.0) @ common.T
    return np.asarray(kept + rare @ of_all @ rare.T)


def _covariance_along(axes: Array, base: StreamedRows, centre: Array) -> Array:
    """Of rows of equal weight, along k axes of shape (d, k): shape (k, k).

    The centre, shape (d,), is near their mean: nothing is lost to cancellation.
    """

    def moments(_: slice, block: Array) -> tuple[Array, Array]:
        places = (block - centre) @ axes
        return places.sum(axis=0), places.T @ places

    count = axes.shape[1]
    sums, products = np.zeros(count), np.zeros((count, count))
    for block_sums, block_products in base.mapped(moments, is_large=True):
        sums += block_sums
        products += block_products
    return np.asarray(products / base.rows - np.outer(sums, sums) / base.rows**2)
