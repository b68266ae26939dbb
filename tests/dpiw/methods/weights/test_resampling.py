from __future__ import annotations

import numpy as np
import pytest

from dpiw.errors import WeightError
from dpiw.methods.weights.resampling import Scheme, resample_rows

LOG_WEIGHTS = np.log(np.array([1.0, 2.0, 3.0, 4.0])) + 900.0


def drawn(scheme, rows, repeats=4000, seed=0):
    rng = np.random.default_rng(seed)
    counts = np.zeros((repeats, 4))
    for i in range(repeats):
        chosen = resample_rows(LOG_WEIGHTS, rows, scheme=scheme, rng=rng)
        assert chosen.shape == (rows,)
        assert np.all(np.diff(chosen) >= 0)
        counts[i] = np.bincount(chosen, minlength=4)
    return counts


@pytest.mark.parametrize("scheme", [Scheme.SYSTEMATIC, Scheme.MULTINOMIAL])
def test_rows_appear_in_proportion_to_weight(scheme):
    counts = drawn(scheme, 7)
    error = counts.std(axis=0) / np.sqrt(len(counts))
    assert np.all(np.abs(counts.mean(axis=0) - 7 * np.arange(1, 5) / 10) < 4 * error + 1e-12)


def test_systematic_draws_differ_by_less_than_one():
    counts = drawn(Scheme.SYSTEMATIC, 7)
    assert np.all(np.abs(counts - 7 * np.arange(1, 5) / 10) < 1)
    assert counts.var(axis=0).sum() < 0.6 * drawn(Scheme.MULTINOMIAL, 7).var(axis=0).sum()


def test_without_replacement_is_successive_sampling():
    """Two of four: P(row i) = w_i + sum_{j != i} w_j w_i / (1 - w_j), by hand."""
    counts = drawn(Scheme.WITHOUT_REPLACEMENT, 2)
    assert counts.max() == 1
    w = np.arange(1, 5) / 10
    expected = [w[i] + sum(w[j] * w[i] / (1 - w[j]) for j in range(4) if j != i) for i in range(4)]
    error = np.sqrt(np.array(expected) * (1 - np.array(expected)) / len(counts))
    assert np.all(np.abs(counts.mean(axis=0) - expected) < 4 * error)


@pytest.mark.parametrize("scheme", Scheme)
def test_the_same_generator_state_gives_the_same_rows(scheme):
    log_weights = np.random.default_rng(1).standard_normal(500)
    first, again, other = (
        resample_rows(log_weights, 100, scheme=scheme, rng=np.random.default_rng(seed))
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("log_weights", "rows", "scheme", "text"),
    [
        (np.zeros(0), 1, Scheme.SYSTEMATIC, "vector of finite log weights"),
        (np.zeros((2, 2)), 1, Scheme.SYSTEMATIC, "vector of finite log weights"),
        (np.array([0.0, np.nan]), 1, Scheme.SYSTEMATIC, "vector of finite log weights"),
        (np.zeros(3), 0, Scheme.MULTINOMIAL, "rows=0: expected at least 1$"),
        (
            np.zeros(3),
            4,
            Scheme.WITHOUT_REPLACEMENT,
            "rows=4: .* and at most the 3",
        ),
    ],
)
def test_what_cannot_be_drawn(log_weights, rows, scheme, text):
    with pytest.raises(WeightError, match=text):
        resample_rows(log_weights, rows, scheme=scheme, rng=np.random.default_rng(0))
