"""Whether the ledger can hold, or holds already, what rows made elsewhere are declared to cost."""

from __future__ import annotations

from dpiw.errors import SpecError
from dpiw.ledger import Ledger, RunState
from dpiw.methods.elsewhere import MadeElsewhere
from dpiw.plan.plan import Plan
from dpiw.privacy.units import PrivacyCost


def check_paid(plan: Plan, ledger: Ledger) -> None:
    """Refuse a declared cost that the population cannot hold, or that nobody has paid.

    Raises:
        SpecError: a delta under `composition: renyi`, whose vectors have none; or `counted_by`
            names no run of this population that drew all it reserved, at that cost at least.
    """
    generator, spec = plan.generator, plan.spec
    if not isinstance(generator, MadeElsewhere):
        return
    event = generator.declared(spec.privacy_unit)
    if generator.counted_by is None:
        if event.delta and ledger.population(spec.population).renyi:
            raise SpecError(
                f"generator.settings.delta: population {spec.population} composes by Renyi vectors,"
                " which no declared delta enters; expected 0, or a population that composes by sums"
            )
        return
    paid = ledger.find_run(generator.counted_by)
    declared = PrivacyCost.of(event.epsilon, event.delta, spec.privacy_unit.relation)
    if (
        paid is None
        or paid.population != spec.population
        or paid.state not in (RunState.COMMITTED, RunState.PUBLISHED)
        or paid.held.epsilon_units < declared.epsilon_units
        or paid.held.delta_units < declared.delta_units
    ):
        raise SpecError(
            "generator.settings.counted_by: expected the key of a run of population"
            f" {spec.population} that drew all it reserved, at {declared} at least"
        )
