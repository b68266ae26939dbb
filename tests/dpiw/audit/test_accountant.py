"""The audit's own account: against closed forms, against both accountants, and against faults."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import binom

from dpiw.audit import costs as of_costs
from dpiw.audit import inversion as of
from dpiw.audit.accountant import audited_epsilon, audited_rdp, audited_renyi, audited_sum
from dpiw.audit.costs import recompute
from dpiw.audit.inversion import epsilon_range
from dpiw.audit.tally import tally
from dpiw.errors import PrivacyError
from dpiw.ledger import Ledger
from dpiw.privacy import accounting
from dpiw.privacy.events import (
    EVENT_TYPES,
    DeclaredEvent,
    LaplaceEvent,
    PrivacyEvent,
    ThresholdEvent,
)
from dpiw.privacy.gaussian import gaussian_delta
from dpiw.privacy.units import PrivacyCost
from tests.support.events import gaussian, laplace, selection, sgd
from tests.support.ledger import ADD, ask, terms

DELTA = 1e-6


def sampled(probability: float, multiplier: float, count: int) -> PrivacyEvent:
    return sgd(multiplier, count, probability)


def met(delta: Callable[[float], float], target: float, most: float) -> float:
    low, high = 0.0, most
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > target else (low, middle)
    return high


def sum_of_two(top: float, bottom: float, chance: float, count: int) -> Callable[[float], float]:
    """The curve of `count` losses that are each `top` with this chance, else `bottom`."""
    ups = np.arange(count + 1)
    losses, chances = ups * top + (count - ups) * bottom, binom.pmf(ups, count, chance)
    return lambda epsilon: float(chances @ np.maximum(0, -np.expm1(epsilon - losses)))


def gaussian_curve(multiplier: float, delta: float) -> float:
    return met(lambda epsilon: gaussian_delta(multiplier, epsilon), delta, 1e4)


def response_curve(epsilon: float, count: int) -> float:
    chance = 1 / (1 + math.exp(-epsilon))
    return met(sum_of_two(epsilon, -epsilon, chance, count), DELTA, epsilon * count)


def two_point_curve(epsilon: float, share: float, count: int) -> float:
    top = share * epsilon
    chance = (1 - math.exp(top - epsilon)) / (1 - math.exp(-epsilon))
    return met(sum_of_two(top, top - epsilon, chance, count), DELTA, epsilon * count)


def selection_curve(epsilon: float, delta: float) -> float:
    return epsilon + 2 * math.log1p(-math.sqrt(-delta * math.expm1(-epsilon)))


def sampled_curve(probability: float, multiplier: float) -> float:
    """H(e) = q H_gaussian(log(1 + (exp(e) - 1)/q)), where the mixture comes first."""

    def curve(epsilon: float) -> float:
        inner = math.log1p(math.expm1(epsilon) / probability)
        return probability * gaussian_delta(multiplier, inner)

    return met(curve, DELTA, 50)


def closed_forms() -> list[tuple[Any, float, float, float]]:
    """What is inverted, at which delta, its exact epsilon, how far apart the bounds may be."""
    return [
        *(
            (of.gaussian(multiplier), delta, gaussian_curve(multiplier, delta), 2e-3)
            for multiplier in (0.05, 0.5, 5.0, 50.0)
            for delta in (1e-3, 1e-6, 1e-12)
        ),
        (of.gaussian(1e6), DELTA, 0.0, 0.0),
        *(
            (of.two_point(2 * epsilon, 0.5, count), DELTA, response_curve(epsilon, count), 2e-3)
            for epsilon, count in ((0.25, 1), (0.02, 100), (1.0, 7), (0.001, 3))
        ),
        *(
            (of.two_point(e, share, count), DELTA, two_point_curve(e, share, count), 5e-3)
            for e, count in ((0.5, 3), (0.05, 60))
            for share in (0.4, 0.7, 0.95)
        ),
        (of.laplace(0.5), 1e-3, 2 + 2 * math.log1p(-1e-3), 2e-5),
        (of.worst_selection(0.3), 1e-4, selection_curve(0.3, 1e-4), 2e-3),
        *(
            (of.sampled_gaussian(q, m, removed=True), DELTA, sampled_curve(q, m), 0.05)
            for q, m in ((0.02, 0.8), (0.5, 2.0))
        ),
    ]


@pytest.mark.slow
def test_what_has_a_closed_form_is_inverted_to_it():
    for number, (curve, delta, exact, apart) in enumerate(closed_forms()):
        bound = epsilon_range([curve], delta)
        assert bound.low <= exact * (1 + 1e-9), number
        assert exact <= bound.high * (1 + 1e-9), number
        assert bound.high - bound.low <= apart * exact, number


def test_the_order_of_neighbours_is_that_of_the_transform():
    """log M of the pair turned is log M(-1 - z): here at orders that both can take."""
    z = np.array([0.5 + 0j, 3 + 2j])
    for multiplier, probability in ((1.0, 0.1), (0.6, 0.01)):
        added = of.sampled_gaussian(probability, multiplier, removed=False).log_transform(z)
        x = np.linspace(-12 * multiplier, 12 * multiplier, 200_001)
        ratio = 1 - probability + probability * np.exp((2 * x - 1) / (2 * multiplier**2))
        weight = np.exp(-0.5 * (x / multiplier) ** 2)
        exact = [np.log((weight * ratio**-order).sum() / weight.sum()) for order in z]
        assert added == pytest.approx(exact, rel=1e-9)


PLANS: dict[str, Sequence[PrivacyEvent]] = {
    "one gaussian": [gaussian(5.0)], "little noise": [gaussian(0.4)],
    "much noise": [gaussian(300.0)], "one laplace": [laplace(4.0)],
    "many laplace": [laplace(40.0, 100)], "gaussian and laplace": [gaussian(10.0), laplace(4.0)],
    "one selection": [selection(0.1)], "selections": [selection(0.05, 40), gaussian(8.0)],
    "selections of two kinds": [selection(0.1, 5), selection(0.2, 3), laplace(10.0, 2)],
    "dp-sgd": [sampled(0.01, 1.0, 1000)],
    "dp-sgd and more": [sampled(0.1, 2.0, 100), gaussian(4.0)],
    "all sampled": [sampled(1.0, 5.0, 10)], "declared": [DeclaredEvent(epsilon=0.7)],
    "declared, with a delta": [DeclaredEvent(epsilon=0.7, delta=4e-7), gaussian(6.0)],
    "levels": [gaussian(6.0, 2), ThresholdEvent(delta=2e-7, count=2)],
    "declared twice": [DeclaredEvent(epsilon=0.2, delta=1e-7, count=2), laplace(8.0)],
}  # fmt: skip


def complaints(events: Sequence[PrivacyEvent], delta: float = DELTA) -> list[str]:
    cost = of_costs.Recomputed(
        bounds=accounting.epsilon_bounds(events, delta=delta),
        renyi=accounting.renyi_vector(events),
        own=of_costs._own_account(events, delta),
    )
    assert cost.own is not None
    return [
        *of_costs._contradictions(cost), *of_costs._disagreements(cost),
        *of_costs._other_vector(cost),
    ]  # fmt: skip


@pytest.mark.nightly_cases("little noise", "dp-sgd and more")
@pytest.mark.parametrize("plan", list(PLANS))
def test_both_accountants_agree_with_the_audit(plan):
    assert complaints(PLANS[plan]) == []
    audited = audited_epsilon(PLANS[plan], DELTA)
    assert audited.floor <= audited.bound.high


@pytest.mark.parametrize("delta", [0.0, 1e-13, 0.01])
def test_they_agree_at_no_delta_a_tiny_one_and_a_large_one(delta):
    assert complaints([laplace(4.0), selection(0.1, 3)], delta) == []


def test_every_event_has_an_account_and_an_unknown_one_has_none():
    seen = {type(event) for plan in PLANS.values() for event in plan}
    assert seen == set(EVENT_TYPES.values())

    @dataclasses.dataclass(frozen=True)
    class UnheardOfEvent:
        count: int = 1

    with pytest.raises(PrivacyError, match="UnheardOfEvent: the audit has no account"):
        audited_epsilon([UnheardOfEvent()], DELTA)  # type: ignore[list-item]


def test_what_the_audit_counts_in_other_units():
    events = [laplace(4.0), selection(0.5, 2)]
    assert audited_sum(events) == 1.25
    assert audited_sum([*events, gaussian(3.0)]) == math.inf
    assert audited_rdp([gaussian(5.0)], DELTA).high == pytest.approx(0.9, rel=1e-3)
    assert audited_renyi([gaussian(5.0)], Decimal(8)) == pytest.approx(0.16, rel=3e-4)
    assert audited_renyi([gaussian(0.01)], Decimal(512)) == 1e4  # what nothing can pay


@pytest.mark.nightly_cases("events6")
@pytest.mark.parametrize(
    "events",
    [
        [gaussian(1e-3)], [gaussian(1e9)], [laplace(1e-3)], [laplace(1e7, 10**9)],
        [selection(30.0)], [selection(1e-9, 10**12)], [sampled(1e-9, 0.3, 10**6)],
        [sampled(0.999999, 1e3, 10**6)],
    ],
)  # fmt: skip
def test_extreme_events_end_in_a_number(events):
    account = of_costs._own_account(events, 1e-15)
    assert 0 <= account.epsilon.floor <= account.epsilon.bound.high * (1 + 1e-9) < math.inf


class Scaled:
    """A privacy loss distribution that is wrong by a factor."""

    def __init__(self, real: Any, factor: float) -> None:
        self._real, self._factor = real, factor

    def get_epsilon_for_delta(self, delta: float) -> float:
        return float(self._factor * self._real.get_epsilon_for_delta(delta))


def scale(patch: pytest.MonkeyPatch, module: Any, name: str, factor: float) -> None:
    real = getattr(module, name)
    patch.setattr(module, name, lambda *a, **k: times(real(*a, **k), factor))


def times(value: Any, factor: float) -> Any:
    if value is None:
        return None
    if isinstance(value, float):
        return value * factor
    return value * Decimal(factor) if isinstance(value, Decimal) else Scaled(value, factor)


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Of totals that were made with a fault, or before it."""
    accounting._approximate_epsilon.cache_clear()
    yield
    accounting._approximate_epsilon.cache_clear()


def other_noise(patch: pytest.MonkeyPatch, factor: float) -> None:
    """A fault in how the PLD of one kind of event is made, up and down alike."""
    for name in PLDS:
        real = getattr(accounting, name)

        def made(merged: Sequence[PrivacyEvent], grid: float, real: Any = real) -> Any:
            return real([louder(event, factor) for event in merged], grid)

        patch.setattr(accounting, name, made)


def louder(event: PrivacyEvent, factor: float) -> PrivacyEvent:
    if isinstance(event, LaplaceEvent):
        return laplace(event.noise_multiplier / factor, event.count)
    return event


def scale_audit(patch: pytest.MonkeyPatch, factor: float) -> None:
    real = of_costs.audited_epsilon

    def wrong(events: Any, delta: float) -> Any:
        audited = real(events, delta)
        bound = dataclasses.replace(
            audited.bound, low=audited.bound.low * factor, high=audited.bound.high * factor
        )
        return dataclasses.replace(audited, floor=audited.floor * factor, bound=bound)

    patch.setattr(of_costs, "audited_epsilon", wrong)


PLDS = ("compose_privacy_losses", "optimistic_privacy_losses")
SCALED: dict[str, list[tuple[Any, str]]] = {
    "rdp": [(accounting, "_rdp_epsilon")],
    "pld": [(accounting, PLDS[0])],
    "both plds": [(accounting, name) for name in PLDS],
    "renyi": [(kind, "renyi_epsilon") for kind in EVENT_TYPES.values()],
    "gaussian": [(accounting, "gaussian_epsilon")],
    "sum": [(accounting, "pure_epsilon")],
}


def plant(patch: pytest.MonkeyPatch, fault: str, factor: float) -> None:
    if fault == "the audit":
        scale_audit(patch, factor)
    elif fault == "laplace pld":
        other_noise(patch, factor)
    else:
        for module, name in SCALED[fault]:
            scale(patch, module, name, factor)


def codes_of(folder: Path, events: Sequence[PrivacyEvent], delta: str = "1e-6") -> list[str]:
    """Charge the events as the accounting says at this moment, and audit that."""
    ledger = Ledger.create(folder / "ledger.sqlite")
    ledger.register(terms(epsilon=Decimal(99), delta=Decimal("1e-4")))
    total = accounting.epsilon(events, delta=float(delta))
    ledger.reserve(
        **ask(
            population="town", cost=PrivacyCost.of(Decimal(total), Decimal(delta), ADD),
            stages={"s": [accounting.event_to_json(event) for event in events]},
        )
    )  # fmt: skip
    return [finding.code for finding in recompute(tally(ledger.snapshot().export()))[1]]


MIXED = "gaussian and laplace"


def test_a_charge_by_sound_accountants_is_in_order(tmp_path):
    assert codes_of(tmp_path, PLANS[MIXED]) == []


FAULTY = [
    *((fault, MIXED, factor)
      for fault in ("rdp", "pld", "both plds", "laplace pld", "renyi", "the audit")
      for factor in (0.9, 1.1, 0.3, 3.0)),
    *((fault, plan, factor)
      for fault, plan in (
          ("gaussian", "one gaussian"), ("sum", "one laplace"),
          *itertools.product(("rdp", "both plds", "renyi"), ("selections", "dp-sgd")),
      )
      for factor in (0.3, 3.0)),
]  # fmt: skip


@pytest.mark.nightly_cases("dp-sgd", f"{MIXED}-0.3", f"{MIXED}-3.0")
@pytest.mark.parametrize(("fault", "plan", "factor"), FAULTY)
def test_a_fault_in_one_account_is_found(tmp_path, monkeypatch, fault, plan, factor):
    """The charge itself is made by the faulty accounting; so would every comparison with it be."""
    plant(monkeypatch, fault, factor)
    for delta in ("1e-6", "0") if fault == "sum" else ("1e-6",):
        (tmp_path / delta).mkdir(mode=0o700)
        assert "accountants_disagree" in codes_of(tmp_path / delta, PLANS[plan], delta)


def test_a_charge_below_what_no_bound_can_be_is_too_small(tmp_path, monkeypatch):
    """Also where every accountant, being wrong alike, says that it is enough."""
    for name in ("_rdp_epsilon", "compose_privacy_losses", "optimistic_privacy_losses"):
        scale(monkeypatch, accounting, name, 0.3)
    assert "cost_above_charge" in codes_of(tmp_path, PLANS[MIXED])


def test_events_without_an_account_of_ours_are_told(tmp_path, monkeypatch):
    unknown = mock.Mock(side_effect=PrivacyError("no account"))
    monkeypatch.setattr(of_costs, "audited_epsilon", unknown)
    assert codes_of(tmp_path, PLANS[MIXED]) == ["cost_not_recounted"]
