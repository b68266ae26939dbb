"""The curves of exponential mechanisms against brute force."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from dpiw.privacy.accounting import compose_privacy_losses, event_privacy_loss
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent
from dpiw.privacy.gaussian import (
    block_curve,
    block_is_cheap,
    gaussian_delta,
    gaussian_multiplier,
    selection_curve,
)

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def exponential_pair(rng: np.random.Generator, epsilon: float, size: int) -> Pair:
    """Output laws of an exponential mechanism (S = 1) on two neighbouring score vectors."""
    scores = rng.normal(scale=3 / epsilon, size=size)
    moved = scores + rng.choice([rng.uniform(-1, 1, size), rng.choice([-1.0, 1.0], size)])
    laws = [np.exp((s - s.max()) * epsilon / 2) for s in (scores, moved)]
    return laws[0] / laws[0].sum(), laws[1] / laws[1].sum()


def hockey_stick(pair: Pair, order: float) -> float:
    return float(np.maximum(0.0, pair[0] - math.exp(order) * pair[1]).sum())


def two_point(epsilon: float, t: float) -> Pair:
    """The extreme pair: loss t or t - epsilon."""
    share = math.expm1(t - epsilon) / math.expm1(-epsilon)
    first = np.array([share, 1 - share])
    return first, first * np.exp([-t, epsilon - t])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_exponential_mechanism_exceeds_the_curve(epsilon):
    rng = np.random.default_rng(1)
    orders = np.linspace(-1.2 * epsilon, 1.2 * epsilon, 25)
    bound = selection_curve(epsilon, orders)
    worst = 0.0
    for _ in range(2000):
        pair = exponential_pair(rng, epsilon, int(rng.integers(2, 8)))
        exact = np.array([hockey_stick(pair, order) for order in orders])
        assert np.all(exact <= bound + 1e-12)
        worst = max(worst, exact[12] / bound[12])
    assert worst > 0.9  # the search comes close, so it could have found a violation


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_curve_is_attained(epsilon):
    for order in np.linspace(-0.95 * epsilon, 0.95 * epsilon, 11):
        pair = two_point(epsilon, (order + epsilon) / 2)
        assert pair[1].sum() == pytest.approx(1.0)
        bound = float(selection_curve(epsilon, np.array([order]))[0])
        assert hockey_stick(pair, order) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.5])
def test_the_curves_are_hockey_stick_curves(epsilon, count):
    """Convex and decreasing in exp(s), between the trivial curve and 1, and symmetric."""
    orders = np.linspace(-1.2 * count * epsilon, 1.2 * count * epsilon, 801)
    values = selection_curve(epsilon, orders)
    if count > 1:
        values = block_curve(epsilon, count, orders)
    points = np.exp(orders)
    slopes = np.diff(values) / np.diff(points)
    assert np.all(slopes <= 1e-9)
    assert np.all(np.diff(slopes) >= -1e-6)
    assert np.all(values >= np.maximum(0, 1 - points) - 1e-12)
    assert np.all(values <= 1)
    # Swapping the two tables maps H(s) to 1 - e^s + e^s H(-s); the class is closed under it.
    assert values == pytest.approx(1 - points + points * values[::-1], abs=2e-3 * epsilon)


def adaptive_tree(
    rng: np.random.Generator, epsilons: list[float], kinds: list[str]
) -> list[tuple[float, float]]:
    """(P, Q) of every transcript of a run whose every step depends on the earlier outcomes."""
    leaves = [(1.0, 1.0)]
    for epsilon, kind in zip(epsilons, kinds, strict=True):
        grown = []
        for p, q in leaves:
            loss = math.log(p / q)
            if kind == "response":
                pair = (np.array([1, math.exp(-epsilon)]) / (1 + math.exp(-epsilon)),) * 2
                pair = (pair[0], pair[1][::-1])
            elif rng.uniform() < 0.3:
                pair = exponential_pair(rng, epsilon, 3)
            else:
                t = epsilon / 2 - loss / 2 if rng.uniform() < 0.7 else rng.uniform(0, epsilon)
                pair = two_point(epsilon, float(np.clip(t, 1e-9, epsilon - 1e-9)))
            grown += [(p * a, q * b) for a, b in zip(*pair, strict=True)]
        leaves = grown
    return leaves


def tree_divergence(leaves: list[tuple[float, float]], order: float) -> float:
    return sum(max(0.0, p - math.exp(order) * q) for p, q in leaves)


def test_no_adaptive_run_exceeds_the_block_curve():
    rng = np.random.default_rng(2)
    orders = np.linspace(-1.0, 2.5, 15)
    bound = block_curve(0.6, 5, orders)
    best = np.zeros_like(orders)
    for _ in range(150):
        leaves = adaptive_tree(rng, [0.6] * 5, ["selection"] * 5)
        best = np.maximum(best, [tree_divergence(leaves, order) for order in orders])
    assert np.all(best <= bound + 1e-12)
    assert best[4] > 0.9 * bound[4]  # order 0


def test_no_interleaved_run_exceeds_the_composition():
    """Selections before, between and after randomised responses, all adaptive."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    rng = np.random.default_rng(3)
    block = event_privacy_loss(ExponentialMechanismEvent(epsilon=0.5, count=3), 1e-3, as_block=True)
    noise = math.exp(-0.4) / (1 + math.exp(-0.4))
    response = pld.from_randomized_response(2 * noise, 2, value_discretization_interval=1e-3)
    total = block.compose(response).compose(response)
    orders = [0.0, 0.3, 0.8, 1.5]
    bound = np.array([total.get_delta_for_epsilon(order) for order in orders])
    for order_of_kinds in ("sssrr", "rsrss", "rrsss", "srsrs"):
        kinds = ["selection" if kind == "s" else "response" for kind in order_of_kinds]
        sizes = [0.5 if kind == "selection" else 0.4 for kind in kinds]
        for _ in range(60):
            leaves = adaptive_tree(rng, sizes, kinds)
            exact = np.array([tree_divergence(leaves, order) for order in orders])
            assert np.all(exact <= bound + 1e-12)


def optimal_block(epsilon: float, count: int, order: float, cells: int) -> float:
    """V_count(order) by plain recursion over t in `cells` values: a lower bound."""
    if count == 0:
        return max(0.0, -math.expm1(order))
    best = 0.0
    for t in np.linspace(0, epsilon, cells):
        share = math.expm1(t - epsilon) / math.expm1(-epsilon)
        best = max(
            best,
            share * optimal_block(epsilon, count - 1, order - t, cells)
            + (1 - share) * optimal_block(epsilon, count - 1, order - t + epsilon, cells),
        )
    return best


@pytest.mark.parametrize(("epsilon", "order"), [(0.5, 0.0), (0.5, 0.4), (1.5, 1.0)])
def test_the_block_curve_is_the_recursion(epsilon, order):
    exact = optimal_block(epsilon, 3, order, 17)
    bound = float(block_curve(epsilon, 3, np.array([order]))[0])
    assert exact <= bound <= exact * 1.03


def test_a_block_costs_less_than_composed_single_pairs_and_more_than_fixed_ones():
    event = ExponentialMechanismEvent(epsilon=0.3, count=10)
    block = event_privacy_loss(event, 1e-4, as_block=True).get_epsilon_for_delta(1e-6)
    singles = event_privacy_loss(event, 1e-4).get_epsilon_for_delta(1e-6)
    assert 0.85 * singles < block < 0.95 * singles
    assert block_is_cheap(100)
    assert not block_is_cheap(1000)
    long = ExponentialMechanismEvent(epsilon=0.01, count=1000)  # single pairs are composed
    as_block = event_privacy_loss(long, 1e-3, as_block=True).get_epsilon_for_delta(1e-6)
    assert as_block == event_privacy_loss(long, 1e-3).get_epsilon_for_delta(1e-6)
    # Losses of +-0.15 ten times, non-adaptively: a binomial, exactly.
    up = 1 / (1 + math.exp(-0.15))
    ups = np.arange(11)
    beyond = np.maximum(0.0, -np.expm1(block - (ups - 5) * 0.3))
    assert binom.pmf(ups, 10, up) @ beyond <= 1e-6


def test_selections_beside_gaussians_approach_the_gaussian_limit():
    """Many weak selections cost about a Gaussian of multiplier 2/(epsilon sqrt(count))."""
    weak = ExponentialMechanismEvent(epsilon=0.05, count=40)
    both = compose_privacy_losses([weak, GaussianEvent(noise_multiplier=4.0)], 1e-4)
    total = both.get_epsilon_for_delta(1e-6)
    limit = (0.05**2 * 40 / 4 + 1 / 16) ** -0.5
    assert gaussian_delta(limit * 1.02, total) < 1e-6 < gaussian_delta(limit * 0.97, total)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 8.0])
def test_gaussian_noise_dominates_a_selection(epsilon):
    """At every order; and a shift 2% smaller does not, for small epsilons, where it is tight."""
    multiplier = gaussian_multiplier(epsilon)
    for order in np.linspace(0, epsilon, 101):
        curve = float(selection_curve(epsilon, np.array([order]))[0])
        assert curve <= gaussian_delta(multiplier, float(order)) * (1 + 1e-9) + 1e-15
    tight = float(selection_curve(epsilon, np.array([0.0]))[0])
    assert (tight > gaussian_delta(1.02 * multiplier, 0.0)) == (epsilon <= 1)
