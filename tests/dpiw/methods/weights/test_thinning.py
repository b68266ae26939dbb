"""Rows chosen by weight: thinned, calibrated, drawn anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.thinning import thin
from dpiw.methods.weights.weigh import resample
from tests.dpiw.methods.weights.measuring import calibration_of


def heavy(seed, rows=5000, spread=1.5):
    return np.random.default_rng(seed).normal(scale=spread, size=rows)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.0, 3.0), effect=st.floats(1.0, 10.0))
def test_the_design_effect_is_kept(seed, spread, effect):
    logs = heavy(seed, spread=spread)
    thinned = thin(logs, 2000, design_effect=effect, rng=np.random.default_rng(seed))
    residual = np.exp(thinned.log_weights)
    assert residual.mean() == pytest.approx(1)
    assert 0 <= thinned.exponent <= 1
    weights = np.exp(logs) / np.exp(logs).sum()
    chances = weights**thinned.exponent / (weights**thinned.exponent).sum()
    expected = (weights**2 / chances).sum()
    assert expected <= effect * (1 + 1e-9)
    if thinned.exponent > 0:  # no more is in the choice of rows than has to be
        assert expected >= effect * (1 - 1e-6)


def test_mild_weights_leave_the_choice_even_and_without_weights_all_is_in_it():
    mild = thin(heavy(1, spread=0.3), 1000, design_effect=2.0, rng=np.random.default_rng(2))
    assert (mild.exponent, mild.distinct) == (0, 1000)
    even = thin(heavy(1), 1000, design_effect=1.0, rng=np.random.default_rng(2))
    assert even.exponent == pytest.approx(1)
    assert np.exp(even.log_weights) == pytest.approx(np.ones(1000))


@pytest.mark.nightly_cases("1.0", "1000000.0")
@pytest.mark.parametrize("effect", [1.0, 2.0, 1e6])
@pytest.mark.slow
def test_estimates_are_those_of_the_base(effect):
    """The mean over 400 choices; red by chance in one run of 10^6 (five standard errors)."""
    logs, rng = heavy(3), np.random.default_rng(4)
    values = rng.normal(size=logs.size)
    values += logs
    weights = np.exp(logs)
    truth = weights @ values / weights.sum()
    estimates = []
    for _ in range(400):
        thinned = thin(logs, 500, design_effect=effect, rng=rng)
        residual = np.exp(thinned.log_weights)
        estimates.append(residual @ values[thinned.chosen] / residual.sum())
    error = np.std(estimates) / 20
    assert abs(np.mean(estimates) - truth) < 5 * error + 0.02  # self-normalisation: second order


def fitted(seed, noise):
    """A base's features, its log weights, and its means with a noise of that deviation."""
    features = np.random.default_rng(seed).uniform(-0.5, 0.5, (8000, 6))
    logs = features @ np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.3])
    weights = np.exp(logs) / np.exp(logs).sum()
    targets = Targets(means=weights @ features, covariance=noise**2 * np.eye(6), rows=1000.0)
    return features, logs, targets


@pytest.mark.parametrize(("noise", "share"), [(1e-7, 1e-3), (1e3, 1.0)])
def test_means_come_as_close_as_the_noise_asks(noise, share):
    """Where they are known exactly the choice moves them by nothing; where not, it is left."""
    features, logs, targets = fitted(1, noise)
    calibration = calibration_of(logs, 1000, targets, features, rng=np.random.default_rng(2))
    choice = thin(logs, 1000, design_effect=2.0, rng=np.random.default_rng(2))
    assert np.array_equal(choice.chosen, calibration.chosen)
    chosen = features[choice.chosen]
    before, after = (
        np.linalg.norm(np.exp(own) @ chosen / 1000 - targets.means)
        for own in (choice.log_weights, calibration.log_weights)
    )
    assert after <= share * before * (1 + 1e-6)
    if noise > 1:
        assert calibration.log_weights == pytest.approx(choice.log_weights, abs=1e-6)
    own = np.exp(choice.log_weights)
    assert calibration.credit == pytest.approx(own.sum() ** 2 / (own**2).sum())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), effect=st.floats(1.0, 6.0))
def test_calibrated_weights_are_as_mild_as_asked(seed, effect):
    features, logs, targets = fitted(seed, 1e-3)
    calibration = calibration_of(
        3 * logs, 400, targets, features, design_effect=effect, rng=np.random.default_rng(seed)
    )
    w = np.exp(calibration.log_weights)
    assert w.mean() == pytest.approx(1)
    assert np.isfinite(calibration.credit) or effect < 2
    if np.isfinite(calibration.credit):
        assert (w**2).mean() <= effect


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


@pytest.mark.parametrize(
    ("log_weights", "rows"),
    [(np.zeros(0), 1), (np.zeros((2, 2)), 1), (np.array([0.0, np.nan]), 1), (np.zeros(3), -1)],
)
def test_what_cannot_be_drawn(log_weights, rows):
    with pytest.raises(WeightError):
        resample(log_weights, rows, rng=np.random.default_rng(0))
    with pytest.raises(WeightError):
        resample(np.zeros(3), 1, rng=7)


def test_no_row_of_no_weight_is_drawn_and_none_may_be_asked_for():
    log_weights = np.r_[-800.0, np.zeros(3), -800.0]
    assert {*resample(log_weights, 1000, rng=np.random.default_rng(75))} == {1, 2, 3}
    assert resample(log_weights, 0, rng=np.random.default_rng(1)).size == 0
