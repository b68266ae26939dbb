import numpy as np
import pytest

from dpiw.errors import WeightError
from dpiw.methods.weights.resampling import Resampling, resample

LOG_WEIGHTS = np.log(np.array([1.0, 2.0, 3.0, 4.0])) + 900.0


def drawn(method, rows, repeats=4000, seed=0):
    rng = np.random.default_rng(seed)
    counts = np.zeros((repeats, 4))
    for i in range(repeats):
        chosen = resample(LOG_WEIGHTS, rows, method=method, rng=rng)
        assert chosen.shape == (rows,)
        assert np.all(np.diff(chosen) >= 0)
        counts[i] = np.bincount(chosen, minlength=4)
    return counts


@pytest.mark.parametrize("method", [Resampling.SYSTEMATIC, Resampling.MULTINOMIAL])
def test_rows_appear_in_proportion_to_weight(method):
    counts = drawn(method, 7)
    error = counts.std(axis=0) / np.sqrt(len(counts))
    assert np.all(np.abs(counts.mean(axis=0) - 7 * np.arange(1, 5) / 10) < 4 * error + 1e-12)


def test_systematic_draws_differ_by_less_than_one():
    counts = drawn(Resampling.SYSTEMATIC, 7)
    assert np.all(np.abs(counts - 7 * np.arange(1, 5) / 10) < 1)
    assert counts.var(axis=0).sum() < 0.6 * drawn(Resampling.MULTINOMIAL, 7).var(axis=0).sum()


def test_without_replacement_is_successive_sampling():
    """Two of four: P(row i) = w_i + sum_{j != i} w_j w_i / (1 - w_j), by hand."""
    counts = drawn(Resampling.WITHOUT_REPLACEMENT, 2)
    assert counts.max() == 1
    w = np.arange(1, 5) / 10
    expected = [w[i] + sum(w[j] * w[i] / (1 - w[j]) for j in range(4) if j != i) for i in range(4)]
    error = np.sqrt(np.array(expected) * (1 - np.array(expected)) / len(counts))
    assert np.all(np.abs(counts.mean(axis=0) - expected) < 4 * error)


@pytest.mark.parametrize("method", Resampling)
def test_the_same_generator_state_gives_the_same_rows(method):
    log_weights = np.random.default_rng(1).standard_normal(500)
    first, again, other = (
        resample(log_weights, 100, method=method, rng=np.random.default_rng(seed))
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("log_weights", "rows", "method"),
    [(np.zeros(0), 1, Resampling.SYSTEMATIC), (np.zeros((2, 2)), 1, Resampling.SYSTEMATIC),
     (np.array([0.0, np.nan]), 1, Resampling.SYSTEMATIC), (np.zeros(3), -1, Resampling.MULTINOMIAL),
     (np.zeros(3), 4, Resampling.WITHOUT_REPLACEMENT)],
)  # fmt: skip
def test_what_cannot_be_drawn(log_weights, rows, method):
    with pytest.raises(WeightError):
        resample(log_weights, rows, method=method, rng=np.random.default_rng(0))


def test_systematic_with_equal_weights_keeps_every_row_once():
    found = resample(np.zeros(30), 30, rng=np.random.default_rng(74))
    np.testing.assert_array_equal(found, np.arange(30))


@pytest.mark.parametrize("method", Resampling)
def test_no_row_of_no_weight_is_drawn_and_none_may_be_asked_for(method):
    log_weights = np.r_[-800.0, np.zeros(3), -800.0]
    few = 3 if method is Resampling.WITHOUT_REPLACEMENT else 1000
    found = resample(log_weights, few, rng=np.random.default_rng(75), method=method)
    assert set(found) == {1, 2, 3}
    assert resample(log_weights, 0, rng=np.random.default_rng(1), method=method).size == 0


def test_a_seed_is_no_generator():
    with pytest.raises(WeightError):
        resample(np.zeros(3), 1, rng=7)
