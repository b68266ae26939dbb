"""Marginals: exact counts, their noise, scores and networks, and the laws made of them."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpiw.methods.generators import counting
from dpiw.methods.generators.bayesian_network import (
    SHARE_UNIT,
    Conditional,
    Family,
    choose_network,
    dependence,
    score_sensitivity,
    whole_shares,
)
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.estimation import estimate_total, marginal, project_to_total, reconcile
from dpiw.methods.generators.marginal_noise import marginal_sensitivity, noise_scale
from dpiw.privacy.units import NeighbouringRelation, NoiseKind
from tests.support.worlds import UNITS, unit_of

SIZES = (3, 1, 4, 2, 5)


def _codes(rows, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, size, rows) for size in SIZES]).astype(np.int32)


def _naive(codes, columns):
    found = Counter(tuple(row[list(columns)]) for row in codes)
    table = np.zeros([SIZES[j] for j in columns], dtype=np.int64)
    for cell, count in found.items():
        table[cell] = count
    return table


@pytest.mark.parametrize("rows", [0, 1, 137])
def test_counts_equal_the_naive_twin(rows):
    codes = _codes(rows)
    counter = ContingencyCounter(lambda: [codes], SIZES)
    # Every order, so that the kept prefix is used, replaced and used again.
    for length in (1, 2, 3, 4):
        for columns in itertools.permutations(range(5), length):
            table = counter.count(columns)
            assert table.dtype == np.int64
            assert np.array_equal(table, _naive(codes, columns))


@pytest.mark.parametrize("rows", [0, 1, 137])
def test_any_split_into_batches_and_passes_counts_the_same(rows, monkeypatch):
    codes, passes = _codes(rows), []
    marginals = [c for n in (1, 2, 3) for c in itertools.combinations(range(5), n)]
    whole = [*ContingencyCounter(lambda: [codes], SIZES).each(marginals)]
    # A table whose codes are too many to be kept, and cells for a few marginals a pass.
    monkeypatch.setattr(counting, "HELD_BYTES", 100)
    monkeypatch.setattr(counting, "_HELD_CELLS", 50)

    def batches():
        passes.append(1)
        return (codes[start : start + 20] for start in range(0, max(1, rows), 20))

    counter = ContingencyCounter(batches, SIZES)
    for _ in range(2):
        counted = [*counter.each(marginals)]
        assert all(np.array_equal(a, b) for a, b in zip(counted, whole, strict=True))
    assert len(passes) == 1 if rows < 2 else len(passes) > 4
    assert [*counter.each([])] == []


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
@pytest.mark.parametrize("relation", list(NeighbouringRelation))
@pytest.mark.parametrize("rows", [1, 3])
def test_marginal_sensitivity_bounds_every_move_and_is_attained(kind, relation, rows):
    bound = marginal_sensitivity(unit_of(relation, rows), kind)
    order = 1 if kind is NoiseKind.LAPLACE else 2
    moves = []
    steps = [np.eye(3)[j] for j in range(3)]
    if relation is NeighbouringRelation.REPLACE_ONE:
        steps = [new - old for new in steps for old in steps]
    for chosen in itertools.product(steps, repeat=rows):
        moves.append(np.linalg.norm(np.sum(chosen, axis=0), order))
    assert max(moves) <= bound * (1 + 1e-12)
    assert max(moves) >= bound * (1 - 1e-12)


def test_noise_scale_is_never_below_the_declared_multiplier():
    for multiplier in np.random.default_rng(1).uniform(0.01, 100, 200):
        for relation in NeighbouringRelation:
            unit = unit_of(relation, 3)
            scale = noise_scale(NoiseKind.LAPLACE, multiplier=float(multiplier), unit=unit)
            assert scale / marginal_sensitivity(unit, NoiseKind.LAPLACE) >= multiplier
            assert scale <= multiplier * marginal_sensitivity(unit, NoiseKind.LAPLACE) * 1.0001


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
    empty = reconcile(np.zeros((2, 3)), [np.array([0.0, 1.0]), np.array([0.0, 0.0, 1.0])])
    assert np.all(np.isfinite(empty) & (empty >= 0))
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(60)).reshape(3, 4, 5) * 1000
    marginals = [marginal(truth, axis) for axis in range(3)]
    reconciled = reconcile(truth + rng.normal(0, 5, truth.shape), marginals)
    assert reconciled.min() >= 0
    for axis, wanted in enumerate(marginals):
        assert marginal(reconciled, axis) == pytest.approx(wanted, rel=0.02, abs=0.5)


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
