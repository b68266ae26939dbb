"""The censored pseudo posterior on a public grid, as integers: sensitivities are exact.

A column's law has *parts*: splits in halves (a finite Polya tree, Lavine 1992), or a normal shape.
A row meets at most `depth` of them. A row with outcome x adds to theta's log posterior

    h_x(theta) = max(-w, alpha_x (log p(x|theta) - M_x)),   M_x = max over the grid of log p(x|.),

which lies in a window of width w. A draw of theta in proportion to prior(theta) exp(sum of h) is an
exponential mechanism of range w (add/remove) or 2 w (replace-one).

alpha_x may depend on x and public quantities, never on other rows: weights scaled by the data leak
up to (number of rows) times the claim (tests/proof/test_pseudo_posterior.py).

Source: docs/method.md section 16; Savitsky, Williams & Hu (2022); Hu, Williams & Savitsky (2022)
for censoring; McSherry & Talwar (2007).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log2

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Bins
from dpiw.errors import SpecError
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

Array = NDArray[np.float64]

SPLIT_POINTS = 129
"""Points of a split's grid, evenly spaced in the logit."""

MEANS, SPREADS = 65, 17
"""Points of a shape's grid: means over the bounds, standard deviations from half a bin to one."""

UNIFORM_SHARE = 0.01
"""Of a shape's mass that is uniform over the bounds: no bin is impossible, no weight is zero."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One factor of a column's law, with its own parameters.

    Attributes:
        starts: outcome i is the codes starts[i] .. starts[i+1] - 1; other codes do not meet the
            part.
        log_pmf: log probability of each outcome, shape (points, outcomes), finite.
        log_prior: of each point, shape (points,), of a proper distribution.
    """

    starts: NDArray[np.intp]
    log_pmf: Array
    log_prior: Array

    @property
    def codes(self) -> slice:
        """The codes that meet it."""
        return slice(int(self.starts[0]), int(self.starts[-1]))

    def tally(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of each outcome, shape (outcomes,), from rows of each code."""
        return np.add.reduceat(counts[: self.starts[-1]], self.starts[:-1])


@dataclass(frozen=True, kw_only=True)
class ColumnLaw:
    """A column's parts in a fixed order; a code meets at most `depth` >= 1 of them."""

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
    """Return the law of one column.

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


LEAST_LOG, MOST_POINTS = -1e6, 1 << 12
"""Least log probability of a law of one's own, so that scores fit the lattice; its most points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GridLaw:
    """A column's law in a model of one's own, with parameters on a public grid.

    Attributes:
        log_likelihood: of each code at each point, shape (codes, points), up to a constant a point.
        log_prior: of each point, shape (points,), up to a constant.
    """

    log_likelihood: Array
    log_prior: Array


def grid_part(law: GridLaw, size: int, *, field: str) -> Part:
    """Return a law of `size` codes in arrays of our own; SpecError if it is none."""
    told, prior = np.array(law.log_likelihood), np.array(law.log_prior)
    fits = told.shape == (size, prior.size) and 0 < prior.size <= MOST_POINTS
    if fits and {told.dtype.kind, prior.dtype.kind} <= set("fiu"):
        log_pmf, log_prior = _normalised(told).T, _normalised(prior.ravel())
        if (log_pmf >= LEAST_LOG).all() and (log_prior >= LEAST_LOG).all():
            return Part(starts=np.arange(size + 1), log_pmf=log_pmf, log_prior=log_prior)
    allowed = f"shape ({size}, points), at most {MOST_POINTS} points, no probability of zero"
    raise SpecError(f"found {told.dtype} of shape {told.shape}", field=field, allowed=allowed)


def _normalised(values: NDArray[np.generic]) -> Array:
    """Log probabilities to six decimals, against other last bits of another machine."""
    with np.errstate(all="ignore"):  # what is not finite is refused
        logs = values.astype(np.float64)
        logs -= logs.max(axis=0)
        return np.asarray(np.round(logs - np.logaddexp.reduce(logs, axis=0), 6) + 0.0)


SMALLEST_WIDTH = 2.0**-24
"""Of a window, in nats: narrower ones have no room on the lattice of `mechanisms.select`."""

PILOT_MARGIN = 2.0
"""Nats. A smaller margin cuts off rare outcomes, and the posterior flees to the end of the grid."""

_UNIT_BITS, _LATTICE_BITS = 20, 30
"""A window has 2^20 units, or fewer where the lattice of `mechanisms.select` is coarser."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Bound on how far a unit's rows move one draw; `epsilon` is its privacy-loss range, > 0."""

    epsilon: float
    unit: PrivacyUnit

    @property
    def moves(self) -> int:
        """Rows that enter or leave between neighbours: replace-one is both."""
        replaced = self.unit.relation is NeighbouringRelation.REPLACE_ONE
        return self.unit.max_rows * (2 if replaced else 1)

    @property
    def width(self) -> float:
        """Most that one row's log contributions may differ by, in nats."""
        return self.epsilon / self.moves

    @property
    def units(self) -> int:
        """Whole units in the width, few enough that scores lie on the lattice of `select`."""
        return 1 << min(_UNIT_BITS, _LATTICE_BITS + floor(log2(self.width)))

    @property
    def per_nat(self) -> float:
        """Units in one nat of log probability."""
        return self.units / self.width

    def draw(self, scores: Array, *, noise: NoiseSource) -> int:
        """Draw a point's index with probability proportional to exp(score / per_nat).

        Privacy:
            Unit: `unit`. A row's scores lie in an interval of `units`, so neighbours' differ within
                `moves` times that: `select`'s 2 S (bounded range needs only the length).
            Event: `ExponentialMechanismEvent(epsilon)`.
        """
        return mechanisms.select(
            scores, epsilon=self.epsilon, sensitivity=self.units * self.moves / 2, noise=noise
        )


def public_weights(log_pmf: Array, *, width: float) -> Array:
    """Weights that avoid cuts on the grid: min(1, w / range of log p(x|.)), w in nats."""
    swing: Array = log_pmf.max(axis=0) - log_pmf.min(axis=0)
    return np.asarray(width / np.maximum(swing, width))


def pilot_weights(log_pmf: Array, pilot: int, *, width: float) -> Array:
    """Weights, (outcomes,), under which the window cuts nothing near a paid pilot point.

    Near means within `PILOT_MARGIN` nats. All outcomes share the weight of the pilot's least likely
    one, at least the public one: others would tilt the posterior away from rare outcomes.
    """
    top = log_pmf.max(axis=0)
    loss = float((top - log_pmf[pilot]).max()) + PILOT_MARGIN
    swing = float((top - log_pmf.min(axis=0)).max())
    return np.full(log_pmf.shape[1], width / max(min(loss, swing), width))


def contributions(
    log_pmf: Array, weights: Array, *, units: int, per_nat: float
) -> NDArray[np.int64]:
    """Return a row's censored log contributions, shape (points, outcomes).

    Entries are whole units in [-units, 0] exactly, whatever the rounding: one row moves the
    difference of two points' scores by at most `units`.
    """
    below = weights * (log_pmf.max(axis=0) - log_pmf) * per_nat
    return np.asarray(-np.minimum(np.rint(below), units), dtype=np.int64)


def posterior_scores(
    counts: NDArray[np.int64], entries: NDArray[np.int64], log_prior: Array, *, per_nat: float
) -> Array:
    """Return the log pseudo posterior of every point in whole units, shape (points,).

    Privacy:
        Exact, hence confidential, and whole numbers below 2^53, so not rounded. One row moves all
        scores by amounts in an interval of `units`. Only for `Window.draw`.
    """
    return (entries @ counts).astype(np.float64) + np.rint(log_prior * per_nat)
