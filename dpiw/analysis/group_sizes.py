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

PEOPLE_CARE = 100.0
"""Expected people below which a value is `use with care` at best."""

_REACH = NormalDist().inv_cdf(0.975)
"""Standard errors of a 95% interval's half."""


def size_grades(estimate: Estimate) -> NDArray[np.int64]:
    """What the sizes of the groups that values rest on allow, shape (p,).

    0 (`use`) where at least 100 people are expected, 1 (`use with care`) where there are fewer, 2
    (`do not use`) where the noise-aware 95% interval of the group's share reaches zero.

    Raises:
        ReleaseError: the weights have no known law.
    """
    sample, law = estimate.sample, estimate.sample.known_law
    group = np.ones((sample.rows, 1), dtype=bool) if estimate.group is None else estimate.group
    shares = _shares(sample.weights, group)
    grades = np.where(shares * law.nominal_rows < PEOPLE_CARE, 1, 0)
    if not group.all():
        own = Estimate(
            names=("share",) * shares.size, values=shares, influence=group - shares, sample=sample,
            refit=lambda weights: _shares(weights, group),
        )  # fmt: skip
        errors = np.sqrt(np.asarray(sum(law.parts(own).values())))
        grades = np.where(shares <= _REACH * errors, 2, grades)
    return np.broadcast_to(grades, estimate.values.shape)


def _shares(weights: Array, group: NDArray[np.bool_]) -> Array:
    return np.asarray(weights @ group / weights.sum())
