"""Two exact pairs of fits (docs/method.md section 3, "Tightness"): one attains the bound.

The search over neighbours is `tests/proof/test_sensitivity_regression.py`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpiw.methods.weights.paper.regression import LinearMap, Regression, l2_reach, solve
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

RELATIONS = list(NeighbouringRelation)


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


def test_centred_replace_one_attains_the_diameter(numeric):
    # docs/method.md section 3: 3.6056 = sqrt(13).
    d = 13
    top, bottom = np.full((1, d + 1), 0.5), np.r_[np.full(d, -0.5), 0.5][None]
    shift = adversarial_shift(bottom, top, d, constant=0.5)
    assert np.linalg.norm(shift) == pytest.approx(math.sqrt(13), rel=1e-3)


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
