"""Post-processing laws: projections, reconciliation, conditional tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpiw.methods.generators.bayesian_network import Conditional, Family
from dpiw.methods.generators.estimation import (
    estimate_total,
    marginal,
    project_to_total,
    reconcile,
)


def test_projection_is_the_nearest_table():
    """Against a general solver on small vectors."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        values = rng.normal(0, 3, 4)
        projected = project_to_total(values, 2.0)
        solved = minimize(
            lambda x, values=values: np.sum((x - values) ** 2),
            np.full(4, 0.5),
            bounds=[(0, None)] * 4,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 2.0},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        assert projected == pytest.approx(solved.x, abs=1e-5)


@settings(derandomize=True, database=None, deadline=None)
@given(values=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=30), total=st.floats(1e-3, 1e9))
def test_projection_is_non_negative_and_has_its_total(values, total):
    projected = project_to_total(np.array(values), total)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(total, rel=1e-9)


def test_total_is_precision_weighted_and_at_least_one():
    # Sums 10 (2 cells, variance 1) and 40 (4 cells, variance 4): weights 1/2 and 1/16.
    tables = [np.array([4.0, 6.0]), np.full((2, 2), 10.0)]
    assert estimate_total(tables, [1.0, 4.0]) == pytest.approx(
        (10 / 2 + 40 / 16) / (1 / 2 + 1 / 16)
    )
    assert estimate_total([np.array([-5.0, -9.0])], [1.0]) == 1.0


def test_reconciled_tables_have_their_margins():
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(60)).reshape(3, 4, 5) * 1000
    marginals = [marginal(truth, axis) for axis in range(3)]
    reconciled = reconcile(truth + rng.normal(0, 5, truth.shape), marginals)
    assert reconciled.min() >= 0
    for axis, wanted in enumerate(marginals):
        assert marginal(reconciled, axis) == pytest.approx(wanted, rel=0.02, abs=0.5)


def test_reconciling_survives_empty_slices():
    reconciled = reconcile(np.zeros((2, 3)), [np.array([0.0, 1.0]), np.array([0.0, 0.0, 1.0])])
    assert np.all(np.isfinite(reconciled))
    assert reconciled.min() >= 0


def test_unseen_parents_fall_back_to_the_one_way_marginal():
    table = np.array([[0.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    fallback = np.array([1.0, 0.0, 3.0])
    conditional = Conditional.from_table(Family(child=1, parents=(0,)), table, fallback)
    rng = np.random.default_rng(4)
    parents = np.repeat(np.array([0, 1], dtype=np.intp), 8000)
    drawn = conditional.draw(parents, 3, rng)
    unseen = np.bincount(drawn[:8000], minlength=3)
    assert unseen[1] == 0
    # Binomial(8000, 1/4): sd 38.7; five of them.
    assert abs(unseen[0] - 2000) < 194
    assert set(drawn[8000:]) == {1}


def test_cells_without_mass_are_never_drawn():
    """Also at the ends of a slice and with many slices, where offsets cost precision."""
    rows = 5000
    table = np.zeros((rows, 4))
    table[:, 1] = 0.1
    table[:, 2] = 0.2
    conditional = Conditional.from_table(Family(child=1, parents=(0,)), table, np.ones(4))
    parents = np.arange(rows, dtype=np.intp).repeat(20)
    drawn = conditional.draw(parents, 4, np.random.default_rng(5))
    assert set(drawn) == {1, 2}
