"""Local collections at length: unbiasedness by Monte Carlo, the claim by the law of reports."""

import math

import numpy as np
import pytest

from dpiw.local import privatise
from dpiw.local.learn import EXPONENTIAL, SQUARED, CorrectedRisk, PolynomialLoss
from dpiw.privacy.randomness import SeededNoise
from tests.support.local import collection, told

QUARTIC = PolynomialLoss(coefficients=(0.5, -1.0, 0.25, 0.05, 0.02), name="quartic")
THETA = np.array([0.2, -0.3, 0.15])
RECORD = np.array([0.5, -0.2, 0.7])


def scores(loss, draws, *, seed, bug=None):
    """z of the mean value and gradient of `draws` reports of one person against the truth."""
    parameters = collection(private=(True,) * 3, epsilon="8")
    rng, sums, squares = np.random.default_rng(seed), np.zeros(4), np.zeros(4)
    clean = CorrectedRisk(matrix=RECORD[None], indicator=np.ones(1), variances=np.zeros(3),
                          loss=loss)  # fmt: skip
    truth = np.array([clean.values(THETA)[0], *clean.gradients(THETA)[0]])
    for _ in range(draws // 100_000):
        labels = np.ones(100_000, dtype=np.int64)
        sample = told(parameters, np.tile(RECORD, (100_000, 1)), labels, rng)
        risk = CorrectedRisk(
            matrix=sample.features,
            indicator=sample.labels * 1.0 if bug == "label" else sample.indicator("yes"),
            variances=parameters.variances * (bug != "noise"), loss=loss,
        )  # fmt: skip
        rows = np.column_stack([risk.values(THETA), risk.gradients(THETA)]) - truth
        sums, squares = sums + rows.sum(axis=0), squares + (rows**2).sum(axis=0)
    return sums / np.sqrt(squares)


@pytest.mark.parametrize("loss", [EXPONENTIAL, SQUARED, QUARTIC], ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    "draws", [pytest.param(4_000_000, marks=pytest.mark.nightly), 100_000], ids=str
)
def test_corrected_losses_are_unbiased(loss, draws, figures):
    """Four z-scores a loss; the seed is fixed. A forgotten correction is beyond 8."""
    z = scores(loss, draws, seed=15)
    assert np.abs(z).max() < (3 if draws > 1e6 else 4)
    for bug in ("noise", "label"):
        assert np.abs(scores(loss, 100_000, seed=1, bug=bug)).max() > 8
    if draws > 1e6:
        figures("local unbiasedness", loss=loss.name, z=[round(float(score), 2) for score in z])


@pytest.mark.slow
def test_reports_of_two_people_differ_as_the_curve_says():
    """The two farthest records, reported by the code that a client runs, 15,000 times each.

    On the best sets of the likelihood ratio P(S) - e^epsilon Q(S) is the delta of the curve, within
    4 standard errors; it is none of half or twice the noise.
    """
    parameters, draws, epsilon = collection(private=(True,), epsilon="2", norm=0.0), 15_000, 1.0
    response, stddev = parameters.response, parameters.stddev
    reports = [
        privatise(np.full((draws, 1), value), np.full(draws, label), parameters=parameters,
                  noise=SeededNoise(seed))
        for value, label, seed in ((1.0, 1, 1), (-1.0, 0, 2))
    ]  # fmt: skip
    inside = []
    for features, answers in reports:
        loss = 2 * features[:, 0] / stddev**2 + np.where(answers == 1, 1, -1) * response.epsilon
        inside.append((loss > epsilon).mean())
    delta = inside[0] - math.exp(epsilon) * inside[1]
    variances = [share * (1 - share) / draws for share in inside]
    error = math.sqrt(variances[0] + math.exp(2 * epsilon) * variances[1])
    apart = {
        share: abs(delta - response.joint_delta(share * stddev / 2, epsilon)) / error
        for share in (1 / 2, 1.0, 2)
    }
    assert apart[1.0] < 4 < min(apart[1 / 2], apart[2])
