"""Laws of one column on public grids of parameters: what `bayes` chooses from.

A column's codes are drawn in *parts*. A split says whether a code lies in the left or the right
half of a run of codes; splits of splits, a finite Polya tree, describe any law, in ceil(log2 codes)
parts of a code's own. A shape gives a numeric column's bins the masses of a normal law within the
bounds, one part. A record meets at most `depth` parts; all of a column's parts together are one
point of a product grid, and one draw of it is one part's draw after the other.

Everything here follows from the schema and settings. Masses are those of bins, so that the unit of
a column changes nothing. Source: docs/method.md section 16; Lavine (1992) for finite Polya trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Bins

Array = NDArray[np.float64]

SPLIT_POINTS = 129
"""Points of a split's grid, evenly spaced in the logit."""

MEANS, SPREADS = 65, 17
"""Points of a shape's grid: means over the bounds, standard deviations from half a bin to one."""

UNIFORM_SHARE = 0.01
"""Of a shape's mass that is uniform over the bounds: no bin is impossible, no weight is zero."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One factor of a column's law, with parameters of its own.

    Attributes:
        starts: outcome i is the codes starts[i] .. starts[i+1] - 1; other codes do not meet it.
        log_pmf: log probability of each outcome, shape (points, outcomes), finite.
        log_prior: of each point, shape (points,), of a proper distribution.
    """

    starts: NDArray[np.intp]
    log_pmf: Array
    log_prior: Array

    @property
    def codes(self) -> slice:
        """Those that meet it."""
        return slice(int(self.starts[0]), int(self.starts[-1]))

    def tally(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Records of each outcome, shape (outcomes,), from records of each code."""
        return np.add.reduceat(counts[: self.starts[-1]], self.starts[:-1])


@dataclass(frozen=True, kw_only=True)
class ColumnLaw:
    """A column's parts.

    Attributes:
        parts: in a fixed order.
        size: number of codes.
        depth: most parts that one code meets, >= 1.
    """

    parts: Sequence[Part]
    size: int
    depth: int

    def pmf(self, points: Sequence[int]) -> Array:
        """Probability of each code, shape (codes,), under one chosen point of each part."""
        log_pmf = np.zeros(self.size)
        for part, point in zip(self.parts, points, strict=True):
            log_pmf[part.codes] += np.repeat(part.log_pmf[point], np.diff(part.starts))
        return np.exp(log_pmf)


def column_law(bins: Bins, *, shaped: bool, prior: float, smallest: float) -> ColumnLaw:
    """The law of one column.

    Args:
        bins: the column's codes.
        shaped: whether three or more bins of a numeric column get a shape, not splits.
        prior: pseudo-records in all, spread evenly over the codes, > 0.
        smallest: least probability that a split gives either side, in (0, 0.5).
    """
    edge = np.log(smallest) - np.log1p(-smallest)
    logits = np.linspace(edge, -edge, SPLIT_POINTS)
    log_pmf = np.stack([-np.logaddexp(0, -logits), -np.logaddexp(0, logits)], axis=1)

    def split(low: int, middle: int, high: int) -> Part:
        starts = np.array([low, middle, high], dtype=np.intp)
        # Beta(a, b), as of a Dirichlet law of the codes: p^a (1 - p)^b in the logit.
        log_prior = log_pmf @ (prior / bins.size * np.diff(starts))
        return Part(starts=starts, log_pmf=log_pmf, log_prior=log_prior - log_prior.max())

    if not shaped or bins.edges is None or bins.values < 3:
        parts = [split(*places) for places in _halves(0, bins.size)] or [_constant()]
        return ColumnLaw(parts=parts, size=bins.size, depth=max(1, (bins.size - 1).bit_length()))
    shape = _shape(bins.edges / bins.edges[-1])
    parts = [split(0, bins.values, bins.size), shape] if bins.nullable else [shape]
    return ColumnLaw(parts=parts, size=bins.size, depth=len(parts))


def _halves(low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """Of the codes low .. high - 1: (first, first of the right half, end), then theirs."""
    if high - low < 2:
        return
    middle = (low + high) // 2
    yield low, middle, high
    yield from _halves(low, middle)
    yield from _halves(middle, high)


def _constant() -> Part:
    """A column of one code has nothing to choose."""
    return Part(starts=np.array([0, 1]), log_pmf=np.zeros((1, 1)), log_prior=np.zeros(1))


def _shape(edges: Array) -> Part:
    """Masses of normal laws on bins within [0, 1]; every point is as likely before data."""
    from scipy.special import ndtr

    means = np.linspace(0.0, 1.0, MEANS)
    spreads = np.geomspace(0.5 / (len(edges) - 1), 1.0, SPREADS)
    below = ndtr((edges - means[:, None, None]) / spreads[:, None])
    masses = np.diff(below, axis=-1).reshape(MEANS * SPREADS, -1)
    masses /= masses.sum(axis=1, keepdims=True)
    log_pmf = np.log(UNIFORM_SHARE * np.diff(edges) + (1 - UNIFORM_SHARE) * masses)
    flat = np.full(len(log_pmf), -np.log(len(log_pmf)))
    return Part(starts=np.arange(len(edges)), log_pmf=log_pmf, log_prior=flat)
