"""The steps after the draws: sampling, weighting and judging. Free, repeatable, files to files."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from dpiw.data.files import write_durably
from dpiw.data.schema import ScaledTable
from dpiw.data.tables import SyntheticTable, read_snapshot, write_snapshot
from dpiw.errors import LedgerTamperedError, NotPublishableError, StageFailedError
from dpiw.ledger import StageRecord, StageState
from dpiw.methods.generators.base import GenerativeModel
from dpiw.methods.pairing import informed, needs_critic
from dpiw.methods.weights.base import DensityRatio, WeightEstimator
from dpiw.methods.weights.beta import BetaRatio
from dpiw.methods.weights.beta_map_fit import PublicRows, calibrate_on_public_rows
from dpiw.methods.weights.measured import Measured
from dpiw.methods.weights.post_processing import PostProcessing, parse_post_processing
from dpiw.methods.weights.weigh import (
    Normalisation,
    Weights,
    starting_ratio,
    uniform_weights,
    weigh,
)
from dpiw.methods.weights.weigh_measured import weigh_measured
from dpiw.plan.plan import canonical_json
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.privacy.measurement import Measurement
from dpiw.run.locks import working
from dpiw.run.run import ReleaseRun

PUBLISHED_ROWS = "synthetic_rows.parquet"
FITTING_ROWS = "fitting_rows.parquet"


def check_output(path: Path, stage: StageRecord) -> None:
    """Raise LedgerTamperedError unless `path` holds the bytes the ledger committed."""
    if not path.exists():
        raise LedgerTamperedError(f"stage {stage.stage}: its committed output is missing")
    if hashlib.sha256(path.read_bytes()).hexdigest() != stage.output_digest:
        raise LedgerTamperedError(f"stage {stage.stage}: its output is not the committed one")


def committed_measurement(run: ReleaseRun, name: str) -> Measurement:
    """A stage's measurement, if it is the one the ledger has committed.

    Raises:
        StageFailedError: the stage has not been drawn.
        LedgerTamperedError: the file is not what was committed.
        NotPublishableError: it was drawn with seeded noise.
    """
    stage = run.open_ledger().run(run.key).stages[name]
    if stage.state is not StageState.COMMITTED:
        raise StageFailedError(name, StageFailedError.exit_code)
    check_output(run.measurement(name), stage)
    measurement = Measurement.from_bytes(run.measurement(name).read_bytes())
    if not measurement.publishable:
        raise NotPublishableError(f"stage {name}: its noise was seeded; it cannot be released")
    return measurement


def _write_rows(run: ReleaseRun, name: str, scaled: ScaledTable) -> None:
    temporary = run.directory / f".{name}.{secrets.token_hex(4)}"
    write_snapshot(scaled, temporary)
    write_durably(run.directory / name, temporary.read_bytes())
    temporary.unlink()


def read_rows(run: ReleaseRun, name: str) -> SyntheticTable:
    """Synthetic rows a former step left; StageFailedError if they are not there."""
    scaled = read_snapshot(run.directory / name)
    if scaled is None:
        raise StageFailedError("draw_synthetic", StageFailedError.exit_code)
    return SyntheticTable(schema=run.plan.schema, scaled=scaled)


def draw_synthetic(run: ReleaseRun) -> None:
    """Sample the rows to publish, and as many others to fit the weights on; costs nothing.

    For measured weights: the base instead, of which the published rows are chosen.

    The weights are fitted on rows of their own, so that a published row's weight does not depend
    on that row having been in the fit.
    """
    with working(run):
        model = _model(run)
        for name, rows in _tables(run).items():
            if not (run.directory / name).exists():
                rng = np.random.default_rng(secrets.randbits(128))
                _write_rows(run, name, model.sample(rows, rng=rng).scaled)


def _model(run: ReleaseRun) -> GenerativeModel:
    """The generator's fitted model, from its committed measurement."""
    measurement = committed_measurement(run, GENERATOR_STAGE)
    return run.plan.generator.model(measurement, schema=run.plan.schema)


def _tables(run: ReleaseRun) -> dict[str, int]:
    """Which tables are sampled, and how many rows of each."""
    weights, rows = run.plan.weights, run.spec.synthetic_rows
    if isinstance(weights, Measured):  # a base, of which the published rows are chosen
        return {PUBLISHED_ROWS: weights.base_rows_for(rows)}
    return {PUBLISHED_ROWS: rows} | ({} if weights is None else {FITTING_ROWS: rows})


def debias(run: ReleaseRun) -> None:
    """Turn what was measured into weights of the published rows; costs nothing."""
    with working(run):
        _store_weights(run, _weights(run))


def estimator(run: ReleaseRun) -> WeightEstimator | None:
    """The plan's weights, with the generator's critic where they ask it."""
    weights = run.plan.weights
    if weights is None or not needs_critic(weights):
        return weights
    return informed(weights, _model(run))


def _weights(run: ReleaseRun) -> Weights:
    plan, weights = run.plan, estimator(run)
    if weights is None:
        return uniform_weights(run.spec.synthetic_rows)
    stage = WEIGHTS_STAGE if run.draws(WEIGHTS_STAGE) else GENERATOR_STAGE
    measurement = committed_measurement(run, stage)
    # Fixed by the measurement: repeating the step repeats its rows.
    rng = np.random.default_rng(int(measurement.digest[:32], 16))
    if isinstance(weights, Measured):
        return weigh_measured(
            weights,
            measurement,
            read_rows(run, PUBLISHED_ROWS),
            rows=run.spec.synthetic_rows,
            rng=rng,
            known=_model(run).one_way,
        )
    forecast = plan.forecast
    ratio, steps = _calibrated(run, weights, weights.ratio(measurement, schema=plan.schema))
    return weigh(
        ratio,
        read_rows(run, PUBLISHED_ROWS),
        debias=weights.debias,
        normalisation=Normalisation(run.spec.weights.normalisation),
        resolution=None if forecast is None else forecast.resolution,
        post_processing=steps,
        rng=rng,
    )


def _calibrated(
    run: ReleaseRun, weights: WeightEstimator, ratio: DensityRatio
) -> tuple[DensityRatio, PostProcessing]:
    """The ratio to be weighed by, and the steps: those of the spec, a fitted map filled in."""
    steps = parse_post_processing(run.spec.weights.post_processing)
    step = steps.calibrate
    if step is None:
        return ratio, steps
    assert isinstance(ratio, BetaRatio)  # the plan sees to it
    fitting = read_rows(run, FITTING_ROWS)
    start = starting_ratio(ratio, fitting, debias=weights.debias)
    public = PublicRows(table=read_rows(run, run.public_rows.name), declared=step.declared)
    found = calibrate_on_public_rows(start, public, fitting, limit=step.limit)
    return start, steps.with_calibration(*found.map)


def _store_weights(run: ReleaseRun, weights: Weights) -> None:
    buffer = io.BytesIO()
    chosen = np.arange(weights.rows) if weights.chosen is None else weights.chosen
    np.savez(buffer, log_weights=weights.log_weights, noise=weights.noise, chosen=chosen)
    write_durably(run.directory / "weights.npz", buffer.getvalue())
    judged = weights.diagnostics.to_json() | dict(weights.facts)
    facts = {"steps": list(weights.steps), "diagnostics": judged}
    write_durably(run.directory / "weights.json", canonical_json(facts).encode())


def diagnose(run: ReleaseRun) -> dict[str, Any]:
    """The weights' diagnostics and verdict, computed from released values only."""
    with working(run):
        return _diagnose(run)


def _diagnose(run: ReleaseRun) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((run.directory / "weights.json").read_bytes())
    found: dict[str, Any] = facts["diagnostics"]
    if run.plan.weights is None:
        found |= {"verdict": "none", "reasons": list(run.plan.warnings)}
    elif run.plan.forecast is not None:
        found["tau"] = run.plan.forecast.tau
    write_durably(run.directory / "diagnostics.json", canonical_json(found).encode())
    return found
