"""Moments, shares and least squares from reports: unbiased, with intervals that are wide enough."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dpiw.errors import ReleaseError, WeightError
from dpiw.local.estimate import covariance, frequencies, least_squares, means, net_spread
from dpiw.local.learn import SQUARED, CorrectedRisk
from tests.support.local import collection, people, told

HALF = 5.0  # of the features' range, 0 to 10


def scores(estimates, truth):
    """Repeated estimates against the truth: z of their mean, and their spread over the stated."""
    values = np.array([estimate.values for estimate in estimates])
    stated = np.sqrt(np.median([np.diag(estimate.covariance) for estimate in estimates], axis=0))
    spread = values.std(axis=0, ddof=1)
    return (values.mean(axis=0) - truth) / (spread / np.sqrt(len(values))), spread / stated


def repeated(estimate, *, private=(True, True), rows=3000, repeats=60, epsilon="6"):
    rng, parameters = np.random.default_rng(11), collection(private=private, epsilon=epsilon)
    features, labels = people(rows, len(private), rng)
    clean = np.column_stack([np.ones(rows), HALF + HALF * features]), labels
    return [estimate(told(parameters, features, labels, rng)) for _ in range(repeats)], clean


def test_means_and_shares_are_unbiased():
    """The people stay the same, so the spread is the noise's alone: below what is stated."""
    for estimate, rows in ((means, lambda x, y: x[:, 1:]),
                           (frequencies, lambda x, y: np.eye(2)[y])):  # fmt: skip
        estimates, (x, y) = repeated(estimate)
        z, ratio = scores(estimates, rows(x, y).mean(axis=0))
        assert np.abs(z).max() < 4.5
        assert (ratio > 0.5).all()
        assert (ratio < 1.3).all()


def test_the_corrected_covariance_is_unbiased_and_the_told_one_is_not():
    estimates, (x, _) = repeated(lambda sample: covariance(sample, repair=False), rows=4000)
    values = np.array([estimate.to_numpy() for estimate in estimates])
    truth = np.cov(x[:, 1:], rowvar=False)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert np.abs((values.mean(axis=0) - truth) / error).max() < 4.5
    noise = collection(epsilon="6").stddev * HALF
    assert noise**2 > 10 * error[0, 0]  # what a forgotten correction would be found by


def test_a_covariance_is_repaired():
    rng, parameters = np.random.default_rng(1), collection(epsilon="1")
    sample = told(parameters, *people(50, 2, rng), rng)
    raw, mended = covariance(sample, repair=False), covariance(sample)
    assert np.linalg.eigvalsh(raw).min() < 0 <= np.linalg.eigvalsh(mended).min() + 1e-9
    assert list(mended.columns) == ["a", "b"]


@pytest.mark.parametrize("private", [(True, True), (True, False)])
def test_least_squares_is_unbiased_with_its_sandwich(private):
    estimates, (x, y) = repeated(
        lambda sample: least_squares(sample, "home", level="yes"), private=private, rows=20_000,
        epsilon="12",
    )  # fmt: skip
    truth = np.linalg.lstsq(x, y, rcond=None)[0]
    z, ratio = scores(estimates, truth)
    assert np.abs(z).max() < 4.5
    assert (ratio > 0.6).all()
    assert (ratio < 1.4).all()


def fits_of_a_steep_line(epsilon, rows, repeats):
    """Least squares of a label on one feature, where the matrix was positive; the slope is 0.09."""
    rng, parameters = np.random.default_rng(31), collection(private=(True,), epsilon=epsilon)
    fits = []
    for _ in range(repeats):
        features = rng.uniform(-1, 1, size=(rows, 1))
        labels = (rng.random(rows) < 0.5 + 0.45 * features[:, 0]).astype(np.int64)
        with suppress(WeightError):
            sample = told(parameters, features, labels, rng)
            fits.append(least_squares(sample, "home", level="yes"))
    return fits


def test_a_matrix_that_is_positive_by_luck_is_not_used():
    """The spread net of the noise is one standard error here: none of 1,651 fits saw four.

    Of 150 fits some 120 are positive, and all were `use`: 83% of their slopes were covered. With
    another seed more than three `use` come by chance less than once in 10^5 times.
    """
    fits = fits_of_a_steep_line("4", 2000, 150)
    verdicts = [fit.verdict for fit in fits]
    assert len(fits) > 100
    assert verdicts.count("use") <= 3
    assert verdicts.count("do not use") > 75
    interval = fits[verdicts.index("do not use")].interval()
    assert np.isnan(interval.lower).all()
    assert "net of the noise" in interval.reasons[0][0]
    assert "use with care" in verdicts


def test_a_matrix_that_is_surely_positive_is_used_and_its_intervals_cover():
    """8.6 standard errors; of 100 intervals 95 cover: below 85 once in 10^4 seeds."""
    fits = fits_of_a_steep_line("8", 12_000, 100)
    assert {fit.verdict for fit in fits} == {"use"}
    inside = [
        interval.lower[1] < 0.09 < interval.upper[1]
        for interval in (fit.interval() for fit in fits)
    ]
    assert len(fits) == 100
    assert sum(inside) >= 85


def test_a_net_spread_is_that_of_its_weakest_direction():
    """By hand for two features, one told as it is; units and middle do not matter."""
    rng = np.random.default_rng(2)
    told_values = rng.normal(size=(400, 2)) * [2.0, 1.0]
    variances = np.array([3.0, 0.0])
    net, ratio = net_spread(told_values * [10, 1] + [5, -3], variances * [100, 1])
    assert (net, ratio) == pytest.approx(net_spread(told_values, variances))
    scaled = (told_values - told_values.mean(axis=0)) / told_values.std(axis=0)
    matrix = np.cov(scaled, rowvar=False, bias=True) - np.diag(variances / told_values.var(axis=0))
    values, axes = np.linalg.eigh(matrix)
    squares = [[(axis @ row) ** 2 for row in scaled] for axis in axes.T]
    ratios = [value / (np.std(terms) / 20) for value, terms in zip(values, squares, strict=True)]
    assert (net, ratio) == pytest.approx((values[0], min(ratios)))
    assert net_spread(told_values[:, :0], variances[:0]) == (np.inf, np.inf)
    assert net_spread(np.ones((9, 1)), np.zeros(1))[0] == 0


def test_forgotten_corrections_are_found():
    """Least squares as if there were no noise: shrunk to next to nothing, and far outside."""
    rng, parameters = np.random.default_rng(3), collection(epsilon="6")
    features, labels = people(40_000, 2, rng)
    sample = told(parameters, features, labels, rng)
    honest = least_squares(sample, "home", level="yes")
    x = np.column_stack([np.ones(len(sample)), HALF + HALF * sample.features])
    for response in (labels, sample.indicator("yes")):
        naive = np.linalg.lstsq(x, response, rcond=None)[0]
        error = np.sqrt(np.diag(honest.covariance))
        assert np.abs((naive - honest.values) / error)[1] > 4
        assert abs(naive[1]) < 0.2 * abs(honest.values[1])


def test_a_feature_explained_by_others():
    rng, parameters = np.random.default_rng(4), collection(private=(True, True, False), epsilon="8")
    features = rng.uniform(-1, 1, size=(60_000, 3))
    features[:, 1] = 0.5 * features[:, 0] - 0.3 * features[:, 2]
    sample = told(parameters, features, rng.integers(0, 2, 60_000), rng)
    estimate = least_squares(sample, "b", ["a", "c"])
    truth = np.array([4.0, 0.5, -0.3])  # 5 + 5 b = (5 - 2.5 + 1.5) + 0.5 (5 + 5 a) - ...
    assert np.abs((estimate.values - truth) / np.sqrt(np.diag(estimate.covariance))).max() < 4.5
    assert estimate.names == ("(intercept)", "a", "c")


def test_least_squares_two_ways():
    rng, parameters = np.random.default_rng(5), collection(epsilon="8")
    sample = told(parameters, *people(20_000, 2, rng), rng)
    risk = CorrectedRisk(
        matrix=np.column_stack([np.ones(len(sample)), sample.features]),
        indicator=sample.indicator("yes"), variances=np.array([0.0, *parameters.variances]),
        loss=SQUARED,
    )  # fmt: skip
    minimum = minimize(
        lambda b: risk.values(b).mean(), np.zeros(3), jac=lambda b: risk.gradients(b).mean(axis=0),
        tol=1e-12,
    ).x  # fmt: skip
    solved = least_squares(sample, "home", level="yes").values  # of 0 and 1, in units of 0 to 10
    slopes = 2 * solved[1:] * HALF
    assert minimum == pytest.approx([2 * (solved[0] + solved[1:].sum() * HALF) - 1, *slopes],
                                    rel=1e-5)  # fmt: skip


def test_intervals_cover():
    estimates, (x, _) = repeated(means, rows=1000, repeats=200)
    truth = x[:, 1:].mean(axis=0)
    inside = [(one.interval().lower < truth) & (truth < one.interval().upper) for one in estimates]
    assert np.mean(inside) > 0.91
    one = estimates[0].interval(0.5)
    assert (one.upper - one.lower < estimates[0].interval().upper - estimates[0].values).all()


def test_what_cannot_be_asked_is_refused():
    rng, parameters = np.random.default_rng(6), collection(epsilon="1")
    few = told(parameters, *people(100, 2, rng), rng)
    quiet = replace(few, features=few.features / 10)  # so that the correction outweighs the rest
    with pytest.raises(WeightError, match="noise outweighs"):
        least_squares(quiet, "home", level="yes")
    bare = told(collection(levels=()), *people(100, 2, rng), rng)
    for call in (
        lambda: means(few, ["c"]), lambda: few.indicator("maybe"),
        lambda: least_squares(few, "home"), lambda: least_squares(few, "a", level="yes"),
        lambda: least_squares(few, "a", ["a", "b"]), lambda: frequencies(bare),
        lambda: bare.indicator("yes"),
        lambda: means(few).interval(1.0),
    ):  # fmt: skip
        with pytest.raises(ReleaseError):
            call()
