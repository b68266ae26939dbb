"""Features of the rows to be weighted, block by block; `many_rows` has those of more rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.threads import in_threads
from dpiw.errors import WeightError

Array = NDArray[np.float64]
Found = TypeVar("Found")

_BLOCK, _ENTRIES = 4096, 2**23
"""Base rows whose features a thread holds at once, and most of their entries."""


@dataclass(frozen=True, kw_only=True)
class Tilted:
    """Some rows of a tilting: `sums` of the features, shape (d,), with weights exp(scores - top).

    `mass` is the sum of these weights; `scores`, shape (rows,), are not normalised, `top` the
    largest.
    """

    scores: Array
    top: float
    mass: float
    sums: Array

    @classmethod
    def of(cls, features: Array, theta: Array, log_weights: Array | None) -> Tilted:
        """By the rows' features, shape (rows, d), and log weights of their own, or None."""
        scores = features @ theta
        if log_weights is not None:
            scores = scores + log_weights
        top = float(scores.max())
        masses = np.exp(scores - top)
        return cls(scores=scores, top=top, mass=float(masses.sum()), sums=masses @ features)


def checked(features: Array) -> Array:
    """Features or sums of them, or WeightError if one is not finite."""
    if not np.isfinite(features).all():
        raise WeightError(
            "a feature or a sum is NaN or infinite",
            field="base rows",
            allowed="a generator of finite numbers within the data dictionary's bounds",
        )
    return features


class BaseRows:
    """The features of base rows, shape (M, d), in blocks; WeightError if one is not finite.

    `log_weights`: untilted, shape (M,), of mean one; None: equal.
    """

    def __init__(self, features: Array, *, log_weights: Array | None = None) -> None:
        if features.ndim != 2 or not len(features):
            raise WeightError(field="base rows", allowed="at least one row of features")
        self.rows, self.dimension = features.shape
        self._features, self._log_weights = checked(features), log_weights

    def mapped(
        self, function: Callable[[slice, Array], Found], *, is_large: bool = False
    ) -> Iterator[Found]:
        """A function's results for each block's place and features, in order, from threads."""
        size = max(1, min(_BLOCK, _ENTRIES // self.dimension))
        places = (slice(at, min(at + size, self.rows)) for at in range(0, self.rows, size))
        return in_threads(
            lambda place: function(place, self._features[place]), places, is_large=is_large
        )

    @cached_property
    def own(self) -> Array:
        """The rows' weights before the tilting, shape (M,), summing to one."""
        if self._log_weights is None:
            return np.full(self.rows, 1 / self.rows)
        return np.asarray(np.exp(self._log_weights) / self.rows)

    def tilted(self, theta: Array) -> tuple[Array, float, Array]:
        """Weights in proportion to u_j exp(theta.phi_j), u_j the rows' own, in one pass.

        Returns log weights, shape (M,), the log of their divisor, and weighted means, shape (d,).
        """
        scores, means = np.empty(self.rows), np.zeros(self.dimension)
        top, mass = -math.inf, 0.0
        for at, part in self._tilted(theta):
            scores[at] = part.scores
            fresh = max(top, part.top)
            before, now = math.exp(top - fresh), math.exp(part.top - fresh)
            mass, means = before * mass + now * part.mass, before * means + now * part.sums
            top = fresh
        # The largest score goes first: beside huge ones the sum's logarithm would be rounded away.
        scores -= top
        scores -= math.log(mass)
        return scores, top + math.log(mass), means / mass

    def _tilted(self, theta: Array) -> Iterator[tuple[slice, Tilted]]:
        logs = self._log_weights
        return self.mapped(
            lambda at, block: (at, Tilted.of(block, theta, None if logs is None else logs[at]))
        )

    @cached_property
    def untilted(self) -> tuple[Array, Array]:
        """Means, shape (d,), and covariance, (d, d), of the features by the rows' own weights."""
        means = self.tilted(np.zeros(self.dimension))[2]
        return means, self.covariance(self.own, means)

    def covariance(self, weights: Array, means: Array) -> Array:
        """Weighted covariance of the features, shape (d, d)."""

        def of(at: slice, block: Array) -> Array:
            scaled = block - means
            scaled *= np.sqrt(weights[at])[:, None]
            return np.asarray(scaled.T @ scaled)

        total = np.zeros((self.dimension, self.dimension))
        for part in self.mapped(of, is_large=True):
            total += part
        return total
