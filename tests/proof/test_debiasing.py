"""Unbiasedness by simulation (docs/method.md section 5): fixed seeds, four standard errors.

With the seeds fixed nothing here can flake. Under fresh seeds a right formula would fail a
four-standard-error test about once in 16,000.
"""

import math

import numpy as np
import pytest

from dpiw.methods.weights.base import Normalisation
from dpiw.methods.weights.paper.ratio import debiased, log_debias
from dpiw.methods.weights.paper.regression import Regression, solve
from dpiw.privacy.units import NoiseKind, NoiseLaw

BETA = np.array([1.2, -0.8, 0.5, 0.9])
SCALES = {NoiseKind.LAPLACE: 0.30, NoiseKind.SPHERICAL: 0.18, NoiseKind.GAUSSIAN: 0.40}
"""Noise scales, of the size that a release has."""


def draw(kind, scale, draws, dimension, rng):
    """Coefficient noise, shape (draws, dimension), from NumPy and not from our mechanisms."""
    if kind is NoiseKind.GAUSSIAN:
        return scale * rng.standard_normal((draws, dimension))
    if kind is NoiseKind.LAPLACE:
        return rng.laplace(scale=scale, size=(draws, dimension))
    direction = rng.standard_normal((draws, dimension))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    return direction * rng.gamma(dimension, scale, draws)[:, None]


def oracle():
    """Coefficients of the exact log ratio on [0,1]^4 with constant 1, and E_D[x1]."""
    factors = np.expm1(BETA) / BETA
    mean = 1 / -np.expm1(-BETA[0]) - 1 / BETA[0]
    return np.r_[BETA, -np.log(factors).sum()], mean


def bias(errors):
    return errors.mean(), errors.std() / math.sqrt(len(errors))


@pytest.mark.parametrize("kind", NoiseKind)
def test_unnormalised_mean_is_unbiased_after_debiasing_and_biased_before(kind):
    rng = np.random.default_rng(81)
    coefficients, truth = oracle()
    law = NoiseLaw(kind=kind, scale=SCALES[kind], dimension=5)
    replicates, rows = 6000, 250
    noisy, fixed = np.empty(replicates), np.empty(replicates)
    for i, z in enumerate(draw(kind, law.scale, replicates, 5, rng)):
        x = np.c_[rng.random((rows, 4)), np.ones(rows)]
        log_ratio = x @ (coefficients + z)
        noisy[i] = np.mean(np.exp(log_ratio) * x[:, 0]) - truth
        log_weights = debiased(log_ratio, x, law, Normalisation.UNNORMALISED)
        fixed[i] = np.mean(np.exp(log_weights) * x[:, 0]) - truth
    value, error = bias(fixed)
    assert abs(value) < 4 * error
    value, error = bias(noisy)
    assert value > 8 * error
    assert fixed.std() < noisy.std()  # docs/method.md section 5; not a general law (2.5)


@pytest.mark.parametrize("kind", NoiseKind)
def test_unbiased_for_the_fitted_weights_row_by_row(kind):
    """E[w_bar b] = w_hat at each x, with coefficients from a fit and not the truth."""
    rng = np.random.default_rng(82)
    private = np.c_[rng.random((500, 3)) ** 2 - 0.5, np.full(500, 0.5)]
    synthetic = np.c_[rng.random((800, 3)) - 0.5, np.full(800, 0.5)]
    fitted = solve(
        Regression(private=private, synthetic=synthetic, synthetic_weight=500 / 800, penalty=5.0),
        tolerance=1e-8,
    )
    law = NoiseLaw(kind=kind, scale=SCALES[kind], dimension=4)
    x = synthetic[:5]
    z = draw(kind, law.scale, 200_000, 4, rng)
    ratios = np.exp(z @ x.T + log_debias(law, x))  # w_bar b / w_hat
    error = ratios.std(axis=0) / math.sqrt(len(z))
    assert np.all(np.abs(ratios.mean(axis=0) - 1) < 4 * error)
    plain = np.exp(z @ x.T)
    assert np.all(plain.mean(axis=0) - 1 > 8 * plain.std(axis=0) / math.sqrt(len(z)))
    assert fitted.shape == (4,)


@pytest.mark.nightly_cases("LAPLACE", "SPHERICAL")
@pytest.mark.parametrize("kind", NoiseKind)
def test_self_normalised_use_needs_the_centred_factor(kind):
    """docs/method.md section 5: b(x - mu_hat) leaves no first-order bias, the printed b(x) makes
    one.

    Many synthetic rows, the same ones every time, so that only the noise is random; plus/minus
    pairs of noise remove its odd orders.
    """
    rng = np.random.default_rng(83)
    coefficients, _ = oracle()
    law = NoiseLaw(kind=kind, scale=SCALES[kind], dimension=5)
    x = np.c_[rng.random((1000, 4)), np.ones(1000)]
    exact = np.exp(x @ coefficients)
    truth = exact @ x[:, 0] / exact.sum()

    def error(log_weights):
        weights = np.exp(log_weights)
        return weights @ x[:, 0] / weights.sum() - truth

    pairs = draw(kind, law.scale, 1000, 5, rng)
    noised, printed, centred = np.empty((3, 1000))
    factor = log_debias(law, x)
    for i, z in enumerate(pairs):
        ratios = [x @ (coefficients + s * z) for s in (1, -1)]
        noised[i] = np.mean([error(r) for r in ratios])
        printed[i] = np.mean([error(r + factor) for r in ratios])
        own = [debiased(r, x, law, Normalisation.SELF) for r in ratios]
        centred[i] = np.mean([error(log_weights) for log_weights in own])
    (plain_bias, plain_error), (wrong, wrong_error) = bias(noised), bias(printed)
    left, left_error = bias(centred)
    assert wrong < -20 * wrong_error
    assert abs(wrong) > 3 * abs(plain_bias)
    assert abs(plain_bias) > 4 * plain_error
    assert abs(left) < 0.1 * abs(wrong)
    assert abs(left) < max(4 * left_error, 0.5 * abs(plain_bias))


def test_prior_correction_and_the_papers_inversion():
    """docs/method.md section 2: w = odds * N_G/N_D; N_D = 2000, N_G = 6000."""
    rng = np.random.default_rng(84)
    tilted = np.log1p(rng.random((2000, 2)) * np.expm1(1.5)) / 1.5  # density prop. to exp(1.5 x)
    private = np.c_[tilted - 0.5, np.full(2000, 0.5)]
    synthetic = np.c_[rng.random((6000, 2)) - 0.5, np.full(6000, 0.5)]

    def log_odds(weight):
        problem = Regression(
            private=private, synthetic=synthetic, synthetic_weight=weight, penalty=1e-3
        )
        return synthetic @ solve(problem, tolerance=1e-7)

    # s0 = n0/N_G with n0 = N_D: the logit is the log weight.
    assert np.exp(log_odds(2000 / 6000)).mean() == pytest.approx(1.0, abs=0.02)
    # A wrong public n0 shows as the factor N_D/n0, which self-normalisation drops.
    assert np.exp(log_odds(500 / 6000)).mean() == pytest.approx(4.0, abs=0.1)
    odds = np.exp(log_odds(1.0))
    assert np.mean(odds * 6000 / 2000) == pytest.approx(1.0, abs=0.02)
    assert np.mean(odds * 2000 / 6000) == pytest.approx(1 / 9, abs=0.005)  # the printed factor


def test_debiasing_may_raise_the_variance():
    """Against eq. 13: an h that changes sign on two points, by formula and by simulation.

    The standard error of a simulated variance is about sqrt(2/n) of it and more for heavy tails;
    the ratio of 400,000 draws is well within 10% of the formula's.
    """
    x, h = np.array([0.5, 0.75]), np.array([-15.0, 7.0])  # p w = 1 at both
    covariance = np.expm1(np.outer(x, x))
    noised = h * np.exp(x**2 / 2)
    formula = (h @ covariance @ h) / (noised @ covariance @ noised)
    assert formula == pytest.approx(1.5065, abs=1e-4)
    tilt = np.exp(np.random.default_rng(3).normal(size=(400_000, 1)) * x)
    debiased, plain = (tilt * np.exp(-(x**2) / 2)) @ h, tilt @ h
    assert debiased.var() / plain.var() == pytest.approx(formula, rel=0.1)
