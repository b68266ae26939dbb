"""Weights of public rows from mbi 2's `ReweightedDatasetEstimator`, for `timed.py`.

It measures every pair of columns with equal Gaussian noise; a row changes each pair's counts by
one, so that all pairs together are rho-zCDP. The estimator stops after `STEPS` steps: its package
states no rule for when to stop, and its default of 1,000 fits the noise.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import optax
from mbi import Dataset, Domain, LinearMeasurement
from mbi.extensions import ReweightedDatasetEstimator

STEPS = 50
"""The fewest that it takes: one block between two of its callbacks."""


def fit(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Weights of the public rows with a mean of one, shape (rows,).

    Given: `codes` (n, d) of the private rows, `base` (rows, d) of the public ones, `sizes` (d,),
    `rho`, `seed` of the noise.
    """
    names = [f"c{j}" for j in range(len(given["sizes"]))]
    domain = Domain(names, [int(size) for size in given["sizes"]])
    private, base = (
        Dataset(dict(zip(names, given[codes].T, strict=True)), domain)
        for codes in ("codes", "base")
    )
    pairs = list(combinations(names, 2))
    deviation = math.sqrt(len(pairs) / (2 * float(given["rho"])))
    rng = np.random.default_rng(int(given["seed"]))
    measured = []
    for pair in pairs:
        counts = np.asarray(private.project(pair).datavector())
        noisy = counts + rng.normal(scale=deviation, size=counts.shape)
        measured.append(LinearMeasurement(noisy, pair, stddev=deviation))
    estimator = ReweightedDatasetEstimator(seed_data=base, optimizer=optax.adam(0.1))
    weights = np.asarray(estimator.estimate(domain, measured, iters=STEPS).weights)
    return {"weights": weights / weights.mean()}
