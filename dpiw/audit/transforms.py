"""Privacy losses by their Laplace transforms, from the definitions of the events alone.

For neighbours with output laws P and Q the privacy loss is L = log(P/Q) under P, and

    M(z) = E exp(z L) = integral of P^(1+z) Q^(-z),    log M(a - 1) = (a - 1) D_a(P || Q).

Transforms of independent losses multiply. Use nothing from `dpiw.privacy.accounting` here: the
audit recounts what it counted. An event's *floor* is the loss of a mechanism that it admits: no
sound bound is below. Its *ceiling* is the loss of the pair that a theorem proves worst. They differ
only for selections: the floor keeps one offset of the loss, the ceiling chooses it per order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
