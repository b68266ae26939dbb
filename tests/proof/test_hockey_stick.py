"""E1: no mechanism releases anything likelier than its claim allows, measured at the claim itself.

For neighbouring worlds with output laws P and Q and a claim (epsilon, delta),
P(S) - exp(epsilon) Q(S) <= delta for every set S. The set of large loss, log p/q > epsilon, is the
worst one, and white box it is known exactly: fits are cached and only the noise is drawn again, so
this is a binomial test of the claim. (It sees what canary audits do not.)
Sets of larger loss are tried as well: where delta is tiny they have less chance in the way.

A claim is broken where the Clopper-Pearson lower bound of P(S) - exp(epsilon) Q(S) exceeds delta.
Bounds hold together for all pairs, both orders and all deltas of a run but for one in a million;
the figure printed is the bound of 99.9%.
"""

import dataclasses
import functools
import math

import numpy as np
import pytest
from scipy import stats

from dpiw.privacy import accounting
from dpiw.privacy.events import LaplaceEvent, PrivacyEvent
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.proof.figures import tiers
from tests.proof.neighbours import Array, papers_fits
from tests.proof.worlds import MECHANISMS, Additive, Lots, Pair

DELTAS = (0.1, 1e-2, 1e-3, 1e-6)
BEYOND = (0.0, 0.5, 1.0)
"""By how much more than epsilon the loss is to exceed."""
FAMILY = 1e-6 / (len(MECHANISMS) * 6 * 2 * (len(DELTAS) + 2) * len(BEYOND))
CHUNK = 250_000


@functools.cache
def claims(events: tuple[PrivacyEvent, ...]) -> list[tuple[float, float]]:
    """(epsilon, delta) as stated by the accountant; of pure events delta 0 and half epsilon too."""
    stated = [(accounting.epsilon(events, delta=delta), delta) for delta in DELTAS]
    pure = accounting.epsilon_bounds(events, delta=0).sum
    if math.isinf(pure):
        return stated
    losses = accounting.compose_privacy_losses(events, accounting.GRID)
    half = float(losses.get_delta_for_epsilon(pure / 2))
    return [*stated, (pure, 0.0), (pure / 2, half)]


@functools.cache
def lower_bound(above: int, other: int, size: int, epsilon: float, miss: float) -> float:
    """Of P(S) - exp(epsilon) Q(S), from `above` draws of P and `other` of Q in S."""
    low = stats.beta.ppf(miss / 2, above, size - above + 1) if above else 0.0
    high = stats.beta.isf(miss / 2, other + 1, size - other) if other < size else 1.0
    return float(low - math.exp(epsilon) * high)


def losses_of(pair: Pair, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """log p0/p1 at draws of world 0 and of world 1."""
    parts = [min(CHUNK, size - start) for start in range(0, size, CHUNK)]
    return tuple(
        np.concatenate([pair.losses(world, part, int(rng.integers(2**62))) for part in parts])
        for world in (0, 1)
    )


@dataclasses.dataclass
class Verdict:
    """Claims refuted, one false one in a million runs; and how near the closest one was.

    That is the largest 99.9% lower bound as a share of the claimed delta, above 1e-4.
    """

    broken: int = 0
    closest: float = -math.inf

    def add(self, losses: tuple[Array, Array], stated: list[tuple[float, float]]) -> None:
        size = len(losses[0])
        for first, second in (losses, (-losses[1], -losses[0])):
            for epsilon, delta in stated:
                sets = [
                    (int((first > epsilon + beyond).sum()), int((second > epsilon + beyond).sum()))
                    for beyond in BEYOND
                ]
                bounds = [lower_bound(*counts, size, epsilon, FAMILY) for counts in sets]
                self.broken += max(bounds) > delta
                if delta > 1e-4:
                    bound = lower_bound(*sets[0], size, epsilon, 1e-3)
                    self.closest = max(self.closest, bound / delta)


def too_little_noise(pair: Pair, factor: float) -> list[tuple[float, float]]:
    """What the mechanism would claim if its noise were as large as `factor` times what is drawn."""
    events = [
        dataclasses.replace(event, noise_multiplier=event.noise_multiplier * factor)
        for event in pair.events
    ]
    return claims(tuple(events))


@pytest.mark.nightly_cases("fast-DP-SGD lots", "fast-PATE votes, Laplace")
@pytest.mark.parametrize("name", MECHANISMS)
@tiers("size", fast=20_000, full=2_000_000)
def test_no_claim_is_broken_and_one_with_less_noise_is(size, name, rng, prove):
    mechanism, honest, planted = MECHANISMS[name], Verdict(), Verdict()
    factor = mechanism.seen if size > 10**6 else 4.0
    for pair in mechanism.pairs(rng):
        losses = losses_of(pair, size, rng)
        honest.add(losses, claims(tuple(pair.events)))
        planted.add(losses, too_little_noise(pair, factor))
    assert honest.broken == 0 < planted.broken
    prove(
        f"E1: {name}",
        f"6 pairs, {size:,} draws a world, 0 claims refuted, closest {honest.closest:.3f};"
        f" noise {factor:g} times smaller: {planted.broken} refuted",
    )


# Tests of the test
def papers_pair(d: int) -> Additive:
    """Finding 1: iid Laplace at the L2 sensitivity 2 sqrt(d)/Lam on [0,1]^d, claimed epsilon 1."""
    law = NoiseLaw(kind=NoiseKind.LAPLACE, scale=2 * math.sqrt(d) / d, dimension=d + 1)
    return Additive(papers_fits(d), law, (LaplaceEvent(noise_multiplier=1.0),))


@tiers("sizes", fast=((16,), 400_000), full=((16, 32, 64), 2_000_000))
@pytest.mark.slow
def test_the_published_formula_is_refuted(sizes, rng, prove):
    """By the same draws and bounds, at its claimed epsilon 1 and delta 0."""
    dimensions, size = sizes
    bounds = {}
    for d in dimensions:
        first, second = losses_of(papers_pair(d), size, rng)
        sets = [(int((first > t).sum()), int((second > t).sum())) for t in (1.0, 1.5, 2.0, 3.0)]
        bounds[d] = max(lower_bound(*counts, size, 1.0, FAMILY) for counts in sets)
    assert min(bounds.values()) > 0
    told = ", ".join(f"{bound:.4f} (d = {d})" for d, bound in bounds.items())
    prove("E1: published formula (must fail)", f"at epsilon 1 its delta is above {told}")


def test_a_bound_covers_the_truth_as_often_as_stated(rng):
    """Clopper-Pearson at 95%, 2,000 times, on known probabilities: at most 5% misses (p > 1e-6).

    Of both sides together 0.2% (the two must err at once); of the lower side alone, which has
    2.5%, 2.3%.
    """
    size, epsilon, p, q = 5_000, 0.5, 0.03, 0.012
    truth = p - math.exp(epsilon) * q
    above, other = rng.binomial(size, p, 2_000), rng.binomial(size, q, 2_000)
    misses = sum(
        lower_bound(int(a), int(b), size, epsilon, 0.05) > truth
        for a, b in zip(above, other, strict=True)
    )
    assert stats.binom.sf(misses - 1, 2_000, 0.05) > 1e-6
    one_side = sum(lower_bound(int(a), 0, size, -60.0, 0.05) > p for a in above)
    assert stats.binom.sf(one_side - 1, 2_000, 0.025) > 1e-6
    assert stats.binom.cdf(one_side, 2_000, 0.015) > 1e-6


def test_losses_are_those_of_the_law():
    """A Gaussian's loss is Gaussian; a lot without sampling is one of them."""
    pair = MECHANISMS["DP-SGD lots"].pairs(np.random.default_rng(1))[0]
    assert isinstance(pair, Lots)
    sure = dataclasses.replace(pair.training, sampling_rate=1 - 1e-12, steps=1)
    drawn = dataclasses.replace(pair, training=sure).losses(0, 50_000, 1)
    shift = float(np.linalg.norm(pair.gradients[0])) / sure.scale
    assert stats.kstest(drawn, stats.norm(shift**2 / 2, shift).cdf).pvalue > 1e-9
