"""Randomised response: exact probabilities, their inverse, and the exact curve with a Gaussian."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chisquare, norm

from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.privacy.randomised_response import DENOMINATOR, RandomisedResponse, respond
from dpiw.privacy.randomness import SeededNoise


class Told:
    """A noise source that gives the numbers it was told to."""

    def __init__(self, *draws: int) -> None:
        self.draws = list(draws)

    def whole_below(self, bound: int) -> int:
        return self.draws.pop(0)


def matrix(response: RandomisedResponse) -> np.ndarray:
    """P(told = i | true = j), shape (levels, levels)."""
    others = np.full((response.levels, response.levels), response.exchange)
    return np.where(np.eye(response.levels), response.keep, others)


@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(epsilon=st.floats(0.01, 20), levels=st.integers(2, 40))
def test_probabilities_invert_and_cost_what_was_asked(epsilon, levels):
    response = RandomisedResponse.of_epsilon(epsilon, levels)
    assert response.epsilon <= epsilon < response.epsilon + 1e-6
    assert matrix(response).sum(axis=0) == pytest.approx(np.ones(levels), abs=1e-14)
    identity = response.inverse() @ matrix(response)
    assert np.abs(identity - np.eye(levels)).max() < 1e-14 * (1 + levels / math.expm1(epsilon))


def test_every_draw_has_its_answer():
    """The draws of each answer are counted from the two ends of its run: exact, no floats."""
    response = RandomisedResponse.of_epsilon(1.0, 3)
    kept, rest = 2 * response.kept, DENOMINATOR - response.kept
    draws = [0, kept - 1, kept, kept + rest - 1, kept + rest, 2 * DENOMINATOR - 1]
    assert kept + 2 * rest == 2 * DENOMINATOR
    assert respond([1] * 6, response=response, noise=Told(*draws)) == [1, 1, 2, 2, 0, 0]


def test_the_law_of_the_answers_is_accepted_and_another_is_refuted():
    """False alarm 1e-6; 5,000 answers refute a tenth of epsilon more or less."""
    response = RandomisedResponse.of_epsilon(2.0, 3)
    answers = respond([2] * 5000, response=response, noise=SeededNoise(5))
    counts = np.bincount(answers, minlength=3)
    p = {share: chisquare(counts, 5000 * matrix(RandomisedResponse.of_epsilon(share, 3))[:, 2])
         .pvalue for share in (1.6, 2.0, 2.4)}  # fmt: skip
    assert p[2.0] > 1e-6 > max(p[1.6], p[2.4])


def test_what_is_no_response_is_refused():
    for epsilon, levels in ((0.0, 2), (math.nan, 2), (21.0, 2), (1.0, 1)):
        with pytest.raises(UncalibratedError):
            RandomisedResponse.of_epsilon(epsilon, levels)
    for kept in (DENOMINATOR // 2, DENOMINATOR):
        with pytest.raises(UncalibratedError):
            RandomisedResponse(levels=2, kept=kept)
    response = RandomisedResponse.of_epsilon(1.0, 2)
    for index in (-1, 2, 31337):
        with pytest.raises(PrivacyError) as refused:
            respond([index], response=response, noise=SeededNoise(1))
        assert "31337" not in str(refused.value)


@pytest.mark.parametrize("levels", [2, 4])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_the_joint_curve_is_the_integral(levels, epsilon):
    """Hockey-stick divergence of both outputs at once, integrated over the Gaussian's."""
    response = RandomisedResponse.of_epsilon(0.4 * epsilon, levels)
    multiplier = 1.3 if epsilon < 3 else 0.4
    mu = 1 / multiplier

    def excess(z, one, other):
        return max(0.0, one * norm.pdf(z, mu) - math.exp(epsilon) * other * norm.pdf(z))

    total = 0.0
    for i in range(levels):  # the true levels are 0 and 1
        one, other = matrix(response)[i, 0], matrix(response)[i, 1]
        turn = (epsilon + math.log(other / one)) / mu + mu / 2
        total += quad(excess, turn, turn + 40, args=(one, other), epsabs=1e-14, limit=200)[0]
    assert response.joint_delta(multiplier, epsilon) == pytest.approx(total, abs=1e-10)
