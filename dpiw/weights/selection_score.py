"""The private score of a noisy fit: how much likelier its weights make the real rows.

The score of coefficients b is the sum over private rows of the log weight u(x) = b.x - c, clipped
to [-L, L], with c the logarithm of the mean of exp(b.x) over the synthetic rows: the weights have
mean one there. Divided by the number of real rows it estimates the mean log of (weighted over
unweighted synthetic density) at real rows: what weighting gains in log likelihood, 0 for no
weights. The sum needs no private size and puts candidates in the same order.

The real rows were also fitted on, which flatters candidates with much freedom. Their expected
advantage is subtracted, a public number (Akaike 1974): see `freedom`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy import NeighbouringRelation, PrivacyUnit
from dpiw.weights.solver import Regression

Array = NDArray[np.float64]

_CHUNK_ROWS = 8192
_ROUNDING = 1 + 1e-4
"""A row's u and the sum are doubles. The sum's error is at worst 4e-9 L a chunk of 8,192 rows: this
covers 10^8 rows of two neighbours, and rows that are rounded differently in each."""


def score_sensitivity(clip: float, unit: PrivacyUnit) -> float:
    """Most that one unit changes a score: each of its rows by L, or 2 L where it is replaced."""
    reach = 2.0 if unit.relation is NeighbouringRelation.REPLACE_ONE else 1.0
    return unit.max_rows * reach * clip * _ROUNDING


def scores(problem: Regression, coefficients: Array, *, clip: float) -> Array:
    """Exact scores of several fits on the same features, less their freedom, shape (runs,).

    Args:
        problem: rows of both tables, as features.
        coefficients: released candidates' noisy coefficients, shape (runs, d').
        clip: L.

    Privacy:
        Releases nothing. Given the coefficients, a score is a sum over private rows of terms in
        [-L, L], and a public number: see `score_sensitivity`.
    """
    centre = _log_mean_exp(problem.synthetic @ coefficients.T)
    total = np.zeros(len(coefficients))
    for start in range(0, len(problem.private), _CHUNK_ROWS):
        log_weights = problem.private[start : start + _CHUNK_ROWS] @ coefficients.T - centre
        total += np.clip(log_weights, -clip, clip).sum(axis=0)
    return total - freedom(problem)


def freedom(problem: Regression) -> float:
    """Expected advantage of the fit's own rows in a score: tr C (C + Lam)^-1, public.

    C = (n0/2) times the covariance of the synthetic features: the curvature of the fit where both
    tables have one law, and also n0/2 times the covariance of a real row's pull on it. A real row
    moves the coefficients by (C + Lam)^-1 x/2, and n0 of them gain x.(C + Lam)^-1 x/2 each.
    """
    features = problem.synthetic - problem.synthetic.mean(axis=0)
    curvature = problem.synthetic_weight / 2 * (features.T @ features)
    values = np.linalg.eigvalsh(curvature)
    return float((values / (values + problem.penalty)).sum())


def _log_mean_exp(values: Array) -> Array:
    top = values.max(axis=0)
    return np.asarray(top + np.log(np.exp(values - top).mean(axis=0)))
