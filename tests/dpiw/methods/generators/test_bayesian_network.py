"""The score's sensitivity by brute force, and the greedy search against a naive twin."""

import itertools

import numpy as np
import pytest

from dpiw.methods.generators.bayesian_network import (
    SHARE_UNIT,
    choose_network,
    dependence,
    score_sensitivity,
    whole_shares,
)
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.privacy.units import NeighbouringRelation
from tests.support.worlds import UNITS


def _naive_score(table, shares):
    total = 0.0
    for parents in np.ndindex(*table.shape[:-1]):
        for value in range(table.shape[-1]):
            expected = shares[value] / SHARE_UNIT * table[parents].sum()
            total += abs(table[parents][value] - expected)
    return total / 2


def test_score_equals_the_naive_twin():
    rng = np.random.default_rng(0)
    for _ in range(50):
        table = rng.integers(0, 30, (2, 3, 4))
        shares = whole_shares(rng.dirichlet(np.ones(4)))
        assert dependence(table, shares) == pytest.approx(_naive_score(table, shares), rel=1e-12)


def _moves(table, relation):
    """All neighbours of a table (2 parents' configurations, 2 values)."""
    cells = list(np.ndindex(*table.shape))
    if relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        for cell in cells:
            other = table.copy()
            other[cell] += 1
            yield other
        return
    for source, goal in itertools.permutations(cells, 2):
        if table[source] > 0:
            other = table.copy()
            other[source] -= 1
            other[goal] += 1
            yield other


@pytest.mark.parametrize("unit", UNITS[::2], ids=["add_remove", "replace"])
def test_score_sensitivity_by_exhaustion(unit):
    """Every 2 x 2 table with cells 0 to 3, five public laws, and two large ones.

    A removal raises the score by nearly 1 only where a rare value is present and still rarer than
    expected, which takes a slice with many rows: hence the large ones. Public laws at the
    simplex's corners matter, because they come from noisy marginals.
    """
    bound = score_sensitivity(unit)
    largest = 0.0
    for law in ([1, 0], [0, 1], [0.5, 0.5], [0.1, 0.9], [1 / 3, 2 / 3]):
        shares = whole_shares(np.array(law, dtype=float))
        small = itertools.product(range(4), repeat=4)
        for cells in (*small, (2, 38, 5, 5), (1, 300, 9, 0)):
            table = np.array(cells, dtype=np.int64).reshape(2, 2)
            score = dependence(table, shares)
            for other in _moves(table, unit.relation):
                largest = max(largest, abs(dependence(other, shares) - score))
    assert largest <= bound
    assert largest >= 0.75 * bound


def test_whole_shares_are_distributions():
    rng = np.random.default_rng(2)
    for size in (1, 2, 7, 5000):
        for law in (rng.dirichlet(np.ones(size)), np.full(size, 1 / size), np.eye(size)[0]):
            shares = whole_shares(law)
            assert shares.sum() == SHARE_UNIT
            assert shares.min() >= 0
            assert np.abs(shares / SHARE_UNIT - law).max() <= size / SHARE_UNIT


def _naive_greedy(counter, sizes, shares, degree, cap, cost):
    placed, families = [0], [(0, ())]
    while len(placed) < len(sizes):
        best = None
        for child in sorted(set(range(len(sizes))) - set(placed)):
            for count in range(degree + 1):
                for parents in itertools.combinations(sorted(placed), count):
                    table = counter.count((*parents, child))
                    if count and table.size > cap:
                        continue
                    score = _naive_score(table, shares[child]) - cost * table.size if count else 0
                    if best is None or score > best[0] + 1e-9:
                        best = (score, child, parents)
        placed.append(best[1])
        families.append((best[1], best[2]))
    return families


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_greedy_search_equals_the_naive_twin(degree):
    rng = np.random.default_rng(degree)
    sizes = (2, 3, 4, 3, 2, 5)
    hidden = rng.integers(0, 4, 400)
    codes = np.column_stack(
        [(hidden * (j + 2) + rng.integers(0, 3, 400)) % size for j, size in enumerate(sizes)]
    ).astype(np.int32)
    counter = ContingencyCounter(lambda: [codes], sizes)
    shares = [
        whole_shares(np.bincount(codes[:, j], minlength=s) / 400) for j, s in enumerate(sizes)
    ]
    offered = []

    def best(scores):
        offered.append(len(scores))
        return int(np.argmax(scores))

    families = choose_network(
        counter, sizes=sizes, shares=shares, root=0, degree=degree, max_cells=50,
        cell_penalty=0.7, select=best,
    )  # fmt: skip
    naive = _naive_greedy(counter, sizes, shares, degree, 50, 0.7)
    assert [(f.child, tuple(sorted(f.parents))) for f in families] == naive
    assert len(offered) == len(sizes) - 1
    assert all(counter.count(f.members).size <= 50 for f in families if f.parents)


def test_scores_are_on_a_grid_that_sums_exactly():
    """Scores, penalty included, are multiples of 2^-21: no rounding enters the sensitivity."""
    codes = np.random.default_rng(5).integers(0, 3, (97, 3)).astype(np.int32)
    shares = [whole_shares(np.array([0.3, 0.3, 0.4]))] * 3
    met = []

    def first(scores):
        met.append(scores)
        return 0

    counter = ContingencyCounter(lambda: [codes], (3, 3, 3))
    choose_network(
        counter, sizes=(3, 3, 3), shares=shares, root=0, degree=2, max_cells=100,
        cell_penalty=np.pi / 10, select=first,
    )  # fmt: skip
    for scores in met:
        assert np.array_equal(scores * 2 * SHARE_UNIT, np.rint(scores * 2 * SHARE_UNIT))
