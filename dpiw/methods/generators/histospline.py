"""Where inside its bin a row's number lies: by a monotone spline through the noisy marginal.

A marginal tells how many people are in a bin, not where in it. Spread evenly, rows of a skewed
column lie too far from the side where most people are. A cubic through the distribution function at
the bins' edges, monotone and as often as the marginal says (a histospline, Boneva, Kendall &
Stefanov 1971; slopes of Fritsch & Butland 1984), leans to the fuller neighbour instead. It is
post-processing of what was paid for, and changes no code: every bin keeps its rows.

A noisy marginal is uneven by its noise too. So a place is the spline's and the even one's, mixed by
what is told: one less the noise's share of the marginal's squared distance from an even one, or
zero (the positive part of James & Stein 1961).

A bin of one whole number tells nothing of its neighbours (zeros of an income, a code for a limit):
splines go from one to the next and not across. Nor is a column known that has fewer than three
bins; its rows are spread evenly. Measured in benchmarks/results/histospline.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Bins, Domain
from dpiw.data.schema import ScaledTable
from dpiw.methods.one_way import OneWayMarginals

Array = NDArray[np.float64]

_PARTS = 32
"""A bin's mass is kept in so many equal parts, each spread evenly."""
_POINTS = 4 * _PARTS
_LEAST_SLOPE = 1e-6
"""Of the share of a bin's mass that is spread evenly, so that every place has one share."""
_FEWEST_BINS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Histospline:
    """The distribution of one column of numbers inside each of its bins.

    Attributes:
        bins: the column's.
        places: shape (bins.values, parts + 1), in each row from 0 to 1, ascending: the part of the
            bin's width below which so many equal parts of its mass lie.
    """

    bins: Bins
    places: Array = field(repr=False)

    @classmethod
    def through(cls, counts: Array, bins: Bins, *, variance: float) -> Histospline | None:
        """The spline through a marginal; None where it could tell nothing.

        Args:
            counts: of the column's codes, shape (bins.size,), non-negative.
            bins: the column's.
            variance: of a count's noise, >= 0.
        """
        if bins.edges is None or counts[: bins.values].sum() <= 0:
            return None
        places = np.tile(np.linspace(0.0, 1.0, _PARTS + 1), (bins.values, 1))
        told = False
        for start, stop in _stretches(bins):
            mass = counts[start:stop]
            if stop - start >= _FEWEST_BINS and mass.sum() > 0:
                places[start:stop] = _places(bins.edges[start : stop + 1], mass, variance)
                told = True
        return cls(bins=bins, places=places) if told else None

    def draw(self, codes: NDArray[np.int32], *, rng: np.random.Generator) -> Array:
        """Scaled values, shape (rows,), each inside its code's bin; NaN for the missing code."""
        bins = self.bins
        assert bins.edges is not None  # no spline without
        missing = codes >= bins.values
        inside = np.where(missing, 0, codes)
        share = rng.random(len(codes)) * _PARTS
        part = share.astype(np.intp)
        below, above = self.places[inside, part], self.places[inside, part + 1]
        low, high = bins.edges[inside], bins.edges[inside + 1]
        away = (below + (share - part) * (above - below)) * (high - low)
        if bins.span:
            numbers = np.minimum(low + np.floor(away), high - 1) / bins.span
        else:  # rounding may carry it onto the next bin's edge
            numbers = np.minimum(low + away, np.nextafter(high, low))
        return np.where(missing, np.nan, numbers)


def _stretches(bins: Bins) -> list[tuple[int, int]]:
    """Runs of neighbouring bins that hold more than one value each, as (first, after the last)."""
    assert bins.edges is not None
    wide = np.diff(bins.edges) > 1 if bins.span else np.ones(bins.values, dtype=bool)
    ends = np.flatnonzero(np.diff(np.concatenate([[0], wide.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in ends.reshape(-1, 2)]


def _places(edges: Array, mass: Array, variance: float) -> Array:
    """`Histospline.places` of neighbouring bins, shape (bins, parts + 1)."""
    from scipy.interpolate import PchipInterpolator

    reached = np.concatenate([[0.0], np.cumsum(mass / mass.sum())])
    curve = PchipInterpolator(edges, reached)
    width = np.linspace(0.0, 1.0, _POINTS + 1)
    told = (1 - _LEAST_SLOPE) * _told(edges, mass, variance)
    parts, places = np.linspace(0.0, 1.0, _PARTS + 1), np.empty((len(mass), _PARTS + 1))
    for j, (low, high) in enumerate(itertools.pairwise(edges)):
        rise = curve(low + width * (high - low)) - reached[j]
        known = rise[-1] > 0 and mass[j] > 0
        share = np.maximum.accumulate(np.clip(rise / rise[-1], 0, 1)) if known else width
        places[j] = np.interp(parts, told * share + (1 - told) * width, width)
    return places


def _told(edges: Array, mass: Array, variance: float) -> float:
    """How much of a marginal's unevenness is not noise, from 0 to 1."""
    even = mass.sum() * np.diff(edges) / (edges[-1] - edges[0])
    apart = float(((mass - even) ** 2).sum())
    return max(0.0, 1 - (len(mass) - 1) * variance / apart) if apart > 0 else 0.0


def histosplines(domain: Domain, one_way: OneWayMarginals | None) -> Mapping[int, Histospline]:
    """Of the released columns whose marginal is known and tells something, by index."""
    if one_way is None:
        return {}
    known = {
        j: Histospline.through(counts, domain.columns[j], variance=variance)
        for j, counts, variance in one_way.counts()
    }
    return {j: spline for j, spline in known.items() if spline is not None}


def fill(
    domain: Domain,
    codes: NDArray[np.int32],
    splines: Mapping[int, Histospline],
    *,
    rng: np.random.Generator,
) -> ScaledTable:
    """Turn codes, shape (rows, d), into scaled values: by splines, else uniform inside each bin.

    `domain.codes(fill(domain, c, ...)) == c`.
    """
    scaled = domain.fill(codes, rng=rng)
    names = [column.name for column in domain.schema.released]
    drawn = {names[j]: spline.draw(codes[:, j], rng=rng) for j, spline in splines.items()}
    return replace(scaled, columns={**scaled.columns, **drawn})
