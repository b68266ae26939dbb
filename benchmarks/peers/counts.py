"""Private histograms of diffprivlib, for `timed.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from diffprivlib import tools


def fit(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Given: `values` in [0, 1], shape (n, d), `bins` of each column, `epsilon`."""
    values, bins = given["values"], int(given["bins"])
    bounds = [(0.0, 1.0)] * values.shape[1]
    counts, _ = tools.histogramdd(values, epsilon=float(given["epsilon"]), bins=bins, range=bounds)
    return {"counts": np.asarray(counts)}
