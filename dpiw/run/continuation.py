"""What the same command does after a stage ended without output, and what it pays. Read-only."""

import enum

from dpiw.errors import DPIWError, GrantSpentError, LedgerError, ReleaseError, StageFailedError
from dpiw.ledger import Ledger, RunRecord, RunState, StageState
from dpiw.run.checkpoints import is_cut_off
from dpiw.run.locks import drawing
from dpiw.run.reserve import charge_of
from dpiw.run.run import ReleaseRun

_SAME = "next: the same command goes on"


def used_up(run: ReleaseRun) -> str:
    """Return why the same command cannot go on, for people; empty if it can. Raises LedgerError."""
    record = run.open_ledger().find_run(run.key)
    if record is None or record.counted_attempts < record.max_attempts:
        return ""
    stages = record.stages.values()
    if not any(stage.state is StageState.LOST or is_cut_off(run, stage) for stage in stages):
        return ""
    period = "" if run.spec.cadence == "once" else "--period or "
    return (
        f"this run cannot draw again (max_attempts {run.spec.max_attempts}); another"
        f" {period}source.snapshot is a new run, and pays again (the same period: --pay-again)"
    )


def goes_on(run: ReleaseRun, name: str) -> str:
    """Return how a run with an ended stage `name` goes on, and what it pays. Raises LedgerError."""
    record = run.open_ledger().find_run(run.key)
    stage = None if record is None else record.stages.get(name)
    if record is None or stage is None or stage.state is StageState.RESERVED:
        return f"{_SAME}: this stage drew nothing, and no more is held than before"
    is_armed = stage.state is StageState.ARMED
    if stage.state is StageState.COMMITTED or (is_armed and not is_cut_off(run, stage)):
        return f"{_SAME}: what this stage drew is on record, and is not paid twice"
    if reason := used_up(run):
        return f"next: the draw was cut off and stays charged; {reason}"
    left = record.max_attempts - record.counted_attempts
    return (
        f"{_SAME}, and pays again where the budget allows it: the draw was cut off and stays"
        f" charged; at most {left} more of max_attempts {record.max_attempts}"
    )


def counts_more(run: ReleaseRun, name: str) -> bool:
    """Return whether an ended stage will count as one more read without a draw, once settled.

    A dead fit is armed until the next start settles it; one that left its output is committed then.
    Raises LedgerError.
    """
    record = run.open_ledger().find_run(run.key)
    stage = None if record is None else record.stages.get(name)
    armed = stage is not None and stage.state is StageState.ARMED
    return armed and not run.measurement(name).exists()


class Rerun(enum.Enum):
    """What a failed run may do by itself.

    FREE: draws are kept and none is paid. PAID: a lost draw is paid again, within `max_attempts`.
    NEVER: a person decides.
    """

    FREE = "free"
    PAID = "paid"
    NEVER = "never"


_PASSING = frozenset(
    kind.exit_code for kind in (StageFailedError, LedgerError, ReleaseError, GrantSpentError)
)
"""Exit codes of failures that may pass: killed, locked, full, busy."""


def rerun(run: ReleaseRun, error: DPIWError) -> Rerun:
    """Return whether a run that ended with `error` may start again by itself, by its ledger.

    Never takes the population's last read without a draw. FREE if the ledger is out of reach: the
    rerun asks it again before anything is drawn.
    """
    if error.exit_code not in _PASSING:
        return Rerun.NEVER
    try:
        ledger = run.open_ledger()
        record = ledger.find_run(run.key)
        return Rerun.FREE if record is None else _rerun_of(run, ledger, record)
    except LedgerError as reason:
        return Rerun.FREE if type(reason) is LedgerError else Rerun.NEVER


def _rerun_of(run: ReleaseRun, ledger: Ledger, record: RunRecord) -> Rerun:
    if record.state is RunState.WITHDRAWN:
        return Rerun.NEVER
    if record.state in (RunState.COMMITTED, RunState.PUBLISHED):
        kept = all(run.measurement(name).exists() for name in record.stages)
        return Rerun.FREE if kept else Rerun.NEVER
    if ledger.recovery_of_run(run.key, run.plan.digest, run.period) is not None:
        return Rerun.NEVER
    reads, draws, lost = 0, False, set()
    for name, stage in record.stages.items():
        kept, is_armed = run.measurement(name).exists(), stage.state is StageState.ARMED
        if stage.state is StageState.COMMITTED and kept:
            continue
        if stage.state in (StageState.COMMITTED, StageState.VOIDED):
            return Rerun.NEVER  # its output is gone, or a fault of file or spec gave it back
        if is_armed and (kept or _is_drawn_now(run, name)):
            continue
        draws = True
        reads += is_armed  # the next start counts it
        if stage.state is StageState.LOST or is_cut_off(run, stage):
            lost.add(name)
    reads += draws and not run.snapshot.exists()
    account = ledger.account(record.population)
    if reads and account.unpaid_reads + reads >= account.population.max_unpaid_reads:
        return Rerun.NEVER
    if not lost:
        return Rerun.FREE
    mixes = not run.snapshot.exists() and lost < set(record.stages)
    if record.counted_attempts >= record.max_attempts or mixes:
        return Rerun.NEVER
    charge = charge_of(run.plan, frozenset(lost), account.population)
    return Rerun.PAID if account.admits(charge) else Rerun.NEVER


def _is_drawn_now(run: ReleaseRun, name: str) -> bool:
    try:
        with drawing(run, name):
            return False
    except GrantSpentError:
        return True
