"""Exact neighbouring tables against the stated sensitivity (docs/method.md section 3, "Tightness").

Sampling audits do not see a sensitivity that is too small; solving both
fits exactly does, at once.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpiw.methods.weights.features import FourierMap, InteractionMap, LinearMap
from dpiw.methods.weights.penalty import l1_reach, l2_reach
from dpiw.methods.weights.solver import Regression, solve
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

RELATIONS = list(NeighbouringRelation)
MAPS = {
    "linear": LinearMap,
    "interactions": InteractionMap,
    "fourier": lambda schema: FourierMap(schema, 20, None, 5),
}


def coefficients(private, synthetic, *, weight, penalty):
    problem = Regression(
        private=private, synthetic=synthetic, synthetic_weight=weight, penalty=penalty
    )
    return solve(problem, tolerance=1e-7)


def pile(d, *, constant, penalty):
    """A public pile with no features: it pushes the constant's coefficient to -20/constant.

    Every private row then has the slope 1 and no curvature (Lam = d keeps its own score from
    coming back), and the features have none at all: Lam Delta b is the gradient's feature part.
    """
    row = np.zeros((1, d + 1))
    row[0, -1] = constant
    return row, penalty * 20 / constant**2 * (1 + math.exp(20))


def adversarial_shift(before, after, d, *, constant):
    """Lam times the difference of the two fits."""
    synthetic, weight = pile(d, constant=constant, penalty=d)
    fits = [coefficients(rows, synthetic, weight=weight, penalty=d) for rows in (before, after)]
    return d * (fits[1] - fits[0])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("d", [2, 4, 6, 13, 30, 100])
def test_adversarial_pairs_come_close_to_the_bound_and_stay_below(d, relation, numeric):
    unit = PrivacyUnit(relation=relation)
    top, bottom = np.full((1, d + 1), 0.5), np.r_[np.full(d, -0.5), 0.5][None]
    before = np.empty((0, d + 1)) if relation is NeighbouringRelation.ADD_OR_REMOVE_ONE else bottom
    shift = adversarial_shift(before, top, d, constant=0.5)
    bounds = LinearMap(numeric(d)).bounds
    share = np.linalg.norm(shift) / l2_reach(bounds, unit)
    l1_share = np.abs(shift).sum() / l1_reach(bounds, unit)
    assert 0.75 <= share <= 1 + 1e-6
    assert 0.6 <= l1_share <= 1 + 1e-6


def test_centred_replace_one_attains_the_diameter(numeric):
    # docs/method.md section 3: 3.6056 = sqrt(13).
    d = 13
    top, bottom = np.full((1, d + 1), 0.5), np.r_[np.full(d, -0.5), 0.5][None]
    shift = adversarial_shift(bottom, top, d, constant=0.5)
    assert np.linalg.norm(shift) == pytest.approx(math.sqrt(13), rel=1e-3)


@pytest.mark.parametrize(("d", "broken"), [(4, False), (6, True), (13, True), (30, True)])
def test_the_papers_noise_breaks_its_own_epsilon(d, broken):
    """iid Laplace at the L2 sensitivity 2 sqrt(d)/Lam, on [0,1]^d.

    Its worst loss is norm(Delta b)_1 / scale = epsilon sqrt(d)/2 on these two tables. The L1
    bound of docs/method.md section 3, (d+1)/Lam, keeps the promise on them.
    """
    epsilon = 1.0
    nobody, corner = np.empty((0, d + 1)), np.ones((1, d + 1))
    moved = np.abs(adversarial_shift(nobody, corner, d, constant=1.0)).sum()
    papers_loss = moved / (2 * math.sqrt(d) / epsilon)
    assert papers_loss == pytest.approx(epsilon * math.sqrt(d) / 2, rel=0.02)
    assert bool(papers_loss > 1.02 * epsilon) is broken
    assert moved / ((d + 1) / epsilon) <= epsilon


def test_a_flipped_label_would_exceed_the_same_label_bound(numeric):
    """Why the factor 2 of Chaudhuri et al. is not needed: labels never flip here.

    One row that changes from private to synthetic moves the fit further than any row that is
    added, removed or replaced on the private side may.
    """
    bound = l2_reach(LinearMap(numeric(4)).bounds, PrivacyUnit(relation=RELATIONS[0]))
    corner, penalty = np.full((1, 5), 0.5), 1.0
    pile = np.tile(np.array([[1e-3, 1e-3, 1e-3, 1e-3, 0.5]]), (400, 1))

    def fit(private, synthetic):
        return coefficients(private, synthetic, weight=1.0, penalty=penalty)

    nobody = np.empty((0, 5))
    flipped = fit(corner, nobody) - fit(nobody, corner)
    added = fit(corner, nobody) - fit(nobody, nobody)
    assert np.linalg.norm(added) * penalty < bound
    crowded = fit(np.vstack([pile, corner]), nobody) - fit(pile, nobody)
    assert np.linalg.norm(crowded) * penalty < bound
    assert np.linalg.norm(flipped) > 1.9 * np.linalg.norm(added)  # twice a single row's effect


def neighbours(matrix, relation, k, rng):
    """`k` rows gone, `k` more, or `k` replaced."""
    if relation is NeighbouringRelation.REPLACE_ONE:
        changed = matrix.copy()
        changed[:k] = matrix[rng.integers(k, len(matrix), k)]
        return matrix[: len(matrix) // 2], changed[: len(matrix) // 2]
    if rng.random() < 0.5:
        return matrix[:10], matrix[: 10 - k]
    return matrix[:10], np.vstack([matrix[:10], matrix[-k:]])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MAPS)
def test_random_neighbours_never_exceed_the_bound(name, relation, k, mixed, rows):
    rng = np.random.default_rng(17)
    features = MAPS[name](mixed)
    unit = PrivacyUnit(relation=relation, max_rows=k, id_column="id")
    largest = [0.0, 0.0]
    for _ in range(40):
        power = rng.choice([0.2, 1.0, 5.0])
        matrix = features.matrix(rows(mixed, 30, rng, power=power))
        synthetic = features.matrix(rows(mixed, 40, rng))
        penalty = 10 ** rng.uniform(-2, 2)
        weight = 10 ** rng.uniform(-3, 3)
        fits = [
            coefficients(table, synthetic, weight=weight, penalty=penalty)
            for table in neighbours(matrix, relation, k, rng)
        ]
        shift = penalty * (fits[1] - fits[0])
        largest[0] = max(largest[0], np.linalg.norm(shift) / l2_reach(features.bounds, unit))
        largest[1] = max(largest[1], np.abs(shift).sum() / l1_reach(features.bounds, unit))
    assert max(largest) <= 1 + 1e-6
    assert min(largest) > 0.05  # the search does move the fit
