"""Epsilon of independent privacy losses by inverting a Laplace transform: no grid of losses.

With S the sum of the losses and K = log E exp(z S), for every lambda > 0

    delta(epsilon) = E max(0, 1 - exp(epsilon - S))
                   = 1/(2 pi i) integral of exp(K(z) - z epsilon) / (z (z + 1)) dz

along Re z = lambda, through the saddle point. The trapezoid rule of step 2 pi/T adds positive terms
exp(lambda j T) delta(epsilon + j T), j = -1, 1, -2, ..., which Chernoff's bound makes small. The
rest beyond a frequency w is at most exp(K(lambda) - lambda epsilon) / (pi w), times the damping
there: proved for Gaussian noise, none for atoms, observed for sampled Gaussians. The returned range
includes both errors.

Source: Zhu, Dong & Wang (2022), the transform; Alghamdi et al. (2023), the saddle point.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

_CELLS = 2**18
_WIDTH = 10.0
"""Standard deviations of Gaussian noise that an integral covers: exp(-50) of it is left out."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One mechanism's privacy loss, `count` independent times.

    Attributes:
        log_transform: log M(z), elementwise, for an array of z with Re z > 0.
        variance: of a Gaussian part of each: |M| falls by exp(-variance w^2 / 2) at frequency w.
        atoms: whether |M| may return to its height at w = 0, as where the loss has atoms.
        largest: the Re z up to which `log_transform` is worth its time.
        work: how many cells one z takes, of this real part and frequency.
    """

    log_transform: Callable[[Complex], Complex]
    count: int = 1
    variance: float = 0.0
    atoms: bool = True
    largest: float = 1e9
    work: Callable[[float, float], int] = lambda order, frequency: 1


def gaussian(noise_multiplier: float, count: int = 1) -> Loss:
    """L is normal of mean 1/(2 m^2) and variance 1/m^2."""
    variance = noise_multiplier**-2
    return Loss(
        log_transform=lambda z: np.asarray(z * (z + 1) * (variance / 2)),
        count=count,
        variance=variance,
        atoms=False,
    )


def laplace(noise_multiplier: float, count: int = 1) -> Loss:
    """L is s = 1/m with probability 1/2, -s with exp(-s)/2, else of density exp((L - s)/2)/4."""
    shift = 1 / noise_multiplier

    def log_transform(z: Complex) -> Complex:
        lower = z * np.exp(-(2 * z + 1) * shift)
        return np.asarray(z * shift + np.log((z + 1 + lower) / (2 * z + 1)))

    return Loss(log_transform=log_transform, count=count)


def two_point(epsilon: float, share: float, count: int = 1) -> Loss:
    """A selection between two outcomes: L is t = share * epsilon, or t - epsilon."""
    top = share * epsilon
    chance = math.expm1(top - epsilon) / math.expm1(-epsilon)

    def log_transform(z: Complex) -> Complex:
        return np.asarray(z * top + np.log(chance + (1 - chance) * np.exp(-z * epsilon)))

    return Loss(log_transform=log_transform, count=count)


def worst_selection(epsilon: float, count: int = 1) -> Loss:
    """The two-point pair with the largest curve at every order.

    M(z) is z (z + 1) times the integral of exp(z s) H(s) over |s| <= e, in closed form, with
    H(s) = (1 - exp((s - e)/2))^2 / (1 - exp(-e)). Source: Dong, Durfee & Rogers (2020).
    """
    small = math.exp(-epsilon)

    def log_transform(z: Complex) -> Complex:
        far = np.exp(-2 * z * epsilon)
        lower = (z + 1) - 2 * small * z * (z + 1) / (z + 0.5) + small**2 * z
        inside = (0.5 / (z + 0.5) - far * lower) / -math.expm1(-epsilon)
        logs = z * epsilon + np.log(inside + far * (z + 1 - small * z))
        near = np.abs(z) * epsilon < 1  # where little is left of the closed form's terms
        logs[near] = _log_transform_near(epsilon, z[near])
        return np.asarray(logs)

    return Loss(log_transform=log_transform, count=count)


def _log_transform_near(epsilon: float, z: Complex) -> Complex:
    """M(z) - 1 as z (z + 1) times the integral of exp(z s) (H(s) - max(0, 1 - exp(s)))."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    total = np.zeros(z.shape, dtype=np.complex128)
    for middle in (-epsilon / 2, epsilon / 2):
        s = middle + nodes * epsilon / 2
        curve = np.expm1((s - epsilon) / 2) ** 2 / -math.expm1(-epsilon) + np.expm1(
            np.minimum(s, 0.0)
        )
        total += np.exp(z[:, None] * s) @ (weights * curve * epsilon / 2)
    return np.log1p(z * (z + 1) * total)


def sampled_gaussian(
    probability: float, noise_multiplier: float, count: int = 1, *, removed: bool
) -> Loss:
    """N(0, m^2) and its mixture with N(1, m^2); `removed`: P is the mixture, else Q.

    Trapezoid rule: its error falls exponentially, because the integrands are analytic.
    """
    q, m = probability, noise_multiplier
    finest = min(m / 8, m * m / 2)

    def points(order: float, frequency: float) -> tuple[float, float]:
        reach = (1 + order if removed else 0.0) + 2 * _WIDTH * m
        return reach, min(finest, math.pi * m * m / (1 + frequency))

    def work(order: float, frequency: float) -> int:
        reach, step = points(order, frequency)
        return int(reach / step) + 1

    def log_transform(z: Complex) -> Complex:
        reach, step = points(float(z.real.max()), float(np.abs(z.imag).max()))
        x: Array = np.asarray(np.arange(int(reach / step) + 1) * step - _WIDTH * m, np.float64)
        log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * m * m))
        log_weight = -0.5 * (x / m) ** 2 + math.log(step / (m * math.sqrt(2 * math.pi)))
        return _log_integral(1 + z if removed else -z, log_ratio, log_weight)

    return Loss(
        log_transform=log_transform,
        count=count,
        atoms=False,
        largest=finest * _CELLS / 64,
        work=work,
    )


def _log_integral(power: Complex, log_base: Array, log_weight: Array) -> Complex:
    rows = max(1, _CELLS // log_base.size)
    log_sums = []
    for first in range(0, power.size, rows):
        terms = log_weight + power[first : first + rows, None] * log_base
        top = terms.real.max(axis=1, keepdims=True)
        log_sums.append(top[:, 0] + np.log(np.exp(terms - top).sum(axis=1)))
    return np.concatenate(log_sums)


_BLOCK = 64
_MOST_POINTS = 2**15
_MOST_WORK = 2**22

_ALIAS = 1e-5
"""Share of delta that the rule's positive terms may add, on either side."""

_CUT = 1e-3
"""Share of delta that may be left out, if the work allows."""

_NARROW = 1e-3
_ROUNDS = 6


@dataclass(frozen=True, kw_only=True)
class Range:
    """The interval of a number."""

    low: float
    high: float


def log_transform(losses: Sequence[Loss], order: float) -> float:
    """K(order), for a real order > 0."""
    z = np.array([complex(order)])
    return sum(loss.count * float(loss.log_transform(z)[0].real) for loss in losses)


def epsilon_range(losses: Sequence[Loss], delta: float) -> Range:
    """Range of the smallest epsilon >= 0 at which the independent losses have delta in (0, 1)."""
    order, epsilon = chernoff_bound(losses, delta)
    bracket = Range(low=0.0, high=max(0.0, epsilon))
    for _ in range(_ROUNDS):
        if bracket.high - bracket.low <= _NARROW * bracket.high:
            break
        line = _Line(losses, order=order, epsilon=epsilon, delta=delta)
        bracket = line.narrow(bracket)
        epsilon = (bracket.low + bracket.high) / 2
        order = _saddle(losses, epsilon)
    return bracket


def chernoff_bound(losses: Sequence[Loss], delta: float) -> tuple[float, float]:
    """The order lambda and the least epsilon with E exp(lambda (S - epsilon)) c(lambda) = delta.

    c = lambda^lambda / (1 + lambda)^(1 + lambda): the largest max(0, 1 - exp(-x)) / exp(lambda x).
    """

    def bound(order: float) -> float:
        constant = order * math.log(order) - (1 + order) * math.log1p(order)
        return (log_transform(losses, order) + constant - math.log(delta)) / order

    return _smallest(bound, most=_largest(losses))


def _saddle(losses: Sequence[Loss], epsilon: float) -> float:
    def height(order: float) -> float:
        falling = order * epsilon + math.log(order) + math.log1p(order)
        return log_transform(losses, order) - falling

    return _smallest(height, most=_largest(losses))[0]


def _largest(losses: Sequence[Loss]) -> float:
    return min(loss.largest for loss in losses) / 4


def _smallest(function: Callable[[float], float], *, most: float) -> tuple[float, float]:
    """Return where in [1e-6, most] a function with one minimum is least, and its value there."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda log: function(math.exp(log)),
        bounds=(math.log(1e-6), math.log(most)),
        method="bounded",
        options={"xatol": 0.01},
    )
    return math.exp(found.x), float(found.fun)


class _Line:
    """The integrand on the line Re z = order, at the frequencies of one rule."""

    def __init__(
        self, losses: Sequence[Loss], *, order: float, epsilon: float, delta: float
    ) -> None:
        self._order, self._delta = order, delta
        self._height = log_transform(losses, order)
        self._step = 2 * math.pi / self._period(losses, epsilon)
        enough = math.log(_CUT * delta) - (self._height - order * epsilon)
        parts = self._parts(losses, enough)
        points = parts[0].size
        self._frequencies: Array = np.asarray(self._step * np.arange(points), np.float64)
        self._log_rest = self._rest(losses, parts)
        z = order + 1j * self._frequencies
        self._integrand: Complex = np.sum(parts, axis=0) - self._height - np.log(z * (z + 1))

    def _period(self, losses: Sequence[Loss], epsilon: float) -> float:
        """T, for which the terms above and below `epsilon` are small."""
        order, small = self._order, math.log(_ALIAS * self._delta)
        period = -small / order
        heights = [
            (times, log_transform(losses, order * times) - order * times * epsilon)
            for times in (1.1, 1.3, 1.6, 2.0, 3.0)
        ]
        while min(height - order * (times - 1) * period for times, height in heights) > small:
            period *= 1.3
        return period

    def _parts(self, losses: Sequence[Loss], enough: float) -> list[Complex]:
        """Each loss's share of K, at frequencies up to where the rest is small."""
        parts = [np.zeros(0, dtype=np.complex128) for _ in losses]
        points, work = 0, 0
        while points < _MOST_POINTS and work < _MOST_WORK:
            frequencies = self._step * np.arange(points, points + _BLOCK)
            z: Complex = np.asarray(self._order + 1j * frequencies, np.complex128)
            parts = [
                np.append(part, loss.count * loss.log_transform(z))
                for part, loss in zip(parts, losses, strict=True)
            ]
            points += _BLOCK
            farthest = self._step * (points + _BLOCK)
            work += _BLOCK * sum(loss.work(self._order, farthest) for loss in losses)
            if self._rest(losses, parts) <= enough:
                break
        return parts

    def _rest(self, losses: Sequence[Loss], parts: Sequence[Complex]) -> float:
        """Log of the bound of the rest, over exp(K(order) - order * epsilon)."""
        points = parts[0].size
        farthest = self._step * (points - 0.5)
        damping = 0.0
        for loss, part in zip(losses, parts, strict=True):
            if loss.variance:
                damping -= loss.count * loss.variance * farthest**2 / 2
            elif not loss.atoms:
                damping += float(part.real[points // 2 :].max() - part.real[0])
        return damping - math.log(math.pi * farthest)

    def narrow(self, known: Range) -> Range:
        """The range narrowed by this line."""
        return Range(
            low=max(known.low, self._root(-1, known.high)),
            high=min(known.high, self._root(1, known.high)),
        )

    def _root(self, sign: int, high: float) -> float:
        """Epsilon at which delta, with the errors on one side, is met; at most `high`."""
        from scipy.optimize import brentq

        def excess(epsilon: float) -> float:
            return self._log_delta(epsilon, sign) - math.log(self._delta)

        if excess(high) >= 0:
            return high
        low, width = high, 1 / self._order
        while low > 0 and excess(low) < 0:
            low, width = max(0.0, high - width), 2 * width
        return float(brentq(excess, low, high)) if excess(low) > 0 else 0.0

    def _log_delta(self, epsilon: float, sign: int) -> float:
        """Log of delta(epsilon), at least (sign 1) or at most (sign -1)."""
        scale = self._height - self._order * epsilon
        values = np.exp(self._integrand - 1j * self._frequencies * epsilon).real
        total = self._step / math.pi * float(values.sum() - values[0] / 2)
        total += sign * math.exp(self._log_rest)
        if sign < 0:
            total -= 2 * _ALIAS * self._delta * math.exp(min(-scale, 600.0))
        return scale + math.log(max(total, 1e-300))
