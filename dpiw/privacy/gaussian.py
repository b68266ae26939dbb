"""The Gaussian mechanism in closed form.

Source: Balle & Wang (2018), theorem 8, in log space so that no tail underflows.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError

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


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """Return the smallest delta of one Gaussian mechanism at epsilon.

    Phi(1/(2m) - epsilon m) - exp(epsilon) Phi(-1/(2m) - epsilon m), for m the `noise_multiplier`,
    standard deviation over L2 sensitivity. Epsilon may be negative after another mechanism's part.
    """
    from scipy.special import log_ndtr

    half = 0.5 / noise_multiplier
    upper = float(log_ndtr(half - epsilon * noise_multiplier))
    lower = epsilon + float(log_ndtr(-half - epsilon * noise_multiplier))
    return math.exp(upper) * -math.expm1(min(0.0, lower - upper))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return one Gaussian mechanism's smallest epsilon at 0 < delta < 1, rounded up by 1e-12."""

    def excess(epsilon: float) -> float:
        return gaussian_delta(noise_multiplier, epsilon) - delta

    if excess(0.0) <= 0:
        return 0.0
    # zCDP with rho = 1/(2 m^2) bounds it from above (Bun & Steinke 2016).
    rho = 0.5 / noise_multiplier**2
    return _root(excess, 0.0, rho + 2 * math.sqrt(-rho * math.log(delta)))


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation over L2 sensitivity for a target, rounded up.

    Without the lattice margin. Raises PrivacyError if epsilon < 0 or delta is outside (0, 1).
    """
    if not (math.isfinite(epsilon) and epsilon >= 0 and 0 < delta < 1):
        raise PrivacyError(field="Gaussian noise", allowed="epsilon >= 0 and 0 < delta < 1")

    return smallest_multiplier(lambda multiplier: gaussian_delta(multiplier, epsilon), delta)


def smallest_multiplier(delta_of: Callable[[float], float], delta: float) -> float:
    """Return the multiplier, rounded up by 1e-12, at which a decreasing delta is `delta` > 0."""

    def excess(log_multiplier: float) -> float:
        # Log ratio, so that the root is well scaled for every delta.
        return math.log(max(delta_of(math.exp(log_multiplier)), 1e-300) / delta)

    low, high = 0.0, 0.0
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return math.exp(low if low == high else _root(excess, low, high))


def _root(decreasing: Callable[[float], float], low: float, high: float) -> float:
    """Where a decreasing function turns non-positive, rounded up."""
    from scipy.optimize import brentq

    root = float(brentq(decreasing, low, high, xtol=1e-13, rtol=1e-14))
    return root + 1e-12 * max(1.0, abs(root))
