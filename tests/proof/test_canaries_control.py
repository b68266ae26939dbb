"""Controls of the attacks: they find what is there, nearly all of it, and nothing that is not."""

import numpy as np
import pytest

from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.mechanisms import noisy_counts
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.proof import attacks
from tests.proof.attacks import Approximate, Pure, claim_of, proved
from tests.proof.figures import tiers

RUNS = 100_000
EVENTS = {NoiseKind.LAPLACE: LaplaceEvent, NoiseKind.GAUSSIAN: GaussianEvent}


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("kind", EVENTS)
@tiers("source", fast=lambda: SeededNoise(20_240_001), full=SecureNoise)
def test_the_tight_control_is_nearly_attained_and_not_exceeded(source, kind, scale, prove):
    """One count under one draw of noise, where every epsilon is attained; the value is the score.

    At least 0.85 of the truth is proved, and a claim is refuted that has 0.8 of its noise.
    """
    claim, noise = claim_of([EVENTS[kind](noise_multiplier=scale)]), source()

    def bound(factor):
        law = NoiseLaw(kind=kind, scale=factor * scale, dimension=RUNS)
        return proved(
            *(noisy_counts(np.full(RUNS, count), law=law, noise=noise) for count in (3, 4)), claim
        )

    sound, faint = bound(1.0), bound(0.8)
    prove(f"E2: tight control: {kind.value}, {scale}", f"{sound}; 0.8 of the noise: {faint}")
    assert 0.85 <= sound.share <= 1
    assert faint.lower > faint.claimed


def test_a_score_that_says_nothing_proves_nothing():
    rng = np.random.default_rng(1)
    bound = proved(rng.normal(size=5000), rng.normal(size=5000), Pure(epsilon=1.0))
    assert bound.lower == 0


def test_a_score_of_the_wrong_sign_proves_nothing():
    rng = np.random.default_rng(2)
    worlds = rng.normal(size=20_000), rng.normal(size=20_000) + 1
    claim = claim_of([GaussianEvent(noise_multiplier=1.0)])
    assert proved(*worlds, claim).lower > 0.8 * claim.epsilon
    assert proved(-worlds[0], -worlds[1], claim).lower == 0


def test_a_delta_is_taken_off():
    """A mechanism that shows the person with probability 0.1 has delta 0.1 and epsilon 0."""
    rng = np.random.default_rng(3)
    worlds = np.zeros(50_000), (rng.random(50_000) < 0.1).astype(float)
    assert proved(*worlds, Pure(epsilon=1.0)).lower > 4
    assert proved(*worlds, Approximate(epsilon=1.0, delta=0.11)).lower == 0


def test_bounds_on_probabilities_have_their_error(monkeypatch):
    """At an error of 0.1 in all, either side fails in at most 0.05 of 4000 trials."""
    monkeypatch.setattr(attacks, "ERROR", 0.1)
    for share in (0.01, 0.3, 0.9):
        hits = np.random.default_rng(4).binomial(200, share, size=4000)
        assert np.mean(attacks.lowest(hits, 200) > share) < 0.065  # 4 standard errors above
        assert np.mean(attacks.highest(hits, 200) < share) < 0.065
    assert attacks.lowest(0, 50) == 0
    assert attacks.highest(50, 50) == 1


def test_an_event_that_was_never_seen_is_not_taken_for_impossible():
    """Perfectly separate scores prove what so few runs can, and no more."""
    bound = proved(np.zeros(200), np.ones(200), Pure(epsilon=1.0))
    assert 0 < bound.lower < np.log(100)
