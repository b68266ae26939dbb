"""Losses of a margin t = y x'b that have an unbiased estimate when x is told with Gaussian noise.

For noise of variance s^2 in t, W f(t) = E f(t + s Z); the inverse is the sum over k of
(-s^2 / 2)^k / k! times the 2k-th derivative. It exists for entire functions alone: the
exponential and polynomials have it in closed form, and the logistic loss has none (Stefanski 1989).

Source: docs/method.md section 17.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import Protocol

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.polynomial import polyder, polyval
from numpy.typing import NDArray

from dpiw.errors import ReleaseError, one_of
from dpiw.local.parameters import USABLE

Array = NDArray[np.float64]


class Loss(Protocol):
    """A convex loss of the margin, and its unbiased estimate from a noised one."""

    @property
    def name(self) -> str:
        """As people say it."""
        ...

    @property
    def usable(self) -> float:
        """Largest noise in the margin, s, at which the variance is still bearable."""
        ...

    @property
    def reach(self) -> float:
        """Largest |t| of a record before the noise for which it is the loss it is named after."""
        ...

    def clean(self, t: Array) -> Array:
        """The loss itself."""
        ...

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """The unbiased estimate from t + s Z, or its derivative by t.

        Args:
            t: told margins.
            noise: s^2.
            order: of the derivative.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """exp(-t), estimated by exp(-t - s^2/2), whose variance is exp(s^2) times the clean square."""

    name: str = "exponential"
    usable: float = USABLE
    reach: float = math.inf

    def clean(self, t: Array) -> Array:
        """See `Loss`."""
        return np.asarray(np.exp(-t))

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """See `Loss`; one exponent, so that neither factor overflows alone."""
        return np.asarray((-1) ** order * np.exp(-t - noise / 2))


@dataclass(frozen=True, kw_only=True)
class PolynomialLoss:
    """A polynomial in t, estimated by Hermite polynomials: s^m He_m(t / s) for t^m.

    Attributes:
        coefficients: of t^0, t^1, ...
        error: largest distance from the loss it is named after, for |t| <= `reach`; 0: it is it.
    """

    coefficients: tuple[float, ...]
    name: str
    usable: float = USABLE
    reach: float = math.inf
    error: float = 0.0

    def clean(self, t: Array) -> Array:
        """See `Loss`."""
        return np.asarray(polyval(t, self.coefficients))

    def corrected(self, t: Array, noise: float, order: int = 0) -> Array:
        """See `Loss`."""
        terms, degrees = self._terms
        coefficients = (-noise / 2) ** degrees @ terms
        for _ in range(order):
            coefficients = np.append(coefficients[1:] * np.arange(1, coefficients.size), 0.0)
        return np.asarray(polyval(t, coefficients))

    @cached_property
    def _terms(self) -> tuple[Array, Array]:
        """Coefficients of the 2k-th derivative over k!, shape (k, degree + 1), and the ks."""
        degree = len(self.coefficients) - 1
        rows = [polyder(self.coefficients, 2 * k) / factorial(k) for k in range(degree // 2 + 1)]
        padded = [np.pad(row, (0, degree + 1 - row.size)) for row in rows]
        return np.array(padded), np.arange(degree // 2 + 1.0)


EXPONENTIAL = Exponential()
SQUARED = PolynomialLoss(coefficients=(0.5, -1.0, 0.5), name="squared", usable=math.inf)
"""(1 - t)^2 / 2: least squares for labels of -1 and 1. Its variance grows slowly with s."""

LOSSES: dict[str, Loss] = {"exponential": EXPONENTIAL, "squared": SQUARED}

NO_LOGISTIC = (
    "no estimate of the logistic loss from features with Gaussian noise is unbiased, as it is not"
    " entire; logistic_surrogate(reach) is a polynomial that states its distance from it"
)


def loss_named(loss: str | Loss) -> Loss:
    """A loss by its name, or the loss itself.

    Raises:
        ReleaseError: no such loss, or one that has no unbiased estimate.
    """
    if not isinstance(loss, str):
        return loss
    if loss == "logistic":
        raise ReleaseError(f"loss logistic: {NO_LOGISTIC}")
    if loss not in LOSSES:
        raise ReleaseError(f"loss: {one_of(loss, LOSSES)}")
    return LOSSES[loss]


def logistic_surrogate(reach: float, *, degree: int = 6) -> PolynomialLoss:
    """A polynomial near log(1 + exp(-t)) for |t| <= reach: interpolated at Chebyshev's points.

    What is learnt with it is unbiased for the polynomial; its `error` bounds how far that is from
    the logistic loss of records before the noise.

    Args:
        reach: radius of the ball of records times the norm of the parameters, > 0, at most 20.
        degree: even, from 2 to 20; a higher one is nearer, and noisier.

    Raises:
        ReleaseError: reach or degree is out of range.
    """
    if not 0 < reach <= 20 or degree not in range(2, 21, 2):
        raise ReleaseError("logistic_surrogate: expected reach in (0, 20], an even degree to 20")

    def logistic(t: Array) -> Array:
        return np.asarray(np.logaddexp(0.0, -t))

    near = Chebyshev.interpolate(logistic, degree, domain=[-reach, reach])
    polynomial = near.convert(domain=[-1, 1], kind=Polynomial, window=[-1, 1])
    grid = np.linspace(-reach, reach, 20_001)
    # Where the difference is largest its slope is 0, or an end of the grid. So half a step of the
    # grid from there it is less by at most step^2 / 8 times its second derivative: 1/4 for the loss
    # and, of the polynomial, the sum of its Chebyshev coefficients.
    curve = 0.25 + float(np.abs(near.deriv(2).coef).sum())
    error = (
        float(np.abs(polynomial(grid) - logistic(grid)).max())
        + (grid[1] - grid[0]) ** 2 / 8 * curve
    )
    return PolynomialLoss(
        coefficients=tuple(float(coefficient) for coefficient in polynomial.coef),
        name=f"logistic within {error:.2g}", reach=reach, error=error,
    )  # fmt: skip
