"""Features of the rows to be weighted, block by block: kept if few, else computed at each pass."""

from __future__ import annotations

import math
from collections import deque
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

_KEEP = 2**27
"""Most entries of a feature matrix that is kept between passes: one GiB."""


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


class BaseRows:
    """The features of base rows, streamed in blocks; kept whole if they are small.

    `features` returns rows `start` to `stop`, shape (stop - start, d), the same at every pass;
    WeightError if one is not finite. `log_weights`: untilted, shape (M,), of mean one; None: equal.
    """

    def __init__(
        self,
        rows: int,
        features: Callable[[int, int], Array],
        *,
        log_weights: Array | None = None,
    ) -> None:
        if rows < 1:
            raise WeightError("weights: expected at least one base row")
        if log_weights is not None and (
            log_weights.shape != (rows,) or not abs(np.exp(log_weights).mean() - 1) < 1e-9
        ):
            raise WeightError("base rows: expected one log weight each, of mean one")
        self.rows, self._features, self._log_weights = rows, features, log_weights
        self.dimension = self._checked(0, 1).shape[1]
        self._kept: Array | None = None
        if rows * self.dimension <= _KEEP:
            kept = np.empty((rows, self.dimension))

            def keep(places: tuple[int, int]) -> None:
                kept[slice(*places)] = self._checked(*places)

            deque(in_threads(keep, self._ranges()), maxlen=0)
            self._kept = kept

    @classmethod
    def of(cls, matrix: Array) -> BaseRows:
        """Rows whose features are at hand, shape (M, d)."""
        return cls(len(matrix), lambda start, stop: matrix[start:stop])

    def _ranges(self) -> Iterator[tuple[int, int]]:
        rows = max(1, min(_BLOCK, _ENTRIES // self.dimension))
        for start in range(0, self.rows, rows):
            yield start, min(start + rows, self.rows)

    def _checked(self, start: int, stop: int) -> Array:
        features = np.asarray(self._features(start, stop), dtype=np.float64)
        if features.ndim != 2 or len(features) != stop - start or not np.isfinite(features).all():
            raise WeightError("base rows: expected finite features, one row each")
        return features

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Where a block stands, and its features."""
        return self.mapped(lambda at, block: (at, block))

    def mapped(
        self, function: Callable[[slice, Array], Found], *, is_large: bool = False
    ) -> Iterator[Found]:
        """A function's results for each block's place and features, in order, from threads."""

        def of(places: tuple[int, int]) -> Found:
            block = self._checked(*places) if self._kept is None else self._kept[slice(*places)]
            return function(slice(*places), block)

        return in_threads(of, self._ranges(), is_large=is_large)

    @property
    def is_even(self) -> bool:
        """Whether all rows have one weight before they are tilted."""
        return self._log_weights is None

    @cached_property
    def own(self) -> Array:
        """The rows' weights before the tilting, shape (M,), summing to one."""
        if self._log_weights is None:
            return np.full(self.rows, 1 / self.rows)
        return np.asarray(np.exp(self._log_weights) / self.rows)

    @property
    def few(self) -> BaseRows:
        """Rows that represent all, for covariances that only guide steps."""
        return self

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
    def even(self) -> tuple[Array, Array]:
        """Means, shape (d,), and covariance, (d, d), of the features of rows of equal weight."""
        weights = np.full(self.rows, 1 / self.rows)
        means = self.tilted(np.zeros(self.dimension))[2] if self.is_even else self.means(weights)
        return means, self.covariance(weights, means)

    def means(self, weights: Array) -> Array:
        """Weighted means of the features, shape (d,); `weights`, shape (M,), sum to one."""
        return np.asarray(sum(self.mapped(lambda at, block: weights[at] @ block)))

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
