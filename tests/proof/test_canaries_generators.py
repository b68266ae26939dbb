"""E3: what attacks prove of the epsilon of marginal generators, Bayesian synthesis and PATE-GAN.

Neighbours: a table of one repeated record, and the same with a canary that shares no cell with it.
The attacker knows both, sees all that the stage draws, and scores by the exact likelihood ratio:
of every noisy marginal; of every selection, whose scores follow from what was released before; of
every noisy vote, averaged over which teacher the canary was dealt to. Where marginals are chosen
(PrivBayes, MST, AIM), both tables are asked for every answer that a mechanism gave.

Each bound is wrong with probability 1e-8 (`attacks.ERROR`). Fixed seeds in the slice, noise of the
operating system in the full figures (marker `proof`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpiw.privacy.randomness import SeededNoise
from tests.proof.attacks import Scaled, assault, at_length, enough
from tests.proof.generator_worlds import UNPAID, WORLDS, Unpaid

FULL, SLICE = 10_000, 300
DETECTED = {
    "histogram gaussian": 0.5, "histogram laplace, replace-one": 0.3, "privbayes gaussian": 0.15,
    "mst gaussian": 0.1, "bayes": 0.1, "pategan gaussian": 0.1,
    "known marginals of pategan": 0.4,
}  # fmt: skip
"""Planted bugs of the slice: how much of its noise a generator draws."""


@pytest.mark.nightly_cases("pategan", "privbayes", "aim", "mst gaussian")
@pytest.mark.parametrize("name", WORLDS)
def test_no_attack_proves_more_than_a_generator_claims(name: str) -> None:
    world = WORLDS[name]()
    bound = assault(world, runs=enough(world), noise=SeededNoise(20_240_201))
    assert bound.lower <= bound.claimed


@pytest.mark.nightly_cases("pategan", "privbayes", "mst")
@pytest.mark.parametrize("name", DETECTED)
def test_a_generator_with_too_little_noise_is_refuted(name: str) -> None:
    bound = assault(WORLDS[name](), runs=3 * SLICE, noise=Scaled(20_240_202, DETECTED[name]))
    assert bound.lower > bound.claimed


@pytest.mark.proof
@pytest.mark.parametrize("name", WORLDS)
def test_the_generators_bounds_at_length(name: str, prove: Callable[..., None]) -> None:
    at_length(WORLDS[name](), name, promise="E3", runs=FULL, prove=prove)


@pytest.mark.proof
@pytest.mark.parametrize("name", UNPAID)
def test_selections_that_nobody_pays_are_refuted(name: str, prove: Callable[..., None]) -> None:
    """In the slice by sums: `check_draws_are_the_events`, and `test_aim.py` for AIM."""
    bound = assault(UNPAID[name](), runs=FULL, noise=Unpaid(20_240_204))
    prove(
        "E3", f"{name}, selections without noise",
        power="this is the control", reached=f"epsilon proved {bound}",
        limit="one pair of tables; wrong with probability 1e-8",
    )  # fmt: skip
    assert bound.lower > bound.claimed
