"""Privacy curves of exponential mechanisms, single and in adaptive blocks.

A selection by the exponential mechanism with parameter e has *bounded range*: for neighbours with
output laws P and Q, the privacy loss log(P/Q) lies in an interval [t - e, t] with 0 <= t <= e. The
curves here bound the hockey-stick divergence H(s) = sup_A P(A) - exp(s) Q(A) of all such pairs.

**One selection.** H is convex in the likelihood ratio, so the loss may be moved to the interval's
ends: loss t with probability p(t) = (1 - exp(t-e)) / (1 - exp(-e)), else t - e. The divergence is
p(t) (1 - exp(s-t)), largest at t = (s+e)/2:

    H(s) = (1 - exp((s-e)/2))^2 / (1 - exp(-e)),   |s| <= e,

continued by 1 - exp(s) below and 0 above. In exp(s) it is convex and decreasing from 1, so one pair
of distributions has exactly this curve, dominates every selection, and composes adaptively
(Zhu, Dong & Wang 2022).

**A block of k selections of the same e.** Composing that pair k times lets t depend on the *final*
s, which no mechanism can. By backward induction over the adversary's choices, the largest
divergence of any adaptive block is V_k, where V_0(s) = max(0, 1 - exp(s)) and

    V_k(s) = max over t of  p(t) V_{k-1}(s - t) + (1 - p(t)) V_{k-1}(s - t + e),

again by convexity: x V(s - log x) is the perspective of a convex function. V_k is a maximum of
hockey-stick curves, so it too belongs to a dominating pair.

**Interleaving.** Let T be the step above and C the (linear) step of a mechanism given by one
dominating pair. T C <= C T, as a maximum of means is at most the mean of maxima. So every order of
the block's selections among such mechanisms costs at most the composition of V_k's pair with
theirs. Two blocks of different e do not exchange in this way: only one block of a run may use V_k.

**As Gaussian noise.** Where the e of each selection depends on earlier noisy output, no curve of
fixed e applies, but Gaussian differential privacy does, whose filter is exact (Smith & Thakurta
2022). On two points of losses t and t - e, with P(t) = p and Q(t) = q, the odds of p and q have the
ratio exp(e). A Gaussian mechanism of shift m dominates such a pair if m >= z(p) - z(q), z the
normal quantile. z of a logistic has slope p(1-p)/phi(z(p)) <= sqrt(2 pi)/4, as 4 p (1-p) <=
exp(-z^2/2): the square [-z, z]^2 holds the disc of radius z. So every selection is m-GDP with

    m = e sqrt(pi/8).

Source: Dong, Durfee & Rogers (2020) for bounded range and its optimal composition; the adaptive
block and its interleaving, and the Gaussian bound, are derived here and checked in its test.
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

    The recursion runs on the lattice of losses of step h = epsilon/n. An interval [t - e, t] is
    covered by one with both ends on the lattice and length e + h, so t needs lattice values only.
    Between lattice points the curve is interpolated along its chords in exp(s), which lie above.
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
