"""Privacy curves H(s) = sup_A P(A) - exp(s) Q(A) of exponential mechanisms, single and in blocks.

Only one block of a run may use the block curve V_k: two blocks of different epsilon do not
exchange. Derivations: docs/method.md sections 10 and 18 (as Gaussian noise).

Source: Dong, Durfee & Rogers (2020) for bounded range and its optimal composition; Zhu, Dong & Wang
(2022); the adaptive block and the Gaussian bound are derived here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_WORK = 2e7
_FEWEST_CELLS = 16


def selection_curve(epsilon: float, order: FloatArray) -> FloatArray:
    """Return H(s) of one selection at `order` = s, elementwise; values in [0, 1]."""
    inside = np.expm1((np.minimum(order, epsilon) - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
    below = -np.expm1(np.minimum(order, 0.0))
    return np.asarray(np.where(order < -epsilon, below, inside), dtype=np.float64)


def gaussian_multiplier(epsilon: float) -> float:
    """Return the multiplier of Gaussian noise that dominates one selection, rounded down."""
    return 1 / (epsilon * math.sqrt(math.pi / 8)) * (1 - 1e-15)


def block_is_cheap(count: int) -> bool:
    """Whether `block_curve` resolves a block of this length well in a fraction of a second."""
    return _cells(count) >= _FEWEST_CELLS


def block_curve(epsilon: float, count: int, order: FloatArray) -> FloatArray:
    """Return an upper bound of V_count(s) at `order` = s, for `count` selections of `epsilon`.

    The recursion runs on a lattice of losses of step h = epsilon/n. An interval of length e + h
    with ends on the lattice covers [t - e, t], so t needs lattice values only. Chords in exp(s)
    interpolate from above.
    """
    cells = _cells(count)
    step, span = epsilon / cells, cells + 1
    reach = count * span
    ends = np.arange(span + 1) * step
    upper = np.expm1(ends - span * step) / math.expm1(-span * step)
    # `span` more points on either side, where every curve is known: 1 - exp(s) and 0.
    losses = np.arange(-reach - span, reach + span + 1) * step
    trivial = np.maximum(0.0, -np.expm1(losses))
    curve = trivial
    for _ in range(count):
        best = np.zeros(2 * reach + 1)
        for shift, share in enumerate(upper):
            here = curve[span - shift : span - shift + best.size]
            there = curve[2 * span - shift : 2 * span - shift + best.size]
            np.maximum(best, share * here + (1 - share) * there, out=best)
        curve = trivial.copy()
        curve[span : span + best.size] = best
    inside = np.interp(np.exp(order), np.exp(losses), curve)
    outside = np.maximum(0.0, -np.expm1(np.minimum(order, 0.0)))
    return np.asarray(np.where(np.abs(order) >= reach * step, outside, inside), dtype=np.float64)


def _cells(count: int) -> int:
    return min(400, int(math.sqrt(_WORK / 2) / count))
