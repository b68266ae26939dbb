"""E2: what attacks prove of the weights' epsilon, from whole calls of `measure`.

Neighbours: an empty table and one with a single row, the canary. The public synthetic row is placed
nearly at a right angle to it in the features and weighs very much, so that the canary's gradient
has nearly its greatest length and almost no curvature resists it: the exact coefficients move by
0.9 of the claimed sensitivity and more. The attacker knows both tables, and scores an output by the
exact likelihood ratio of the two noise laws. Measured weights look at no public row: there the
canary's features have the full norm, and the sum moves by all of the claimed sensitivity.

Each bound is wrong with probability 1e-8 (`attacks.ERROR`). A fit is a function of its rows, so it
is solved once and remembered. Fixed seeds in the slice, noise of the operating system in the full
figures (marker `proof`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpiw.methods.weights.paper import beta
from dpiw.methods.weights.paper.beta import BetaNoised
from dpiw.methods.weights.paper.regression import Regression, solve
from dpiw.privacy.randomness import SeededNoise
from tests.proof.attacks import Scaled, assault, at_length
from tests.proof.weight_worlds import WORLDS, calibrated, scaled, schema

FULL, SLICE = 10_000, 500
DETECTED = {
    "beta_noised gaussian": 0.5, "beta_noised laplace": 0.35, "beta_noised spherical": 0.25,
    "output_noised gaussian": 0.5, "output_noised spherical": 0.35,
    "measured, linear": 0.5, "measured, Fourier": 0.5,
    "measured, stack, three rows a person": 0.5, "measured, linear, replace-one": 0.5,
}  # fmt: skip
"""Planted bugs of the slice: how much of its noise a method draws."""


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One fit per table, in the full figures too; that fits do not vary is tested below."""
    solutions: dict[bytes, Any] = {}

    def remembering(problem: Any, *, tolerance: float) -> Any:
        numbers = np.array([problem.synthetic_weight, problem.penalty, tolerance])
        parts = (problem.private, problem.synthetic, numbers)
        key = b"|".join(part.tobytes() for part in parts)
        if key not in solutions:
            solutions[key] = solve(problem, tolerance=tolerance)
        return solutions[key]

    monkeypatch.setattr(beta, "solve", remembering)


@pytest.mark.nightly_cases("three rows", "replace-one")
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", WORLDS)
def test_no_attack_proves_more_than_the_weights_claim(name: str) -> None:
    bound = assault(WORLDS[name](), runs=SLICE, noise=SeededNoise(20_240_101))
    assert bound.lower <= bound.claimed


@pytest.mark.nightly_cases("measured, stack, three rows", "measured, linear, replace-one")
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", DETECTED)
def test_weights_with_too_little_noise_are_refuted(name: str) -> None:
    bound = assault(WORLDS[name](), runs=2 * SLICE, noise=Scaled(20_240_102, DETECTED[name]))
    assert bound.lower > bound.claimed


@pytest.mark.proof
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", WORLDS)
def test_the_weights_bounds_at_length(name: str, prove: Callable[..., None]) -> None:
    at_length(WORLDS[name](), name, promise="E2", runs=FULL, prove=prove)


def test_a_fit_is_remembered_for_what_it_is() -> None:
    """The fits that the attacks remember are those of every run: solving again gives the same."""
    public_schema = schema(2)
    rows = (
        calibrated(BetaNoised(), public_schema)
        .feature_map(public_schema)
        .matrix(scaled((1.0, 1.0), columns=2))
    )
    problem = Regression(private=rows, synthetic=-rows, synthetic_weight=3.0, penalty=2.0)
    solutions = {solve(problem, tolerance=1e-9).tobytes() for _ in range(5)}
    assert len(solutions) == 1
