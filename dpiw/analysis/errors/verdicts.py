"""People and rows behind a value, and the verdicts and interval ends that they allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.sample import Array, Values, WeightedSample
from dpiw.methods.weights.diagnostics import Objection, Verdict

PEOPLE_CARE = 100.0
"""Expected people; with fewer, a value is `use with care` at best."""

ROWS_LEAST = 10.0
"""Effective synthetic rows of a group; with fewer, its value is `do not use`."""

_ROUNDING = 1e-15
"""Smaller widths, as a share of the value, are rounding: 9e15 has one digit after the point."""

_REACH = NormalDist().inv_cdf(0.975)


EMPTY = Objection(Verdict.DO_NOT_USE, "its group may be empty")

NONE = Objection(Verdict.DO_NOT_USE, "no synthetic row is at its level")

LEVEL = Objection(
    Verdict.CARE, f"fewer than {ROWS_LEAST:.0f} effective synthetic rows are at its level"
)


def few(max_rows: int) -> Objection:
    """Return the objection to fewer than `PEOPLE_CARE` people with up to `max_rows` rows each."""
    behind = "are behind it"
    if max_rows > 1:
        behind = f"may be behind it, as a person has up to {max_rows} rows"
    return Objection(Verdict.CARE, f"fewer than {PEOPLE_CARE:.0f} people {behind}")


def size_objections(estimate: Values) -> list[list[Objection]]:
    """Return for each value what the size of its groups objects to `use`.

    `few`: fewer than 100 people expected. `EMPTY`: the noise-aware 95% interval of the group's
    share reaches zero. Fewer than ten effective synthetic rows: `do not use`. `LEVEL`: a share
    counts fewer than ten effective rows in a larger group; `NONE`: it counts none.
    """
    grades = np.max([_grades(estimate.sample, group) for group in _behind(estimate)], axis=0)
    rows, effective = _rows(estimate)
    at_level = _at_level(estimate)
    levels = [
        [] if size < ROWS_LEAST or at >= ROWS_LEAST else [LEVEL if at > 0 else NONE]
        for size, at in zip(effective, at_level, strict=True)
    ]
    smallest = few(estimate.sample.known_law.max_rows)
    per_value = zip(np.broadcast_to(grades, at_level.shape), rows, effective, levels, strict=True)
    return [
        [*((), (smallest,), (EMPTY,))[grade], *_thin(count, size), *told]
        for grade, count, size, told in per_value
    ]


def _behind(estimate: Values) -> Sequence[NDArray[np.bool_]]:
    if estimate.sides is not None:
        return list(estimate.sides)
    rows = estimate.sample.rows
    return [np.ones((rows, 1), dtype=bool) if estimate.group is None else estimate.group]


def _grades(sample: WeightedSample, group: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each column 0, 1 for `few`, or 2 for `EMPTY`."""
    law, shares = sample.known_law, _shares(sample.weights, group)
    people = shares * law.rows / law.max_rows
    thin, empty = people < PEOPLE_CARE, np.zeros(shares.size, dtype=bool)
    if not group.all():
        estimate = Values(
            names=("share",) * shares.size, values=shares, influence=group - shares, sample=sample
        )
        errors = np.sqrt(np.asarray(sum(law.parts(estimate).values())))
        empty = shares <= _REACH * errors
    return np.where(empty, 2, np.where(thin, 1, 0))


def widened(estimate: Values, low: Array, high: Array, *, miss: float, noisy: bool) -> Array:
    """Return interval ends, shape (2, p), widened where few or equal rows show no spread.

    An interval of width zero reaches as far as `left_open` allows; a share with fewer than ten
    effective rows, or all but so few, at least as far on that side. A group of fewer than ten
    effective rows without spread, or without rows, gets the whole possible range. `miss`:
    probability that one side may miss; `noisy`: whether privacy noise and sampling are included.
    """
    values, limits = estimate.values, estimate.least_and_most
    least, most = np.broadcast_to(estimate.facts.get("span", limits), limits.shape)
    flat = ~(high - low > _ROUNDING * np.abs(values))
    share = left_open(estimate, miss=miss, noisy=noisy)
    at, beside = _at_level(estimate), _at_level(estimate, beside=True)
    up = (flat | ((at > 0) & (at < ROWS_LEAST))) & np.isfinite(most)
    down = (flat | ((beside > 0) & (beside < ROWS_LEAST))) & np.isfinite(least)
    with np.errstate(invalid="ignore"):
        high = np.where(up, np.fmax(high, values + share * (most - values)), high)
        low = np.where(down, np.fmin(low, values - share * (values - least)), low)
    unknown = np.isnan(values) | (flat & (_rows(estimate)[1] < ROWS_LEAST))
    return np.where(unknown, limits, np.clip([low, high], *limits))


def left_open(estimate: Values, *, miss: float, noisy: bool) -> Array:
    """Bound the share of each value's group that may be unlike all of its rows, shape (p,).

    A kind of person that no row of a group shows has at most this share of the population's group,
    except with probability `miss`, split equally between three bounds, b each; L = ln(1/b). Not
    `noisy`: only the first bound, with b = `miss`.

    - rows: the generator's share is at most q = 1 - b^(1/m), as m effective rows show none.
    - noise: among N people it is at most c/N more common: c is z_b times the standard deviation of
      the generator's noisy counts if known; else L/epsilon, since no output of a release of that
      epsilon can exclude so few people at b.
    - people: by Chernoff's bound of a lower tail the population's share is at most
      (sqrt(L/2N) + sqrt(L/2N + q + c/N))^2.

    With up to r rows a person, N rows stand for at least N/r people, c people for at most r c rows.
    No bound covers what a generator's model leaves out; hence a share without rows is `do not use`.
    """
    part = miss / 3 if noisy else miss
    rows, odds = _rows(estimate)[1], -math.log(part)
    law = estimate.sample.law if noisy else None
    if law is None:
        return np.asarray(1 - part ** (1 / np.maximum(rows, 1e-9)))
    sizes = np.min([_shares(estimate.sample.weights, group) for group in _behind(estimate)], axis=0)
    shares = np.maximum(np.broadcast_to(sizes, rows.shape), 1e-12)
    unseen = 1 - part ** (1 / np.maximum(np.minimum(rows, law.base_rows * shares), 1e-9))
    counted, each = law.rows * shares, law.max_rows
    hidden = NormalDist().inv_cdf(1 - part) * law.count_noise
    if law.count_noise == 0 and estimate.sample.release is not None:
        hidden = each * odds / float(estimate.sample.release.certificate.epsilon)
    half = each * odds / (2 * counted)
    bound = (np.sqrt(half) + np.sqrt(half + unseen + hidden / counted)) ** 2
    return np.asarray(np.minimum(bound, 1.0))


def _rows(estimate: Values) -> tuple[Array, Array]:
    """Rows with weight, and Kish's effective rows, shape (p,) each; the least of two groups'."""
    weights, shape = estimate.sample.weights, estimate.values.shape
    groups = _behind(estimate)
    effective = np.array([_effective(weights, group) for group in groups])
    rows = np.array([(weights > 0) * 1.0 @ group for group in groups])
    least = np.argmin(effective, axis=0)[None]
    count, size = (np.take_along_axis(counts, least, axis=0)[0] for counts in (rows, effective))
    return np.broadcast_to(count, shape), np.broadcast_to(size, shape)


def _at_level(estimate: Values, *, beside: bool = False) -> Array:
    """Effective rows that a share counts, or (`beside`) does not, shape (p,); else infinite."""
    if estimate.level is None:
        return np.full(estimate.values.shape, np.inf)
    rows = estimate.groups & ~estimate.level if beside else estimate.level
    return _effective(estimate.sample.weights, rows)


def _effective(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray((weights @ group) ** 2 / np.maximum(weights**2 @ group, 1e-300))


def _thin(rows: float, effective: float) -> list[Objection]:
    if effective >= ROWS_LEAST:
        return []
    text = f"{effective:.1f} effective synthetic rows are" if rows > 1 else "one synthetic row is"
    text = text if rows > 0 else "no synthetic row is"
    return [Objection(Verdict.DO_NOT_USE, f"{text} behind it (expected >= {ROWS_LEAST:.0f})")]


def _shares(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray(weights @ group / weights.sum())
