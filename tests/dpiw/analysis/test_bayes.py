import dataclasses

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.estimators.bayes import scaled_weights
from dpiw.errors import ReleaseError, WeightError
from tests.support.worlds import outcomes


def frame(rows=60):
    return outcomes(rows)[0]


def test_weights_sum_to_the_effective_sample_size():
    table, w = frame(), np.random.default_rng(1).gamma(1.0, 1.0, 60)
    sample, scaled = scaled_weights((table, w))
    assert scaled.sum() == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert sample.effective_rows < 60
    np.testing.assert_allclose(scaled / scaled[0], w / w[0])
    np.testing.assert_array_equal(scaled_weights((table, w), weighted=False)[1], 1.0)


def test_a_release_is_worth_no_more_than_the_people_it_describes(released):
    sample, scaled = scaled_weights(released)
    assert sample.effective_rows > 0
    people = sample.release.certificate.nominal_rows
    assert scaled.sum() <= people * (1 + 1e-12)
    certificate = dataclasses.replace(sample.release.certificate, nominal_rows=7)
    few = dataclasses.replace(sample.release, certificate=certificate)
    assert scaled_weights(dataclasses.replace(sample, release=few))[1].sum() == pytest.approx(7)


def test_linear_posterior_is_the_conjugate_one():
    # The slow twin: known formulas updated one row at a time, with powered likelihoods.
    table, w = frame(), np.random.default_rng(2).gamma(2.0, 1.0, 60)
    posterior = analysis.linear_posterior((table, w), "y", ["x"], prior_scale=3.0)
    _, scaled = scaled_weights((table, w))
    (x, x_mean, x_unit), (y, y_mean, y_unit) = (by_hand(table[name], scaled) for name in "xy")
    precision, mean, shape, rate = np.eye(2) / 9, np.zeros(2), 0.01, 0.01
    for weight, feature, target in zip(scaled, x, y, strict=True):
        row = np.array([1.0, feature])
        updated = precision + weight * np.outer(row, row)
        moved = np.linalg.solve(updated, precision @ mean + weight * row * target)
        rate += (weight * target**2 + mean @ precision @ mean - moved @ updated @ moved) / 2
        precision, mean, shape = updated, moved, shape + weight / 2
    back = np.array([[1.0, -x_mean / x_unit], [0.0, 1 / x_unit]]) * y_unit
    np.testing.assert_allclose(posterior.mean, back @ mean + [y_mean, 0], rtol=1e-9)
    assert posterior.degrees == pytest.approx(2 * shape)
    expected = np.linalg.inv(precision) * rate / (shape - 1)  # of a t law with 2 shape degrees
    np.testing.assert_allclose(posterior.covariance, back @ expected @ back.T, rtol=1e-9)


def by_hand(values, weights):
    """A column over its weighted mean and standard deviation, and both of them."""
    mean = np.average(values, weights=weights)
    unit = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    return (values - mean) / unit, mean, unit


def test_linear_draws_have_the_posteriors_moments():
    posterior = analysis.linear_posterior((frame(), None), "y", ["x"])
    drawn = posterior.draw(40_000, np.random.default_rng(3))
    np.testing.assert_allclose(
        drawn.mean(axis=0), posterior.mean, atol=5 * posterior.standard_deviation.max() / 200
    )
    np.testing.assert_allclose(drawn.std(axis=0), posterior.standard_deviation, rtol=0.03)


def test_logistic_posterior_against_a_grid():
    # One coefficient beside the intercept: the exact posterior on a fine grid. At 60 rows the
    # Laplace approximation's error is a few percent of a standard deviation.
    table = frame(rows=200)
    w = np.random.default_rng(4).gamma(3.0, 1.0, 200)
    posterior = analysis.logistic_posterior((table, w), "flag", ["x"], prior_scale=2.0)
    _, scaled = scaled_weights((table, w))
    a, b = np.meshgrid(np.linspace(-1.5, 1.5, 151), np.linspace(-0.5, 3.0, 151), indexing="ij")
    t = a[..., None] + b[..., None] * table["x"].to_numpy()
    y = table["flag"].to_numpy(dtype=float)
    _, middle, unit = by_hand(table["x"], scaled)
    prior = (a + b * middle) ** 2 + (b * unit) ** 2  # log odds at the mean, and by a deviation
    log = (scaled * (y * t - np.logaddexp(0, t))).sum(axis=-1) - prior / 8
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mode = np.unravel_index(np.argmax(log), log.shape)
    np.testing.assert_allclose(posterior.mean, [a[mode], b[mode]], atol=0.025)
    mean = np.array([(mass * a).sum(), (mass * b).sum()])
    sd = np.sqrt([(mass * (a - mean[0]) ** 2).sum(), (mass * (b - mean[1]) ** 2).sum()])
    np.testing.assert_allclose(posterior.mean, mean, atol=0.12 * sd.max())
    np.testing.assert_allclose(posterior.standard_deviation, sd, rtol=0.06)
    assert posterior.draw(10, np.random.default_rng(1)).shape == (10, 2)


def test_logistic_posterior_exists_where_the_classes_separate():
    table = pd.DataFrame({"x": [-2.0, -1.0, 1.0, 2.0], "flag": [False, False, True, True]})
    found = analysis.logistic_posterior((table, None), "flag", ["x"], prior_scale=5.0)
    assert found.mean[1] > 0.5
    assert np.all(np.isfinite(found.covariance))


def test_dirichlet_posterior_by_hand():
    table = pd.DataFrame({"g": ["a", "b", "a", None]})
    found = analysis.dirichlet_posterior((table, [2.0, 2.0, 2.0, 2.0]), "g", prior=0.5)
    assert found.levels == ("a", "b")
    np.testing.assert_allclose(found.concentration, [2.5, 1.5])
    np.testing.assert_allclose(found.mean, [0.625, 0.375])
    assert found.draw(5, np.random.default_rng(1)).shape == (5, 2)
    uneven = analysis.dirichlet_posterior((table, [3.0, 1.0, 1.0, 0.0]), "g", prior=0.5)
    assert uneven.concentration.sum() - 1 == pytest.approx(25 / 11)  # Kish, not four


def test_what_is_refused():
    whole, first = (frame(), None), (frame()[:1], None)
    for error, model, source, settings in (
        (ReleaseError, analysis.logistic_posterior, whole, ("flag", ["x"], {"prior_scale": 0.0})),
        (WeightError, analysis.logistic_posterior, whole, ("y", ["x"], {})),
        (WeightError, analysis.linear_posterior, first, ("y", [], {})),
    ):
        with pytest.raises(error):
            model(source, *settings[:2], **settings[2])
    with pytest.raises(ReleaseError, match="column 'no'"):
        analysis.dirichlet_posterior(whole, "no")
