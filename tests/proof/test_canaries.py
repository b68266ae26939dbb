"""E2 and E3: what attacks prove of the epsilon of weights, generators and trainings.

The attacker knows both tables, sees all that a stage draws, and scores an output by the exact
likelihood ratio: of every noisy value; of every selection, whose scores follow from what was
released before; of every noisy vote, averaged over the teachers. Each bound is wrong with
probability 1e-8 (`attacks.ERROR`). A bound in the slice has as many runs as could refute the claim.
"""

import numpy as np
import pytest

from dpiw.methods.weights.paper import beta
from dpiw.methods.weights.paper.regression import solve
from dpiw.privacy.randomness import SeededNoise
from tests.proof import generator_worlds, training_worlds, weight_worlds
from tests.proof.attacks import Scaled, assault, at_length, enough

WORLDS = weight_worlds.WORLDS | generator_worlds.WORLDS | training_worlds.WORLDS
UNPAID = generator_worlds.UNPAID | weight_worlds.UNPAID
FULL = 10_000
DETECTED = {
    "beta_noised gaussian": 0.5, "beta_noised laplace": 0.35, "beta_noised spherical": 0.25,
    "output_noised gaussian": 0.5, "output_noised spherical": 0.35,
    "measured, linear": 0.5, "measured, Fourier": 0.5, "measured, chosen": 0.25,
    "measured, stack, three rows a person": 0.5, "measured, linear, replace-one": 0.5,
    "histogram gaussian": 0.5, "histogram laplace, replace-one": 0.3, "privbayes gaussian": 0.15,
    "mst gaussian": 0.1, "bayes": 0.1, "pategan gaussian": 0.1,
    "known marginals of pategan": 0.4,
    "dp_mlp, every row in every lot": 0.3, "dpgan wasserstein": 0.3,
}  # fmt: skip
"""Planted bugs of the slice: the share of its noise that a method draws."""


@pytest.fixture(autouse=True)
def remembered(monkeypatch):
    """One fit for each table: it is a function of its rows, and so is solved once."""
    solutions = {}

    def remembering(problem, *, tolerance):
        numbers = np.array([problem.synthetic_weight, problem.penalty, tolerance])
        rows = (*problem.private(), *problem.synthetic())
        key = b"|".join(part.tobytes() for part in (*rows, numbers))
        if key not in solutions:
            solutions[key] = solve(problem, tolerance=tolerance)
        return solutions[key]

    monkeypatch.setattr(beta, "solve", remembering)


@pytest.mark.nightly_cases(
    "three rows", "linear, replace-one", "pategan", "privbayes", "aim", "mst gaussian", "dp_mlp",
    "dpgan", "dpcgan", "chosen",
)  # fmt: skip
@pytest.mark.parametrize("name", WORLDS)
def test_no_attack_proves_more_than_is_claimed(name):
    world = WORLDS[name]()
    bound = assault(world, runs=enough(world), noise=SeededNoise(20_240_101))
    assert bound.lower <= bound.claimed


@pytest.mark.nightly_cases(
    "three rows", "linear, replace-one", "pategan", "privbayes", "mst", "dp_mlp", "dpgan",
    "output_noised spherical", "Fourier",
    "chosen",  # in the slice `check_a_choice_hides_a_canary`
)  # fmt: skip
@pytest.mark.parametrize("name", DETECTED)
def test_too_little_noise_is_refuted(name):
    world = WORLDS[name]()
    runs = max(1_000, enough(world))
    bound = assault(world, runs=runs, noise=Scaled(20_240_102, DETECTED[name]))
    assert bound.lower > bound.claimed


@pytest.mark.slow
def test_a_small_claim_of_a_training_holds_and_a_twentieth_of_its_noise_is_refuted():
    """So small that few runs can refute it."""
    world = training_worlds.dp_mlp(lot=training_worlds.ROWS, rho=0.125, tight=0.4)
    honest = assault(world, runs=enough(world), noise=SeededNoise(20_240_301))
    planted = assault(world, runs=enough(world), noise=Scaled(20_240_302, 0.05))
    assert honest.lower <= honest.claimed
    assert planted.lower > planted.claimed


@pytest.mark.proof
@pytest.mark.parametrize("name", WORLDS)
def test_the_bounds_at_length(name, prove):
    promise = "E2" if name in weight_worlds.WORLDS else "E3"
    at_length(WORLDS[name](), f"{promise}: {name}", runs=FULL, prove=prove)


@pytest.mark.proof
@pytest.mark.parametrize("name", UNPAID)
def test_selections_that_nobody_pays_are_refuted(name, prove):
    """In the slice by sums: `check_draws_are_the_events`, and `test_aim.py` for AIM.

    A choice of weights by `check_a_choice_hides_a_canary`.
    """
    world = UNPAID[name]()
    bound = assault(world, runs=FULL, noise=generator_worlds.Unpaid(20_240_204))
    prove(f"E3: {name}, selections without noise", f"epsilon proved {bound}")
    assert bound.lower > bound.claimed
