"""How many people and rows are behind a value, and what that lets its verdict be.

A condition may choose a handful of people, whom the weights see as a shape in a density and not as
people. The release's size is public and the group's share is an estimate with an error of its own,
so both are asked before the value is believed. A handful of synthetic rows tells no spread: one has
none at all. The thresholds are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.sample import Array, Estimate, WeightedSample
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.objections import Objection

PEOPLE_CARE = 100.0
"""Expected people below which a value is `use with care` at best."""

ROWS_LEAST = 10.0
"""Effective synthetic rows of a group below which its value is `do not use`."""

_ROUNDING = 1e-15
"""Widths of less than this share of a value are rounding: 9e15 has one digit behind the point."""

_REACH = NormalDist().inv_cdf(0.975)
"""Standard errors of a 95% interval's half."""


FEW = Objection(Verdict.CARE, f"fewer than {PEOPLE_CARE:.0f} people are behind it")
EMPTY = Objection(Verdict.DO_NOT_USE, "its group may be empty")


LEVEL = Objection(
    Verdict.CARE, f"fewer than {ROWS_LEAST:.0f} effective synthetic rows are at its level"
)


def size_objections(estimate: Estimate) -> list[list[Objection]]:
    """Of each value, what the size of the group that it rests on keeps from `use`.

    `FEW` where fewer than 100 people are expected, `EMPTY` where the noise-aware 95% interval of
    the group's share reaches zero; and what fewer than ten effective synthetic rows leave. Of a
    value that compares two groups the smaller one counts. `LEVEL` where a share counts fewer than
    ten effective rows, of a group of more: its interval is cut at zero.

    Raises:
        ReleaseError: the weights have no known law.
    """
    grades = np.max([_grades(estimate.sample, group) for group in _behind(estimate)], axis=0)
    rows, effective = _rows(estimate)
    few = (effective >= ROWS_LEAST) & (_at_level(estimate) < ROWS_LEAST)
    per_value = zip(np.broadcast_to(grades, few.shape), rows, effective, few, strict=True)
    return [
        [*((), (FEW,), (EMPTY,))[grade], *_thin(count, size), *[LEVEL] * bool(bare)]
        for grade, count, size, bare in per_value
    ]


def _behind(estimate: Estimate) -> Sequence[NDArray[np.bool_]]:
    """The groups that all must be large, shape (n, p) or (n, 1) each."""
    if estimate.sides is not None:
        return list(estimate.sides)
    rows = estimate.sample.rows
    return [np.ones((rows, 1), dtype=bool) if estimate.group is None else estimate.group]


def _grades(sample: WeightedSample, group: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0, or 1 for `FEW`, 2 for `EMPTY`, of each column."""
    law, shares = sample.known_law, _shares(sample.weights, group)
    few, empty = shares * law.nominal_rows < PEOPLE_CARE, np.zeros(shares.size, dtype=bool)
    if not group.all():
        estimate = Estimate(
            names=("share",) * shares.size, values=shares, influence=group - shares, sample=sample,
            refit=lambda weights: _shares(weights, group),
        )  # fmt: skip
        errors = np.sqrt(np.asarray(sum(law.parts(estimate).values())))
        empty = shares <= _REACH * errors
    return np.where(empty, 2, np.where(few, 1, 0))


def untold(estimate: Estimate, low: Array, high: Array) -> NDArray[np.bool_]:
    """Which intervals have no width because so few rows cannot show a spread, shape (p,)."""
    flat = high - low <= _ROUNDING * np.abs(estimate.values)
    return np.asarray(flat & (_rows(estimate)[1] < ROWS_LEAST))


def _rows(estimate: Estimate) -> tuple[Array, Array]:
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


def _at_level(estimate: Estimate) -> Array:
    """Effective rows that a share counts, shape (p,); infinite where the values are no shares."""
    if estimate.level is None:
        return np.full(estimate.values.shape, np.inf)
    return _effective(estimate.sample.weights, estimate.level)


def _effective(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray((weights @ group) ** 2 / np.maximum(weights**2 @ group, 1e-300))


def _thin(rows: float, effective: float) -> list[Objection]:
    if effective >= ROWS_LEAST:
        return []
    text = f"{effective:.1f} effective synthetic rows are" if rows > 1 else "one synthetic row is"
    return [Objection(Verdict.DO_NOT_USE, f"{text} behind it (expected >= {ROWS_LEAST:.0f})")]


def _shares(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray(weights @ group / weights.sum())
