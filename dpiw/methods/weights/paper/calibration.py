"""Fit a beta calibration (Kull et al. 2017) on public rows; private ones would not be free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpiw.data.tables import SyntheticTable
from dpiw.errors import PrivacyError, SpecError, WeightError
from dpiw.methods.weights.paper.ratio import (
    DIMENSION,
    DensityRatio,
    calibration_features,
    identity,
    to_map,
)
from dpiw.methods.weights.paper.regression import Regression, solve


@dataclass(frozen=True, kw_only=True)
class PublicRows:
    """Public rows of the real distribution, never a private table; `declared`: their origin."""

    table: SyntheticTable
    declared: str

    def __post_init__(self) -> None:
        if not isinstance(self.table, SyntheticTable):
            raise PrivacyError("beta calibration: only public rows are free")
        if not self.declared.strip():
            raise SpecError("beta calibration: declare where the public rows come from")


def calibrate_on_public_rows(
    ratio: DensityRatio, real_rows: PublicRows, synthetic: SyntheticTable, *, limit: float = 5.0
) -> tuple[float, float, float]:
    """Fit a, b >= 0 and c on public labelled rows, best not those of the ratio's own fit; free.

    Negative coefficients are set to zero, the others fitted again (Kull et al. 2017, section 3.2).

    Raises:
        WeightError: one of the tables has no rows.
    """
    if real_rows.table.rows == 0 or synthetic.rows == 0:
        raise WeightError("beta calibration: expected rows of both classes")
    ones = calibration_features(ratio.log_ratio(real_rows.table), limit)
    zeros = calibration_features(ratio.log_ratio(synthetic), limit)
    free = np.ones(DIMENSION, dtype=bool)
    coefficients = identity(limit)
    for _ in range(2):
        problem = Regression(
            private=ones[:, free],
            synthetic=zeros[:, free],
            synthetic_weight=len(ones) / len(zeros),
            penalty=1e-4 * len(ones),  # keeps a separable sample finite; pulls to no change
            centre=identity(limit)[free],
        )
        coefficients = np.zeros(DIMENSION)
        coefficients[free] = solve(problem, tolerance=1e-8 * len(ones))
        negative = coefficients < 0
        negative[2] = False
        if not negative.any():
            break
        free &= ~negative
    coefficients[:2] = np.maximum(coefficients[:2], 0.0)
    return to_map(coefficients, limit)
