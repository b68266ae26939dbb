"""Places of numbers inside their bins, by a monotone spline through the noisy marginal.

Free post-processing; every row keeps its bin. Splines end at spikes, and mix with the uniform law
according to the noise (docs/method.md section 9).
Source: Boneva, Kendall & Stefanov (1971); Fritsch & Butland (1984); James & Stein (1961).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Bins, Domain
from dpiw.data.schema.schema import ScaledTable
from dpiw.methods.one_way import OneWayMarginals

Array = NDArray[np.float64]

_PARTS = 32
"""A bin's mass is kept in so many equal parts, each spread evenly."""
_POINTS = 4 * _PARTS
_LEAST_SLOPE = 1e-6
"""Share of a bin's mass that is spread evenly, so that places are unique."""
_FEWEST_BINS = 3
_LEAST_WIDTH = 1e-9
"""For columns without whole numbers (bounds 0 and 1): narrower bins are spikes too."""
_SPIKE_WIDTH, _SPIKE_DENSITY = 1 / 10, 100.0
_EMPTY = 1e-9
"""Share of a run's mass below which a bin is empty (rounding)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Histospline:
    """The distribution of one numeric column inside each of its bins.

    Attributes:
        places: share of a bin's width below each of `_PARTS` equal masses, from 0 to 1, shape
            (bins.values, parts + 1).
    """

    bins: Bins
    places: Array = field(repr=False)

    @classmethod
    def through(cls, counts: Array, bins: Bins, *, variance: float) -> Histospline | None:
        """Fit through a marginal, (bins.size,), of noise variance `variance`, or return None."""
        if bins.edges is None or counts[: bins.values].sum() <= 0:
            return None
        places = np.tile(np.linspace(0.0, 1.0, _PARTS + 1), (bins.values, 1))
        has_spline = False
        for start, stop in _runs(bins, counts[: bins.values]):
            mass = counts[start:stop]
            if stop - start >= _FEWEST_BINS and mass.sum() > 0:
                places[start:stop] = _places(bins.edges[start : stop + 1], mass, variance)
                has_spline = True
        return cls(bins=bins, places=places) if has_spline else None

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


def _runs(bins: Bins, counts: Array) -> list[tuple[int, int]]:
    """Runs of neighbouring bins without spikes, as (first, after the last)."""
    assert bins.edges is not None
    widths = np.diff(bins.edges)
    plain = (widths > 1 if bins.span else widths > _LEAST_WIDTH) & ~_spikes(widths, counts)
    ends = np.flatnonzero(np.diff(np.concatenate([[0], plain.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in ends.reshape(-1, 2)]


def _spikes(widths: Array, counts: Array) -> NDArray[np.bool_]:
    """Find bins much narrower and denser than both neighbours."""
    densities = counts / np.maximum(widths, _LEAST_WIDTH)  # narrower ones are spikes anyhow
    next_to, wide = np.pad(densities, 1), np.pad(widths, 1, constant_values=np.inf)
    dense = densities >= _SPIKE_DENSITY * np.maximum(next_to[:-2], next_to[2:])
    narrow = widths <= _SPIKE_WIDTH * np.minimum(wide[:-2], wide[2:])
    return np.asarray(narrow & dense & (counts > 0))


def _places(edges: Array, mass: Array, variance: float) -> Array:
    """`Histospline.places` of a run of bins, shape (bins, parts + 1)."""
    from scipy.interpolate import PchipInterpolator

    reached = np.concatenate([[0.0], np.cumsum(mass / mass.sum())])
    cubic, square, slope, _ = PchipInterpolator(edges, reached).c
    width = np.linspace(0.0, 1.0, _POINTS + 1)
    weight = (1 - _LEAST_SLOPE) * _told(edges, mass, variance)
    parts, places = np.linspace(0.0, 1.0, _PARTS + 1), np.empty((len(mass), _PARTS + 1))
    for j, bin_share in enumerate(mass / mass.sum()):
        away = width * (edges[j + 1] - edges[j])
        rise = ((cubic[j] * away + square[j]) * away + slope[j]) * away
        has_shape = bin_share > _EMPTY and rise[-1] > 0
        share = np.maximum.accumulate(np.clip(rise / rise[-1], 0, 1)) if has_shape else width
        places[j] = np.interp(parts, weight * share + (1 - weight) * width, width)
    return places


def _told(edges: Array, mass: Array, variance: float) -> float:
    """Share of a marginal's unevenness that is not noise, from 0 to 1.

    Noise of variance v in k counts with width shares w adds v (k - 2 + k norm(w)^2) to the squared
    distance from the even marginal.
    """
    widths = np.diff(edges) / (edges[-1] - edges[0])
    apart = float(((mass - mass.sum() * widths) ** 2).sum())
    noise = variance * (len(mass) - 2 + len(mass) * float(widths @ widths))
    return max(0.0, 1 - noise / apart) if apart > 0 else 0.0


def histosplines(domain: Domain, one_way: OneWayMarginals | None) -> Mapping[int, Histospline]:
    """Splines of the released columns with a known marginal, by index."""
    if one_way is None:
        return {}
    splines = {
        j: Histospline.through(counts, domain.columns[j], variance=variance)
        for j, counts, variance in one_way.counts()
    }
    return {j: spline for j, spline in splines.items() if spline is not None}


def fill(
    domain: Domain,
    codes: NDArray[np.int32],
    splines: Mapping[int, Histospline],
    *,
    rng: np.random.Generator,
) -> ScaledTable:
    """Turn codes, (rows, d), into scaled values of these codes: by splines, else uniform."""
    scaled = domain.fill(codes, rng=rng)
    names = [column.name for column in domain.schema.released]
    spline_columns = {names[j]: spline.draw(codes[:, j], rng=rng) for j, spline in splines.items()}
    return replace(scaled, columns={**scaled.columns, **spline_columns})
