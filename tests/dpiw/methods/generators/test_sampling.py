"""Draws from conditional tables: guided by a table of cells, and the same as by search alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.methods.generators.bayesian_network import Conditional, Family

GRID = 2.0**-32
"""Of the uniforms that a draw takes."""


def conditional(parents, levels, zeros, seed):
    rng = np.random.default_rng(seed)
    table = rng.random((parents, levels)) * (rng.random((parents, levels)) >= zeros)
    return Conditional.from_table(Family(child=0, parents=()), table, np.ones(levels))


def points_about(steps, parents, seed):
    """On the grid: at every step, beside it, at both ends of every row, and anywhere."""
    rng = np.random.default_rng(seed)
    beside = [np.floor(steps / GRID + more) * GRID for more in (-1, 0, 1)]
    anywhere = rng.integers(0, parents, 1000) + rng.integers(0, 1 << 32, 1000) * GRID
    ends = np.arange(parents)[:, None] + np.array([0.0, 1 - GRID])
    points = np.concatenate([*beside, anywhere, ends.ravel()])
    return points[(points >= 0) & (points < parents)]


@settings(max_examples=100)
@given(st.integers(1, 60), st.integers(2, 40), st.sampled_from([0.0, 0.3, 0.9]), st.integers(0, 99))
def test_a_place_is_the_same_as_by_search(parents, levels, zeros, seed):
    law = conditional(parents, levels, zeros, seed)
    points = points_about(law.steps, parents, seed)
    assert np.array_equal(law._places(points), np.searchsorted(law.steps, points, side="right"))


@pytest.mark.parametrize(
    ("parents", "levels", "guided"),
    [(1, 64, True), (1000, 4, True), (5000, 4, False), (20_000, 2, False)],
)
def test_a_table_serves_where_few_cells_hold_a_step(parents, levels, guided):
    law = conditional(parents, levels, 0.2, 1)
    cells, places, is_sure = law._guide
    assert (cells > 0) is guided
    points = points_about(law.steps, parents, 2)
    assert np.array_equal(law._places(points), np.searchsorted(law.steps, points, side="right"))
    if guided:
        assert len(places) == cells * parents
        assert 0 < (~is_sure).sum() <= len(law.steps)
