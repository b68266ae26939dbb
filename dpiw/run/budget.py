"""What a plan's population has left, and how many such releases that pays for; reads no data."""

from __future__ import annotations

from pathlib import Path

from dpiw.errors import DPIWError, ReleaseError
from dpiw.ledger import Ledger
from dpiw.ledger.accounts import Account
from dpiw.ledger.charges import Charge
from dpiw.ledger.history import count_text
from dpiw.ledger.values import RunState
from dpiw.plan.plan import Plan
from dpiw.plan.spec import ReleaseSpec
from dpiw.run.ahead import current_label, paid_anew
from dpiw.run.commands import filled_in, recover_command
from dpiw.run.declared import check_registered
from dpiw.run.restored import unknown_releases
from dpiw.run.run import ledger_url
from dpiw.run.standing import goes_on_with, other_periods, refused_or_paid_again

_SHOWN = 3
"""Names of releases that are told; one shows it as well as all."""


def budget_line(plan: Plan, path: Path) -> str:
    """How many releases such as this plan's still fit, and whether one is there, for people.

    Counted by the ledger's own accountant, under the population's rule of composition, at what a
    whole run of the plan reserves. Where the ledger or the population is not there, it says so: a
    plan needs neither. Where the ledger lacks releases that are published, it says that, and no
    count.

    Args:
        plan: of the release.
        path: of its spec, as it was typed.

    Raises:
        UnsupportedRelationError, SpecError: the population is registered with other terms than the
            spec's, so a release would be refused.
    """
    name = plan.spec.population
    try:
        ledger = Ledger.open(ledger_url(plan.spec))
        account = ledger.account(name)
    except DPIWError as error:
        return f"ledger: not known what is left: {filled_in(str(error), plan.spec, path)}"
    check_registered(plan.spec, ledger)
    if doubt := _doubt(plan.spec, ledger, account):
        return doubt
    stages = frozenset(stage.name for stage in plan.stages)
    vector = plan.stage_renyi(stages) if account.population.renyi else None
    charge = Charge(cost=plan.cost, renyi=vector)
    count = account.admits(charge)
    fits, balance = count_text(count), f"{account.remaining} left of {account.population.budget}"
    done = [*_published(plan, ledger), *goes_on_with(plan, ledger)]
    warned = [*([] if count or done else [fits + _why(account, charge)])]
    warned += [*paid_anew(plan, ledger, None), *refused_or_paid_again(plan, ledger)]
    warned += other_periods(plan, ledger, path, current_label(plan.spec))
    return "\n".join(
        [
            f"ledger: population {name} has {balance}" + (f"; {fits}" if count or done else ""),
            *done,
            *(f"warning: {warning}" for warning in warned),
        ]
    )


def _published(plan: Plan, ledger: Ledger) -> list[str]:
    """That the plan is published already, and for which periods."""
    runs = ledger.runs(plan.spec.population)
    periods = [
        run.period
        for run in runs
        if run.state is RunState.PUBLISHED and run.run_key == plan.run_key(run.period)
    ]
    if not periods:
        return []
    latest_periods = ", ".join(periods[-_SHOWN:])
    earlier = f" and {len(periods) - _SHOWN} before" if len(periods) > _SHOWN else ""
    return [
        f"published: as planned here ({latest_periods}{earlier}); to run that again spends nothing"
    ]


def _doubt(spec: ReleaseSpec, ledger: Ledger, account: Account) -> str:
    """What to say instead of a count, where a release would be refused for the ledger's sake.

    A ledger that was restored from an old copy says that more is left than is; what was published
    since shows it.
    """
    name = f"population {account.population.name}"
    try:
        warning = _lacking(spec, ledger)
    except ReleaseError as error:
        return f"ledger: {name}: not known what is left\nwarning: {_unread(error)}"
    if not warning:
        return ""
    return (
        f"ledger: not known what is left of {name}: its ledger lacks releases, and says"
        f" {account.remaining} of {account.population.budget}\nwarning: {warning}"
    )


def doubts(spec: ReleaseSpec, ledger: Ledger) -> list[str]:
    """What whoever reads a ledger's counts must know of releases in sight of a spec; or nothing."""
    try:
        warning = _lacking(spec, ledger)
    except ReleaseError as error:
        warning = _unread(error)
    return [f"warning: {warning}"] if warning else []


def _lacking(spec: ReleaseSpec, ledger: Ledger) -> str:
    """Which releases in sight the ledger lacks, and what to do; empty where it knows all.

    Raises:
        ReleaseError: a folder beside the releases cannot be read as one.
    """
    unknown = unknown_releases(spec, ledger)
    if not unknown:
        return ""
    names = ", ".join(unknown[:_SHOWN]) + (", ..." if unknown[_SHOWN:] else "")
    return (
        f"it lacks what was published: {names}. It was"
        " restored from an old copy, or is another ledger; a release is refused until it is put"
        f" back or recovered: {recover_command(spec)} (with the folder that holds them, and"
        " --key once for each key that signed, older ones too; state as loss what was"
        " drawn and not published since the copy; 0 must be typed)"
    )


def _unread(error: ReleaseError) -> str:
    return (
        f"{error}. Whether the ledger knows every release is not known, and a release is refused"
        " until that is done"
    )


def _why(account: Account, charge: Charge) -> str:
    """What would fit instead, or that nothing does."""
    most = account.population.max_unpaid_reads
    if account.unpaid_reads >= most:
        return f": all of its {most} reads without a draw are used up (max_unpaid_reads)"
    return account.what_fits(charge)


__all__ = ["budget_line", "doubts"]
