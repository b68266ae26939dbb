"""Controls of the attacks: they find what is there, nearly all of it, and nothing that is not.

The tight control is one count under one draw of noise, where every epsilon is attained. Here
`proved` must reach 0.85 of the truth, refute a claim of 0.8 of it, and not exceed it, though the
noise is drawn afresh (each bound is wrong with probability 1e-8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.mechanisms import noisy_counts
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.proof import attacks
from tests.proof.attacks import Approximate, Bound, Claim, Pure, claim_of, proved

RUNS = 100_000
CLAIMS: dict[str, tuple[NoiseKind, Claim]] = {
    "laplace, epsilon 1": (NoiseKind.LAPLACE, claim_of([LaplaceEvent(noise_multiplier=1.0)])),
    "laplace, epsilon 2": (NoiseKind.LAPLACE, claim_of([LaplaceEvent(noise_multiplier=0.5)])),
    "gaussian, mu 1": (NoiseKind.GAUSSIAN, claim_of([GaussianEvent(noise_multiplier=1.0)])),
    "gaussian, mu 2": (NoiseKind.GAUSSIAN, claim_of([GaussianEvent(noise_multiplier=0.5)])),
}
SCALES = {"laplace, epsilon 1": 1.0, "laplace, epsilon 2": 0.5, "gaussian, mu 1": 1.0,
          "gaussian, mu 2": 0.5}  # fmt: skip


def bound_of(name: str, *, runs: int, noise: Any, factor: float = 1.0) -> Bound:
    """One count, 3 without the person and 4 with; the released value is the score."""
    kind, claim = CLAIMS[name]
    law = NoiseLaw(kind=kind, scale=factor * SCALES[name], dimension=runs)
    worlds = [noisy_counts(np.full(runs, count), law=law, noise=noise) for count in (3, 4)]
    return proved(worlds[0], worlds[1], claim)


def check(name: str, noise: Any, prove: Callable[..., None]) -> None:
    bound = bound_of(name, runs=RUNS, noise=noise)
    faint = bound_of(name, runs=RUNS, noise=noise, factor=0.8)
    prove(f"E2: tight control: {name}", f"epsilon proved {bound}")
    assert 0.85 <= bound.share <= 1
    assert faint.lower > faint.claimed


@pytest.mark.parametrize("name", CLAIMS)
def test_the_tight_control_is_nearly_attained_and_not_exceeded(name, prove):
    check(name, SeededNoise(20_240_001), prove)


@pytest.mark.proof
@pytest.mark.parametrize("name", CLAIMS)
def test_the_tight_control_under_fresh_noise(name, prove):
    check(name, SecureNoise(), prove)


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
