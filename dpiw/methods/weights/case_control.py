"""Some rows that stand for many: rare ones are drawn more often, and weigh the less.

Of plain rows a rare level has few, or none, and what they say of it is little. Here each row is
drawn with a probability of its own, the larger the rarer its rarest code is, and weighs its
inverse: every weighted sum over the drawn ones is right on average, and every level is seen.
Source: Horvitz & Thompson (1952); for likelihoods, the case-control study (King & Zeng 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from dpiw.data.scaled import ScaledTable
from dpiw.data.threads import in_threads

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Codes = Callable[[ScaledTable], Indices]
Blocks = Callable[[], Iterator[tuple[slice, ScaledTable]]]

_SHARE = 0.5
"""Rows that all codes together add on average, at most, as a share of those that are asked for: of
each rare one as many are drawn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """Some rows of many.

    Attributes:
        indices: which, ascending, shape (n,).
        rows: they.
        log_weights: the logs of their inverse probabilities, shape (n,).
    """

    indices: NDArray[np.int64] = field(repr=False)
    rows: ScaledTable
    log_weights: Array = field(repr=False)


def drawn(placed: Blocks, codes: Codes, *, rows: int, of: int) -> Drawn:
    """Rows, evenly spaced by their probabilities: no chance is in it.

    Args:
        placed: blocks of rows with their places, in an order that says nothing of the rows; asked
            twice.
        codes: of a block's rows, from zero on, each of one column alone; shape (k, rows).
        rows: how many at least are expected, at least one.
        of: how many there are.

    Returns:
        All rows, where that is no more than asked for.
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
    """What each code's rows are drawn with, at least, by the counts of the first rows."""
    counts, seen = np.zeros(0, dtype=np.int64), 0
    for at, block in takewhile(lambda place: place[0].start < rows, placed()):
        met = np.bincount(codes(block).ravel(), minlength=counts.size)
        met[: counts.size] += counts
        counts, seen = met, at.stop
    # One more than was counted: of a code that few of the first rows hold, or none, there may be
    # many. The last is of all codes beyond those that were met.
    expected = (np.append(counts, 0) + 1) * (of / seen)
    return np.asarray(np.minimum(1.0, _SHARE * rows / expected.size / expected))
