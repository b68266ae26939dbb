"""Tiltings of more rows than are held: solved on some rows, corrected on all, pass by pass.

Sources: of `drawn`, Horvitz & Thompson (1952), King & Zeng (2001); of `corrected`, whose targets
move by the difference of both means, Shamir, Srebro & Zhang (2014), DANE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
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
from dpiw.methods.weights.measured.targets import Targets, factor_of
from dpiw.methods.weights.measured.tilting import UNREACHED, Point, Tilt, reached, tilt

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


def drawn(
    placed: Blocks, codes: Codes, *, rows: int, of: int, chances: Array | None = None
) -> Drawn:
    """Choose rows, evenly spaced by their probabilities: no chance is in it.

    `placed` is read twice, in an order independent of the rows; `codes`, shape (k, rows), start
    from zero, each of one column alone; `rows` is the least expected number out of `of`, and
    `chances`, shape (of,), are least probabilities.
    """
    least = min(1.0, rows / of)
    by_code = _by_code(placed, codes, rows=rows, of=of)

    def probable(place: tuple[slice, ScaledTable]) -> tuple[slice, ScaledTable, Array]:
        at, block = place
        rarest = by_code.take(codes(block), mode="clip").max(axis=0, initial=least)
        return at, block, rarest if chances is None else np.maximum(rarest, chances[at])

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


def by_weight(log_weights: Array, rows: int) -> Array:
    """Probabilities, shape (M,), of sum `rows` < M: in proportion to weight, and at most one.

    A few weights may exceed all others by any factor. Source: Sarndal et al. (1992), section 3.6.2.
    """
    split = log_weights.size - rows
    parts = np.partition(log_weights, split)
    largest = np.sort(parts[split:])[::-1]
    rest = parts[:split].max() + math.log(np.exp(parts[:split] - parts[:split].max()).sum())
    # The log mass of each of the largest and all smaller ones, and what is left for them.
    masses = np.logaddexp.accumulate(np.append(rest, largest[::-1]))[:0:-1]
    factors = np.log(np.arange(rows, 0, -1)) - masses
    first = int(np.argmax(largest + factors <= 0))
    return np.asarray(np.exp(np.minimum(0.0, log_weights + factors[first])))


_BLOCK = 2000
"""Rows of a thread; no power of two, by which columns would push each other out of a cache."""

_PASSES, _FINER, _FALL, _FARTHEST = 10, (0.2, 2.0), 1e-3, 20.0
"""Most passes over all rows. Bounds of `Targets.distance` at which a fit to some rows ends, and its
share of that before, which one pass hardly improves upon. `Tilt.distance` up to which the last pass
counts: at 20, the means' average variance doubles."""

_LOST = 1e6
"""`Tilt.distance` from which a fit starts at zero: rows that no fit read have all the weight."""


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

    def some(self, rows: int, chances: Array | None = None) -> StreamedRows:
        """Hold about `rows` rows or more, weighted to represent all.

        Rare rows are drawn more often; `chances`, shape (M,), are least probabilities.
        """
        placed = partial(self._placed, self._scoring.rows)
        found = drawn(placed, self._scoring.codes, rows=rows, of=self.rows, chances=chances)
        logs = found.log_weights
        if self._log_weights is not None:
            logs = logs + self._log_weights[found.indices]
        logs = logs - math.log(np.exp(logs).mean())
        return StreamedRows(logs.size, lambda: (found.rows,), self._scoring, log_weights=logs)

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
    """Move a tilting of some rows of the same law near the minimum over all, or raise WeightError.

    Each pass over all rows draws some by their largest weight so far, and solves on these with
    targets moved by the difference of both means. Ends near the minimum (`Targets.distance`, by
    `solved.covariance`), or after `_PASSES` at the nearest point. `base` must be in an order
    independent of the rows.
    """
    spread, nearest = solved.covariance, None
    targets = targets.with_error(spread, base.rows)
    ridge, chances = solved.credit * targets.ridge, np.zeros(base.rows)
    rows = min(max(MOST_FITTED // 2, base.rows // 50), base.rows // 2)
    for steps in range(_PASSES):
        point = Point.at(base, solved.theta)
        gradient = point.gradient(targets, ridge)
        distance = targets.distance(gradient)
        if nearest is None or distance < nearest.distance:
            gap = float(gradient @ cho_solve(factor_of(ridge), gradient)) / 2
            nearest = Tilt.of(
                point, spread, credit=solved.credit, gap=gap, steps=steps, distance=distance
            )
        if nearest.distance <= 1:
            break
        chances = np.maximum(chances, by_weight(point.log_weights, rows))
        some = base.some(rows, chances)
        near = Point.at(some, solved.theta)
        moved = targets.with_error(
            spread, base.rows, share=float(np.clip(_FALL * distance, *_FINER))
        )
        moved = replace(moved, means=targets.means + near.means - point.means)
        start = near if distance < _LOST else np.zeros(base.dimension)
        found = reached(some, moved, solved.credit, start)
        solved = tilt(some, moved, credit=solved.credit) if found is None else found
    if nearest is None or nearest.distance > _FARTHEST:
        raise WeightError(UNREACHED, field="tilting")
    return replace(nearest, covariance=solved.covariance)
