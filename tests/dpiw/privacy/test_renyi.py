"""Renyi vectors are upper bounds, and the filter's numbers are those of exact arithmetic."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.privacy import renyi
from dpiw.privacy.accounting import LATTICE_MARGIN, renyi_vector, stored_event, to_dp_event
from dpiw.privacy.events import (
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
)
from dpiw.privacy.gaussian import gaussian_epsilon

EPSILON, DELTA = 10**12, 10**18
few = settings(max_examples=10, derandomize=True, database=None, deadline=None)
quick = settings(max_examples=30, derandomize=True, database=None, deadline=None)

sizes = st.floats(0.05, 200)
counts = st.integers(1, 50)
events = st.one_of(
    st.builds(GaussianEvent, noise_multiplier=sizes, count=counts),
    st.builds(LaplaceEvent, noise_multiplier=sizes, count=counts),
    st.builds(ExponentialMechanismEvent, epsilon=st.floats(1e-3, 5), count=counts),
    st.builds(
        PoissonSampledGaussianEvent, sampling_probability=st.floats(1e-4, 1),
        noise_multiplier=st.floats(0.5, 50), count=counts,
    ),
)  # fmt: skip


WHOLE = [i for i, order in enumerate(renyi.ORDERS) if order == int(order)]


@quick
@given(event=events)
@pytest.mark.slow
def test_a_vector_bounds_the_accountants_and_hardly_more(event):
    """Whole orders: never below dp_accounting's value without margin, and near it with margin."""
    vector = renyi_vector([event])
    for i in WHOLE[:12]:
        epsilon = vector[i] * 1e-12
        accountant = rdp.RdpAccountant([float(renyi.ORDERS[i])])
        accountant.compose(to_dp_event(event))
        theirs = float(accountant._rdp[0])  # its conversion to (epsilon, delta) undone
        if isinstance(event, ExponentialMechanismEvent):
            theirs = min(theirs, event.epsilon * event.count)
        if epsilon >= renyi.BEYOND * 1e-12:
            continue
        assert epsilon >= theirs * (1 - 1e-9) - 1e-9
        slack = 1.01 if isinstance(event, PoissonSampledGaussianEvent) else 1 + 3 * LATTICE_MARGIN
        if theirs > 1e-6:
            assert epsilon <= theirs * slack + 1e-9


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0, 40.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 64.0])
def test_laplace_is_the_integral(multiplier, order):
    """The Renyi divergence of two Laplace laws at distance one, by numerical integration."""

    def log_density(x, centre):
        return -abs(x - centre) / multiplier - math.log(2 * multiplier)

    def integrand(x):
        return math.exp(order * log_density(x, 0) + (1 - order) * log_density(x, 1))

    wide = 60 * multiplier
    total = sum(
        integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-11, limit=400)[0]
        for a, b in ((-wide, 0), (0, 1), (1, 1 + wide))
    )
    expected = math.log(total) / (order - 1)
    epsilon = float(LaplaceEvent(noise_multiplier=multiplier).renyi_epsilon(Decimal(order)))
    assert epsilon == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("order", [2, 5, 16])
def test_a_sampled_gaussian_is_the_larger_of_both_integrals(order):
    q, sigma = 0.1, 1.3

    def log_mixture(x):
        base = -(x**2) / (2 * sigma**2)
        return base + math.log(1 - q + q * math.exp((2 * x - 1) / (2 * sigma**2)))

    def divergence(first, second):
        def integrand(x):
            norm = sigma * math.sqrt(2 * math.pi)
            return math.exp(order * first(x) + (1 - order) * second(x)) / norm

        total, _ = integrate.quad(integrand, -60, 60, points=[0, order / 2, order], limit=800)
        return math.log(total) / (order - 1)

    def log_null(x):
        return -(x**2) / (2 * sigma**2)

    event = PoissonSampledGaussianEvent(sampling_probability=q, noise_multiplier=sigma)
    epsilon = float(event.renyi_epsilon(Decimal(order)))
    divergences = [divergence(log_mixture, log_null), divergence(log_null, log_mixture)]
    assert epsilon == pytest.approx(max(divergences), rel=1e-6)
    # between whole orders: the next whole one, so never less
    assert event.renyi_epsilon(Decimal("1.5")) == event.renyi_epsilon(Decimal(2))


@quick
@given(multiplier=sizes, count=counts)
def test_gaussian_units_are_exact_fractions_rounded_up(multiplier, count):
    event = GaussianEvent(noise_multiplier=multiplier, count=count)
    vector = renyi_vector([event])
    scale = Fraction(multiplier) / Fraction(1 + LATTICE_MARGIN)
    for units, order in zip(vector, renyi.ORDERS, strict=True):
        exact = Fraction(order) * count / (2 * scale**2) * EPSILON
        if units == renyi.BEYOND:
            assert exact > renyi.BEYOND * (1 - Fraction(1, 10**9))
        else:  # merging works in floats, far inside the margin
            assert exact * (1 - Fraction(1, 10**13)) <= units
            assert units <= exact * (1 + Fraction(1, 10**13)) + 2
        # the margin: always above what the event without it would cost
        plain = Fraction(order) * count / (2 * Fraction(multiplier) ** 2) * EPSILON
        assert units >= min(plain, renyi.BEYOND)


@few
@given(parts=st.lists(events, min_size=1, max_size=5))
@pytest.mark.slow
def test_parts_never_cost_less_than_the_whole(parts):
    whole = renyi_vector(parts)
    alone = [renyi_vector([one]) for one in parts]
    for i in range(len(renyi.ORDERS)):
        total = sum(one[i] for one in alone)
        if whole[i] < renyi.BEYOND:
            assert total >= whole[i] * (1 - 1e-12) - len(parts)
    assert all(one > 0 for one in whole)
    assert list(whole) == sorted(whole)  # divergences grow with the order


def test_too_much_for_any_order_and_nothing_at_all_are_said_so():
    with pytest.raises(PrivacyError, match="at least one"):
        renyi_vector([])
    with pytest.raises(UncalibratedError):
        renyi_vector([GaussianEvent(noise_multiplier=0.0)])
    for epsilon, delta in ((EPSILON, 0), (10**10, 10**12)):  # budgets that no order can meet
        with pytest.raises(SpecError, match=r"population\.(epsilon|delta)"):
            renyi.order_budgets(epsilon, delta)
    for wrong in ({"type": "gaussian", "noise_multiplier": "x", "count": 1}, {"type": "gift"}):
        with pytest.raises(PrivacyError):
            stored_event(wrong)
    vector = renyi_vector([GaussianEvent(noise_multiplier=1e-4)])
    assert set(vector) == {renyi.BEYOND}
    tiny = renyi_vector(
        [PoissonSampledGaussianEvent(sampling_probability=0.01, noise_multiplier=0.01)]
    )
    assert tiny[-1] == renyi.BEYOND
    assert tiny[0] < renyi.BEYOND


def shift(order: Decimal, delta_units: int) -> Decimal:
    """The conversion at 100 digits, in units, written down anew."""
    with localcontext() as context:
        context.prec = 100
        share = Decimal(delta_units) / DELTA / 16
        part = ((order - 1) / order).ln() - (share * order).ln() / (order - 1)
        return part * EPSILON


epsilons = st.integers(10**11, 10**14)
deltas = st.integers(10**6, 10**16)


@quick
@given(epsilon=epsilons, delta=deltas)
def test_budgets_are_exact_and_rounded_down(epsilon, delta):
    try:
        budgets = renyi.order_budgets(epsilon, delta)
    except SpecError:
        assert all(shift(order, delta) + 1 > epsilon for order in renyi.ORDERS)
        return
    for most, order in zip(budgets, renyi.ORDERS, strict=True):
        assert most + shift(order, delta) <= epsilon or most == 0
        assert most + 1 + shift(order, delta) > epsilon


@quick
@given(
    epsilon=st.integers(5 * 10**11, 10**14), delta=st.integers(10**11, 10**16),
    raw=st.lists(st.integers(1, 10**14), min_size=16, max_size=16), nudge=st.integers(-2, 2),
    place=st.integers(0, 15),
)  # fmt: skip
def test_within_budget_is_exactly_converted_within_epsilon(epsilon, delta, raw, nudge, place):
    budgets = renyi.order_budgets(epsilon, delta)
    raw[place] = max(1, budgets[place] + nudge)
    spent = renyi.RenyiVector(units=tuple(raw))
    assert (renyi.converted_units(spent, delta) <= epsilon) == renyi.within(spent, budgets)


def test_conversion_is_dp_accountings_at_a_sixteenth_of_delta():
    for order, units in ((8, 3 * 10**11), (32, 10**12), (2, 10**13)):
        raw = [renyi.BEYOND] * 16
        raw[list(renyi.ORDERS).index(order)] = units
        epsilon = renyi.converted_units(renyi.RenyiVector(units=tuple(raw)), 10**13) / EPSILON
        theirs, _ = rdp.compute_epsilon([order], [units / EPSILON], 1e-5 / 16)
        assert epsilon == pytest.approx(theirs, rel=1e-9)


def test_the_orders_are_frozen():
    """A change here changes what registered populations may spend: it needs a new rule's name."""
    text = "1.5 2 3 4 5 6 8 10 12 16 24 32 64 128 256 512"
    assert " ".join(map(str, renyi.ORDERS)) == text
    assert renyi.order_budgets(4 * 10**12, 10**13)[-1] == 3_986_207_110_056


def test_a_stated_loss_leaves_the_budgets_of_the_smaller_delta():
    lifetime, lost = 10**13, 4 * 10**12
    before, after = (renyi.order_budgets(4 * 10**12, d) for d in (lifetime, lifetime - lost))
    vector = renyi.loss_vector(0, lost, delta_left_units=lifetime).units
    for budget, reduced, charge in zip(before, after, vector, strict=True):
        if reduced > 0:
            assert 0 <= charge - (budget - reduced) <= 2
    # in two steps as in one
    first = renyi.loss_vector(0, 10**12, delta_left_units=lifetime)
    second = renyi.loss_vector(0, 3 * 10**12, delta_left_units=lifetime - 10**12)
    gaps = [a - b for a, b in zip(first.plus(second).units, vector, strict=True)]
    assert all(0 <= gap <= 2 for gap in gaps)


def test_a_pure_loss_is_bounded_by_epsilon_and_by_zcdp():
    half = renyi.loss_vector(5 * 10**11, 0, delta_left_units=10**13).units
    for units, order in zip(half, renyi.ORDERS, strict=True):
        assert units == pytest.approx(min(0.5, float(order) * 0.125) * 1e12, abs=2)
    # the worst pure mechanism, randomised response, stays below
    p = math.exp(0.5) / (1 + math.exp(0.5))
    for units, order in zip(half, map(float, renyi.ORDERS), strict=True):
        value = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        assert math.log(value) / (order - 1) <= units * 1e-12
    assert not any(renyi.loss_vector(0, 0, delta_left_units=10**13).units)
    assert set(renyi.loss_vector(1, 10**13, delta_left_units=10**13).units) == {renyi.BEYOND}


def played(rng, *, plays, step, strategy, budgets):
    """Privacy losses of adaptive runs of Gaussian draws that the filter lets pass, under P.

    Each draw's loss is N(mu^2/2, mu^2) with mu = 1/multiplier; the filter's sums are those of mu.
    """
    loss, squares = np.zeros(plays), np.zeros(plays)
    alive = np.ones(plays, dtype=bool)
    most = max(2 * b / float(a) for a, b in zip(renyi.ORDERS, budgets, strict=True))
    while alive.any():
        mu2 = strategy(loss, squares, most, step)
        alive &= squares + mu2 <= most
        draw = mu2 / 2 + np.sqrt(mu2) * rng.standard_normal(plays)
        loss += np.where(alive, draw, 0)
        squares += np.where(alive, mu2, 0)
        alive &= mu2 > 0
    return loss


SUCCESS = 1.5
STRATEGIES = {
    "equal": lambda loss, squares, most, step: np.full_like(loss, step),
    "stop at the first success": lambda loss, squares, most, step: np.where(
        loss > SUCCESS, 0, step
    ),
    # Small draws while it goes badly, all that is left once it goes well.
    "gamble": lambda loss, squares, most, step: np.where(
        loss > SUCCESS / 3, np.maximum(most - squares, 0) * 0.999999, step
    ),
}


def estimated_delta(loss, epsilon):
    shares = np.maximum(0, 1 - np.exp(epsilon - loss))
    return shares.mean() + 5 * shares.std() / math.sqrt(len(loss))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_adaptive_sequences_stay_within_the_budget(strategy):
    """(1.5, 0.01) for life: the loss of 40,000 plays, five standard errors added, stays within.

    False alarm below 1e-6 by the normal law; and a filter with six times the budget is caught.
    """
    epsilon, delta = SUCCESS, 0.01
    budgets = [b / EPSILON for b in renyi.order_budgets(int(epsilon * EPSILON), int(delta * DELTA))]
    rng = np.random.default_rng(11)
    loss = played(rng, plays=40_000, step=0.004, strategy=strategy, budgets=budgets)
    assert estimated_delta(loss, epsilon) <= delta
    loose = [6 * b for b in budgets]
    loss = played(rng, plays=40_000, step=0.02, strategy=strategy, budgets=loose)
    assert estimated_delta(loss, epsilon) > delta


def test_what_the_filter_grants_is_within_the_budget_by_the_exact_curve():
    """Equal Gaussians to the filter's end, against the analytic Gaussian: near, never beyond."""
    budgets = renyi.order_budgets(4 * 10**12, 10**13)
    vector = renyi.RenyiVector(units=renyi_vector([GaussianEvent(noise_multiplier=20.0)]))
    spent, granted = renyi.RenyiVector.nothing(), 0
    while renyi.within(spent.plus(vector), budgets):
        spent, granted = spent.plus(vector), granted + 1
    exact = gaussian_epsilon(20.0 / math.sqrt(granted), 1e-5)
    assert 0.75 * 4 < exact < 4
    assert renyi.converted_units(spent, 10**13) <= 4 * 10**12


def test_a_vector_is_stated_in_one_way():
    units = tuple(range(16))
    for vector in (renyi.RenyiVector(units=units), renyi.RenyiVector(units=units, lost_delta=7)):
        assert renyi.RenyiVector.from_payload(vector.to_payload()) == vector
    good = renyi.RenyiVector(units=units).to_payload()
    assert set(good) == {"rule", "units"}
    for change in (
        {"lost_delta_units": 0}, {"lost_delta_units": True}, {"more": 1}, {"rule": "renyi-0"},
        {"units": [0.0] * 16}, {"units": 3}, {"units": [1] * 15}, {"units": [1] * 15 + [-1]},
        {"units": [True] * 16},
    ):  # fmt: skip
        with pytest.raises(SpecError):
            renyi.RenyiVector.from_payload({**good, **change})
    for wrong in (None, [], {"units": list(units)}):
        with pytest.raises(SpecError):
            renyi.RenyiVector.from_payload(wrong)


def test_what_losses_took_of_delta_is_summed_with_the_vector():
    larger, smaller = (renyi.RenyiVector(units=(1,) * 16, lost_delta=taken) for taken in (5, 2))
    assert larger.plus(smaller, times=2).lost_delta == 9
    assert larger.combined(smaller, lambda ours, theirs: ours - theirs).lost_delta == 3
    for taken in (3, 10**13):
        assert renyi.loss_vector(1, taken, delta_left_units=10**13).lost_delta == taken
