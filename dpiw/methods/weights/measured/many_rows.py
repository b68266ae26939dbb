"""Tiltings of more rows than are held: solved on some rows, corrected on all, pass by pass.

Sources: of `drawn`, Horvitz & Thompson (1952), King & Zeng (2001); of `led`, whose targets move by
the difference of both means, Shamir, Srebro & Zhang (2014), DANE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain, takewhile

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.threads import in_threads
from dpiw.errors import WeightError
from dpiw.methods.weights.measured.base_rows import BaseRows, Found, Tilted, checked
from dpiw.methods.weights.measured.constants import MOST_FITTED
from dpiw.methods.weights.measured.scoring import Scoring
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import (
    SLOW,
    Curvature,
    Point,
    Tilt,
    factor_of,
    reached,
    tilt,
)

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Codes = Callable[[ScaledTable], Indices]
Blocks = Callable[[], Iterator[tuple[slice, ScaledTable]]]

_SHARE = 0.5
"""Most rows that all codes together add on average, as a share of those asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """Some rows of many: `indices`, ascending, `rows`, and `log_weights`, inverse probabilities."""

    indices: NDArray[np.int64] = field(repr=False)
    rows: ScaledTable
    log_weights: Array = field(repr=False)


def drawn(placed: Blocks, codes: Codes, *, rows: int, of: int) -> Drawn:
    """Choose rows, evenly spaced by their probabilities: no chance is in it.

    `placed` is read twice, in an order independent of the rows; `codes`, shape (k, rows), start
    from zero, each of one column alone; `rows` is the least expected number out of `of`.
    """
    least = min(1.0, rows / of)
    by_code = _by_code(placed, codes, rows=rows, of=of)

    def probable(place: tuple[slice, ScaledTable]) -> tuple[slice, ScaledTable, Array]:
        at, block = place
        rarest = by_code.take(codes(block), mode="clip").max(axis=0, initial=least)
        return at, block, rarest

    indices, tables, logs, reached = [], [], [], 0.5
    for at, block, probabilities in in_threads(probable, placed()):
        marks = reached + np.cumsum(probabilities)
        chosen = np.flatnonzero(np.diff(np.floor(marks), prepend=np.floor(reached)))
        indices.append(at.start + chosen)
        tables.append(block.take(chosen))
        logs.append(-np.log(probabilities[chosen]))
        reached = float(marks[-1])
    return Drawn(
        indices=np.concatenate(indices),
        rows=ScaledTable.concatenate(tables),
        log_weights=np.concatenate(logs),
    )


def _by_code(placed: Blocks, codes: Codes, *, rows: int, of: int) -> Array:
    """Least probability of each code's rows, by the counts of the first rows."""
    counts, seen = np.zeros(0, dtype=np.int64), 0
    for at, block in takewhile(lambda place: place[0].start < rows, placed()):
        met = np.bincount(codes(block).ravel(), minlength=counts.size)
        met[: counts.size] += counts
        counts, seen = met, at.stop
    # One more than was counted: of a code that few of the first rows hold, or none, there may be
    # many. The last is of all codes beyond those that were met.
    expected = (np.append(counts, 0) + 1) * (of / seen)
    return np.asarray(np.minimum(1.0, _SHARE * rows / expected.size / expected))


_STEPS = 4
"""Most steps over all rows, one pass each; one or two suffice from a million rows."""

_FINER = 0.1
"""Gap over some rows, as a share of that over all."""


def led(
    some: BaseRows, solved: Tilt, base: BaseRows, targets: Targets, *, gap: float
) -> Tilt | None:
    """The minimum over all rows, by steps on `some` rows; None if steps are slow, or fail.

    `solved` is near the minimum of `some`; its covariance, corrected by the steps, is the answer's.
    `gap` is as in `reached`.

    Raises:
        WeightError: a covariance that rounding has made indefinite.
    """
    ridge = solved.credit * targets.ridge
    ridge_factor = factor_of(ridge)
    curvature, decrement, before = Curvature(solved.covariance + ridge), math.inf, None
    for steps in range(_STEPS + 1):
        point = Point.at(base, solved.theta)
        gradient = point.gradient(targets, ridge)
        if before is not None:
            curvature.learn(point.theta - before[0], gradient - before[1])
        fallen, decrement = decrement, float(-gradient @ curvature.step(gradient))
        bound = float(gradient @ cho_solve(ridge_factor, gradient)) / 2
        if bound <= gap or (curvature.is_right and 0 <= decrement / 2 < gap):
            covariance = curvature.corrected() - ridge
            return Tilt.of(point, covariance, credit=solved.credit, gap=bound, steps=steps)
        if steps == _STEPS or not decrement < SLOW * fallen:
            break
        before = point.theta, gradient
        moved_targets = replace(targets, means=targets.means + solved.means - point.means)
        moved = reached(
            some, moved_targets, solved.credit, solved,
            covariance=solved.covariance, gap=_FINER * gap, is_guide=True,
        )  # fmt: skip
        if moved is None:
            break
        solved = moved
    return None


_BLOCK = 1024
"""Rows of a thread."""

_RARE, _FAINT = 0.1, 10.0
"""Bounds of an axis that fitted rows hardly show: kurtosis as a share of the fitted rows, and
variance as a multiple of the ridge."""

_CLOSE, _NEARER = 0.025, 0.1
"""Stopping gap over all rows, in units of d/M, twice that of chance; and over the subsample."""

_GROWTH, _WORTH = 10, 4
"""Leading rows as a multiple of the fitted ones; least rows of all, of the leading ones."""


class StreamedRows(BaseRows):
    """The features of rows that are read batch by batch at every pass, and never held.

    `batches` gives the same rows at every pass; `scoring` gives each row's features by itself
    alone, in threads.
    """

    def __init__(
        self,
        rows: int,
        batches: Callable[[], Iterable[ScaledTable]],
        scoring: Scoring,
        *,
        log_weights: Array | None = None,
    ) -> None:
        self._passes, self._scoring = batches, scoring
        row = next(chain.from_iterable(batch.batches(1) for batch in batches() if batch.rows))
        super().__init__(scoring.features(row))
        self.rows, self._log_weights = rows, log_weights

    def some(self, rows: int) -> StreamedRows:
        """About so many rows, more of them rare: held, and weighted to stand for all."""
        placed = partial(self._placed, self._scoring.rows)
        found = drawn(placed, self._scoring.codes, rows=rows, of=self.rows)
        logs = found.log_weights
        if self._log_weights is not None:
            logs = logs + self._log_weights[found.indices]
        logs = logs - math.log(np.exp(logs).mean())
        return StreamedRows(logs.size, lambda: (found.rows,), self._scoring, log_weights=logs)

    @cached_property
    def leading(self) -> StreamedRows | None:
        """Ten times as many as are fitted, weighted to stand for all; None for smaller bases."""
        rows = _GROWTH * MOST_FITTED
        return self.some(rows) if self.rows >= _WORTH * rows else None

    @cached_property
    def few(self) -> StreamedRows:
        """About as many rows as are fitted, weighted to stand for all."""
        return self.some(MOST_FITTED) if self.leading is None else self.leading.few

    def mapped(
        self, function: Callable[[slice, Array], Found], *, is_large: bool = False
    ) -> Iterator[Found]:
        """As of `BaseRows`."""

        def of(placed: tuple[slice, ScaledTable]) -> Found:
            return function(placed[0], checked(self._scoring.features(placed[1])))

        return in_threads(of, self._placed(_BLOCK), is_large=is_large)

    def _tilted(self, theta: Array) -> Iterator[tuple[slice, Tilted]]:
        tilted, logs = self._scoring(theta), self._log_weights

        def of(placed: tuple[slice, ScaledTable]) -> tuple[slice, Tilted]:
            at, rows = placed
            return at, tilted(rows, None if logs is None else logs[at])

        return in_threads(of, self._placed(self._scoring.rows))

    def _placed(self, most: int) -> Iterator[tuple[slice, ScaledTable]]:
        """Where a block of at most so many rows stands, and its rows."""
        start = 0
        for batch in self._passes():
            for rows in batch.batches(most) if batch.rows else ():
                yield slice(start, start + rows.rows), rows
                start += rows.rows
        if start != self.rows:
            raise WeightError(f"found {start}", field="base rows", allowed=f"{self.rows}")


def corrected(solved: Tilt, base: StreamedRows, targets: Targets) -> Tilt:
    """Move a tilting of rows of the same law to the minimum over all rows, or raise WeightError.

    Steps end at a gap small beside the base's sampling error; if all fail, `tilt` starts from zero.
    `base` must be in an order independent of the rows.
    """
    gap, solution = _CLOSE * base.dimension / base.rows, None
    if (some := base.leading) is not None:
        near = _moved(
            solved, some, targets, gap=_NEARER * base.dimension / some.rows, is_guide=True
        )
        if near is not None:
            solved = near
            with suppress(WeightError):  # as of `_moved`
                solution = led(some, near, base, targets, gap=gap)
    if solution is None:
        solution = _moved(solved, base, targets, gap=gap)
    return tilt(base, targets, credit=solved.credit) if solution is None else solution


def _moved(
    solved: Tilt, base: StreamedRows, targets: Targets, *, gap: float, is_guide: bool = False
) -> Tilt | None:
    """The minimum over a base by a few steps from several starts, or None."""
    ridge = solved.credit * targets.ridge
    renewed = cache(partial(_seen_by_all, solved, base, ridge))
    ask = partial(reached, base, targets, solved.credit, gap=gap, is_guide=is_guide)
    try:
        solution = ask(solved.theta, covariance=solved.covariance, renewed=renewed)
        if solution is None:
            # Along an axis that no fitted row varies on, theta went as far as the ridge let it.
            slopes = (solved.covariance + ridge) @ solved.theta
            shrunk = Curvature(renewed() + ridge).step(-slopes)
            for start in (shrunk, np.zeros(base.dimension)):
                solution = solution or ask(start, covariance=renewed())
    except WeightError:  # a covariance that rounding has made indefinite; of all else `tilt` tells
        return None
    return solution


def _seen_by_all(solved: Tilt, base: StreamedRows, ridge: Array) -> Array:
    """A tilting's covariance, with that of `StreamedRows.few` along axes its rows hardly show."""
    few = base.few
    variances, axes = np.linalg.eigh(solved.covariance)

    def moments(at: slice, block: Array) -> Array:
        squares = ((block - solved.means) @ axes) ** 2
        return np.stack([few.own[at] @ squares, few.own[at] @ squares**2])

    squares, fourths = np.asarray(sum(few.mapped(moments)))
    is_faint = variances < _FAINT * ((axes.T @ ridge) * axes.T).sum(axis=1)
    is_rare = is_faint | (fourths > _RARE * MOST_FITTED * squares**2)
    if not is_rare.any():
        return solved.covariance
    rare, common = axes[:, is_rare], axes[:, ~is_rare]
    of_few = _covariance_along(rare, few, solved.means)
    kept = common * np.maximum(variances[~is_rare], 0.0) @ common.T
    return np.asarray(kept + rare @ of_few @ rare.T)


def _covariance_along(axes: Array, base: BaseRows, centre: Array) -> Array:
    """Along axes (d, k), shape (k, k); the centre must be near the mean (cancellation)."""

    def moments(at: slice, block: Array) -> tuple[Array, Array]:
        places = (block - centre) @ axes
        weighted = base.own[at, None] * places
        return weighted.sum(axis=0), weighted.T @ places

    count = axes.shape[1]
    sums, products = np.zeros(count), np.zeros((count, count))
    for block_sums, block_products in base.mapped(moments, is_large=True):
        sums += block_sums
        products += block_products
    return np.asarray(products - np.outer(sums, sums))
