"""The steps that touch the table, each in its own process (docs/privacy.md section 3, "Draw")."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from dpiw.data.files import check_room, write_durably
from dpiw.data.snapshots import is_whole
from dpiw.data.source.ingest import ingest as read_source
from dpiw.data.tables import PrivateSource, PrivateTable, SyntheticTable
from dpiw.errors import (
    GrantSpentError,
    LedgerConflictError,
    LedgerTamperedError,
    SourceError,
    StageFailedError,
)
from dpiw.ledger import Grant, Ledger, RunRecord, StageRecord, StageState
from dpiw.methods.generators.base import Synthesizer
from dpiw.methods.neural.backend import check_device, make_backend
from dpiw.methods.recipe import ready_to_measure
from dpiw.methods.weights.base import WeightEstimator
from dpiw.plan.plan import promised_epsilon
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE, StagePlan
from dpiw.privacy import accounting
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource, check_noise_library
from dpiw.privacy.resumption import Progress, TrainingWatch, Watched, silent
from dpiw.run.ahead import check_not_overtaken
from dpiw.run.checkpoints import (
    StageCheckpoints,
    check_checkpoints,
    forget_checkpoints,
    is_of,
    last_checkpoint,
    take_over,
)
from dpiw.run.locks import drawing
from dpiw.run.restored import check_heads, check_undrawn
from dpiw.run.run import ReleaseRun
from dpiw.run.weigh import check_output, estimator, sampled_rows


def planned_stage(run: ReleaseRun, name: str) -> StagePlan:
    """Return a stage of the plan; raise LedgerConflictError if it has none of that name."""
    for stage in run.plan.stages:
        if stage.name == name:
            return stage
    raise conflict(name)


def is_declared(planned: StagePlan, stage: StageRecord) -> bool:
    """Return whether the ledger holds the plan's events and terms of resuming for a stage."""
    events = [accounting.event_to_json(event) for event in planned.events]
    return stage.declares(events) and stage.resumption == planned.resumption


def check_drawn(run: ReleaseRun, ledger: Ledger) -> None:
    """Compare every drawn stage with the plan.

    Raises LedgerConflictError if events, terms of resuming or settings differ, LedgerTamperedError
    if a committed output is missing or differs from the ledger's digest.
    """
    for name, stage in ledger.run(run.key).stages.items():
        planned = planned_stage(run, name)
        if stage.state is not StageState.COMMITTED:
            continue
        path = run.measurement(name)
        check_output(path, stage)
        settings = Measurement.from_bytes(path.read_bytes()).settings
        if not is_declared(planned, stage) or settings != planned.settings:
            raise conflict(name)


def conflict(name: str) -> LedgerConflictError:
    """Return the error for a stage that this version would draw differently."""
    return LedgerConflictError(
        "what was drawn differs from what this version of dpiw would draw, in its events"
        " or settings, or does not say its settings. Publish with the version that drew"
        " it; nothing more is drawn, and nothing is signed",
        field=f"stage {name}",
    )


_ROOM, _ROOM_TO_TRAIN = 2**20, 2**25
"""Bytes that must be free before a draw, and before one that keeps checkpoints."""


def ingest(run: ReleaseRun) -> None:
    """Read, validate, bound and scale the source into the run's private snapshot, once.

    Privacy:
        Row-local transformations inside the confidential zone; releases nothing. A structural
        failure is visible and voids the reservation. The read is on record before its first byte;
        the draw that follows pays for it, or it counts against the population's `max_unpaid_reads`.

    Raises LedgerConflictError if the snapshot of a drawn stage was purged (what was reserved is
    given back); LedgerTamperedError if a draw of a reservation to give back is on disk; and, with
    nothing read, for too many unpaid reads, an overdrawn account, another run that drew, or no GPU.
    """
    ledger = run.open_ledger()
    with drawing(run, "ingest"):
        record = ledger.run(run.key)
        waiting = [s for s in record.stages.values() if s.state is not StageState.COMMITTED]
        if not waiting or run.snapshot.exists():
            return
        if len(waiting) < len(record.stages):
            _void_unarmed(run, ledger, record)
            raise LedgerConflictError(
                "a stage of this run was drawn from a copy of the table that was purged since, and"
                " reading the source again could mix two states of the table in one release. Start"
                " a new run: another period or source.snapshot",
                field="ingest",
            )
        if any(stage.state is StageState.ARMED for stage in waiting):
            raise GrantSpentError(
                "a draw of this run was cut off, and its copy of the table is gone. Start the same"
                " command again: it settles that draw in the ledger first",
                field="ingest",
            )
        for stage in waiting:  # a read would count, and no draw could follow it here
            check_device(run.plan.device(stage.stage), stage=stage.stage, computes=True)
        check_not_overtaken(run.spec, ledger, record)
        for stage in waiting:
            ledger.confirm_reserved(run.key, stage.attempt, stage.stage)
        attempt = max(stage.attempt for stage in waiting)
        ledger.account(record.population).check_drawable(record.attempts[attempt - 1].charge)
        ledger.read(run.key, attempt)
        _read_source(run, ledger, record)


def _read_source(run: ReleaseRun, ledger: Ledger, record: RunRecord) -> None:
    source, spec = run.spec.source, run.spec
    for pattern in (".source-*", f".{run.snapshot.name}.*"):  # by an ingest that was killed
        for leftover in run.private.glob(pattern):
            leftover.unlink(missing_ok=True)
    replace_one = spec.relation == "replace_one"
    try:
        read_source(
            Path(source.path),
            file_format=source.format,
            schema=run.plan.schema,
            unit=spec.privacy_unit,
            directory=run.private,
            limits=source.limits,
            encoding=source.encoding,
            delimiter=source.delimiter,
            written=source.written,
            public_rows=spec.nominal_rows if replace_one else None,
        )
    except SourceError:
        _void_unarmed(run, ledger, record)
        raise


def _void_unarmed(run: ReleaseRun, ledger: Ledger, record: RunRecord) -> None:
    for attempt in record.attempts:
        if all(stage.state is StageState.RESERVED for stage in attempt.stages.values()):
            check_undrawn(run.directory, record, attempt)
            ledger.void(record.run_key, attempt.attempt)


def _draw_once(
    run: ReleaseRun,
    name: str,
    measure: Callable[[PrivateTable, TrainingWatch], Measurement],
    *,
    progress: Progress,
) -> None:
    """Draw a stage's measurement, at most once for each time it was paid for.

    Arm (durable), read, draw, write (durable), commit. `reserve` settles a killed draw: a stage
    left ARMED with a checkpoint resumes there.
    """
    ledger = run.open_ledger()
    with drawing(run, name):
        stage = ledger.run(run.key).stages[name]
        path, planned = run.measurement(name), planned_stage(run, name)
        if stage.state is StageState.COMMITTED:
            check_output(path, stage)
            forget_checkpoints(run.directory, name)
            return
        resumed = None if path.exists() else last_checkpoint(run, stage)
        if stage.state is not StageState.RESERVED and resumed is None:
            raise GrantSpentError(
                f"is {stage.state.value} in the ledger, so it is not drawn here. Start the same"
                " command again: it settles the stage first",
                field=f"stage {name}",
            )
        make_backend(run.plan.device(name))  # a missing GPU is found before anything is charged
        _check_before_drawing(run, ledger, stage, resumed)
        grant = _take(run, ledger, stage)
        source = PrivateSource(snapshot=run.snapshot, schema=run.plan.schema)
        watch = StageCheckpoints(
            run=run, ledger=ledger, grant=grant, settings=planned.settings, terms=stage.resumption,
            last=resumed, progress=progress,
        )  # fmt: skip
        try:
            if resumed is not None and stage.checkpoint is not None:
                take_over(run, grant, step=stage.checkpoint.step, data=resumed)
            table = source.open(grant, ledger)
            measurement = measure(table, watch)
            data = measurement.under(grant.digest, settings=planned.settings).to_bytes()
            ledger.confirm(grant)  # again: training may have taken hours
            write_durably(path, data)
        except Exception as error:
            # Whatever goes wrong once rows are open may depend on them: one class, one code.
            raise StageFailedError(name, StageFailedError.exit_code) from error
        ledger.commit(grant, hashlib.sha256(data).hexdigest())
        forget_checkpoints(run.directory, name)


def _take(run: ReleaseRun, ledger: Ledger, stage: StageRecord) -> Grant:
    """Return the right to draw: armed, or taken over from a dead process."""
    if stage.checkpoint is not None:
        return ledger.resume(run.key, stage.attempt, stage.stage, step=stage.checkpoint.step)
    record = ledger.run(run.key)
    beside = None if record.drawn else check_not_overtaken(run.spec, ledger, record)
    grant = ledger.arm(run.key, stage.attempt, stage.stage, beside=beside)
    forget_checkpoints(run.directory, stage.stage)  # of an attempt that was lost
    return grant


def _check_before_drawing(
    run: ReleaseRun, ledger: Ledger, stage: StageRecord, resumed: bytes | None
) -> None:
    """Check, before anything is charged, all that can be wrong with a draw."""
    check_heads(run.spec, ledger)  # again: an old copy may have come back
    if not run.snapshot.exists():
        raise StageFailedError("ingest", StageFailedError.exit_code)
    if not is_whole(run.snapshot):
        raise LedgerConflictError(
            "the run's copy of the table in the workspace is damaged, so dpiw draws nothing from"
            " it. Restore the copy from a backup. If there is none, give the run up with `dpiw"
            " ledger void`, and start a new one with another period or another source.snapshot",
            field=f"stage {stage.stage}",
        )
    try:
        check_room(run.directory, size=_ROOM if stage.resumption is None else _ROOM_TO_TRAIN)
    except OSError as error:  # here a full disk costs nothing
        raise StageFailedError(stage.stage, StageFailedError.exit_code) from error
    if run.measurement(stage.stage).exists():
        raise LedgerTamperedError(
            "the workspace holds this stage's output, but the ledger has no entry that it was"
            " drawn. The ledger was restored from an old copy. The reservation pays for this"
            " draw. Enter all other draws that the ledger lacks with `dpiw ledger recover"
            " --loss-only`. Then start a new run, with another period or another source.snapshot",
            field=f"stage {stage.stage}",
        )
    check_checkpoints(run.directory, stage.stage, ledger.run(run.key))
    check_drawn(run, ledger)
    planned = planned_stage(run, stage.stage)
    if not is_declared(planned, stage):
        raise LedgerConflictError(
            "the plan would draw other events than the ledger reserved. Go on with the version of"
            " dpiw that reserved them, or give the reservation back with `dpiw ledger void`",
            field=f"stage {stage.stage}",
        )
    if resumed is not None and not is_of(resumed, planned.settings):
        raise conflict(stage.stage)  # before a resume is used up
    check_noise_library()
    method = run.plan.generator if stage.stage == GENERATOR_STAGE else run.plan.weights
    if method is not None:
        method.check_fits()
    promised_epsilon(run.spec, run.plan.stages)  # as decided, or nothing is drawn


def _measured(
    method: Synthesizer | WeightEstimator,
    *tables: PrivateTable | SyntheticTable,
    noise: NoiseSource,
    watch: TrainingWatch,
) -> Measurement:
    measure: Callable[..., Measurement] = method.measure
    watched = {"watch": watch} if isinstance(method, Watched) else {}
    return measure(*tables, noise=noise, **watched)


def fit_generator(run: ReleaseRun, *, noise: NoiseSource, progress: Progress = silent) -> None:
    """Draw the generator's measurement; does nothing if another run has paid for its rows.

    `progress` receives public (steps taken, steps).

    Privacy:
        The events of the plan's first stage, reserved and armed before the table is opened.
    """
    generator = run.generator
    if not run.draws(GENERATOR_STAGE):
        return
    _draw_once(
        run,
        GENERATOR_STAGE,
        lambda table, watch: _measured(generator, table, noise=noise, watch=watch),
        progress=progress,
    )


def fit_weights(run: ReleaseRun, *, noise: NoiseSource, progress: Progress = silent) -> None:
    """Draw the weights' coefficients; does nothing if the plan publishes no weights.

    Privacy:
        The events of the plan's second stage, reserved and armed before the table is opened.
    """
    weights = estimator(run)
    if weights is None or not run.draws(WEIGHTS_STAGE):
        return
    ready, synthetic = ready_to_measure(weights, sampled_rows(run))
    _draw_once(
        run,
        WEIGHTS_STAGE,
        lambda table, watch: _measured(ready, table, synthetic, noise=noise, watch=watch),
        progress=progress,
    )
