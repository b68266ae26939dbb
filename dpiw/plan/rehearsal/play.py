"""One release made in memory from public rows, step by step as the flow would make it.

Privacy: the rows are public stand-ins and the noise is seeded, so nothing is charged and no result
can be published. The noise has the scale that the plan's events promise for confidential rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpiw.data.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators.base import GenerativeModel
from dpiw.methods.pairing import informed
from dpiw.methods.weights.base import DensityRatio, WeightEstimator
from dpiw.methods.weights.beta import BetaRatio
from dpiw.methods.weights.beta_map_fit import PublicRows, calibrate_on_public_rows
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.measured import Measured
from dpiw.methods.weights.output import OutputNoised
from dpiw.methods.weights.post_processing import PostProcessing, parse_post_processing
from dpiw.methods.weights.weigh import (
    Normalisation,
    Weights,
    starting_ratio,
    uniform_weights,
    weigh,
)
from dpiw.methods.weights.weigh_measured import weigh_measured
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stage:
    """What the weights' stages of one play share."""

    plan: Plan
    table: PrivateTable
    labelled: ScaledTable
    published: SyntheticTable
    fitting: SyntheticTable
    noise: SeededNoise


def play(
    plan: Plan, stand_in: ScaledTable, *, labelled: ScaledTable, rng: np.random.Generator
) -> Played:
    """Make the release of `plan` from public rows.

    Args:
        plan: calibrated.
        stand_in: public rows in the confidential table's place.
        labelled: other rows of the same law, in the place of those that a calibration on public
            rows is fitted on; may have no row where the plan asks for none.
        rng: simulation only; equal states give equal releases.

    Raises:
        WeightError: a stage would fail.
    """
    table = PrivateTable(schema=plan.schema, scaled=stand_in)
    noise = SeededNoise(int(rng.integers(2**62)))
    model = plan.generator.model(plan.generator.measure(table, noise=noise), schema=plan.schema)
    if isinstance(plan.weights, Measured):
        return _measured(plan, plan.weights, table, model, noise=noise, rng=rng)
    rows = model.sample(plan.spec.synthetic_rows, rng=rng)
    if plan.weights is None:
        even = np.full(rows.rows, 1 / rows.rows)
        return Played(
            rows=WeightedRows(scaled=rows.scaled, weights=even),
            weights=uniform_weights(rows.rows),
            verdict="none",
        )
    stage = _Stage(
        plan=plan,
        table=table,
        labelled=labelled,
        published=rows,
        fitting=model.sample(plan.spec.synthetic_rows, rng=rng),
        noise=noise,
    )
    return _judged(rows, _weights(stage, informed(plan.weights, model), rng))


def _measured(
    plan: Plan,
    estimator: Measured,
    table: PrivateTable,
    model: GenerativeModel,
    *,
    noise: SeededNoise,
    rng: np.random.Generator,
) -> Played:
    """A release of measured weights: the base first, and of it the published rows.

    Privacy:
        The table is made of public stand-ins; the event is that of `Measured.measure`.
    """
    published = plan.spec.synthetic_rows
    base = model.sample(estimator.base_rows_for(published), rng=rng)
    drawn = estimator.measure(table, base, noise=noise)
    found = weigh_measured(estimator, drawn, base, rows=published, rng=rng, known=model.one_way)
    return _judged(base, found)


def _weights(stage: _Stage, estimator: WeightEstimator, rng: np.random.Generator) -> Weights:
    """The weights' draw and everything free that follows."""
    plan, settings = stage.plan, stage.plan.spec.weights
    drawing = estimator
    if isinstance(estimator, OutputNoised):
        drawing = estimator.for_rows(stage.published)
    measured = drawing.measure(stage.table, stage.fitting, noise=stage.noise)
    ratio, steps = _calibrated(stage, estimator, estimator.ratio(measured, schema=plan.schema))
    return weigh(
        ratio,
        stage.published,
        debias=estimator.debias,
        normalisation=Normalisation(settings.normalisation),
        resolution=None if plan.forecast is None else plan.forecast.resolution,
        post_processing=steps,
        rng=rng,
    )


def _calibrated(
    stage: _Stage, estimator: WeightEstimator, ratio: DensityRatio
) -> tuple[DensityRatio, PostProcessing]:
    """The ratio to be weighed by, and the steps; both as they were without a calibration."""
    plan = stage.plan
    steps = parse_post_processing(plan.spec.weights.post_processing)
    step = steps.calibrate
    if step is None:
        return ratio, steps
    assert isinstance(ratio, BetaRatio)  # the plan sees to it
    start = starting_ratio(ratio, stage.fitting, debias=estimator.debias)
    public = PublicRows(
        table=SyntheticTable(schema=plan.schema, scaled=stage.labelled), declared=step.declared
    )
    found = calibrate_on_public_rows(start, public, stage.fitting, limit=step.limit)
    return start, steps.with_calibration(*found.map)


def _judged(rows: SyntheticTable, weights: Weights) -> Played:
    """The rows as the verdict tells analysts to use them; resampled rows cannot be unweighted."""
    used = np.exp(weights.log_weights - weights.log_weights.max())
    if weights.diagnostics.verdict is Verdict.DO_NOT_USE:
        used = np.ones_like(used)
    scaled = rows.scaled if weights.chosen is None else rows.scaled.take(weights.chosen)
    return Played(
        rows=WeightedRows(scaled=scaled, weights=used / used.sum()),
        weights=weights,
        verdict=weights.diagnostics.verdict.value,
    )
