"""Rows chosen of a base, as `thinning.calibrated` asks for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.tilting import Tilt


def law_of(dimension: int) -> Tilt:
    """A tilting with the covariance of uniform features."""
    return Tilt(
        coefficients=np.zeros(dimension), log_weights=np.zeros(0), log_mass=0.0,
        means=np.zeros(dimension), covariance=np.eye(dimension) / 12,
        credit=1.0, gap=0.0, steps=0,
    )  # fmt: skip


def taken(features: np.ndarray) -> Callable[[np.ndarray, np.ndarray], BaseRows]:
    """The features of some rows, by their indices."""

    def chosen(rows: np.ndarray, log_weights: np.ndarray) -> BaseRows:
        return BaseRows(
            len(rows), lambda start, stop: features[rows[start:stop]], log_weights=log_weights
        )

    return chosen
