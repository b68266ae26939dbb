"""How many people and rows are behind a value, and what that lets its verdict be.

A condition may choose a handful of people, whom the weights see as a shape in a density and not as
people. The release's size is public and the group's share is an estimate with an error of its own,
so both are asked before the value is believed. A handful of synthetic rows tells no spread: one has
none at all. The thresholds are our choice.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.sample import Array, Estimate
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.faults import Fault

PEOPLE_CARE = 100.0
"""Expected people below which a value is `use with care` at best."""

ROWS_LEAST = 10.0
"""Effective synthetic rows of a group below which its value is `do not use`."""

_ROUNDING = 1e-12
"""Widths of less than this share of a value are rounding."""

_REACH = NormalDist().inv_cdf(0.975)
"""Standard errors of a 95% interval's half."""


FEW = Fault(Verdict.CARE, f"fewer than {PEOPLE_CARE:.0f} people are behind it")
EMPTY = Fault(Verdict.DO_NOT_USE, "its group may be empty")


def size_faults(estimate: Estimate) -> list[list[Fault]]:
    """Of each value, what the size of the group that it rests on keeps from `use`.

    `FEW` where fewer than 100 people are expected, `EMPTY` where the noise-aware 95% interval of
    the group's share reaches zero; and what fewer than ten effective synthetic rows leave.

    Raises:
        ReleaseError: the weights have no known law.
    """
    sample, law = estimate.sample, estimate.sample.known_law
    group = np.ones((sample.rows, 1), dtype=bool) if estimate.group is None else estimate.group
    shares = _shares(sample.weights, group)
    few, empty = shares * law.nominal_rows < PEOPLE_CARE, np.zeros(shares.size, dtype=bool)
    if not group.all():
        own = Estimate(
            names=("share",) * shares.size, values=shares, influence=group - shares, sample=sample,
            refit=lambda weights: _shares(weights, group),
        )  # fmt: skip
        errors = np.sqrt(np.asarray(sum(law.parts(own).values())))
        empty = shares <= _REACH * errors
    grades = np.broadcast_to(np.where(empty, 2, np.where(few, 1, 0)), estimate.values.shape)
    told = zip(grades, *_rows(estimate), strict=True)
    return [
        [*((), (FEW,), (EMPTY,))[grade], *_thin(rows, effective)] for grade, rows, effective in told
    ]


def untold(estimate: Estimate, low: Array, high: Array) -> NDArray[np.bool_]:
    """Which intervals have no width because so few rows cannot show a spread, shape (p,)."""
    flat = high - low <= _ROUNDING * np.abs(estimate.values)
    return np.asarray(flat & (_rows(estimate)[1] < ROWS_LEAST))


def _rows(estimate: Estimate) -> tuple[Array, Array]:
    """Synthetic rows with weight behind each value, and Kish's effective ones, shape (p,) each."""
    weights, shape = estimate.sample.weights, estimate.values.shape
    group = np.ones((weights.size, 1), dtype=bool) if estimate.group is None else estimate.group
    effective = (weights @ group) ** 2 / np.maximum(weights**2 @ group, 1e-300)
    return np.broadcast_to((weights > 0) * 1.0 @ group, shape), np.broadcast_to(effective, shape)


def _thin(rows: float, effective: float) -> list[Fault]:
    if effective >= ROWS_LEAST:
        return []
    told = f"{effective:.1f} effective synthetic rows are" if rows > 1 else "one synthetic row is"
    return [Fault(Verdict.DO_NOT_USE, f"{told} behind it (expected >= {ROWS_LEAST:.0f})")]


def _shares(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray(weights @ group / weights.sum())
