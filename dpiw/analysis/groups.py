"""An estimator on the rows that a condition chooses, once or for each level of a column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.columns import Column, chosen, levels, numbers
from dpiw.analysis.sample import Array, Estimate, WeightedSample, joint
from dpiw.errors import ReleaseError

Estimator = Callable[[WeightedSample, Array, str], Estimate]
"""From one number per row, NaN where it does not count, and a name."""


def present_rows(values: Array, what: str, sample: WeightedSample) -> NDArray[np.bool_]:
    """Rows with a number, shape (n,).

    Raises:
        ReleaseError: none of them has weight.
    """
    present = ~np.isnan(values)
    if not sample.weights[present].sum() > 0:
        raise ReleaseError(f"{what}: every value is missing or has weight zero")
    return present


def label_of(column: Column, name: str | None = None) -> str:
    """What a column is called in an estimate's name."""
    return name or (column if isinstance(column, str) else "value")


def grouped(
    sample: WeightedSample,
    column: Column,
    where: Column | None,
    by: str | None,
    name: str,
    estimator: Estimator,
) -> Estimate:
    """One estimate, or one value for each level of `by` that has rows.

    Args:
        sample: the rows.
        column: numbers, as in `dpiw.analysis.mean`.
        where: rows that count.
        by: a column of few levels, or None.
        name: of the estimate; a level is told after a bar.
        estimator: from numbers, NaN where a row does not count, to an estimate.

    Raises:
        ReleaseError: as `numbers`, `chosen` and `levels`, or no row counts.
    """
    values = np.where(chosen(sample, where), numbers(sample, column), np.nan)
    if by is None:
        return estimator(sample, values, name)
    groups, counts = levels(sample.table, by), sample.weights * ~np.isnan(values)
    shown = [k for k in range(len(groups.labels)) if counts[groups.codes == k].sum() > 0]
    if not shown:
        present_rows(values, name, sample)
    return joint(
        *(
            estimator(
                sample,
                np.where(groups.codes == k, values, np.nan),
                f"{name} | {by}={groups.labels[k]}",
            )
            for k in shown
        )
    )
