"""A number's people in halves: which half, then which half of that, and so on.

A share of people is half of its whole and half of one difference, so that the noise of a share
grows with the number of halvings and not with that of parts (as of a Haar basis).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Parts = NDArray[np.intp]

HALVINGS = 7
"""How often a number whose quantiles are asked for is halved."""

LAST_HALVES = 2**HALVINGS

EVEN = tuple(part / LAST_HALVES for part in range(1, LAST_HALVES))
"""Cuts of equal width."""

_STEP = 2.0**-20
"""Unit of the cuts."""


def cuts_of(cells: Array) -> tuple[float, ...]:
    """Between `LAST_HALVES` parts of equally many public cells; of equal width for few cells.

    A value that many cells have is a cut more than once, with nothing between; nothing is below the
    least one.
    """
    known = cells[~np.isnan(cells)]
    if known.size < LAST_HALVES:
        return EVEN
    cuts = np.floor(np.quantile(known, EVEN, method="higher") / _STEP) * _STEP
    return tuple(np.where(cuts <= known.min(), 0.0, cuts).tolist())


def features(parts: Parts, cuts: tuple[float, ...], *, length: float) -> Array:
    """Below (-) or above (+) the middle of each half that a row is in, shape (rows, halves).

    `parts`: of each row, from zero. Every row has `HALVINGS` entries of this `length`, or fewer:
    none where nothing can be below, or above, so that the half is the whole.
    """
    found, is_split = np.zeros((len(parts), LAST_HALVES - 1), order="F"), _is_split(cuts)
    for depth in range(HALVINGS):
        node, is_above = _node(parts, depth), parts >> (HALVINGS - 1 - depth) & 1
        found[np.arange(len(parts)), node] = np.where(is_above, length, -length) * is_split[node]
    return found


def known_halves(parts: Parts, present: NDArray[np.bool_], off: Array) -> NDArray[np.int32]:
    """The smallest half of each row whose share is known: a number > 0 by half, shape (rows,).

    1: not even the first halves are known. `off`: by how many deviations of the noise each
    feature's weighted mean is off its noisy one; NaN: not measured well enough. A half's share is
    known if it is off by at most one. Where all `present` rows of a half are on one side of its
    middle, that side is the half.
    """
    halves = np.ones(len(parts), dtype=np.int32)
    shift, variance = np.zeros(len(parts)), np.zeros(len(parts))
    for depth in range(HALVINGS):
        half = parts >> (HALVINGS - 1 - depth)
        is_split = np.bincount(half[present], minlength=2 ** (depth + 1))[half ^ 1] > 0
        change = off[_node(parts, depth)]
        moved = (shift + np.where(half & 1, change, -change)) / 2
        shift = np.where(is_split, moved, shift)
        variance = np.where(is_split, (variance + 1) / 4, variance)
        is_known = is_split & (np.abs(shift) <= np.sqrt(variance))
        halves = np.where(is_known, 2 ** (depth + 1) + half, halves).astype(np.int32)
    return halves


def _node(parts: Parts, depth: int) -> Parts:
    """Which feature says in what half of its half, of so many halvings, each part is."""
    return np.asarray(2**depth - 1 + (parts >> (HALVINGS - depth)))


def _is_split(cuts: tuple[float, ...]) -> NDArray[np.bool_]:
    """Whether each half has room on both sides of its middle, shape (halves,)."""
    ends, found = np.array([0.0, *cuts, np.inf]), []
    for depth in range(HALVINGS):
        size = LAST_HALVES >> depth
        low, middle, high = ends[:-1:size], ends[size // 2 :: size], ends[size::size]
        found.append((low < middle) & (middle < high))
    return np.concatenate(found)
