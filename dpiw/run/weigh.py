"""The steps after the draws: sampling, weighting and judging. Free, repeatable, files to files."""

import contextlib
import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpiw.data.files import durable_file, write_durably
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.snapshots import open_snapshot, snapshot_writer
from dpiw.data.tables import StreamedTable, SyntheticTable
from dpiw.data.threads import prefetched
from dpiw.errors import (
    LedgerTamperedError,
    NotPublishableError,
    ReleaseError,
    SchemaError,
    SourceError,
    StageFailedError,
)
from dpiw.ledger import StageRecord, StageState
from dpiw.methods.admission import Admission
from dpiw.methods.generators.base import FindsLevels, GenerativeModel, MadeElsewhere
from dpiw.methods.recipe import judged
from dpiw.methods.weights.base import SampledRows, WeightEstimator
from dpiw.methods.weights.weigh import Weights, uniform_weights
from dpiw.plan.spec import compact_json
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.privacy.measurement import Measurement
from dpiw.run.locks import working
from dpiw.run.run import ReleaseRun

PUBLISHED_ROWS = "synthetic_rows.parquet"
FITTING_ROWS = "fitting_rows.parquet"


def check_output(path: Path, stage: StageRecord) -> None:
    """Raise LedgerTamperedError unless `path` holds the bytes the ledger committed."""
    fault = "is missing"
    if path.exists():
        if hashlib.sha256(path.read_bytes()).hexdigest() == stage.output_digest:
            return
        fault = "is not the one that the ledger committed"
    raise LedgerTamperedError(
        f"its output {path.name} {fault}; restore it from a backup of the run's folder. Without one"
        " this run ends here: its charge stands, and what it published stays valid. `dpiw release"
        " --pay-again` pays for a new one, with another period or source.snapshot",
        field=f"stage {stage.stage}",
    )


def committed_measurement(run: ReleaseRun, name: str) -> Measurement:
    """Return a stage's measurement, if it is the one that the ledger committed.

    Raises StageFailedError (not drawn), LedgerTamperedError or NotPublishableError (seeded noise).
    """
    stage = run.open_ledger().run(run.key).stages[name]
    if stage.state is not StageState.COMMITTED:
        raise StageFailedError(name, StageFailedError.exit_code)
    check_output(run.measurement(name), stage)
    measurement = Measurement.from_bytes(run.measurement(name).read_bytes())
    if not measurement.publishable:
        raise NotPublishableError(
            "its noise was seeded, so no release may hold it; draw it with SecureNoise",
            field=f"stage {name}",
        )
    return measurement


def published_schema(run: ReleaseRun) -> PublicSchema:
    """Return the rows' schema, with found levels; raises as `committed_measurement`."""
    generator, schema = run.generator, run.plan.schema
    if not isinstance(generator, FindsLevels):
        return schema
    measurement = committed_measurement(run, GENERATOR_STAGE)
    provenance = f"earlier release: {run.drawn_id}, run {run.key}"
    return generator.found_schema(measurement, schema=schema, provenance=provenance)


def read_rows(run: ReleaseRun, name: str) -> SyntheticTable:
    """Return an earlier step's rows, read when used (ReleaseError), or raise StageFailedError."""
    path = run.directory / name
    if not path.exists():
        raise StageFailedError("draw_synthetic", StageFailedError.exit_code)
    schema = published_schema(run)
    with _readable(name):
        rows = open_snapshot(path).rows
    return StreamedTable(schema=schema, rows=rows, read=partial(_batches, path, schema))


def _batches(path: Path, schema: PublicSchema) -> Iterator[ScaledTable]:
    """Read-only batches of rows, not checked: they were admissible when written."""
    names = [column.name for column in schema.released]
    with _readable(path.name):
        snapshot = open_snapshot(path)
        if not set(names) <= set(snapshot.columns):
            raise SchemaError("a column is missing", field="synthetic rows")
        for batch in snapshot.batches():
            yield ScaledTable({name: batch.columns[name] for name in names}, batch.rows)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """Report damaged public rows as ReleaseError; the snapshot reader assumes confidential rows."""
    try:
        yield
    except (SourceError, SchemaError):
        message = "damaged; remove it, and start the run again: it is made again at no cost"
        raise ReleaseError(message, field=name) from None


def draw_synthetic(run: ReleaseRun) -> None:
    """Sample the rows to publish, and as many others to fit the weights on; costs nothing.

    The fit has rows of its own, so that a published row's weight does not depend on that row. For
    measured weights, samples the base from which the published rows are chosen.
    """
    with working(run):
        model = _model(run)
        for name, rows in _tables(run).items():
            if not (run.directory / name).exists():
                rng = np.random.default_rng(secrets.randbits(128))
                bound = []
                with snapshot_writer(run.directory / name) as append:
                    for table, admission in prefetched(run.plan.recipe.draw(model, rows, rng=rng)):
                        append(table.scaled)
                        bound += [] if admission is None else [admission]
                    if bound:  # before its rows become visible
                        record = compact_json(asdict(Admission.together(bound))).encode()
                        write_durably(_admission_path(run, name), record)


def _admission_path(run: ReleaseRun, rows: str) -> Path:
    return run.directory / f"{Path(rows).stem}.constraints.json"


def admission_of(run: ReleaseRun) -> Admission | None:
    """Return how often constraints bound the drawn rows; None without constraints."""
    paths = [_admission_path(run, name) for name in _tables(run)]
    if run.plan.schema.rules is None:
        return None
    return Admission.together([Admission(**json.loads(path.read_bytes())) for path in paths])


def _model(run: ReleaseRun) -> GenerativeModel:
    generator = run.generator
    if isinstance(generator, MadeElsewhere) and generator.counted_by:
        return generator.rows_model(run.plan.schema)
    measurement = committed_measurement(run, GENERATOR_STAGE)
    return generator.model(measurement, schema=run.plan.schema)


def _tables(run: ReleaseRun) -> dict[str, int]:
    weighed, fitting = run.plan.recipe.sampled
    return {PUBLISHED_ROWS: weighed} | ({FITTING_ROWS: fitting} if fitting else {})


def sampled_rows(run: ReleaseRun) -> SampledRows:
    """Return the rows that `draw_synthetic` left; StageFailedError if they are not there."""
    weighed = read_rows(run, PUBLISHED_ROWS)
    has_others = FITTING_ROWS in _tables(run)
    fitting = read_rows(run, FITTING_ROWS) if has_others else weighed.first(0)
    return SampledRows(weighed=weighed, fitting=fitting)


def debias(run: ReleaseRun) -> None:
    """Turn what was measured into weights of the published rows; costs nothing."""
    with working(run):
        _store_weights(run, _weights(run))


def estimator(run: ReleaseRun) -> WeightEstimator | None:
    """Return the plan's weights, with the generator's critic if they need it."""
    weights = run.plan.weights
    if weights is None or not weights.needs_critic:
        return weights
    return weights.informed(_model(run).judge)


def _weights(run: ReleaseRun) -> Weights:
    recipe, weights = run.plan.recipe, estimator(run)
    if weights is None:
        return uniform_weights(run.spec.synthetic_rows)
    stage = WEIGHTS_STAGE if run.draws(WEIGHTS_STAGE) else GENERATOR_STAGE
    measurement = committed_measurement(run, stage)
    if recipe.weighing.post_processing.calibrate is not None:
        recipe = recipe.with_public_rows(read_rows(run, run.public_rows.name).scaled)
    # Seeded by the measurement: repeating the step repeats its rows.
    rng = np.random.default_rng(int(measurement.digest[:32], 16))
    rows = sampled_rows(run)
    if weights.keeps_one_way:
        rows = replace(rows, one_way=_model(run).one_way)
    return recipe.weigh(weights, measurement, rows, rng=rng)


def _store_weights(run: ReleaseRun, weights: Weights) -> None:
    admission = admission_of(run)
    if admission is not None:
        weights = judged(weights, admission)
    chosen = np.arange(weights.rows) if weights.chosen is None else weights.chosen
    with durable_file(run.directory / "weights.npz") as file:
        np.savez(file, log_weights=weights.log_weights, noise=weights.noise, chosen=chosen)
    diagnostics = weights.diagnostics.to_json() | dict(weights.facts)
    facts = {"steps": list(weights.steps), "diagnostics": diagnostics}
    write_durably(run.directory / "weights.json", compact_json(facts).encode())


def diagnose(run: ReleaseRun) -> dict[str, Any]:
    """Return the weights' diagnostics and verdict, computed from released values only."""
    with working(run):
        facts: dict[str, Any] = json.loads((run.directory / "weights.json").read_bytes())
        diagnostics: dict[str, Any] = facts["diagnostics"]
        if run.plan.weights is None:
            admission = admission_of(run)
            findings = () if admission is None else (text for _, text in admission.findings)
            diagnostics |= {"verdict": "none", "reasons": [*run.plan.warnings, *findings]}
        write_durably(run.directory / "diagnostics.json", compact_json(diagnostics).encode())
        return diagnostics
