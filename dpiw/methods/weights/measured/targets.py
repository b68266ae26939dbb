"""Noisy means of features, the law of their noise, and the ridge of a tilting towards them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.methods.one_way import OneWayLaw, block_diagonal
from dpiw.methods.weights.measured.constants import FORCED

Array = NDArray[np.float64]

INDEFINITE = "rounding left a covariance not positive definite; use fewer weights.settings.features"

CLOSE, WORST = 0.05, 0.25
"""Squared distances from the minimum's means, in variances of their error, where a fit of many rows
may end: on average along all axes, so that 2.5% is added to a standard error, and of one mean."""

EVIDENCE = "evidence"
"""The rule for alpha, by name: the credit of the largest evidence."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """Noisy means of features, and the law of their noise; WeightError if they are not finite.

    Attributes:
        means: m, shape (d,).
        covariance: S of their noise, shape (d, d), positive definite.
        rows: number of private rows behind the means: noisy, or public.
        fresh: number of first features that the base was not fitted to; None: all.
        relative: credit of each feature's part over alpha, in (0, 1], shape (d,); None: all one.
        error: covariance of the means' whole error, (d, d), near which a fit of many rows may end;
            None: it ends at the minimum.
    """

    means: Array = field(repr=False)
    covariance: Array = field(repr=False)
    rows: float
    fresh: int | None = None
    relative: Array | None = field(default=None, repr=False)
    max_rows: int = 1
    error: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        finite = np.isfinite(self.means).all() and np.isfinite(self.covariance).all()
        if not (finite and 0 < self.rows < math.inf):
            raise WeightError(
                field="targets", allowed="finite means and covariance, and a number of rows > 0"
            )

    @property
    def ridge(self) -> Array:
        """R, the shrinkage of theta per unit of credit: `ridge_of`."""
        return ridge_of(self.covariance, self.relative)

    def with_error(self, spread: Array, rows: int, *, share: float = 1.0) -> Targets:
        """With a share of the error S + C/N + C/M, C near the features' covariance, M base rows."""
        error = self.covariance + spread * (1 / self.rows + 1 / rows)
        return replace(self, error=share * error)

    @cached_property
    def _error_factor(self) -> tuple[Array, bool]:
        return factor_of(self.covariance if self.error is None else self.error)

    def distance(self, gap: Array) -> float:
        """Square of a distance of means, shape (d,), over what is allowed; infinite: no error.

        Source: Mahalanobis (1936).
        """
        from scipy.linalg import cho_solve  # as of `factor_of`

        if self.error is None:
            return math.inf
        average = float(gap @ cho_solve(self._error_factor, gap)) / gap.size
        return max(average / CLOSE, float((gap**2 / np.diag(self.error)).max()) / WORST)


def factor_of(matrix: Array) -> tuple[Array, bool]:
    """A Cholesky factor, for `cho_solve`; WeightError unless the matrix is positive definite."""
    from scipy.linalg import cho_factor  # heavy: analysts load this module, and factor nothing

    try:
        factor: tuple[Array, bool] = cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise WeightError(INDEFINITE, field="targets") from None
    return factor


def ridge_of(covariance: Array, relative: Array | None) -> Array:
    """S, or D^1/2 S D^1/2 with D the relative credits."""
    if relative is None:
        return covariance
    root = np.sqrt(relative)
    return np.asarray(root[:, None] * covariance * root)


def loudest(least_credit: float) -> float:
    """Most noise variance of a mean, over its feature's variance, for weights to keep to it."""
    return min(FORCED, 1 / least_credit)


def means_noise(
    *, scale: float, rows: float, constant: float, about: Array, known: OneWayLaw | None = None
) -> Array:
    """S, the covariance of the noise of means, shape (d, d): (s/N)^2 (I + m m'/c^2), and marginals.

    `about` is m, public means near the true ones, shape (d,). Never pass the noisy means, whose
    noise may be as long as they are. `scale` is s, of the sums; `constant` is c, 0 where N is
    public (docs/method.md section 14).
    """
    measured = about.size - (0 if known is None else known.dimension)
    means = about[:measured]
    covariance = (scale / rows) ** 2 * np.eye(measured)
    if constant:
        covariance += (scale / rows / constant) ** 2 * np.outer(means, means)
    if known is None:
        return covariance
    return block_diagonal(covariance, known.covariance(about[measured:], rows))
