"""One release made in memory from public rows, step by step as the flow would make it.

Privacy: the rows are public stand-ins and the noise is seeded, so nothing is charged and no result
can be published. The noise has the scale that the plan's events promise for confidential rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpiw.data.schema import ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods import play as methods
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.weigh import Weights
from dpiw.plan.plan import Plan
from dpiw.plan.rehearsal.populations import WeightedRows
from dpiw.privacy.randomness import SeededNoise


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """A release as an analyst would hold it.

    Attributes:
        rows: the published rows with the weights to use, which sum to one.
        weights: as certified.
        verdict: `none` where rows are published unweighted.
    """

    rows: WeightedRows
    weights: Weights
    verdict: str


def play(
    plan: Plan, stand_in: ScaledTable, *, labelled: ScaledTable, rng: np.random.Generator
) -> Played:
    """Make the release of `plan` from public rows, and use it as its verdict says.

    Args:
        plan: calibrated.
        stand_in: public rows in the confidential table's place.
        labelled: other rows of the same law, in the place of those that a calibration on public
            rows is fitted on; may have no row where the plan asks for none.
        rng: simulation only; equal states give equal releases.

    Raises:
        WeightError: a stage would fail.
    """
    release = methods.play(
        plan.recipe.with_public_rows(labelled),
        PrivateTable(schema=plan.schema, scaled=stand_in),
        noise=SeededNoise(int(rng.integers(2**62))),
        rng=rng,
    )
    weights = release.weights
    verdict = "none" if release.estimator is None else weights.diagnostics.verdict.value
    used = np.exp(weights.log_weights - weights.log_weights.max())
    if verdict == Verdict.DO_NOT_USE.value:  # resampled rows cannot be unweighted
        used = np.ones_like(used)
    rows = WeightedRows(scaled=release.rows.scaled, weights=used / used.sum())
    return Played(rows=rows, weights=weights, verdict=verdict)
