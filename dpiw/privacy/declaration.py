"""A stated guarantee of a foreign mechanism, and its cost here."""

from decimal import Decimal

from dpiw.errors import SpecError
from dpiw.privacy.events import DeclaredEvent
from dpiw.privacy.renyi import BEYOND, exactly
from dpiw.privacy.units import EPSILON_UNIT, NeighbouringRelation, PrivacyUnit, float_above

_MOST_EPSILON = int(BEYOND * EPSILON_UNIT)
"""Epsilon of a group that nothing can pay, and whose exponential is still a decimal."""


def declared_event(
    epsilon: Decimal,
    delta: Decimal,
    relation: NeighbouringRelation,
    *,
    rows_per_unit: int,
    unit: PrivacyUnit,
) -> DeclaredEvent:
    """Return the cost for `unit` of (epsilon, delta)-DP under `relation`, rounded up.

    `rows_per_unit`: public bound, enforced before the tool read its table, on how many of the
    things it protects make up one unit of the release; 1: the unit itself.

    By group privacy (docs/method.md section 10): a group of g = `rows_per_unit`, doubled where
    add/remove serves replace-one, gives (g epsilon, delta sum_{i<g} exp(i epsilon)). Raises
    SpecError for replace-one declared for another relation or a group, as it says nothing of the
    number of rows; and for a delta >= 1.

    Source: Dwork & Roth (2014), theorem 2.2; Vadhan (2017), lemma 2.2.
    """
    group = rows_per_unit
    if relation is NeighbouringRelation.REPLACE_ONE and group > 1:
        raise SpecError(
            f"found {group} under relation: replace_one, which does not cover a person who is"
            " replaced by one with another number of rows",
            field="generator.settings.rows_per_unit",
            allowed="1, from a generator that protects whole persons, or settings.relation:"
            " add_or_remove_one",
        )
    if relation is not unit.relation:
        if unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
            raise SpecError(
                "does not cover a person who is added or removed, as this release promises",
                field="generator.settings.relation=replace_one",
                allowed="relation: replace_one in the spec, or rows made under add_or_remove_one",
            )
        group *= 2
    with exactly():
        group_epsilon = epsilon * group
        if group_epsilon > _MOST_EPSILON:
            found = f"{epsilon:.6g} a row is {group_epsilon:.6g} for a group of {group} rows"
            most = f"at most {_MOST_EPSILON} for the group"
            raise SpecError(found, field="generator.settings.epsilon", allowed=most)
        factor = sum(((epsilon * step).exp() for step in range(group)), Decimal(0))
        delta = delta * factor
        delta *= 1 + Decimal("1e-40") if group > 1 else 1  # the exponentials are rounded
    if delta >= 1:
        raise SpecError(
            f"comes to {delta:.3g} for a group of {group} rows",
            field="generator.settings.delta",
            allowed="less than 1 for the group: declare rows made for whole persons",
        )
    return DeclaredEvent(epsilon=_ledger_float(group_epsilon), delta=_ledger_float(delta))


def _ledger_float(value: Decimal) -> float:
    """The float whose shortest text is this number, as ledgers keep it; else the float above."""
    nearest = float(value)
    return nearest if Decimal(repr(nearest)) == value else float_above(value)
