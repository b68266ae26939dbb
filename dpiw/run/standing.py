"""Where runs of a plan stand, of the current period and of others: what a release would do.

Told from the ledger and from which draws lie in the workspace: nothing is read, held or changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dpiw.ledger import Ledger, RunRecord, RunState, StageState
from dpiw.ledger.charges import Charge
from dpiw.plan.plan import Plan
from dpiw.run.ahead import current_label
from dpiw.run.checkpoints import last_checkpoint
from dpiw.run.commands import ledger_place, release_command, void_command
from dpiw.run.run import ReleaseRun, run_folder

_ANEW = "is a new run, and pays anew"
_SHOWN = 3
"""Runs of other periods that are told of, the newest."""

_UNFINISHED = {
    RunState.RESERVED: "is not finished and holds",
    RunState.ARMED: "is not finished and was charged",
    RunState.LOST: "is not finished and was charged",
    RunState.COMMITTED: "is drawn, not published, and was charged",
}


def run_of(plan: Plan) -> ReleaseRun:
    """The run of a plan and the current period, which need not have been prepared."""
    spec, label = plan.spec, current_label(plan.spec)
    key = plan.run_key(label)
    folder = run_folder(Path(spec.state), spec.population, key)
    return ReleaseRun(directory=folder, key=key, period=label, plan=plan)


def goes_on_with(plan: Plan, ledger: Ledger) -> list[str]:
    """That a release holds nothing more, as its run has begun already; else nothing."""
    run = run_of(plan)
    record = ledger.find_run(run.key)
    if record is None or _recovered(run, ledger, record):
        return []
    stands = {RunState.RESERVED: "is held", RunState.COMMITTED: "is drawn, not published"}
    is_here = os.path.isdir(run.directory)
    if record.state is RunState.ARMED and is_here and not _cut_off(run, record):
        stands[RunState.ARMED] = "is begun and charged"
    if record.state not in stands:
        return []
    return [
        f"begun: as planned here ({run.period}) {stands[record.state]}; to run that goes on, and"
        " pays nothing more"
    ]


def refused_or_paid_again(plan: Plan, ledger: Ledger) -> Iterator[str]:
    """Why a release would be refused for what became of its run, or what it would pay again."""
    run = run_of(plan)
    record = ledger.find_run(run.key)
    name = f"{plan.spec.name} {run.period}"
    if recovered := _recovered(run, ledger, record):
        yield f"{name}: {recovered}, so a release of it is refused; {_another(run)} {_ANEW}"
        return
    if record is None or record.state is RunState.PUBLISHED:
        return
    cut_off = _cut_off(run, record)
    if not cut_off:
        return
    armed = any(record.stages[stage].state is StageState.ARMED for stage in cut_off)
    doubt = ", unless a process draws it at this moment" if armed else ""
    begun = f"{name}: the draw of {' and '.join(sorted(cut_off))} was cut off and stays charged"
    if record.counted_attempts >= record.max_attempts:
        yield (
            f"{begun}{doubt}; this run was reserved with max_attempts {record.max_attempts} and"
            f" cannot draw again, so a release of it is refused; {_another(run)} {_ANEW}"
        )
        return
    account = ledger.account(plan.spec.population)
    vector = plan.stage_renyi(cut_off) if account.population.renyi else None
    whole = cut_off == {stage.name for stage in plan.stages}  # as `reserve` asks for it
    charge = Charge(cost=plan.cost if whole else plan.stage_cost(cut_off), renyi=vector)
    fits = "" if account.admits(charge) else ", which does not fit any more, so it is refused"
    yield f"{begun}{doubt}; a release of it draws that again, and pays {charge.cost}{fits}"


def other_periods(plan: Plan, ledger: Ledger, path: Path, period: str) -> Iterator[str]:
    """Unfinished runs of this release for other periods: what they hold, and how each goes on.

    A run that can only be refused is left out: nothing that is typed mends it.

    Args:
        plan: of the spec as it is now.
        ledger: of its population.
        path: of the spec, as it was typed.
        period: the label that a release would have.
    """
    spec = plan.spec
    told = [
        text
        for record in ledger.runs(spec.population)
        if record.release == spec.name and record.period != period and record.state in _UNFINISHED
        if (text := _unfinished(plan, ledger, path, record))
    ]
    if len(told) > _SHOWN:
        show = f"dpiw ledger show --ledger {ledger_place(spec)}"
        yield f"{spec.name}: {len(told) - _SHOWN} more periods are not finished: {show}"
    yield from told[-_SHOWN:]


def unfinished(ledger: Ledger, population: str) -> list[str]:
    """Runs of a population that hold or have drawn something, and published nothing; the newest."""
    records = [record for record in ledger.runs(population) if record.state in _UNFINISHED]
    return [_begun(record) for record in records[-_SHOWN:]]


def _begun(record: RunRecord) -> str:
    return f"{record.release} {record.period} {_UNFINISHED[record.state]} {record.held}"


def _unfinished(plan: Plan, ledger: Ledger, path: Path, record: RunRecord) -> str:
    """What a run of another period holds, and what goes on with it; empty: nothing does."""
    spec, key = plan.spec, record.run_key
    folder = run_folder(Path(spec.state), spec.population, key)
    run = ReleaseRun(directory=folder, key=key, period=record.period, plan=plan)
    recovery = ledger.recovery_of_run(key, record.plan_digest, record.period)
    cut_off = _cut_off(run, record)
    is_spent = recovery is not None and not _is_drawn(record)
    if is_spent or (cut_off and record.counted_attempts >= record.max_attempts):
        return ""
    begun = _begun(record)
    if key == plan.run_key(record.period):
        again = ", and draws again, at a further cost, what was cut off" if cut_off else ""
        return f"{begun}; {release_command(spec, path, record.period)} goes on with it{again}"
    own = f"only the settings and the version of dpiw that began it (run {key[:8]}) go on with it"
    if record.state is not RunState.RESERVED:
        return f"{begun}; {own}"
    void = void_command(spec, key[:12], record.attempts[-1].attempt)
    return f"{begun}; {own}; {void} gives it back"


def _recovered(run: ReleaseRun, ledger: Ledger, record: RunRecord | None) -> str:
    """That the run's release was recovered and is never drawn again; empty: it is not so."""
    recovery = ledger.recovery_of_run(run.key, run.plan.digest, run.period)
    if recovery is None or (record is not None and _is_drawn(record)):
        return ""
    return f"its release was recovered by ledger entry {recovery.head.seq} and is never drawn again"


def _is_drawn(record: RunRecord) -> bool:
    return all(stage.state is StageState.COMMITTED for stage in record.stages.values())


def _cut_off(run: ReleaseRun, record: RunRecord) -> frozenset[str]:
    """Stages that are lost, or armed without an output or a checkpoint to go on from.

    Whether there is one, nobody knows who has not the run's folder: a ledger may serve many hosts.
    """
    here = os.path.isdir(run.directory)  # False, too, where the workspace is closed to who plans
    return frozenset(
        name
        for name, stage in record.stages.items()
        if stage.state is StageState.LOST
        or (
            here
            and stage.state is StageState.ARMED
            and not run.measurement(name).exists()
            and last_checkpoint(run, stage) is None
        )
    )


def _another(run: ReleaseRun) -> str:
    period = "" if run.spec.cadence == "once" else "period or "
    return f"another {period}source.snapshot"


__all__ = ["goes_on_with", "other_periods", "refused_or_paid_again", "run_of", "unfinished"]
