from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpiw.methods.weights.diagnostics import fit_generalised_pareto, k_hat, tail_length
from dpiw.methods.weights.paper.steps import pareto_smooth

GOLDEN = json.loads((Path(__file__).parents[4] / "golden" / "psis.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: f"{c['rows']}-{c['spread']}")
def test_as_arviz_smooths(case):
    """Values of arviz-stats 0.8.0, made by tests/golden/make_psis.py."""
    # A stored vector and not a seed: NumPy may change what a seed gives.
    smoothed, shape = pareto_smooth(np.array(case["log_weights"]))
    assert shape == pytest.approx(case["k_hat"], rel=1e-9)
    smoothed -= np.log(np.exp(smoothed).sum())
    np.testing.assert_allclose(smoothed, case["smoothed"], rtol=0, atol=1e-9)


def test_as_the_installed_arviz_smooths():
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    for rows in (100, 900, 10_000):  # here ArviZ's floor and the paper's ceiling agree
        log_weights = 1.4 * np.random.default_rng(rows).standard_normal(rows)
        reference, shape = array_stats.psislw(-log_weights)
        smoothed, k = pareto_smooth(log_weights)
        assert k == pytest.approx(float(shape), rel=1e-9)
        np.testing.assert_allclose(smoothed - np.log(np.exp(smoothed).sum()), reference, atol=1e-9)


def test_only_the_tail_moves_and_keeps_its_order():
    log_weights = 2 * np.random.default_rng(3).standard_normal(2000) + 700.0
    smoothed, shape = pareto_smooth(log_weights)
    order = np.argsort(log_weights)
    count = tail_length(2000)
    np.testing.assert_array_equal(smoothed[order[:-count]], log_weights[order[:-count]])
    assert np.all(np.diff(smoothed[order]) >= 0)
    assert smoothed.max() <= log_weights.max()
    assert shape == k_hat(log_weights)
    excesses = np.exp(log_weights[order[-count:]] - log_weights.max())
    excesses -= np.exp(log_weights[order[-count - 1]] - log_weights.max())
    fitted = fit_generalised_pareto(excesses)
    middle = stats.genpareto.ppf(0.5, fitted[0], scale=fitted[1])
    median = np.median(np.exp(smoothed[order[-count:]] - log_weights.max()))
    median -= np.exp(log_weights[order[-count - 1]] - log_weights.max())
    assert median == pytest.approx(middle, rel=1e-6)


def test_smoothing_lowers_the_error_of_heavy_tails():
    """Weights of shape 0.7, mean 1/(1-0.7): root mean square error over 200 samples of 1,000."""
    rng, raw, smooth = np.random.default_rng(4), [], []
    for _ in range(200):
        log_weights = np.log(stats.genpareto.rvs(0.7, size=1000, random_state=rng))
        raw.append(np.exp(log_weights).mean())
        smooth.append(np.exp(pareto_smooth(log_weights)[0]).mean())
    truth = 1 / 0.3
    error = [np.sqrt(np.mean((np.array(means) - truth) ** 2)) for means in (raw, smooth)]
    assert error[1] < 0.75 * error[0]


def test_nothing_to_smooth():
    for log_weights in (np.zeros(1000), np.arange(24.0), np.minimum(np.arange(500.0), 300.0)):
        smoothed, shape = pareto_smooth(log_weights)
        assert shape is None
        np.testing.assert_array_equal(smoothed, log_weights)
