import numpy as np
import pytest

from dpiw.errors import WeightError
from dpiw.methods.weights.weigh import resample

LOG_WEIGHTS = np.log(np.array([1.0, 2.0, 3.0, 4.0])) + 900.0


def drawn(rows, repeats=4000, seed=0):
    rng = np.random.default_rng(seed)
    counts = np.zeros((repeats, 4))
    for i in range(repeats):
        chosen = resample(LOG_WEIGHTS, rows, rng=rng)
        assert chosen.shape == (rows,)
        assert np.all(np.diff(chosen) >= 0)
        counts[i] = np.bincount(chosen, minlength=4)
    return counts


def test_rows_appear_in_proportion_to_weight():
    counts = drawn(7)
    error = counts.std(axis=0) / np.sqrt(len(counts))
    assert np.all(np.abs(counts.mean(axis=0) - 7 * np.arange(1, 5) / 10) < 4 * error + 1e-12)


def test_draws_differ_by_less_than_one():
    assert np.all(np.abs(drawn(7) - 7 * np.arange(1, 5) / 10) < 1)


def test_the_same_generator_state_gives_the_same_rows():
    log_weights = np.random.default_rng(1).standard_normal(500)
    first, again, other = (
        resample(log_weights, 100, rng=np.random.default_rng(seed)) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("log_weights", "rows"),
    [(np.zeros(0), 1), (np.zeros((2, 2)), 1), (np.array([0.0, np.nan]), 1), (np.zeros(3), -1)],
)
def test_what_cannot_be_drawn(log_weights, rows):
    with pytest.raises(WeightError):
        resample(log_weights, rows, rng=np.random.default_rng(0))


def test_equal_weights_keep_every_row_once():
    found = resample(np.zeros(30), 30, rng=np.random.default_rng(74))
    np.testing.assert_array_equal(found, np.arange(30))


def test_no_row_of_no_weight_is_drawn_and_none_may_be_asked_for():
    log_weights = np.r_[-800.0, np.zeros(3), -800.0]
    assert {*resample(log_weights, 1000, rng=np.random.default_rng(75))} == {1, 2, 3}
    assert resample(log_weights, 0, rng=np.random.default_rng(1)).size == 0


def test_a_seed_is_no_generator():
    with pytest.raises(WeightError):
        resample(np.zeros(3), 1, rng=7)
