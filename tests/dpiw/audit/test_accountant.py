"""The audit's own account: against closed forms, against both accountants, and against faults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dpiw.audit import costs as of_costs
from dpiw.audit import transforms as of
from dpiw.audit.accountant import audited_epsilon, audited_rdp, audited_renyi, audited_sum
from dpiw.audit.costs import recompute
from dpiw.audit.inversion import epsilon_range
from dpiw.audit.tally import tally
from dpiw.errors import PrivacyError
from dpiw.ledger import Ledger, Population
from dpiw.privacy import accounting
from dpiw.privacy.events import (
    EVENT_TYPES,
    DeclaredEvent,
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    ThresholdEvent,
)
from dpiw.privacy.gaussian import gaussian_delta
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE
DELTA = 1e-6


def gaussian(noise_multiplier: float, count: int = 1) -> PrivacyEvent:
    return GaussianEvent(noise_multiplier=noise_multiplier, count=count)


def laplace(noise_multiplier: float, count: int = 1) -> PrivacyEvent:
    return LaplaceEvent(noise_multiplier=noise_multiplier, count=count)


def selection(epsilon: float, count: int = 1) -> PrivacyEvent:
    return ExponentialMechanismEvent(epsilon=epsilon, count=count)


def sampled(probability: float, noise_multiplier: float, count: int) -> PrivacyEvent:
    return PoissonSampledGaussianEvent(
        sampling_probability=probability, noise_multiplier=noise_multiplier, count=count
    )


# --- closed forms -----------------------------------------------------------------------------


def met(delta: Callable[[float], float], target: float, most: float) -> float:
    """By bisection: where a decreasing curve meets its target."""
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


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("multiplier", [0.05, 0.5, 5.0, 50.0])
def test_gaussian_noise_has_its_closed_form(multiplier: float, delta: float) -> None:
    exact = met(lambda epsilon: gaussian_delta(multiplier, epsilon), delta, 1e4)
    bound = epsilon_range([of.gaussian(multiplier)], delta)
    assert bound.low <= exact * (1 + 1e-9)
    assert exact <= bound.high * (1 + 1e-9)
    assert bound.high - bound.low <= 2e-3 * exact


def test_gaussian_noise_so_large_that_it_costs_nothing() -> None:
    assert epsilon_range([of.gaussian(1e6)], DELTA).high == 0


@pytest.mark.parametrize(("epsilon", "count"), [(0.25, 1), (0.02, 100), (1.0, 7), (0.001, 3)])
def test_responses_have_their_binomial_sum(epsilon: float, count: int) -> None:
    curve = sum_of_two(epsilon, -epsilon, 1 / (1 + math.exp(-epsilon)), count)
    exact = met(curve, DELTA, epsilon * count)
    bound = epsilon_range([of.two_point(2 * epsilon, 0.5, count)], DELTA)
    assert bound.low <= exact * (1 + 1e-9)
    assert exact <= bound.high * (1 + 1e-9)
    assert bound.high - bound.low <= 2e-3 * exact


@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
@pytest.mark.parametrize(("epsilon", "count"), [(0.5, 3), (0.05, 60)])
def test_two_point_losses_have_their_binomial_sum(epsilon: float, count: int, share: float) -> None:
    top = share * epsilon
    chance = (1 - math.exp(top - epsilon)) / (1 - math.exp(-epsilon))
    exact = met(sum_of_two(top, top - epsilon, chance, count), DELTA, epsilon * count)
    bound = epsilon_range([of.two_point(epsilon, share, count)], DELTA)
    assert bound.low <= exact * (1 + 1e-9)
    assert exact <= bound.high * (1 + 1e-9)
    assert bound.high - bound.low <= 5e-3 * exact


def test_one_laplace_mechanism_and_one_selection_have_theirs() -> None:
    """delta = 1 - exp((epsilon - s)/2), and the curve of `dpiw.privacy.bounded_range`."""
    bound = epsilon_range([of.laplace(0.5)], 1e-3)
    assert (bound.low, bound.high) == pytest.approx((2 + 2 * math.log1p(-1e-3),) * 2, rel=1e-5)
    bound = epsilon_range([of.worst_selection(0.3)], 1e-4)
    exact = 0.3 + 2 * math.log1p(-math.sqrt(1e-4 * (1 - math.exp(-0.3))))
    assert (bound.low, bound.high) == pytest.approx((exact, exact), rel=1e-3)


@pytest.mark.parametrize(("probability", "multiplier"), [(0.02, 0.8), (0.5, 2.0)])
def test_one_sampled_step_has_its_closed_form(probability: float, multiplier: float) -> None:
    """H(e) = q H_gaussian(log(1 + (exp(e) - 1)/q)), where the mixture comes first."""

    def curve(epsilon: float) -> float:
        inner = math.log1p(math.expm1(epsilon) / probability)
        return probability * gaussian_delta(multiplier, inner)

    exact = met(curve, DELTA, 50)
    bound = epsilon_range([of.sampled_gaussian(probability, multiplier, removed=True)], DELTA)
    assert bound.low <= exact <= bound.high
    assert bound.high - bound.low <= 0.05 * exact


def test_the_order_of_neighbours_is_that_of_the_transform() -> None:
    """log M of the pair turned is log M(-1 - z): here at orders that both can take."""
    z = np.array([0.5 + 0j, 3 + 2j])
    for multiplier, probability in ((1.0, 0.1), (0.6, 0.01)):
        added = of.sampled_gaussian(probability, multiplier, removed=False).log_transform(z)
        x = np.linspace(-12 * multiplier, 12 * multiplier, 200_001)
        ratio = 1 - probability + probability * np.exp((2 * x - 1) / (2 * multiplier**2))
        weight = np.exp(-0.5 * (x / multiplier) ** 2)
        exact = [np.log((weight * ratio**-order).sum() / weight.sum()) for order in z]
        assert added == pytest.approx(exact, rel=1e-9)


# --- the accountants --------------------------------------------------------------------------

PLANS: dict[str, Sequence[PrivacyEvent]] = {
    "one gaussian": [gaussian(5.0)],
    "little noise": [gaussian(0.4)],
    "much noise": [gaussian(300.0)],
    "one laplace": [laplace(4.0)],
    "many laplace": [laplace(40.0, 100)],
    "gaussian and laplace": [gaussian(10.0), laplace(4.0)],
    "one selection": [selection(0.1)],
    "selections": [selection(0.05, 40), gaussian(8.0)],
    "selections of two kinds": [selection(0.1, 5), selection(0.2, 3), laplace(10.0, 2)],
    "dp-sgd": [sampled(0.01, 1.0, 1000)],
    "dp-sgd and more": [sampled(0.1, 2.0, 100), gaussian(4.0)],
    "all sampled": [sampled(1.0, 5.0, 10)],
    "declared": [DeclaredEvent(epsilon=0.7)],
    "declared, with a delta": [DeclaredEvent(epsilon=0.7, delta=4e-7), gaussian(6.0)],
    "levels": [gaussian(6.0, 2), ThresholdEvent(delta=2e-7, count=2)],
    "declared twice": [DeclaredEvent(epsilon=0.2, delta=1e-7, count=2), laplace(8.0)],
}


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
def test_both_accountants_agree_with_the_audit(plan: str) -> None:
    assert complaints(PLANS[plan]) == []
    audited = audited_epsilon(PLANS[plan], DELTA)
    assert audited.floor <= audited.bound.high


@pytest.mark.parametrize("delta", [0.0, 1e-13, 0.01])
def test_they_agree_at_no_delta_a_tiny_one_and_a_large_one(delta: float) -> None:
    assert complaints([laplace(4.0), selection(0.1, 3)], delta) == []


def test_every_event_has_an_account_and_an_unknown_one_has_none() -> None:
    seen = {type(event) for plan in PLANS.values() for event in plan}
    assert seen == set(EVENT_TYPES.values())

    @dataclasses.dataclass(frozen=True)
    class UnheardOfEvent:
        count: int = 1

    with pytest.raises(PrivacyError, match="UnheardOfEvent: the audit has no account"):
        audited_epsilon([UnheardOfEvent()], DELTA)  # type: ignore[list-item]


def test_more_noise_costs_less_and_more_events_cost_more() -> None:
    bounds = [audited_epsilon([gaussian(m), laplace(m)], DELTA).bound for m in (3.0, 4.0, 6.0)]
    assert all(first.low > second.high for first, second in pairwise(bounds))
    bounds = [audited_epsilon([selection(0.1, k)], DELTA).bound for k in (1, 4, 16)]
    assert all(first.high < second.low for first, second in pairwise(bounds))


def test_what_the_audit_counts_in_other_units() -> None:
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
def test_extreme_events_end_in_a_number(events: Sequence[PrivacyEvent]) -> None:
    account = of_costs._own_account(events, 1e-15)
    assert account is not None
    assert account.epsilon is not None
    assert 0 <= account.epsilon.floor <= account.epsilon.bound.high * (1 + 1e-9) < math.inf


# --- planted faults ---------------------------------------------------------------------------


class Scaled:
    """A privacy loss distribution that is wrong by a factor."""

    def __init__(self, real: Any, factor: float) -> None:
        self._real, self._factor = real, factor

    def get_epsilon_for_delta(self, delta: float) -> float:
        return float(self._factor * self._real.get_epsilon_for_delta(delta))


def scale(patch: pytest.MonkeyPatch, module: Any, name: str, factor: float) -> None:
    real = getattr(module, name)
    patch.setattr(module, name, lambda *a, **k: type_of(real(*a, **k), factor))


def type_of(value: Any, factor: float) -> Any:
    if value is None:
        return None
    if isinstance(value, float):
        return value * factor
    return value * Decimal(factor) if isinstance(value, Decimal) else Scaled(value, factor)


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Of totals that were made with a fault, or before it."""
    accounting._approximate_epsilon.cache_clear()
    yield
    accounting._approximate_epsilon.cache_clear()


def other_noise(patch: pytest.MonkeyPatch, factor: float) -> None:
    """A fault in how the PLD of one kind of event is made, up and down alike."""
    for name in ("compose_privacy_losses", "optimistic_privacy_losses"):
        real = getattr(accounting, name)

        def made(merged: Sequence[PrivacyEvent], grid: float, real: Any = real) -> Any:
            events = [
                laplace(event.noise_multiplier / factor, event.count)
                if isinstance(event, LaplaceEvent)
                else event
                for event in merged
            ]
            return real(events, grid)

        patch.setattr(accounting, name, made)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch, float], None]] = {
    "rdp": lambda patch, factor: scale(patch, accounting, "_rdp_epsilon", factor),
    "pld": lambda patch, factor: scale(patch, accounting, "compose_privacy_losses", factor),
    "both plds": lambda patch, factor: [
        scale(patch, accounting, name, factor)
        for name in ("compose_privacy_losses", "optimistic_privacy_losses")
    ] and None,
    "laplace pld": other_noise,
    "renyi": lambda patch, factor: [
        scale(patch, kind, "renyi_epsilon", factor) for kind in EVENT_TYPES.values()
    ] and None,
    "the audit": lambda patch, factor: _scale_audit(patch, factor),
}  # fmt: skip


def _scale_audit(patch: pytest.MonkeyPatch, factor: float) -> None:
    real = of_costs.audited_epsilon

    def wrong(events: Any, delta: float) -> Any:
        audited = real(events, delta)
        bound = dataclasses.replace(
            audited.bound, low=audited.bound.low * factor, high=audited.bound.high * factor
        )
        return dataclasses.replace(audited, floor=audited.floor * factor, bound=bound)

    patch.setattr(of_costs, "audited_epsilon", wrong)


def codes_of(folder: Path, events: Sequence[PrivacyEvent], delta: str = "1e-6") -> list[str]:
    """Charge the events as the accounting says at this moment, and audit that."""
    ledger = Ledger.create(folder / "ledger.sqlite")
    ledger.register(
        Population(name="p", relation=ADD, max_rows=1, epsilon=Decimal(99), delta=Decimal("1e-4"))
    )
    total = accounting.epsilon(events, delta=float(delta))
    ledger.reserve(
        population="p", run_key="a" * 64, attempt=1, plan_digest="b" * 64, period="p",
        max_attempts=1, cost=PrivacyCost.of(Decimal(total), Decimal(delta), ADD),
        stages={"s": [accounting.event_to_json(event) for event in events]},
    )  # fmt: skip
    return [finding.code for finding in recompute(tally(ledger.export()))[1]]


MIXED = [gaussian(10.0), laplace(4.0)]


def test_a_charge_by_sound_accountants_is_in_order(tmp_path: Path) -> None:
    assert codes_of(tmp_path, MIXED) == []


@pytest.mark.parametrize("factor", [0.3, 0.9, 1.1, 3.0])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_in_one_account_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, factor: float
) -> None:
    """The charge itself is made by the faulty accounting; so would every comparison with it be."""
    FAULTS[fault](monkeypatch, factor)
    assert "accountants_disagree" in codes_of(tmp_path, MIXED)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_fault_in_the_closed_form_or_in_a_sum_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    for name in ("gaussian", "sum", "none"):
        (tmp_path / name).mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        scale(patch, accounting, "gaussian_epsilon", factor)
        assert "accountants_disagree" in codes_of(tmp_path / "gaussian", [gaussian(5.0)])
    with monkeypatch.context() as patch:
        scale(patch, accounting, "pure_epsilon", factor)
        assert "accountants_disagree" in codes_of(tmp_path / "sum", [laplace(4.0)])
        assert "accountants_disagree" in codes_of(tmp_path / "none", [laplace(4.0)], delta="0")


@pytest.mark.nightly_cases("rdp-dp-sgd", "renyi-dp-sgd", "both plds-dp-sgd")
@pytest.mark.parametrize("plan", ["selections", "dp-sgd"])
@pytest.mark.parametrize("fault", ["rdp", "both plds", "renyi"])
def test_faults_are_found_whatever_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, plan: str
) -> None:
    for factor in (0.3, 3.0):
        (tmp_path / str(factor)).mkdir(mode=0o700)
        with monkeypatch.context() as patch:
            FAULTS[fault](patch, factor)
            found = codes_of(tmp_path / str(factor), PLANS[plan])
        assert "accountants_disagree" in found


def test_a_charge_below_what_no_bound_can_be_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where every accountant, being wrong alike, says that it is enough."""
    for name in ("_rdp_epsilon", "compose_privacy_losses", "optimistic_privacy_losses"):
        scale(monkeypatch, accounting, name, 0.3)
    assert "cost_above_charge" in codes_of(tmp_path, MIXED)


def test_events_without_an_account_of_ours_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(events: Any, delta: float) -> Any:
        raise PrivacyError("no account")

    monkeypatch.setattr(of_costs, "audited_epsilon", unknown)
    assert codes_of(tmp_path, MIXED) == ["cost_not_recounted"]
