"""What the same command does after a run's stage ended without its output, and what it pays.

Nothing here changes anything: `dpiw.run.reserve` settles what is told here.
"""

from __future__ import annotations

from dpiw.ledger import RunRecord, StageRecord, StageState
from dpiw.run.checkpoints import last_checkpoint
from dpiw.run.reserve import is_used_up
from dpiw.run.run import ReleaseRun

_SAME = "next: the same command goes on"


def used_up(run: ReleaseRun) -> str:
    """Why the same command will not go on, for people; empty if it will.

    Raises:
        LedgerError: it is out of reach.
    """
    if not is_used_up(run):
        return ""
    period = "" if run.spec.cadence == "once" else "--period or "
    return (
        f"this run cannot draw again (max_attempts {run.spec.max_attempts}); another"
        f" {period}source.snapshot is a new run, and pays anew"
    )


def goes_on(run: ReleaseRun, name: str) -> str:
    """How a run goes on whose stage `name` was killed or failed, and what that pays.

    Raises:
        LedgerError: it is out of reach.
    """
    record = run.open_ledger().find_run(run.key)
    stage = None if record is None else record.stages.get(name)
    if record is None or stage is None or stage.state is StageState.RESERVED:
        return f"{_SAME}: this stage drew nothing, and no more is held than before"
    if stage.state is StageState.COMMITTED or _can_continue(run, stage):
        return f"{_SAME}: what this stage drew is on record, and is not paid twice"
    if reason := used_up(run):
        return f"next: the draw was cut off and stays charged; {reason}"
    return (
        f"{_SAME}, and pays again where the budget allows it: the draw was cut off and stays"
        f" charged; at most {_left(record)} more of max_attempts {record.max_attempts}"
    )


def counts_more(run: ReleaseRun, name: str) -> bool:
    """Whether a stage that ended counts as one more read without a draw, once it is settled.

    The ledger counts a fit that died when the next start finds it: as lost, or when its training is
    resumed. Until then it is armed, as one that goes on; one that left its output is committed.

    Raises:
        LedgerError: it is out of reach.
    """
    record = run.open_ledger().find_run(run.key)
    stage = None if record is None else record.stages.get(name)
    armed = stage is not None and stage.state is StageState.ARMED
    return armed and not run.measurement(name).exists()


def _can_continue(run: ReleaseRun, stage: StageRecord) -> bool:
    """Whether an armed draw is whole, or goes on from a checkpoint."""
    if stage.state is not StageState.ARMED:
        return False
    return run.measurement(stage.stage).exists() or last_checkpoint(run, stage) is not None


def _left(record: RunRecord) -> int:
    return record.max_attempts - record.counted_attempts


__all__ = ["counts_more", "goes_on", "used_up"]
