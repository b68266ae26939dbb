"""Budgets and costs are whole numbers, rounded against ourselves."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.errors import SpecError, UnsupportedRelationError
from dpiw.privacy.units import PrivacyBudget, PrivacyCost, PrivacyUnit
from tests.support.ledger import ADD, REPLACE

amounts = st.decimals(min_value=0, max_value=100, allow_nan=False, places=20)
check = settings(derandomize=True, database=None, deadline=None)


@check
@given(amounts)
def test_costs_round_up_and_budgets_round_down(amount):
    cost, budget = PrivacyCost.of(amount, 0, ADD), PrivacyBudget.of(amount, 0, ADD)
    exact = Fraction(amount) * 10**12
    assert exact <= cost.epsilon_units < exact + 1
    assert exact - 1 < budget.epsilon_units <= exact


@check
@given(st.lists(amounts, max_size=20))
def test_sums_never_round(parts):
    total = PrivacyCost.of(0, 0, ADD)
    for part in parts:
        total += PrivacyCost.of(part, part / 100, ADD)
    assert total.epsilon_units == sum(PrivacyCost.of(p, 0, ADD).epsilon_units for p in parts)


def test_floats_would_have_denied_and_forgotten():
    three = PrivacyCost.of(Decimal("0.3"), 0, ADD)
    tenths = PrivacyCost.of(Decimal("0.1"), 0, ADD)
    assert (tenths + tenths + tenths).epsilon_units == three.epsilon_units  # 0.1+0.1+0.1 <= 0.3
    assert PrivacyCost.of(0, Decimal("1e-22"), ADD).delta_units == 1  # never vanishes


def test_a_budget_covers_to_the_last_unit_and_not_beyond():
    budget = PrivacyBudget.of(1, Decimal("1e-6"), ADD)
    exact = PrivacyCost.of(1, Decimal("1e-6"), ADD)
    assert budget.covers(exact)
    one_more = PrivacyCost(
        epsilon_units=exact.epsilon_units + 1, delta_units=exact.delta_units, relation=ADD
    )
    assert not budget.covers(one_more)
    assert budget.minus(exact) == PrivacyBudget.of(0, 0, ADD)


def test_relations_never_mix():
    with pytest.raises(UnsupportedRelationError, match="cannot be added"):
        _ = PrivacyCost.of(1, 0, ADD) + PrivacyCost.of(1, 0, REPLACE)
    with pytest.raises(UnsupportedRelationError, match="cannot pay"):
        PrivacyBudget.of(1, 0, ADD).covers(PrivacyCost.of(1, 0, REPLACE))


def test_a_quotient_of_too_many_digits_is_rounded_in_the_same_direction():
    """60 digits are kept: what is cut off counts as a whole unit against us."""
    tiny = Decimal("1e-80")
    with localcontext() as context:
        context.prec = 200
        over, under = Decimal("1e-12") + tiny, 1 - tiny
    assert PrivacyCost.of(over, 0, ADD).epsilon_units == 2
    assert PrivacyBudget.of(under, 0, ADD).epsilon_units == 10**12 - 1
    assert PrivacyCost.of(0, under, ADD).delta_units == 10**18
    assert PrivacyBudget.of(over, 0, ADD).epsilon_units == 1


def test_what_is_no_unit_or_cost_is_refused_and_text_is_exact():
    for rows in (0, -1):
        with pytest.raises(SpecError, match="max_rows"):
            PrivacyUnit(relation=ADD, max_rows=rows)
    with pytest.raises(SpecError, match="id_column"):
        PrivacyUnit(relation=ADD, max_rows=2)
    with pytest.raises(SpecError, match="epsilon >= 0"):
        PrivacyCost(epsilon_units=-1, delta_units=0, relation=ADD)
    assert str(PrivacyCost.of(Decimal("1.20"), Decimal("1e-6"), ADD)) == "epsilon=1.2, delta=1E-6"
    assert str(PrivacyCost.of(0, 0, ADD)) == "epsilon=0, delta=0"
