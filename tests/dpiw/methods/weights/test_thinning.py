"""Rows chosen from a weighted base: the same totals in expectation, and mild weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.credit import solvable
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.thinning import calibrated, thin
from tests.dpiw.methods.weights.chosen import law_of, taken


def heavy(seed: int, rows: int = 5000, spread: float = 1.5) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=spread, size=rows)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.floats(0.0, 3.0),
    effect=st.floats(1.0, 10.0),
)
def test_the_design_effect_is_kept(seed: int, spread: float, effect: float) -> None:
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


def test_mild_weights_leave_the_choice_even() -> None:
    thinned = thin(heavy(1, spread=0.3), 1000, design_effect=2.0, rng=np.random.default_rng(2))
    assert thinned.exponent == 0
    assert thinned.distinct == 1000


def test_without_weights_all_is_in_the_choice() -> None:
    thinned = thin(heavy(1), 1000, design_effect=1.0, rng=np.random.default_rng(2))
    assert thinned.exponent == pytest.approx(1)
    assert np.exp(thinned.log_weights) == pytest.approx(np.ones(1000))


@pytest.mark.nightly_cases("1.0")
@pytest.mark.parametrize("effect", [1.0, 2.0, 1e6])
def test_estimates_are_those_of_the_base(effect: float) -> None:
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


def test_a_design_effect_below_one_is_refused() -> None:
    for effect in (0.5, float("nan")):
        with pytest.raises(WeightError, match="at least 1"):
            thin(heavy(1), 10, design_effect=effect, rng=np.random.default_rng(1))


# --- calibration ---------------------------------------------------------------------------------


def base_features(seed: int, rows: int = 8000) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (rows, 6))


def fitted(seed: int, noise: float) -> tuple[np.ndarray, np.ndarray, Targets]:
    """A base's features, its log weights, and its means with a noise of that deviation."""
    features = base_features(seed)
    logs = features @ np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.3])
    weights = np.exp(logs) / np.exp(logs).sum()
    targets = Targets(means=weights @ features, covariance=noise**2 * np.eye(6), rows=1000.0)
    return features, logs, targets


@pytest.mark.parametrize(("noise", "share"), [(1e-7, 1e-3), (1e3, 1.0)])
def test_means_come_as_close_as_the_noise_asks(noise: float, share: float) -> None:
    """Where they are known exactly the choice moves them by nothing; where not, it is left."""
    features, logs, targets = fitted(1, noise)
    rng = np.random.default_rng(2)
    calibration = calibrated(
        logs, 1000, targets, taken=taken(features), law=law_of(6), design_effect=2.0, rng=rng
    )
    chosen = features[calibration.rows.chosen]
    before, after = (
        np.linalg.norm(np.exp(own) @ chosen / 1000 - targets.means)
        for own in (calibration.rows.log_weights, calibration.log_weights)
    )
    assert after <= share * before * (1 + 1e-6)
    if noise > 1:
        assert calibration.log_weights == pytest.approx(calibration.rows.log_weights, abs=1e-6)
    own = np.exp(calibration.rows.log_weights)
    assert calibration.credit == pytest.approx(own.sum() ** 2 / (own**2).sum())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), effect=st.floats(1.0, 6.0))
def test_calibrated_weights_are_as_mild_as_asked(seed: int, effect: float) -> None:
    features, logs, targets = fitted(seed, 1e-3)
    calibration = calibrated(
        3 * logs,
        400,
        targets,
        taken=taken(features),
        law=law_of(6),
        design_effect=effect,
        rng=np.random.default_rng(seed),
    )
    w = np.exp(calibration.log_weights)
    assert w.mean() == pytest.approx(1)
    assert np.isfinite(calibration.credit) or effect < 2
    if np.isfinite(calibration.credit):
        assert (w**2).mean() <= effect
    else:
        assert np.array_equal(calibration.log_weights, calibration.rows.log_weights)


def test_rows_without_weights_stay_without() -> None:
    features, logs, targets = fitted(3, 1e-6)
    calibration = calibrated(
        logs, 500, targets, taken=taken(features), law=law_of(6), design_effect=1.0,
        rng=np.random.default_rng(4),
    )  # fmt: skip
    assert calibration.log_weights == pytest.approx(0, abs=1e-8)
    assert calibration.credit == np.inf


@pytest.mark.parametrize(
    ("factor", "is_spared"), [(0.5, True), (1.0, True), (2.0, True), (1e-4, False), (-1.0, False)]
)
def test_a_covariance_spares_making_one_and_changes_no_minimum(
    factor: float, is_spared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is far off, or none at all, is not trusted."""
    features = np.random.default_rng(1).uniform(-0.5, 0.5, (4000, 3))
    targets = Targets(means=np.array([0.03, -0.02, 0.01]), covariance=1e-6 * np.eye(3), rows=1e4)
    rows = BaseRows.of(features)
    least = solvable(rows, targets, 20.0)
    made, real = list[int](), BaseRows.covariance

    def counted(self: BaseRows, weights: np.ndarray, means: np.ndarray) -> np.ndarray:
        made.append(self.rows)
        return real(self, weights, means)

    monkeypatch.setattr(BaseRows, "covariance", counted)
    solved = solvable(BaseRows.of(features), targets, 20.0, covariance=factor * np.eye(3) / 12)
    assert (made == []) is is_spared
    assert solved.coefficients == pytest.approx(least.coefficients, abs=1e-4)
    assert solved.gap <= 2e-10
