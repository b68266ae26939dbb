"""Budgets and costs are whole numbers, rounded against ourselves; floats on the safe side."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.errors import SpecError, UnsupportedRelationError
from dpiw.privacy.units import PrivacyBudget, PrivacyCost, PrivacyUnit, float_above, float_below
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


EXACT = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.fractions(),
    st.integers(),
    st.builds(lambda digits, places: Decimal(digits).scaleb(-places), st.integers(1, 10**20),
              st.integers(0, 400)),
)  # fmt: skip


@example(Decimal("1e-5"))  # its nearest float is above it
@example(Decimal("1e-6"))  # below it
@example(Decimal("1e-400"))
@example(Decimal("1e400"))
@example(Decimal(0))
@given(EXACT)
def test_the_float_below_is_the_largest_one_not_above(value):
    if Fraction(value) < -Fraction(math.nextafter(math.inf, 0)):
        with pytest.raises(ValueError, match="below every float"):
            float_below(value)
        return
    found = float_below(value)
    assert Fraction(found) <= Fraction(value)
    after = math.nextafter(found, math.inf)
    assert math.isinf(after) or Fraction(after) > Fraction(value)
    if Fraction(value) >= 0:
        assert found >= 0
        assert math.isfinite(found)


@example(Decimal("1e-6"))
@given(EXACT)
def test_the_float_above_mirrors_it(value):
    if Fraction(value) > Fraction(math.nextafter(math.inf, 0)):
        return
    found = float_above(value)
    assert found == -float_below(-Fraction(value))
    assert Fraction(found) >= Fraction(value)


def test_the_nearest_float_would_not_do():
    """The control: every second decimal's nearest float is above it."""
    for text in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ValueError, match=r"NaN|finite"):
            float_below(Decimal(text))
    decimals = [Decimal(n) / 1000 for n in range(1, 1000)]
    above = sum(Fraction(float(value)) > Fraction(value) for value in decimals)
    assert above > 300
    assert all(Fraction(float_below(value)) <= Fraction(value) for value in decimals)
