"""Noisy means of features, the law of their noise, and the ridge of a tilting towards them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.methods.one_way import OneWayLaw, block_diagonal

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """Noisy means of features, and the law of their noise.

    Attributes:
        means: m, shape (d,).
        covariance: S of their noise, shape (d, d), positive definite.
        rows: how many private rows they are means of: noisy, or public.
        fresh: how many of the features, the first ones, the base was not made of: they alone can
            tell how far it is from the truth. None: all.
        relative: of each feature, the credit that its part of the features deserves over alpha, in
            (0, 1], shape (d,); None: one credit for all.
        max_rows: most rows of one person among the private ones.
    """

    means: Array = field(repr=False)
    covariance: Array = field(repr=False)
    rows: float
    fresh: int | None = None
    relative: Array | None = field(default=None, repr=False)
    max_rows: int = 1

    def __post_init__(self) -> None:
        """Raises WeightError: shapes differ, or a number is not finite or out of range."""
        size = self.means.size
        if self.fresh is not None and not 1 <= self.fresh <= size:
            raise WeightError(f"targets: expected 1 to {size} fresh features")
        shapes = self.means.shape == (size,) and self.covariance.shape == (size, size)
        finite = np.isfinite(self.means).all() and np.isfinite(self.covariance).all()
        if not (shapes and finite and size and math.isfinite(self.rows) and self.rows > 0):
            raise WeightError(
                "targets: expected finite means (d,), a covariance (d, d) and a number of rows > 0"
            )
        relative = np.ones(size) if self.relative is None else self.relative
        if relative.shape != (size,) or not ((relative > 0) & (relative <= 1)).all():
            raise WeightError("targets: expected relative credits (d,), each in (0, 1]")

    @property
    def ridge(self) -> Array:
        """R, by which a unit of credit shrinks theta: `ridge_of`."""
        return ridge_of(self.covariance, self.relative)


def ridge_of(covariance: Array, relative: Array | None) -> Array:
    """S where all features have one credit, else D^1/2 S D^1/2, D of their relative credits.

    Of a part whose credit is a tenth, the noisy means count as if their noise were as much less.
    """
    if relative is None:
        return covariance
    root = np.sqrt(relative)
    return np.asarray(root[:, None] * covariance * root)


def means_noise(
    *, scale: float, rows: float, constant: float, about: Array, known: OneWayLaw | None = None
) -> Array:
    """S, the covariance of the noise of means, shape (d, d).

    (s/N)^2 (I + m m'/c^2) for the measured features, s the noise of their sums over N rows and the
    second part the error of a noisy N (docs/method.md section 14); beside it the noise of the
    marginals that are known. For m the noisy means themselves would be the wrong choice: they hold
    the noise, whose length may be that of the means, and the direction in which it lies would pass
    for ill-known.

    Args:
        scale: s.
        rows: N.
        constant: c by which a row counts; 0 where N is public.
        about: m, public means near the true ones, shape (d,): of the measured features, and after
            them of the known marginals.
        known: which marginals are known, and how well.
    """
    measured = about.size - (0 if known is None else known.dimension)
    means = about[:measured]
    covariance = (scale / rows) ** 2 * np.eye(measured)
    if constant:
        covariance += (scale / rows / constant) ** 2 * np.outer(means, means)
    if known is None:
        return covariance
    return block_diagonal(covariance, known.covariance(about[measured:], rows))
