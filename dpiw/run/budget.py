"""What a plan's population has left, and how many such releases that pays for; reads no data."""

from __future__ import annotations

from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.ledger.charges import Charge
from dpiw.ledger.history import count_text
from dpiw.plan.plan import Plan
from dpiw.run.ahead import paid_anew
from dpiw.run.commands import filled_in
from dpiw.run.declared import check_registered
from dpiw.run.run import ledger_url


def budget_line(plan: Plan) -> str:
    """How many releases such as this plan's still fit, and whether one is there, for people.

    Counted by the ledger's own accountant, under the population's rule of composition, at what a
    whole run of the plan reserves. Where the ledger or the population is not there, it says so: a
    plan needs neither.

    Raises:
        UnsupportedRelationError, SpecError: the population is registered with other terms than the
            spec's, so a release would be refused.
    """
    name = plan.spec.population
    try:
        ledger = Ledger.open(ledger_url(plan.spec))
        account = ledger.account(name)
    except DPIWError as error:
        return f"ledger: not known what is left: {filled_in(str(error), plan.spec)}"
    check_registered(plan.spec, account.population)
    stages = frozenset(stage.name for stage in plan.stages)
    vector = plan.stage_renyi(stages) if account.population.renyi else None
    fits = count_text(account.admits(Charge(cost=plan.cost, renyi=vector)))
    left = f"{account.remaining} left of {account.population.budget}; {fits}"
    anew = [f"warning: {one}" for one in paid_anew(plan, ledger, None)]
    return "\n".join([f"ledger: population {name} has {left}", *anew])


__all__ = ["budget_line"]
