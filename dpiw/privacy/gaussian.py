"""The Gaussian mechanism in closed form.

Source: Balle & Wang (2018), theorem 8, in log space so that no tail underflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpiw.errors import PrivacyError


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
        raise PrivacyError("Gaussian noise: expected epsilon >= 0 and 0 < delta < 1")

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
