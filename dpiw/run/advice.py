"""Before a run: its period, its cost, the budget left afterwards, the next command. Read-only."""

import itertools
import os
from pathlib import Path

from dpiw.errors import BudgetExceededError, DPIWError, GrantSpentError
from dpiw.ledger import Ledger, RunRecord, RunState, StageState
from dpiw.ledger.accounts import Account
from dpiw.ledger.history import count_text
from dpiw.ledger.values import Charge
from dpiw.plan.plan import Plan
from dpiw.plan.spec import ReleaseSpec
from dpiw.run.ahead import (
    check_mode,
    check_not_overtaken,
    check_not_paid,
    check_spends,
    missing_files,
    missing_gpus,
    terms_of,
)
from dpiw.run.checkpoints import is_cut_off
from dpiw.run.commands import release_command, typed_commands
from dpiw.run.declared import check_registered
from dpiw.run.reserve import charge_of, check_not_recovered
from dpiw.run.restored import check_heads
from dpiw.run.run import ReleaseRun, ledger_url, run_folder


def advice(
    plan: Plan, path: Path, label: str, *, asked: bool, pay_again: bool = False
) -> list[str]:
    """Return period, cost, what is left, and the next command (or the refusal of a release).

    `asked`: a person named the label; `pay_again`: a person agreed to pay it a second time. Raises
    UnsupportedRelationError or SpecError if the registered terms are not the spec's.
    """
    spec = plan.spec
    period = label if asked or spec.cadence == "once" else f"{label} (today's; or: --period)"
    try:
        ledger = Ledger.open(ledger_url(spec))
        account = ledger.account(spec.population)
    except DPIWError as error:
        return _lines(period, f"{plan.spec.cost}", "not known", _refusal(error, spec, path))
    check_registered(spec, ledger)
    try:
        check_heads(spec, ledger)
    except DPIWError as error:
        return _lines(period, f"{plan.spec.cost}", "not known", _refusal(error, spec, path))
    key = plan.run_key(label)
    folder = run_folder(Path(spec.state), spec.population, key)
    run = ReleaseRun(directory=folder, key=key, period=label, plan=plan)
    record = ledger.find_run(key)
    charge = _charge(run, record, account)
    try:
        _check(run, ledger, record, charge, pay_again=pay_again)
        step = _missing(run, record) or release_command(spec, path, label)
    except DPIWError as error:
        step = _refusal(error, spec, path)
    return _lines(period, _cost(record, charge), _left(plan, account, charge), step)


def doubts(spec: ReleaseSpec, ledger: Ledger, path: Path) -> list[str]:
    """Return a warning if the ledger lacks releases in sight, so that its counts are too low."""
    try:
        check_heads(spec, ledger)
    except DPIWError as error:
        return [f"warning: {_refusal(error, spec, path)}"]
    return []


def _lines(period: str, cost: str, left: str, step: str) -> list[str]:
    return [f"period  {period}", f"cost    {cost}", f"left    {left}", f"next    {step}"]


def _refusal(error: DPIWError, spec: ReleaseSpec, path: Path) -> str:
    return "; ".join(error.told(typed_commands(spec, path)).splitlines())


def _charge(run: ReleaseRun, record: RunRecord | None, account: Account) -> Charge | None:
    """What a release would pay now; None where its run holds or has paid all that it draws."""
    stages = frozenset(stage.name for stage in run.plan.stages)
    if record is not None:  # only draws given back or cut off, without output or checkpoint here
        here = os.path.isdir(run.directory)  # a ledger may serve many hosts
        stages &= {
            name
            for name, stage in record.stages.items()
            if stage.state in (StageState.LOST, StageState.VOIDED)
            or (here and is_cut_off(run, stage))
        }
    return charge_of(run.plan, stages, account.population) if stages else None


def _check(
    run: ReleaseRun,
    ledger: Ledger,
    record: RunRecord | None,
    charge: Charge | None,
    *,
    pay_again: bool,
) -> None:
    check_spends(run.spec)
    ledger.check_not_withdrawn(record)
    check_not_recovered(run, ledger, record)
    if record is not None and record.state is RunState.RESERVED:
        check_not_overtaken(run.spec, ledger, record)
        ledger.account(record.population).check_drawable(record.attempts[-1].charge)
    if charge is None:
        return
    if not pay_again:
        check_not_paid(run, ledger)
    if record is not None and record.drawn and record.counted_attempts >= record.max_attempts:
        named = "source.snapshot" if run.spec.cadence == "once" else "--period or source.snapshot"
        raise GrantSpentError(
            f"a draw was cut off, and this run cannot draw again (max_attempts"
            f" {record.max_attempts}); another {named} is a new run, with a charge of its own"
        )
    account = ledger.account(run.spec.population)
    if not run.snapshot.exists():
        account.check_readable()
    account.admit(charge)
    check_mode(run.spec, ledger)
    ledger.keyring(run.spec.population).check_approval(run.key, terms_of(run) | charge.to_payload())


def _missing(run: ReleaseRun, record: RunRecord | None) -> str:
    if run.snapshot.exists() or (record is not None and record.state is RunState.PUBLISHED):
        return ""
    fault = next(itertools.chain(missing_files(run.spec), missing_gpus(run.plan)), "")
    return "; ".join(fault.splitlines())


def _cost(record: RunRecord | None, charge: Charge | None) -> str:
    if charge is not None:
        return f"{charge.cost}"
    if record is None:
        return "nothing"
    if record.state is RunState.PUBLISHED:
        return "nothing: it is published"
    if record.state is RunState.WITHDRAWN:
        return f"nothing: it was withdrawn; its run holds {record.held.cost}"
    return f"nothing more: its run holds {record.held.cost}"


def _left(plan: Plan, account: Account, charge: Charge | None) -> str:
    budget, after = account.population.budget, account
    if charge is None:
        stages = frozenset(stage.name for stage in plan.stages)
        charge = charge_of(plan, stages, account.population)
    else:
        try:
            account.admit(charge)
        except BudgetExceededError:
            return f"{account.remaining} of {budget}; it does not fit{account.what_fits(charge)}"
        after = account.plus(charge)
    return f"{after.remaining} of {budget}; {count_text(after.admits(charge))}"
