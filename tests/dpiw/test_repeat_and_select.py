"""The best of a hidden number of runs, against exact enumeration of small mechanisms."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import brentq

from dpiw import accounting, repeat_and_select
from dpiw.errors import PrivacyError
from dpiw.events import to_dp_event
from dpiw.gaussian import gaussian_delta
from dpiw.privacy import SelectedGaussianEvent, SelectedPureEvent
from dpiw.privacy_loss import event_privacy_loss
from dpiw.renyi import exactly
from dpiw.renyi_events import single
from dpiw.repeat_and_select import (
    LONGEST_TAIL,
    hit_chance,
    mean_of_weights,
    mean_runs,
    pure_total,
    pure_total_float,
    rank_loss,
    run_weights,
    selected_curve,
    stopping_of,
)

SHAPES = (0, 1)
quick = settings(max_examples=60, derandomize=True, database=None, deadline=None)


def run_law(shape, stopping, limit):
    """P(K = k), k = 1 to limit, conditioned on K <= limit; from the printed law alone."""
    k = np.arange(1, limit + 1)
    mass = (1 - stopping) ** k / (k if shape == 0 else 1.0)
    return mass / mass.sum()


def winner(q, score, runs):
    """Law of the released outcome: q' of each outcome below it, its score's group, and f.

    Of equal scores the first run wins, so within a group of one score the winner has law q.
    """
    k = np.arange(1, len(runs) + 1)

    def f(x):
        return float(runs @ x**k)

    found = np.zeros_like(q)
    for level in np.unique(score):
        group = score == level
        below, upto = q[score < level].sum(), q[score <= level].sum()
        found[group] = (f(min(upto, 1.0)) - f(below)) * q[group] / q[group].sum()
    return found


def winner_by_enumeration(q, score, runs):
    """The same by listing every sequence of outcomes; slow and obviously right."""
    found = np.zeros_like(q)
    for k, chance in enumerate(runs, start=1):
        for outcomes in itertools.product(range(len(q)), repeat=k):
            best = max(outcomes, key=lambda y: score[y])  # the first of equal scores
            found[best] += chance * math.prod(q[y] for y in outcomes)
    return found


def curve(p, q, order):
    """sup_S P(S) - exp(order) Q(S)."""
    return float(np.maximum(0.0, p - math.exp(order) * q).sum())


def two_way(p, q, order):
    return max(curve(p, q, order), curve(q, p, order))


def bound(q, other, shape, stopping, order):
    """Steps 2 and 3 for any pair: the winner's curve at `order` by the single run's curve."""

    def lacking(loss):
        return (1 - stopping) * two_way(q, other, loss) - stopping * math.expm1(loss)

    loss = brentq(lacking, 0.0, 60.0) + 1e-9
    chance = two_way(q, other, order - (1 + shape) * loss)
    return float(hit_chance(shape, stopping, np.array(chance)))


laws = st.lists(st.floats(0.02, 1.0), min_size=4, max_size=4)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_winner_s_law_is_that_of_all_sequences(shape):
    rng = np.random.default_rng(1)
    for score in ([0, 1, 2, 3], [0, 1, 1, 1], [2, 0, 2, 1]):
        q = rng.dirichlet(np.ones(4))
        runs = run_law(shape, 0.3, 6)
        np.testing.assert_allclose(
            winner(q, np.array(score), runs),
            winner_by_enumeration(q, score, runs),
            atol=1e-13,
        )


@quick
@given(
    one=laws, two=laws, shape=st.sampled_from(SHAPES), stopping=st.floats(0.02, 0.9),
    limit=st.sampled_from([2, 5, 400]), score=st.permutations([0, 1, 1, 2]),
)  # fmt: skip
def test_no_mechanism_exceeds_the_curve_with_or_without_a_limit(
    one, two, shape, stopping, limit, score
):
    q, other = np.array(one) / sum(one), np.array(two) / sum(two)
    runs, score = run_law(shape, stopping, limit), np.array(score)
    a, b = winner(q, score, runs), winner(other, score, runs)
    for order in (-1.0, -0.2, 0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        assert two_way(a, b, order) <= bound(q, other, shape, stopping, order) + 1e-9


def extremal(epsilon, shape, stopping, rare):
    """Three outcomes: a low one, a rare one, a high one, with q(rare) = exp(epsilon) q'(rare)."""
    grown = math.exp(epsilon)
    low, high = grown / (1 + grown), 1 / (1 + grown)
    q = np.array([low - rare, rare, high])
    other = np.array([high - rare / grown, rare / grown, low])
    assert np.all(np.abs(np.log(q / other)) <= epsilon + 1e-6)
    runs = run_law(shape, stopping, 4000)
    score = np.arange(3)
    return float(np.log(winner(q, score, runs) / winner(other, score, runs))[1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stopping", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_the_pure_total_is_attained_and_smaller_charges_are_broken(epsilon, stopping, shape):
    event = SelectedPureEvent(epsilon=epsilon, shape=shape, stopping=stopping)
    total = pure_total_float(event)
    attained = extremal(epsilon, shape, stopping, 1e-7)
    assert attained <= total
    assert attained == pytest.approx(total, rel=1e-5)
    assert total < (2 + shape) * epsilon
    # What would break the promise: the price of one run, or of one rank too few.
    wrong = [epsilon, epsilon + shape * float(rank_loss(event))]
    assert all(attained > charge * (1 + 1e-3) for charge in wrong)


@quick
@given(
    weights=laws, tilt=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    epsilon=st.floats(0.05, 2.0), shape=st.sampled_from(SHAPES), stopping=st.floats(0.02, 0.9),
    limit=st.sampled_from([3, 1000]), score=st.permutations([0, 1, 2, 2]),
)  # fmt: skip
def test_no_pure_mechanism_exceeds_the_pure_total(
    weights, tilt, epsilon, shape, stopping, limit, score
):
    q = np.array(weights) / sum(weights)
    other = q * np.exp(epsilon / 2 * np.array(tilt))  # normalising adds at most epsilon/2 more
    other /= other.sum()
    assert np.all(np.abs(np.log(q / other)) <= epsilon + 1e-12)
    runs, score = run_law(shape, stopping, limit), np.array(score)
    loss = np.abs(np.log(winner(q, score, runs) / winner(other, score, runs))).max()
    event = SelectedPureEvent(epsilon=epsilon, shape=shape, stopping=stopping)
    assert loss <= pure_total_float(event) + 1e-9


def binned_gaussian(multiplier, shift, edges):
    return np.diff(stats.norm(shift, multiplier).cdf(edges))


def adversarial_gaussian(multiplier, shape, stopping, *, runs=None):
    """Binned Gaussian runs whose scores favour losses: (c, t) lowest, above t next, below c best.

    Under the neighbour more runs fall below c, so fewer others win; above t the losses are large.
    """
    edges = np.r_[-np.inf, np.linspace(-4, 5, 901) * multiplier, np.inf]
    q, other = (binned_gaussian(multiplier, shift, edges) for shift in (1.0, 0.0))
    middle = (edges[:-1] + edges[1:]) / 2
    middle[[0, -1]] = edges[1], edges[-2]
    found = []
    runs = run_law(shape, stopping, 3000) if runs is None else runs
    for c in np.array([-2.0, -1.5, -1.0, -0.5, 0.0]) * multiplier:
        for t in np.array([0.5, 1.0, 2.0, 3.0]) * multiplier:
            score = np.where(middle < c, 2, np.where(middle > t, 1, 0))
            found.append((winner(q, score, runs), winner(other, score, runs)))
    return found


def curve_at(event, order):
    reach = max(6.0, 2 * abs(order))
    grid = np.linspace(-reach, reach, 24001)
    return float(np.interp(math.exp(order), np.exp(grid), selected_curve(event, grid)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("multiplier", "stopping"), [(1.0, 0.05), (3.0, 0.2)])
def test_gaussian_runs_stay_below_their_curve_and_a_free_selection_does_not(
    multiplier, stopping, shape
):
    event = SelectedGaussianEvent(noise_multiplier=multiplier, shape=shape, stopping=stopping)
    orders = np.linspace(-2, 4, 13) / multiplier
    pairs = adversarial_gaussian(multiplier, shape, stopping)
    worst = {float(s): max(two_way(a, b, s) for a, b in pairs) for s in orders}
    assert all(found <= curve_at(event, s) for s, found in worst.items())
    # The price of one run alone, and of the ranks without the number of runs, are both broken.
    assert any(found > 1.2 * gaussian_delta(multiplier, max(s, 0)) for s, found in worst.items()
               if s >= 0)  # fmt: skip
    loss = (1 + shape) * float(rank_loss(event))
    assert any(found > 1.05 * gaussian_delta(multiplier, s - loss) for s, found in worst.items()
               if s >= loss)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_curve_is_within_reach(shape):
    """Not only above every mechanism tried, but within ten times the worst of them."""
    event = SelectedGaussianEvent(noise_multiplier=3.0, shape=shape, stopping=0.2)
    pairs = adversarial_gaussian(3.0, shape, 0.2)
    for order in (0.3, 0.6, 0.9):
        worst = max(two_way(a, b, order) for a, b in pairs)
        assert worst > curve_at(event, order) / 10


@pytest.mark.parametrize("shape", SHAPES)
def test_a_limit_never_costs_more(shape):
    """f'(r)/f'(r') for r >= r' is largest without a limit: step 4."""
    stopping, full = 0.1, 2000
    k = np.arange(1, full + 1)
    r = np.linspace(0, 1, 41)

    def slopes(limit):
        runs = run_law(shape, stopping, limit)
        return np.array([(runs * k[:limit]) @ x ** (k[:limit] - 1) for x in r])

    free = slopes(full)
    for limit in (1, 2, 5, 30, 200):
        held = slopes(limit)
        assert np.all(np.diff(held) >= -1e-12)
        upper = np.triu_indices(len(r))
        ratio = np.log(held[upper[1]] / held[upper[0]]) - np.log(free[upper[1]] / free[upper[0]])
        assert np.all(ratio <= 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [1.5, 2.0, 4.0, 16.0])
def test_renyi_bounds_hold_and_beat_the_published_theorem(shape, order):
    event = SelectedGaussianEvent(noise_multiplier=3.0, shape=shape, stopping=0.1)
    ours = float(single(event, Decimal(order)))
    for a, b in adversarial_gaussian(3.0, shape, 0.1):
        kept = (a > 1e-14) & (b > 1e-14)
        for p, q in ((a[kept], b[kept]), (b[kept], a[kept])):
            assert math.log((p**order * q ** (1 - order)).sum()) / (order - 1) <= ours
    orders = [1 + i / 50 for i in range(1, 400)] + list(range(9, 200))
    theirs = rdp.RdpAccountant(orders)
    theirs.compose(to_dp_event(event))
    place = int(np.argmin(np.abs(np.array(orders) - order)))
    assert ours <= theirs._rdp[place] <= 4 * ours


@pytest.mark.parametrize("order", [1.5, 3.0, 40.0])
def test_pure_renyi_is_randomised_response(order):
    event = SelectedPureEvent(epsilon=0.4, shape=1, stopping=0.1)
    grown = math.exp(pure_total_float(event))
    p = np.array([grown, 1]) / (1 + grown)
    exact = math.log((p**order * p[::-1] ** (1 - order)).sum()) / (order - 1)
    assert float(single(event, Decimal(order))) == pytest.approx(exact, rel=1e-10)
    assert exact <= order * pure_total_float(event) ** 2 / 2


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 7.0, 80.0])
@pytest.mark.parametrize("stopping", [0.01, 0.3, 1.0])
def test_rank_loss_solves_its_equation_from_above(multiplier, stopping):
    event = SelectedGaussianEvent(noise_multiplier=multiplier, shape=0, stopping=stopping)
    found = float(rank_loss(event))

    def lacking(loss):
        return (1 - stopping) * gaussian_delta(multiplier, loss) - stopping * math.expm1(loss)

    assert found == pytest.approx(0.0 if stopping == 1 else brentq(lacking, 0, 60), abs=1e-9)
    # Without the exact root, the closed form above it: very little noise.
    crude = SelectedGaussianEvent(noise_multiplier=0.24, shape=0, stopping=0.1)
    nearby = SelectedGaussianEvent(noise_multiplier=0.26, shape=0, stopping=0.1)
    assert float(rank_loss(crude)) > float(rank_loss(nearby))


def test_normal_tails_are_scipy_s():
    with exactly():
        for x in (-9.0, -2.5, 0.0, 0.7, 3.0, 8.0):
            found = float(repeat_and_select._normal_tail(Decimal(x)))
            assert found == pytest.approx(stats.norm.sf(x), rel=1e-12)


@pytest.mark.parametrize(("shape", "mean"), [(0, 1.5), (0, 5), (0, 30), (1, 2), (1, 10)])
def test_runs_have_their_law_and_mean(shape, mean):
    stopping = stopping_of(shape, mean)
    assert float(mean_runs(shape, Decimal(stopping))) == pytest.approx(mean, rel=1e-9)
    weights = run_weights(shape, stopping)
    expected = run_law(shape, stopping, len(weights))
    np.testing.assert_allclose(np.array(weights, dtype=float) / sum(weights), expected, rtol=1e-12)
    whole = run_law(shape, stopping, 60 * len(weights))
    assert whole[len(weights) :].sum() <= LONGEST_TAIL < whole[len(weights) - 1 :].sum()
    assert mean * 0.97 <= mean_of_weights(weights) <= mean
    # The published theorem names the same law by its mean.
    by_series = whole @ np.arange(1, len(whole) + 1)
    assert by_series == pytest.approx(mean, rel=1e-3)


def test_hit_chance_is_one_less_f():
    for shape in SHAPES:
        runs = run_law(shape, 0.2, 500)
        for chance in (0.0, 1e-6, 0.3, 1.0):
            exact = 1 - runs @ (1 - chance) ** np.arange(1, 501)
            found = float(hit_chance(shape, 0.2, np.array(chance)))
            assert found == pytest.approx(exact, abs=1e-12)
            assert found <= float(mean_runs(shape, Decimal("0.2"))) * chance + 1e-15
    assert hit_chance(0, 1.0, np.array([0.25])) == pytest.approx([0.25])


def test_totals_of_the_literature():
    """METHOD section 11: Gaussian sigma 10, mean 10, delta 1e-6, by Renyi: 0.743 and 0.898.

    By privacy curves 0.585 and 0.627. Pure runs: below 2 and 3 times epsilon.
    """
    for shape, published, sharper in ((0, 0.743, 0.585), (1, 0.898, 0.627)):
        event = SelectedGaussianEvent(
            noise_multiplier=10.0, shape=shape, stopping=stopping_of(shape, 10.0)
        )
        assert accounting.epsilon_rdp([event], delta=1e-6) == pytest.approx(published, abs=1e-3)
        assert accounting.epsilon([event], delta=1e-6) == pytest.approx(sharper, abs=1e-3)
        pure = SelectedPureEvent(epsilon=0.3, shape=shape, stopping=stopping_of(shape, 10.0))
        assert (1.9 + shape * 0.6) * 0.3 < float(pure_total(pure)) < (2 + shape) * 0.3


def test_one_run_costs_one_run():
    one = SelectedGaussianEvent(noise_multiplier=4.0, shape=0, stopping=1.0)
    grid = np.linspace(-3, 3, 6001)
    exact = [gaussian_delta(4.0, s) for s in grid[grid >= 0]]
    np.testing.assert_allclose(selected_curve(one, grid)[grid >= 0], exact, rtol=1e-6, atol=1e-15)
    assert pure_total(SelectedPureEvent(epsilon=0.5, shape=1, stopping=1.0)) == Decimal("0.5")


def test_a_curve_needs_both_sides():
    event = SelectedGaussianEvent(noise_multiplier=4.0, shape=0, stopping=0.5)
    with pytest.raises(PrivacyError, match="symmetric"):
        selected_curve(event, np.linspace(0, 1, 11))


def test_the_distribution_has_the_curve():
    """Connect-the-dots adds nothing a thousand times coarser than what is charged."""
    event = SelectedGaussianEvent(noise_multiplier=4.0, shape=1, stopping=0.2)
    total = event_privacy_loss(event, 1e-4)
    for order in (0.2, 0.8, 1.5):
        exact = curve_at(event, order)
        assert exact * (1 - 1e-6) <= total.get_delta_for_epsilon(order) <= exact * (1 + 1e-3)
    assert total.get_delta_for_epsilon(40.0) <= 1e-20


def test_selections_compose_with_other_events_as_their_curves_do():
    """Beside a Gaussian event: the exact curve of a pure winner's worst pair, by conditioning."""
    event = SelectedPureEvent(epsilon=0.3, shape=0, stopping=0.1)
    total = pure_total_float(event)
    share = math.exp(total) / (1 + math.exp(total))
    gaussian = accounting.event_from_json({"type": "gaussian", "noise_multiplier": 3.0, "count": 1})
    found = accounting.epsilon([event, gaussian], delta=1e-6)

    def exact(order):
        return share * gaussian_delta(3.0, order - total) + (1 - share) * gaussian_delta(
            3.0, order + total
        )

    assert exact(found) <= 1e-6 < exact(found * 0.998)


def test_a_rare_outcome_is_integrated_like_any_other():
    """The bracket of step 3 by quadrature, for Gaussian runs ranked by their own value."""
    multiplier, shape, stopping = 2.0, 0, 0.1
    event = SelectedGaussianEvent(noise_multiplier=multiplier, shape=shape, stopping=stopping)
    law, other = stats.norm(1, multiplier), stats.norm(0, multiplier)

    def slope(r):
        return (1 - stopping) / (stopping + (1 - stopping) * (1 - r)) / -math.log(stopping)

    def density(x, order):
        one = law.pdf(x) * slope(law.cdf(x))
        two = other.pdf(x) * slope(other.cdf(x))
        return max(0.0, one - math.exp(order) * two)

    for order in (0.2, 0.8, 1.4):
        exact = integrate.quad(density, -20, 40, args=(order,), limit=400)[0]
        assert exact <= curve_at(event, order)


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("power", [5, 27, 39, 45, 100, 300])
def test_rank_loss_holds_for_absurd_stopping_parameters(multiplier, power):
    """(1 - g) H(l) <= g (e^l - 1), by SciPy's log tails; below 1e-40 the closed form serves."""
    event = SelectedGaussianEvent(
        noise_multiplier=multiplier, shape=0.0, stopping=float(f"1e-{power}"), count=1
    )
    found = float(repeat_and_select.rank_loss(event))
    half, shift = 0.5 / multiplier, found * multiplier
    above, below = stats.norm.logsf(shift - half), found + stats.norm.logsf(shift + half)
    log_delta = above + np.log1p(-np.exp(below - above))
    spared = np.log(event.stopping) - np.log1p(-event.stopping)
    assert log_delta <= spared + np.log(np.expm1(found)) + 1e-9
