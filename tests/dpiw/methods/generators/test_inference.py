"""Junction trees, what is read from them, and their fits."""

import tracemalloc
from itertools import combinations, permutations
from math import prod

import numpy as np
import pytest
from scipy.optimize import minimize

from dpiw.errors import StageFailedError
from dpiw.methods.generators.estimation import NoisyMarginal
from dpiw.methods.generators.pgm import descent, inference


def random_cliques(rng, columns):
    pairs = list(combinations(range(columns), 2))
    return [pairs[k] for k in rng.choice(len(pairs), size=columns, replace=False)]


def joint_of(families, sizes, rng):
    """A random distribution that factorises along families, as one array over all columns."""
    joint = np.ones(sizes)
    for family in families:
        shape = tuple(sizes[j] if j in family.members else 1 for j in range(len(sizes)))
        law = rng.random(shape)
        joint = joint * law / law.sum(axis=family.child, keepdims=True)
    return joint / joint.sum()


def over(joint, columns):
    away = tuple(j for j in range(joint.ndim) if j not in columns)
    order = [j for j in range(joint.ndim) if j in columns]
    return joint.sum(axis=away).transpose([order.index(j) for j in columns])


@pytest.mark.parametrize("seed", range(12))
def test_families_are_a_junction_tree_of_the_cliques(seed):
    rng = np.random.default_rng(seed)
    cliques, sizes = random_cliques(rng, 6), tuple(int(s) for s in rng.integers(2, 5, 6))
    families = inference.families_of(sizes, cliques)
    sets = [set(family.members) for family in families]
    assert sorted(family.child for family in families) == list(range(6))
    assert all(any(members.issuperset(clique) for members in sets) for clique in cliques)
    for place, family in enumerate(families):
        before = {earlier.child: number for number, earlier in enumerate(families[:place])}
        assert set(family.parents) <= set(before)
        if family.parents:
            last = max(family.parents, key=before.__getitem__)
            assert set(family.parents) <= sets[before[last]]


@pytest.mark.parametrize("seed", range(12))
def test_pairs_are_those_of_the_joint(seed, monkeypatch):
    """Through trees, triangulated cycles and unconnected columns, against the joint table.

    And in blocks of codes: one at a time, a few, or all; of what is asked, and no more.
    """
    rng = np.random.default_rng([1, seed])
    monkeypatch.setattr(inference, "BLOCK_CELLS", (1, 40, 1 << 20)[seed % 3])
    sizes = (7, 3, 2, 4, 3)
    families = inference.families_of(sizes, random_cliques(rng, 5)[: seed % 6])
    joint = joint_of(families, sizes, rng)
    tables = tuple(over(joint, family.members) for family in families)
    model = inference.FittedModel(families=families, tables=tables)
    for column in range(5):
        others = set(range(5)) - {column}
        for asked in (others, *({partner} for partner in others)):
            pairs = model.pairs(column, asked)
            assert set(pairs) == asked
            for partner, table in pairs.items():
                assert table == pytest.approx(over(joint, (column, partner)))


def peak(model, column):
    """Bytes that pairs with all other columns take, the answer with them."""
    others = {family.child for family in model.families} - {column}
    tracemalloc.start()
    try:
        model.pairs(column, others)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def uniform(sizes, cliques):
    families = inference.families_of(sizes, cliques)
    shapes = [tuple(sizes[j] for j in family.members) for family in families]
    return inference.FittedModel(
        families=families, tables=tuple(np.full(shape, 1 / prod(shape)) for shape in shapes)
    )


LONG_COLUMN = ((800, *[2] * 10), [(0, j) for j in range(1, 11)])
"""One column of many levels, measured with each of the others."""

BEHIND = ((300, 12, 12, 12, 12), [(0, 1), *combinations(range(1, 5), 2)])
"""A column of many levels before a clique of others."""


@pytest.mark.parametrize(("sizes", "cliques"), [LONG_COLUMN, BEHIND], ids=["long", "behind"])
@pytest.mark.slow
def test_pairs_take_no_more_memory_than_a_plan_counts_on(sizes, cliques, monkeypatch):
    """At blocks of this model's size; without blocks more, where there is anything to divide."""
    monkeypatch.setattr(inference, "BLOCK_CELLS", 1)
    model = uniform(sizes, cliques)
    cells = [table.size for table in model.tables]
    for column in (0, 1):
        answer = sizes[column] * (sum(sizes) - sizes[column])
        assert (
            peak(model, column)
            <= 8 * (inference.pairs_cells(sum(cells), max(cells)) + answer) + 50_000
        )
    if cliques is BEHIND[1]:  # the control
        monkeypatch.setattr(inference, "BLOCK_CELLS", 1 << 40)
        most = 8 * (sum(cells) + 4 * max(cells) + sizes[0] * (sum(sizes) - sizes[0])) + 50_000
        assert peak(model, 0) > most


CHAIN = np.array([[[6.0, 2.0], [1.0, 3.0]], [[2.0, 4.0], [5.0, 7.0]]])
"""Counts of three columns."""


def chained(*pairs, variance):
    return [
        NoisyMarginal(columns=columns, values=over(CHAIN, columns), variance=variance)
        for columns in pairs
    ]


def test_a_tree_without_noise_is_fitted_exactly():
    """Two pairs of one column: P(a, b) P(b, c) / P(b)."""
    total, exact = float(CHAIN.sum()), chained((0, 1), (1, 2), variance=1e-8)
    model = inference.fit(exact, (2, 2, 2), total=total)
    first, second = over(CHAIN, (0, 1)) / total, over(CHAIN, (1, 2)) / total
    middle, pairs = first.sum(axis=0), model.pairs(0, (1, 2))
    assert pairs[1] == pytest.approx(first, abs=1e-4)
    assert pairs[2] == pytest.approx(first @ (second / middle[:, None]), abs=1e-4)


def test_a_cycle_is_fitted_to_the_nearest_marginals():
    """Three pairs, made of one table: all of them are met, also with merged cells."""
    total, sizes = float(CHAIN.sum()), (2, 2, 2)
    marginals = [
        NoisyMarginal(columns=c, values=over(CHAIN, c), variance=1e-8, merged=np.ones((2, 2)))
        for c in ((0, 1), (1, 2), (0, 2))
    ]
    model = inference.fit(marginals, sizes, total=total)
    assert len(model.families[-1].parents) == 2
    for a, b in permutations(range(3), 2):
        wanted = over(CHAIN, (a, b)) / total
        assert model.pairs(a, [b])[b] == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200, 1e308])
def test_a_fit_that_is_not_finite_has_no_rows(value):
    """Also where counts are so large that their squares are not."""
    marginals = chained((0, 1), (1, 2), variance=1.0)
    marginals[1].values[0, 0] = value
    with pytest.raises(StageFailedError, match="stage fit"):
        inference.fit(marginals, (2, 2, 2), total=float(CHAIN.sum()))
    assert inference.fit(marginals[:1], (2, 2, 2), total=float(CHAIN.sum())).tables


@pytest.mark.nightly_cases("[2]", "[3]", "[5]")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_a_fit_is_as_near_as_any_table_and_of_maximal_entropy(seed):
    """Against a search over all joint tables; noise of another size in each marginal."""
    rng, sizes, total = np.random.default_rng(seed), (3, 4, 2, 3), 500.0
    joint = rng.dirichlet(np.ones(prod(sizes)) / 2).reshape(sizes)
    marginals = []
    for columns in [(0,), (1,), (2,), (3,), *random_cliques(rng, 4)[:4], (2, 0)]:
        deviation = rng.choice([2.0, 10.0])
        exact = total * np.einsum(joint, [0, 1, 2, 3], list(columns))
        noisy = exact + deviation * rng.normal(size=exact.shape)
        marginals.append(NoisyMarginal(columns=columns, values=noisy, variance=deviation**2))

    def loss(table):
        found = (total * np.einsum(table, [0, 1, 2, 3], list(m.columns)) for m in marginals)
        gaps = (one - m.values for one, m in zip(found, marginals, strict=True))
        return sum((g**2).sum() / m.variance for g, m in zip(gaps, marginals, strict=True)) / 2

    def softmax(x):
        table = np.exp(x - x.max())
        return (table / table.sum()).reshape(sizes)

    best = minimize(lambda x: loss(softmax(x)), np.zeros(prod(sizes)), method="L-BFGS-B")
    model = inference.fit(marginals, sizes, total=total)
    table = np.ones(sizes)
    for family, law in zip(model.families, model.tables, strict=True):
        base = law.sum(axis=-1, keepdims=True)
        given = np.divide(law, base, out=np.zeros_like(law), where=base > 0)
        order = sorted(family.members)
        given = given.transpose([family.members.index(j) for j in order])
        table = table * given.reshape([sizes[j] if j in order else 1 for j in range(4)])
    assert loss(table) <= best.fun + descent.ENOUGH
    # Of maximal entropy: its logarithm is a sum of tables of the measured columns.
    cells = np.indices(sizes).reshape(4, -1)
    parts = [
        np.equal.outer(
            np.ravel_multi_index(cells[[*m.columns]], m.values.shape), np.arange(m.values.size)
        )
        for m in marginals
    ]
    span = np.concatenate(parts, axis=1).astype(float)
    logs = np.log(np.maximum(table.ravel(), 1e-300))
    away = logs - span @ np.linalg.lstsq(span, logs, rcond=None)[0]
    assert np.abs(away).max() < 1e-6
