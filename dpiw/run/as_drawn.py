"""Check that a run drew what its plan says: another version may plan otherwise for the same key."""

from __future__ import annotations

from dpiw.errors import LedgerConflictError
from dpiw.ledger import Ledger, StageRecord, StageState
from dpiw.plan.stages import StagePlan
from dpiw.privacy import accounting
from dpiw.privacy.measurement import Measurement
from dpiw.run.run import ReleaseRun
from dpiw.run.weigh import check_output


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
        f"stage {name}: what was drawn differs from what this version of dpiw would draw, in its"
        " events or settings, or does not say its settings. Publish with the version that drew it;"
        " nothing more is drawn, and nothing is signed"
    )
