"""Repeat and select: what the best of a hidden, random number of private runs costs.

Runs are independent draws of one mechanism that also scores its own output. K of them take place;
the best one is released, and K, the losers and all scores stay inside. K has the logarithmic
(shape 0) or the geometric law (shape 1) with stopping parameter g in (0, 1]:

    P(K = k) = (1-g)^k / (k log(1/g))        E K = (1/g - 1) / log(1/g)
    P(K = k) = g (1-g)^(k-1)                 E K = 1/g

Let Q be the law of one run, H_Q its privacy curve sup_S Q(S) - exp(s) Q'(S), the same bound for
both orders of the neighbours, and f(x) = E x^K. Everything below follows from four steps.

1. *Law of the winner.* Give each outcome an independent uniform tie-breaker; of equal scores the
   first run wins just as well, since runs are exchangeable. With r the chance that a run ranks
   below an outcome y, the winner has density f'(r) q(y), and f'(r) is proportional to
   (g + (1-g)(1-r))^-(1+shape), which grows with r.
2. *Ranks.* Under the neighbour 1 - r' <= exp(s)(1 - r) + H_Q(s) for every s. So
   g + (1-g)(1-r') <= exp(l) (g + (1-g)(1-r)) where l solves (1-g) H_Q(l) = g (exp(l) - 1): the
   `rank_loss`. Hence f'(r) <= exp((1+shape) l) f'(r').
3. *Curve of the winner.* H_A(s + (1+shape) l) <= integral of f'(r) [q - exp(s) q']_+. The bracket
   is at most q and has mass H_Q(s), and r is uniform under q; so the integral is at most that of f'
   over the topmost share H_Q(s):

       H_A(s + (1+shape) l) <= 1 - f(1 - H_Q(s)).

   In words: the chance that one of K runs hits an event of probability H_Q(s).
4. *A limit on K costs nothing.* Condition K on K <= n. The new f' is the old one times the
   probability that a variable with weights k p_k r^(k-1) stays below n. That falls as r grows, so
   step 2 still holds; and K only becomes smaller, so step 3 does too. No delta is needed for it.

A pure epsilon run has H_Q(s) = (exp(epsilon) - exp(s)) / (1 + exp(epsilon)) at worst, so
l = log((exp(epsilon) + g) / (1 + g exp(epsilon))), and the winner is pure with

    epsilon + (1 + shape) log((exp(epsilon) + g) / (1 + g exp(epsilon))) < (2 + shape) epsilon,

which is attained (in the limit of a rare outcome). Renyi: the winner's divergence at order a is at
most that of one run plus (1+shape) l + log(E K)/(a-1), by steps 2 and f' <= E K.

Source: derived as printed; the curve is that of Koskela, Redberg & Wang (2024) for E K H_Q, and
steps 1 to 3 sharpen (2 + shape) epsilon of Liu & Talwar (2019) and Papernot & Steinke (2022).
`tests/dpiw/test_repeat_and_select.py` enumerates small mechanisms against every line.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError
from dpiw.privacy import SelectedGaussianEvent, SelectedPureEvent
from dpiw.renyi import exactly

Array = NDArray[np.float64]
SelectedEvent = SelectedPureEvent | SelectedGaussianEvent

LONGEST_TAIL = 1e-3
"""K is conditioned to exceed its limit by no more than this share of its own law's mass."""

_BITS = 160
_PI = Decimal("3.141592653589793238462643383279502884197169399375105820974944592")
_SMALLEST_STOPPING = Decimal("1e-40")
"""Below it the tails that the bisection compares are lost in their own rounding."""

_SMALLEST_EXACT = Decimal("0.25")
_NODES = 12001


def mean_runs(shape: float, stopping: Decimal) -> Decimal:
    """E K without the limit: an upper bound with it."""
    with exactly():
        if stopping == 1:
            return Decimal(1)
        return 1 / stopping if shape else (1 / stopping - 1) / -stopping.ln()


def stopping_of(shape: float, mean: float) -> float:
    """The stopping parameter g whose law has this mean, mean > 1."""
    low, high = -60.0, 0.0  # log g; the mean falls as g grows
    for _ in range(200):
        middle = (low + high) / 2
        if float(mean_runs(shape, Decimal(math.exp(middle)))) > mean:
            low = middle
        else:
            high = middle
    return math.exp(high)


@lru_cache(maxsize=64)
def run_weights(shape: float, stopping: float) -> tuple[int, ...]:
    """P(K = k) for k = 1, ..., n in whole numbers with one total; n is where the tail is short.

    Each is within 2^-100 of its share; step 4 above holds for n anywhere, and an error of that
    size moves no cost by more than its rounding.
    """
    found: list[int] = []
    left = Decimal(1)
    with exactly():
        kept = 1 - Decimal(stopping)
        first = 1 / -Decimal(stopping).ln() if not shape else Decimal(stopping) / kept
        while left > Decimal(LONGEST_TAIL):
            k = len(found) + 1
            share = first * kept**k / (1 if shape else k)
            found.append(int((share * 2**_BITS).to_integral_value()))
            left -= share
    return tuple(found)


def mean_of_weights(weights: tuple[int, ...]) -> float:
    """E K of a law given by `run_weights`."""
    return sum(k * weight for k, weight in enumerate(weights, start=1)) / sum(weights)


def rank_loss(event: SelectedEvent) -> Decimal:
    """The l of step 2, rounded up; the same digits on every machine."""
    with exactly():
        stopping = Decimal(event.stopping)
        if isinstance(event, SelectedPureEvent):
            grown = Decimal(event.epsilon).exp()
            return ((grown + stopping) / (1 + stopping * grown)).ln()
        return _gaussian_rank_loss(Decimal(event.noise_multiplier), stopping)


@lru_cache(maxsize=256)
def _gaussian_rank_loss(multiplier: Decimal, stopping: Decimal) -> Decimal:
    """By bisection below a closed form, which alone serves very small multipliers.

    The closed form is min over a of (1 - 1/a) a/(2 m^2) + log(1/g)/a: apply Renyi divergence of
    order a to an event of probability g + (1-g)(1-r) >= g (Papernot & Steinke 2022, theorem 2).
    """
    if stopping == 1:
        return Decimal(0)
    order = max(Decimal(1), multiplier * (-2 * stopping.ln()).sqrt())
    high = (order - 1) / (2 * multiplier**2) - stopping.ln() / order
    if multiplier < _SMALLEST_EXACT or stopping < _SMALLEST_STOPPING:
        return high
    low = Decimal(0)
    for _ in range(64):
        middle = (low + high) / 2
        paid = stopping * (middle.exp() - 1)
        if paid >= (1 - stopping) * _gaussian_delta(multiplier, middle):
            high = middle
        else:
            low = middle
    return high


def _gaussian_delta(multiplier: Decimal, epsilon: Decimal) -> Decimal:
    """As `dpiw.gaussian.gaussian_delta`, in decimals."""
    half, shift = 1 / (2 * multiplier), epsilon * multiplier
    return _normal_tail(shift - half) - epsilon.exp() * _normal_tail(shift + half)


def _normal_tail(x: Decimal) -> Decimal:
    """P(N(0, 1) > x) for |x| < 12: the series of erf without alternating signs."""
    square, term, total, n = x * x, x, x, 1
    while abs(term) > Decimal("1e-55"):
        n += 2
        term = term * square / n
        total += term
    return Decimal("0.5") - total * (-square / 2).exp() / (2 * _PI).sqrt()


def pure_total(event: SelectedPureEvent) -> Decimal:
    """Epsilon of the winner of pure runs, rounded up at 50 digits."""
    with exactly():
        return Decimal(event.epsilon) + (1 + Decimal(event.shape)) * rank_loss(event)


def pure_total_float(event: SelectedPureEvent) -> float:
    """`pure_total`, rounded up to a float."""
    return math.nextafter(float(pure_total(event)), math.inf)


def hit_chance(shape: float, stopping: float, chance: Array) -> Array:
    """1 - f(1 - x): the chance that one of K runs hits an event of probability x, elementwise."""
    if stopping == 1:
        return chance
    if shape:
        return np.asarray(chance / (stopping + (1 - stopping) * chance))
    return np.asarray(np.log1p((1 - stopping) * chance / stopping) / -math.log(stopping))


def selected_curve(event: SelectedGaussianEvent, order: Array) -> Array:
    """Upper bound of the winner's H(s) of Gaussian runs at `order` = s, shape as given.

    Convex in exp(s), so that it is the curve of some pair of distributions: H itself is convex
    there, hence below every chord of a bound. For s < 0 both orders of the neighbours are used:
    H(-s) = 1 - exp(-s) + exp(-s) H(s) with the roles exchanged.

    Args:
        event: one selection; its count is not looked at.
        order: ascending and symmetric around zero.
    """
    if order.size % 2 == 0 or not np.allclose(order, -order[::-1]):
        raise PrivacyError("selected_curve: expected orders symmetric around zero")
    nodes = np.linspace(order[0], order[-1], min(order.size, _NODES))
    forward = _forward(event, nodes)
    turned = -np.expm1(nodes) + np.exp(nodes) * forward[::-1]
    bound = np.where(nodes < 0, np.minimum(forward, turned), forward)
    corners = _lower_hull(np.r_[0.0, np.exp(nodes)], np.r_[1.0, bound])
    return np.asarray(np.interp(np.exp(order), *corners))


def _forward(event: SelectedGaussianEvent, order: Array) -> Array:
    from scipy.special import log_ndtr

    shift = (1 + event.shape) * float(rank_loss(event)) * (1 + 1e-15)
    s, m = order - shift, event.noise_multiplier
    upper = log_ndtr(0.5 / m - s * m)
    lower = s + log_ndtr(-0.5 / m - s * m)
    single = np.exp(upper) * -np.expm1(np.minimum(0.0, lower - upper))
    return np.minimum(1.0, hit_chance(event.shape, event.stopping, single) * (1 + 1e-12))


def _lower_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Corners of the lower convex hull of points with ascending x."""
    kept: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1 and _above(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    corners = np.array(kept)
    return corners[:, 0], corners[:, 1]


def _above(
    left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]
) -> bool:
    rise, run = right[1] - left[1], right[0] - left[0]
    return (middle[1] - left[1]) * run >= rise * (middle[0] - left[0])
