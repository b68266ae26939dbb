from __future__ import annotations

import numpy as np
import pytest

from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.base import Normalisation
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.paper.ratio import DensityRatio, weigh
from dpiw.methods.weights.paper.steps import (
    Clip,
    ParetoSmooth,
    PostProcessing,
    Resample,
    Scored,
    SelfNormalise,
    Temper,
    pareto_smooth,
)
from dpiw.methods.weights.weigh import uniform_weights
from dpiw.privacy.units import NoiseKind, NoiseLaw


class Ratio(DensityRatio):
    """A released ratio with known features."""

    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.3, dimension=2)
    coefficients = np.array([1.0, -0.5])

    def __init__(self, rows=100):
        self.x = np.random.default_rng(61).random((rows, 2))

    def scored(self, synthetic):
        return Scored(log_ratio=self.x @ self.coefficients, features=self.x, law=self.law)

    def chance(self, synthetic):
        return np.linspace(0.0, 1.0, 999) * self.log_ratio(None).var()


def test_unnormalised():
    ratio = Ratio()
    plain = weigh(ratio, None, debias=False, normalisation=Normalisation.UNNORMALISED)
    np.testing.assert_array_equal(plain.log_weights, ratio.log_ratio(None))
    assert plain.steps == ()
    debiased = weigh(ratio, None, debias=True, normalisation=Normalisation.UNNORMALISED)
    square = (ratio.x**2).sum(axis=1)
    np.testing.assert_allclose(debiased.log_weights, ratio.log_ratio(None) - 0.045 * square)
    np.testing.assert_allclose(debiased.noise, 0.3 * np.sqrt(square))
    assert debiased.steps == ("debias b(x)",)


def test_self_normalised():
    ratio = Ratio()
    plain, debiased = (weigh(ratio, None, debias=debias) for debias in (False, True))
    for weights in (plain, debiased):
        assert np.exp(weights.log_weights).mean() == pytest.approx(1)
    assert plain.steps == ("self-normalise",)
    assert debiased.steps == ("debias b(x - mu)", "self-normalise")
    shares = np.exp(plain.log_weights) / 100
    centred = ratio.x - shares @ ratio.x
    expected = ratio.log_ratio(None) - 0.045 * (centred**2).sum(axis=1)
    difference = debiased.log_weights - expected
    np.testing.assert_allclose(difference, difference[0])
    np.testing.assert_allclose(debiased.noise, 0.3 * np.linalg.norm(centred, axis=1))
    np.testing.assert_allclose(plain.noise, debiased.noise)


CARE, NOT = Verdict.CARE, Verdict.DO_NOT_USE


@pytest.mark.parametrize(
    ("scale", "resolution", "beaten", "verdict", "reason"),
    [
        (0.3, None, 0, CARE, "a reference implementation"),
        (0.3, 0.9, 29, CARE, "a reference implementation"),
        (0.9, 0.9, 0, NOT, "log-weight noise 1"),
        (0.3, 0.2, 0, NOT, "resolution 0.20"),
        (0.3, 0.9, 30, NOT, "no more than chance"),
        (0.9, 0.2, 999, NOT, "no more than chance"),
    ],
)
def test_noise_forecast_and_signal_enter_the_verdict(scale, resolution, beaten, verdict, reason):
    ratio = Ratio()
    ratio.law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=scale * 3, dimension=2)
    ratio.chance = lambda _: np.repeat([np.inf, 0.0], [beaten, 999 - beaten])
    found = weigh(ratio, None, debias=True, resolution=resolution).diagnostics
    assert found.verdict is verdict
    assert reason in found.reasons[-1]
    assert found.signal.p_value == (beaten + 1) / 1000
    assert found.resolution == resolution
    assert found.noise == pytest.approx(np.sqrt(np.mean(weigh(ratio, None, debias=True).noise**2)),
                                        rel=0.2)  # fmt: skip


SMOOTH = PostProcessing(steps=(ParetoSmooth(), Clip(at=1.2)))


def test_tempering_debiases_at_alpha_x():
    ratio, alpha = Ratio(), 0.5
    steps = PostProcessing(steps=(Temper(alpha=alpha),))
    square = (ratio.x**2).sum(axis=1)
    raw = weigh(
        ratio,
        None,
        debias=True,
        normalisation=Normalisation.UNNORMALISED,
        post_processing=steps,
    )
    expected = alpha * ratio.log_ratio(None) - alpha**2 * 0.045 * square  # not alpha * 0.045
    np.testing.assert_allclose(raw.log_weights, expected)
    np.testing.assert_allclose(raw.noise, alpha * 0.3 * np.sqrt(square))
    assert raw.steps == ("temper to the power 0.5", "debias b(alpha x)")
    debiased = weigh(ratio, None, debias=True, post_processing=steps)
    p = np.exp(alpha * ratio.log_ratio(None))
    centred = ratio.x - p / p.sum() @ ratio.x
    expected = alpha * ratio.log_ratio(None) - alpha**2 * 0.045 * (centred**2).sum(axis=1)
    np.testing.assert_allclose(np.ptp(debiased.log_weights - expected), 0, atol=1e-12)
    assert np.exp(debiased.log_weights).mean() == pytest.approx(1)
    assert debiased.steps[1] == "debias b(alpha (x - mu))"
    plain = weigh(ratio, None, debias=False, post_processing=steps)
    assert plain.steps == ("temper to the power 0.5", "self-normalise")


@pytest.mark.parametrize("normalisation", Normalisation)
def test_smoothing_then_clipping(normalisation):
    ratio = Ratio(rows=400)
    plain = weigh(ratio, None, debias=True, normalisation=normalisation)
    clipped = weigh(ratio, None, debias=True, normalisation=normalisation, post_processing=SMOOTH)
    smooth, shape = pareto_smooth(plain.log_weights)
    w = np.minimum(np.exp(smooth), 1.2 * np.exp(smooth).mean())
    if normalisation is Normalisation.SELF:
        w /= w.mean()
    np.testing.assert_allclose(np.exp(clipped.log_weights), w)
    assert np.sum(np.isclose(w, w.max())) > 20  # the clip does bind
    texts = ("Pareto-smooth the largest weights", "clip at 1.2 times the mean weight")
    last = plain.steps[1:]  # self-normalisation stays last
    assert clipped.steps == (plain.steps[0], *texts, *last)
    assert clipped.diagnostics.k_hat == pytest.approx(shape)  # of the weights before
    assert clipped.diagnostics.effective_sample_size > plain.diagnostics.effective_sample_size
    np.testing.assert_array_equal(clipped.noise, plain.noise)


def test_self_normalise_may_be_said_and_changes_nothing():
    explicit = PostProcessing(steps=(SelfNormalise(),))
    stated, plain = (weigh(Ratio(), None, debias=True, post_processing=s) for s in (explicit, None))
    np.testing.assert_array_equal(stated.log_weights, plain.log_weights)
    assert stated.steps == plain.steps
    with pytest.raises(SpecError, match="self_normalise: loses the scale"):
        weigh(
            Ratio(),
            None,
            debias=True,
            normalisation=Normalisation.UNNORMALISED,
            post_processing=explicit,
        )


def test_resampled_rows_have_weight_one():
    steps = PostProcessing(steps=(Temper(alpha=0.5), Resample(rows=60)))
    resampled, again = (
        weigh(Ratio(), None, debias=True, post_processing=steps, rng=np.random.default_rng(7))
        for _ in range(2)
    )
    tempered = PostProcessing(steps=steps.steps[:1])
    before = weigh(Ratio(), None, debias=True, post_processing=tempered)
    np.testing.assert_array_equal(resampled.chosen, again.chosen)
    assert resampled.rows == resampled.chosen.size == 60
    assert np.all(resampled.log_weights == 0)
    expected = 60 * np.exp(before.log_weights) / 100
    assert np.all(np.abs(np.bincount(resampled.chosen, minlength=100) - expected) < 1)
    np.testing.assert_array_equal(resampled.noise, before.noise[resampled.chosen])
    assert resampled.diagnostics == before.diagnostics  # of the weights they were drawn by
    assert resampled.steps == (
        *before.steps,
        "resample 60 rows by weight (systematic); weights are one",
    )
    assert before.chosen is None
    with pytest.raises(SpecError, match="resample: expected a random generator"):
        weigh(Ratio(), None, debias=True, post_processing=steps)


def test_the_signal_is_that_of_the_released_ratio():
    ratio = Ratio(rows=300)
    steps = PostProcessing(steps=(Temper(alpha=0.1), Clip(at=1.01)))
    signal = weigh(ratio, None, debias=True, post_processing=steps).diagnostics.signal
    assert signal == weigh(ratio, None, debias=True).diagnostics.signal
    assert signal.spread == pytest.approx(ratio.log_ratio(None).var())


def test_no_rows_are_refused():
    with pytest.raises(WeightError):
        uniform_weights(0)
    with pytest.raises(WeightError):
        weigh(Ratio(rows=0), None, debias=True)
