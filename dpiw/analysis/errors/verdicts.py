"""How many people and rows are behind a value, and what that lets its verdict be.

A condition may choose a handful of people, whom the weights see as a shape in a density and not as
people. The release's size is public and the group's share is an estimate with an error of its own,
so both are asked before the value is believed. A handful of synthetic rows tells no spread: one has
none at all. The thresholds are our choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.sample import Array, Values, WeightedSample
from dpiw.methods.weights.diagnostics import Objection, Verdict

PEOPLE_CARE = 100.0
"""Expected people below which a value is `use with care` at best."""

ROWS_LEAST = 10.0
"""Effective synthetic rows of a group below which its value is `do not use`."""

_ROUNDING = 1e-15
"""Widths of less than this share of a value are rounding: 9e15 has one digit behind the point."""

_REACH = NormalDist().inv_cdf(0.975)
"""Standard errors of a 95% interval's half."""


FEW = Objection(Verdict.CARE, f"fewer than {PEOPLE_CARE:.0f} people are behind it")
"""Of rows of one person each."""

EMPTY = Objection(Verdict.DO_NOT_USE, "its group may be empty")

NONE = Objection(Verdict.DO_NOT_USE, "no synthetic row is at its level")

LEVEL = Objection(
    Verdict.CARE, f"fewer than {ROWS_LEAST:.0f} effective synthetic rows are at its level"
)


def few(max_rows: int) -> Objection:
    """`FEW`, where a person may have so many rows."""
    if max_rows == 1:
        return FEW
    text = f"fewer than {PEOPLE_CARE:.0f} people may be behind it, as a person has up to {max_rows}"
    return Objection(Verdict.CARE, f"{text} rows")


def size_objections(estimate: Values) -> list[list[Objection]]:
    """Of each value, what the size of the group that it rests on keeps from `use`.

    `few` where fewer than 100 people may be expected, `EMPTY` where the noise-aware 95% interval of
    the group's share reaches zero; and what fewer than ten effective synthetic rows leave. Of a
    value that compares two groups the smaller one counts. `LEVEL` where a share counts fewer than
    ten effective rows, of a group of more, and `NONE` where it counts no row.

    Raises:
        ReleaseError: the weights have no known law.
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
    """The groups that all must be large, shape (n, p) or (n, 1) each."""
    if estimate.sides is not None:
        return list(estimate.sides)
    rows = estimate.sample.rows
    return [np.ones((rows, 1), dtype=bool) if estimate.group is None else estimate.group]


def _grades(sample: WeightedSample, group: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0, or 1 for `few`, 2 for `EMPTY`, of each column."""
    law, shares = sample.known_law, _shares(sample.weights, group)
    people = shares * law.nominal_rows / law.max_rows
    thin, empty = people < PEOPLE_CARE, np.zeros(shares.size, dtype=bool)
    if not group.all():
        estimate = Values(
            names=("share",) * shares.size, values=shares, influence=group - shares, sample=sample,
            refit=lambda weights: _shares(weights, group),
        )  # fmt: skip
        errors = np.sqrt(np.asarray(sum(law.parts(estimate).values())))
        empty = shares <= _REACH * errors
    return np.where(empty, 2, np.where(thin, 1, 0))


def widened(estimate: Values, low: Array, high: Array, *, miss: float, noisy: bool) -> Array:
    """Interval ends, shape (2, p), where rows are too few or too much alike to show a spread.

    An interval without width goes as far as `left_open` says, on the side of few rows (a share of
    fewer than ten effective rows, or of all but so few) at least as far. Of a group of fewer than
    ten effective rows without any spread, and of a group without rows, it is all that is possible.

    Args:
        estimate: of p values.
        low: lower ends by linearisation or replicates, shape (p,).
        high: upper ends.
        miss: chance that one side may miss.
        noisy: whether privacy noise and the people's being a sample belong into the interval.
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
    """Share of each value's group that may be unlike all of its rows, shape (p,).

    What no row of a group shows has at most this share of the population's group, but for a chance
    of `miss`. Three bounds have a third of it each, b, and L = ln(1/b):

    - rows: the generator gives it at most q = 1 - b^(1/m), as m effective rows show nothing of it
      (the rule of three, with another constant).
    - noise: among the N people it is at most c/N more common than the generator has it. c is z_b
      times the standard deviation of the generator's noisy counts where that is known. Else it is
      L/epsilon: no output of a release of that epsilon can exclude so few people at b.
    - people: they are a sample. By Chernoff's bound of a lower tail the population's share is at
      most (sqrt(L/2N) + sqrt(L/2N + q + c/N))^2.

    Where a person has up to r rows, the bounds are of shares of rows: N rows stand for at least
    N/r people, and c people for at most r c rows.

    What a generator's model leaves out, such as a combination of columns that it does not keep, is
    in none of the three: a share without rows is `do not use`.

    Args:
        estimate: of p values.
        miss: chance that the bound is too small.
        noisy: whether the second and the third bound count; the first one alone where not.
    """
    part = miss / 3 if noisy else miss
    rows, odds = _rows(estimate)[1], -math.log(part)
    law = estimate.sample.law if noisy else None
    if law is None:
        return np.asarray(1 - part ** (1 / np.maximum(rows, 1e-9)))
    sizes = np.min([_shares(estimate.sample.weights, group) for group in _behind(estimate)], axis=0)
    shares = np.maximum(np.broadcast_to(sizes, rows.shape), 1e-12)
    unseen = 1 - part ** (1 / np.maximum(np.minimum(rows, law.base_rows * shares), 1e-9))
    counted, each = law.nominal_rows * shares, law.max_rows
    hidden = NormalDist().inv_cdf(1 - part) * law.count_noise
    if law.count_noise == 0 and estimate.sample.release is not None:
        hidden = each * odds / float(estimate.sample.release.certificate.epsilon)
    half = each * odds / (2 * counted)
    bound = (np.sqrt(half) + np.sqrt(half + unseen + hidden / counted)) ** 2
    return np.asarray(np.minimum(bound, 1.0))


def _rows(estimate: Values) -> tuple[Array, Array]:
    """Synthetic rows with weight behind each value, and Kish's effective ones, shape (p,) each.

    Of two groups, those of the one with fewer effective rows.
    """
    weights, shape = estimate.sample.weights, estimate.values.shape
    groups = _behind(estimate)
    effective = np.array([_effective(weights, group) for group in groups])
    rows = np.array([(weights > 0) * 1.0 @ group for group in groups])
    least = np.argmin(effective, axis=0)[None]
    count, size = (np.take_along_axis(counts, least, axis=0)[0] for counts in (rows, effective))
    return np.broadcast_to(count, shape), np.broadcast_to(size, shape)


def _at_level(estimate: Values, *, beside: bool = False) -> Array:
    """Effective rows that a share counts, or that it does not count though they are of its group.

    Shape (p,); infinite where the values are no shares.
    """
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
