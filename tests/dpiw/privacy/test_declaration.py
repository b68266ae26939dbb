"""A guarantee that somebody states, under another unit or relation; and what it costs with ours."""

import math
from decimal import Decimal

import pytest

from dpiw.errors import PrivacyError, SpecError
from dpiw.privacy import accounting
from dpiw.privacy.declaration import declared_event
from dpiw.privacy.events import DeclaredEvent, GaussianEvent, check_event
from dpiw.privacy.gaussian import gaussian_delta
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.support.ledger import ADD, REPLACE


def stated(
    unit: PrivacyUnit, epsilon: str, delta: str, relation: NeighbouringRelation, rows: int = 1
) -> DeclaredEvent:
    return declared_event(Decimal(epsilon), Decimal(delta), relation, rows_per_unit=rows, unit=unit)


PERSON = {relation: PrivacyUnit(relation=relation, id_column="p") for relation in (ADD, REPLACE)}


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_same_relation_and_unit_change_nothing(relation):
    event = stated(PrivacyUnit(relation=relation), "0.1", "1e-6", relation)
    assert event == DeclaredEvent(epsilon=0.1, delta=1e-6)


def test_replace_is_a_removal_and_an_addition():
    event = stated(PrivacyUnit(relation=REPLACE), "0.5", "1e-6", ADD)
    assert event.epsilon == 1
    assert event.delta == pytest.approx(1e-6 * (1 + math.exp(0.5)), rel=1e-12)
    assert Decimal(event.delta) >= Decimal("1e-6") * (1 + Decimal("0.5").exp())


def test_a_guarantee_for_rows_is_one_for_a_group_of_them():
    unit = PrivacyUnit(relation=ADD, max_rows=3, id_column="id")
    event = stated(unit, "0.5", "1e-6", ADD, rows=3)
    assert event.epsilon == 1.5
    assert event.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.e), rel=1e-12)
    assert stated(unit, "0.5", "0", ADD, rows=3).delta == 0


def test_a_person_of_rows_is_replaced_by_as_many_removals_and_additions():
    event = stated(PERSON[REPLACE], "0.1", "0", ADD, rows=3)
    assert event.epsilon == 0.6


@pytest.mark.parametrize(
    ("unit", "declaration", "field"),
    [
        # A tool that prints the number of rows is free under replace_one.
        (PrivacyUnit(relation=ADD), ("1", "0", REPLACE), "relation"),
        (PERSON[ADD], ("0.1", "1e-6", REPLACE, 2), "rows_per_unit"),
        (PERSON[REPLACE], ("0.1", "1e-6", REPLACE, 2), "rows_per_unit"),
        (PrivacyUnit(relation=ADD), ("1", "1e-6", ADD, 100), "delta"),
        *(
            (PrivacyUnit(relation=ADD), (epsilon, "1e-6", ADD, rows), "epsilon")
            for epsilon, rows in (("1e400", 1), ("9e999", 1), ("1e30", 1000), ("10.1", 1000))
        ),
    ],
)
def test_what_pays_for_nothing_is_refused(unit, declaration, field):
    with pytest.raises(SpecError, match=field):
        stated(unit, *declaration)


def test_what_is_smaller_than_any_float_is_rounded_up():
    event = stated(PrivacyUnit(relation=ADD), "1e-400", "1e-400", ADD)
    assert min(event.epsilon, event.delta) > 0


def composed_delta(epsilon: float, event: DeclaredEvent, multiplier: float) -> float:
    """Exact, by conditioning on the outcome of the worst declared mechanism (a slow twin)."""
    right = 1 / (1 + math.exp(-event.epsilon))
    rest = sum(
        share * tail(multiplier, epsilon - loss)
        for share, loss in ((right, event.epsilon), (1 - right, -event.epsilon))
    )
    return event.delta + (1 - event.delta) * rest


def tail(multiplier: float, epsilon: float) -> float:
    """delta of one Gaussian mechanism at any real epsilon."""
    if epsilon >= 0:
        return gaussian_delta(multiplier, epsilon)
    return 1 - math.exp(epsilon) * (1 - gaussian_delta(multiplier, -epsilon))


@pytest.mark.parametrize("declared", [DeclaredEvent(epsilon=0.4, delta=3e-6),
                                      DeclaredEvent(epsilon=1.5)])  # fmt: skip
def test_it_composes_with_our_events_as_the_worst_mechanism_would(declared):
    """Never below the exact cost, and no more than the lattice's margin above it."""
    events = [GaussianEvent(noise_multiplier=4.0), declared]
    total = accounting.epsilon(events, delta=1e-5)
    assert composed_delta(total, declared, 4.0) <= 1e-5
    assert composed_delta(total * (1 - 2e-3), declared, 4.0) > 1e-5


def test_a_declared_delta_is_never_lost():
    """Forgotten, it would leave the Gaussian the whole delta: the total would be smaller."""
    ours, theirs = GaussianEvent(noise_multiplier=4.0), DeclaredEvent(epsilon=0.5, delta=9e-6)
    forgetful = accounting.epsilon([ours, DeclaredEvent(epsilon=0.5)], delta=1e-5)
    assert accounting.epsilon([ours, theirs], delta=1e-5) > forgetful * 1.05
    with pytest.raises(PrivacyError, match="at least the sum of the events' own deltas"):
        accounting.epsilon([ours, theirs], delta=8e-6)
    with pytest.raises(PrivacyError, match="delta = 0 cannot be met"):
        accounting.epsilon([ours, theirs], delta=9e-6)


def test_alone_it_costs_what_was_declared():
    event = DeclaredEvent(epsilon=0.1, delta=1e-6)
    assert accounting.epsilon([event], delta=1e-6) == 0.1
    assert accounting.epsilon_bounds([event], delta=1e-6).sum == 0.1


def test_no_renyi_vector_pays_for_a_delta():
    beyond = accounting.renyi_vector([DeclaredEvent(epsilon=0.1, delta=1e-9)])
    assert set(beyond) == {10**16}
    assert max(accounting.renyi_vector([DeclaredEvent(epsilon=0.1)])) <= 10**11 + 1


@pytest.mark.parametrize("event", [DeclaredEvent(epsilon=0.0), DeclaredEvent(epsilon=math.inf),
                                   DeclaredEvent(epsilon=1.0, delta=1.0),
                                   DeclaredEvent(epsilon=1.0, delta=-1e-9)])  # fmt: skip
def test_what_nobody_can_have_declared_is_no_event(event):
    with pytest.raises(PrivacyError):
        check_event(event)
