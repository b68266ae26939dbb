"""How many people are behind a value, and what that lets its verdict be.

A condition may choose a handful of people, whom the weights see as a shape in a density and not as
people. The release's size is public and the group's share is an estimate with an error of its own,
so both are asked before the value is believed. The threshold is our choice.
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

_REACH = NormalDist().inv_cdf(0.975)
"""Standard errors of a 95% interval's half."""


FEW = Fault(Verdict.CARE, f"fewer than {PEOPLE_CARE:.0f} people are behind it")
EMPTY = Fault(Verdict.DO_NOT_USE, "its group may be empty")


def size_faults(estimate: Estimate) -> list[list[Fault]]:
    """Of each value, what the size of the group that it rests on keeps from `use`.

    `FEW` where fewer than 100 people are expected, `EMPTY` where the noise-aware 95% interval of
    the group's share reaches zero.

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
    return [list(((), (FEW,), (EMPTY,))[grade]) for grade in grades]


def _shares(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray(weights @ group / weights.sum())
