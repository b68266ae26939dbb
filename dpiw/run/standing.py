"""Where runs of a plan stand, of the current period and of others: what a release would do.

Told from the ledger and from which draws lie in the workspace: nothing is read, held or changed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from dpiw.ledger import Ledger, RunRecord, RunState, StageState
from dpiw.ledger.charges import Charge
from dpiw.plan.plan import Plan
from dpiw.run.ahead import current_label
from dpiw.run.checkpoints import checkpoint_in
from dpiw.run.commands import given_back, ledger_place, program, release_command
from dpiw.run.run import ReleaseRun, measurement_file, run_folder

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
    if record.state is RunState.ARMED and is_here and not _cut_off(run.directory, record):
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
    cut_off = _cut_off(run.directory, record)
    if not cut_off:
        return
    doubt = _doubt(record, cut_off)
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
        show = f"{program()} ledger show --ledger {shlex.quote(ledger_place(spec))}"
        yield f"{spec.name}: {len(told) - _SHOWN} more periods are not finished: {show}"
    yield from told[-_SHOWN:]


def unfinished(ledger: Ledger, population: str, state: Path) -> list[str]:
    """Runs of a population that hold or have drawn something, and published nothing; the newest.

    A run that can only be refused is left out, as of other periods.

    Args:
        ledger: of the population.
        population: its name.
        state: the state folder of a spec of it.
    """
    records = [
        record
        for record in ledger.runs(population)
        if record.state in _UNFINISHED
        and not _is_spent(ledger, run_folder(state, population, record.run_key), record)
    ]
    return [_begun(record) for record in records[-_SHOWN:]]


def _begun(record: RunRecord) -> str:
    name = record.release or "a run of period"  # earlier versions of dpiw stated no release
    return f"{name} {record.period} {_UNFINISHED[record.state]} {record.held}"


def _is_spent(ledger: Ledger, folder: Path, record: RunRecord) -> bool:
    """Whether a run can only be refused: its release was recovered, or it may not draw again."""
    recovery = ledger.recovery_of_run(record.run_key, record.plan_digest, record.period)
    if recovery is not None and not _is_drawn(record):
        return True
    return record.counted_attempts >= record.max_attempts and bool(_cut_off(folder, record))


def _unfinished(plan: Plan, ledger: Ledger, path: Path, record: RunRecord) -> str:
    """What a run of another period holds, and what goes on with it; empty: nothing does."""
    spec, key = plan.spec, record.run_key
    folder = run_folder(Path(spec.state), spec.population, key)
    if _is_spent(ledger, folder, record):
        return ""
    begun, cut_off = _begun(record), _cut_off(folder, record)
    doubt = _doubt(record, cut_off)
    if key == plan.run_key(record.period):
        again = f", and draws again, at a further cost, what was cut off{doubt}" if cut_off else ""
        return f"{begun}; {release_command(spec, path, record.period)} goes on with it{again}"
    again = f", and draw again, at a further cost, what was cut off{doubt}" if cut_off else ""
    began = f"the settings and the version of dpiw that began it (run {key[:8]})"
    own = f"{begun}; only {began} go on with it{again}"
    return f"{own}; {given_back(spec, record)}" if record.state is RunState.RESERVED else own


def _recovered(run: ReleaseRun, ledger: Ledger, record: RunRecord | None) -> str:
    """That the run's release was recovered and is never drawn again; empty: it is not so."""
    recovery = ledger.recovery_of_run(run.key, run.plan.digest, run.period)
    if recovery is None or (record is not None and _is_drawn(record)):
        return ""
    return f"its release was recovered by ledger entry {recovery.head.seq} and is never drawn again"


def _is_drawn(record: RunRecord) -> bool:
    return all(stage.state is StageState.COMMITTED for stage in record.stages.values())


def _doubt(record: RunRecord, cut_off: frozenset[str]) -> str:
    """Of a draw that a process may be at, for all that a ledger and files tell."""
    armed = any(record.stages[stage].state is StageState.ARMED for stage in cut_off)
    return ", unless a process draws it at this moment" if armed else ""


def _cut_off(folder: Path, record: RunRecord) -> frozenset[str]:
    """Stages that are lost, or armed without an output or a checkpoint to go on from.

    Whether there is one, nobody knows who has not the run's folder: a ledger may serve many hosts.
    """
    here = os.path.isdir(folder)  # False, too, where the workspace is closed to who plans
    return frozenset(
        name
        for name, stage in record.stages.items()
        if stage.state is StageState.LOST
        or (
            here
            and stage.state is StageState.ARMED
            and not measurement_file(folder, name).exists()
            and checkpoint_in(folder, stage) is None
        )
    )


def _another(run: ReleaseRun) -> str:
    period = "" if run.spec.cadence == "once" else "period or "
    return f"another {period}source.snapshot"


__all__ = ["goes_on_with", "other_periods", "refused_or_paid_again", "run_of", "unfinished"]
