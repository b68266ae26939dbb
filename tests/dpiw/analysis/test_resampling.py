from __future__ import annotations

import math

import numpy as np
import pytest

from dpiw.analysis import Resampling, resample
from dpiw.errors import WeightError


@pytest.mark.parametrize("method", Resampling)
def test_resampling_has_the_right_expectation(method):
    rng = np.random.default_rng(72)
    weights = np.array([0.5, 1.0, 4.0, 2.5])
    counts = np.zeros(4)
    for _ in range(4000):
        counts += np.bincount(resample(np.log(weights), 7, rng=rng, method=method), minlength=4)
    expected = 7 * weights / 8
    # Multinomial standard error per replicate <= sqrt(7/4); 4.5 of them over 4,000 replicates.
    np.testing.assert_allclose(counts / 4000, expected, atol=4.5 * math.sqrt(7 / 4 / 4000))


def test_systematic_counts_are_floor_or_ceiling():
    rng = np.random.default_rng(73)
    log_weights = rng.standard_normal(50)
    expected = 400 * np.exp(log_weights) / np.exp(log_weights).sum()
    for _ in range(50):
        counts = np.bincount(resample(log_weights, 400, rng=rng), minlength=50)
        assert np.all(np.abs(counts - expected) < 1)


def test_systematic_with_equal_weights_keeps_every_row_once():
    found = resample(np.zeros(30), 30, rng=np.random.default_rng(74))
    np.testing.assert_array_equal(found, np.arange(30))


@pytest.mark.parametrize("method", Resampling)
def test_resampling_is_repeatable_and_in_range(method):
    log_weights = np.r_[-800.0, np.zeros(3), -800.0]
    runs = [
        resample(log_weights, 1000, rng=np.random.default_rng(75), method=method) for _ in range(2)
    ]
    np.testing.assert_array_equal(*runs)
    assert set(runs[0]) == {1, 2, 3}
    assert resample(log_weights, 0, rng=np.random.default_rng(1), method=method).size == 0


def test_inadmissible_input_is_refused():
    rng = np.random.default_rng(0)
    for bad in (np.zeros(0), np.array([np.nan]), np.zeros((2, 2))):
        with pytest.raises(WeightError, match="finite log weights"):
            resample(bad, 3, rng=rng)
    with pytest.raises(WeightError, match="rows=-1"):
        resample(np.zeros(2), -1, rng=rng)
