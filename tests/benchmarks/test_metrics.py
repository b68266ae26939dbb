"""The metrics of the benchmarks, each in two independent ways or in closed form; no data folder."""

import itertools

import numpy as np
import pytest

from dpiw.data.schema.discretisation import Domain
from tests.benchmarks.scripts import metrics, rows, schema


def everything(table, w, test):
    public_schema = schema()
    domain = Domain.from_schema(public_schema, bins=4)
    x, y = metrics.design(public_schema, table)
    tx, ty = metrics.design(public_schema, test)
    fit = metrics.linear_fit(x, y, w, regression=False)
    return np.array(
        [
            *fit.coefficients,
            metrics.auc(ty, fit.score(tx)),
            metrics.wasserstein_1d_sum(public_schema, table, w, test),
            metrics.sliced_wasserstein(
                public_schema.centred(table), w, public_schema.centred(test), directions=4, seed=5
            ),
            *metrics.total_variation(domain.codes(table), domain.codes(test), domain.sizes, w),
        ]
    )


def test_a_weight_counts_as_copies_and_its_scale_does_not_matter(rng):
    table, test = rows(rng, 60), rows(rng, 40, shift=1.0)
    counts = rng.integers(0, 4, table.rows)
    repeated = table.take(np.repeat(np.arange(table.rows), counts))
    weighted = everything(table, counts.astype(float), test)
    positive = table.take(counts > 0)
    whole = everything(positive, counts[counts > 0] * 7.3, test)
    plain = everything(repeated, np.ones(repeated.rows), test)
    np.testing.assert_allclose(weighted, plain, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(whole, plain, rtol=2e-4, atol=1e-6)
    assert np.abs(weighted - everything(table, np.ones(table.rows), test)).max() > 0.01
    to_itself = everything(table, np.ones(60), table)
    np.testing.assert_allclose(to_itself[-4:], 0, atol=1e-12)


def test_wasserstein_by_the_area_between_distribution_functions(rng):
    """W1 on a line is the area between the distribution functions; colours: total variation."""
    table, test, w = rows(rng, 30), rows(rng, 25, shift=2.0), rng.random(30)
    public_schema, grid = schema(), np.linspace(0, 1, 200_001)

    def cdf(values, weights):
        order = np.argsort(values)
        mass = np.concatenate([[0], np.cumsum(weights[order]) / weights.sum()])
        return mass[np.searchsorted(values[order], grid, side="right")]

    expected = 0.0
    for name, width in (("size", 1), ("grade", 2), ("label", 1), ("price", 1)):
        synthetic, real = table.columns[name] / width, test.columns[name] / width
        gap = np.abs(cdf(synthetic, w) - cdf(real, np.ones(25)))
        expected += gap.mean()
    for level in (-1, 0, 1, 2):
        synthetic, real = table.columns["colour"] == level, test.columns["colour"] == level
        expected += abs(w[synthetic].sum() / w.sum() - real.mean()) / 2
    distance = metrics.wasserstein_1d_sum(public_schema, table, w, test)
    assert distance == pytest.approx(expected, abs=1e-4)


def test_sliced_wasserstein_of_a_shift_in_closed_form(rng):
    """A shift by v moves every projection by v.a; E|v.a| = 2 norm(v)/pi for two columns."""
    points, shift = rng.random((40, 2)), np.array([3.0, 4.0])
    w = np.full(40, 2.5)
    distance = metrics.sliced_wasserstein(points, w, points + shift, directions=4000, seed=1)
    # sd of |cos| is 0.308: 5/sqrt(4000) of it is 0.024; the bound is four times that.
    assert distance == pytest.approx(5 * 2 / np.pi, abs=0.1)
    assert metrics.sliced_wasserstein(points, w, points, directions=9, seed=1) == 0


def test_total_variation_against_tables_by_hand(rng):
    synthetic, real, w = rng.integers(0, 3, (30, 3)), rng.integers(0, 3, (20, 3)), rng.random(30)

    def table(codes, weights, columns):
        shares = {}
        for row, weight in zip(codes, weights / weights.sum(), strict=True):
            key = tuple(int(row[j]) for j in columns)
            shares[key] = shares.get(key, 0) + weight
        return shares

    def distance(columns):
        a, b = table(synthetic, w, columns), table(real, np.ones(20), columns)
        return sum(max(0, a.get(key, 0) - b.get(key, 0)) for key in a)

    expected = [
        np.mean([distance((j,)) for j in range(3)]),
        np.mean([distance(pair) for pair in itertools.combinations(range(3), 2)]),
    ]
    distances = metrics.total_variation(synthetic, real, (3, 3, 3), w)
    np.testing.assert_allclose(distances, expected, rtol=1e-12)


def test_coefficient_errors_auc_and_effective_size_by_hand():
    truth = np.array([3.0, 4.0])
    assert metrics.coefficient_errors(np.array([3.0, 2.0]), truth) == (2.0, 4 / 25)
    assert metrics.coefficient_errors(None, truth) == (12.5, 1.0)
    y, score = np.array([0, 0, 1, 1.0]), np.array([0.1, 0.5, 0.5, 0.9])
    pairs = [1.0, 1.0, 0.5, 1.0]  # of each class-1 row with each class-0 row; ties count half
    assert metrics.auc(y, score) == pytest.approx(np.mean(pairs))
    assert metrics.auc(y, None) == 0.5
    assert metrics.ess_share(np.array([2.0, 2.0, 2.0])) == pytest.approx(1)
    assert metrics.ess_share(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.slow
def test_the_perceptron_learns_what_lines_cannot_and_heeds_weights(rng, regression):
    """Truth: inside or outside a square. Almost no weight on wrong labels undoes them."""
    x = rng.random((400, 2)) * 2 - 1
    y = (np.abs(x).max(axis=1) < 0.7).astype(float)
    wrong = rng.random(400) < 0.45
    w = np.where(wrong, 1e-6, 1.0)
    deep = metrics.Perceptron()
    noisy = np.where(wrong, 1 - y, y)
    held = rng.random((300, 2)) * 2 - 1
    truth = (np.abs(held).max(axis=1) < 0.7).astype(float)
    aucs = [
        metrics.auc(truth, deep.score(x, noisy, v, held, regression=regression, seed=0))
        for v in (w, np.ones(400))
    ]
    line = metrics.linear_fit(x, y, np.ones(400), regression=regression)
    assert aucs[0] > 0.97
    assert aucs[0] > aucs[1] + 0.05
    assert metrics.auc(truth, line.score(held)) < 0.75
    again = deep.score(x, noisy, w, held, regression=regression, seed=0)
    assert metrics.auc(truth, again) == aucs[0]


def test_macro_auc_is_the_mean_of_each_level_against_the_rest():
    y = np.array([0, 0, 1, 1, 2, 2.0])
    score = np.array([[3, 1, 2, 0, 1, 1], [1, 2, 3, 0, 1, 1], [0, 0, 0, 0, 1, 2]], dtype=float).T

    def area(k):
        real, rest = score[y == k, k], score[y != k, k]
        return np.mean([(a > b) + (a == b) / 2 for a in real for b in rest])

    assert metrics.auc(y, score) == pytest.approx(np.mean([area(k) for k in range(3)]))
    assert metrics.auc(y, np.ones((6, 3))) == 0.5
    two = np.column_stack([1 - score[:, 1], score[:, 1]])
    assert metrics.auc((y == 1) * 1.0, two) == pytest.approx(area(1))
