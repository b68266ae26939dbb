"""A released ratio: debiasing, its noise, and the weights made of it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.base import Normalisation
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.ratio import (
    DensityRatio,
    log_debias,
    log_noise_mean,
    log_weight_noise,
    weigh,
)
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
from dpiw.methods.weights.weigh import normalised, uniform_weights
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.support.worlds import UNIT, numbers, uniform_rows

GOLDEN = json.loads((Path(__file__).parents[4] / "golden" / "weights.json").read_text())

KINDS = {"a": NoiseKind.LAPLACE, "b": NoiseKind.SPHERICAL, "c": NoiseKind.GAUSSIAN}


def cross_term(law, features, others):
    """Cov[b(x) exp(z.x), b(x') exp(z.x')] row by row, shape (n,): b(x) b(x') / b(x+x') - 1.

    Infinite where it does not exist. It does not vanish as synthetic rows are added: they share one
    draw of z. Of a row with itself: its relative variance. Source: docs/method.md section 4.
    """
    joint = log_noise_mean(law, features + others)
    apart = log_noise_mean(law, features) + log_noise_mean(law, others)
    exists = np.isfinite(joint) & np.isfinite(apart)
    safe = np.where(exists, joint, 0.0) - np.where(exists, apart, 0.0)
    with np.errstate(over="ignore"):
        return np.where(exists, np.expm1(safe), np.inf)


def law(kind, scale, dimension):
    return NoiseLaw(kind=kind, scale=scale, dimension=dimension)


@pytest.mark.parametrize("row", GOLDEN["inverse_spherical_factor"]["rows"])
def test_spherical_factor_golden(row):
    dimension = row["dimension"]
    x = np.full((1, dimension), row["scale_times_norm"] / math.sqrt(dimension))
    factor = np.exp(-log_debias(law(NoiseKind.SPHERICAL, 1.0, dimension), x))
    assert factor[0] == pytest.approx(row["value"], rel=1e-8)


def test_output_noise_variance_golden():
    facts = GOLDEN["output_noise_variance"]
    unit = np.ones((1, 1))
    laplace = cross_term(law(NoiseKind.LAPLACE, 0.2, 1), unit, unit)[0]
    gaussian = cross_term(law(NoiseKind.GAUSSIAN, 1.0, 1), unit, unit)[0]
    assert laplace == pytest.approx(facts["laplace_scale_0.2"], rel=1e-4)
    assert gaussian == pytest.approx(facts["gaussian_scale_1"], rel=1e-4)
    spherical = cross_term(law(NoiseKind.SPHERICAL, 0.2, 1), unit, unit)[0]
    assert spherical == pytest.approx(laplace)  # in one dimension the two laws are the same


def _table_law(letter, d, epsilon, rows):
    """Centred box, add/remove, Lam = 0.1 * 2 N_D."""
    penalty, kappa = 0.2 * rows, GOLDEN["table_2a"]["kappa"][epsilon]
    l2, l1 = math.sqrt(d + 1) / 2 / penalty, (d + 1) / 2 / penalty
    scale = {"a": l1 / float(epsilon), "b": l2 / float(epsilon), "c": kappa * l2}[letter]
    return law(KINDS[letter], scale, d + 1)


def _agrees(value, printed, tolerance):
    if printed == ">1e6":
        return value > 1e6 and math.isfinite(value)
    if isinstance(printed, str):
        return math.isinf(value)
    return value == pytest.approx(printed, rel=tolerance)


@pytest.mark.parametrize("letter", "abc")
@pytest.mark.parametrize("row", GOLDEN["table_2a"]["rows"], ids=lambda r: f"d{r[0]}-eps{r[1]}")
def test_table_2a(row, letter):
    facts = dict(zip(GOLDEN["table_2a"]["columns"], row, strict=True))
    d = facts["d"]
    noise = _table_law(letter, d, facts["epsilon"], facts["rows"])
    reference = np.array([[math.sqrt(1 / 12)] * d + [0.5]])
    corner = np.full((1, d + 1), 0.5)
    assert log_weight_noise(noise, reference)[0] == pytest.approx(
        facts[f"sd_{letter}"], rel=GOLDEN["table_2a"]["relative_tolerance_noise"]
    )
    tolerance = GOLDEN["table_2a"]["relative_tolerance_variance"]
    assert _agrees(cross_term(noise, reference, reference)[0], facts[f"ref_{letter}"], tolerance)
    assert _agrees(cross_term(noise, corner, corner)[0], facts[f"corner_{letter}"], tolerance)


def test_factor_that_does_not_exist_is_refused():
    x = np.full((1, 4), 0.5)
    for kind, scale in ((NoiseKind.SPHERICAL, 1.0), (NoiseKind.LAPLACE, 2.0)):
        with pytest.raises(WeightError, match=f"{kind.value} noise .* no exponential mean"):
            log_debias(law(kind, scale, 4), x)
        assert np.isfinite(log_debias(law(kind, 0.99 * scale, 4), x)[0])


def test_normalised_weights_have_mean_one():
    rng = np.random.default_rng(1)
    for shift in (-900.0, 0.0, 900.0):
        log_weights = normalised(3 * rng.standard_normal(200) + shift)
        assert np.exp(log_weights).mean() == pytest.approx(1.0, rel=1e-12)
    for bad in (np.zeros(0), np.array([0.0, np.nan]), np.array([np.inf])):
        with pytest.raises(WeightError):
            normalised(bad)


def verdicts(*, power, private=1500, count=100):
    schema, rng = numbers(3), np.random.default_rng(73)
    estimator = BetaDebiased().calibrate(rho=0.1, schema=schema, unit=UNIT, nominal_rows=1500)
    diagnoses = []
    for seed in range(count):
        table = PrivateTable(schema=schema, scaled=uniform_rows(schema, private, rng, power=power))
        fitting, published = (
            SyntheticTable(schema=schema, scaled=uniform_rows(schema, 1500, rng)) for _ in range(2)
        )
        measured = estimator.measure(table, fitting, noise=SeededNoise(seed))
        ratio = estimator.ratio(measured, schema=schema)
        diagnoses.append(weigh(ratio, published, debias=True).diagnostics)
    return diagnoses


def test_a_strong_tilt_is_seen_and_a_reference_implementation_stays_with_care():
    diagnoses = verdicts(power=1.6, count=30)
    assert all(d.verdict is Verdict.CARE for d in diagnoses)
    assert all(len(d.reasons) == 1 and "measured" in d.reasons[0] for d in diagnoses)


class Ratio(DensityRatio):
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.3, dimension=2)
    coefficients = np.array([1.0, -0.5])

    def __init__(self, rows=100):
        self.x = np.random.default_rng(61).random((rows, 2))

    def scored(self, synthetic):
        return Scored(log_ratio=self.x @ self.coefficients, features=self.x, law=self.law)


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
    ("scale", "verdict", "reason"),
    [(0.3, CARE, "a reference implementation"), (0.9, NOT, "log-weight noise 1")],
)
def test_noise_enters_the_verdict(scale, verdict, reason):
    ratio = Ratio()
    ratio.law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=scale * 3, dimension=2)
    weights = weigh(ratio, None, debias=True)
    found = weights.diagnostics
    assert found.verdict is verdict
    assert reason in found.reasons[-1]
    assert found.noise == pytest.approx(np.sqrt(np.mean(weights.noise**2)), rel=0.2)


SMOOTH = PostProcessing(steps=(ParetoSmooth(), Clip(at=1.2)))


def test_tempering_debiases_at_alpha_x():
    ratio, alpha = Ratio(), 0.5
    steps = PostProcessing(steps=(Temper(alpha=alpha),))
    square = (ratio.x**2).sum(axis=1)
    raw = weigh(
        ratio, None, debias=True, normalisation=Normalisation.UNNORMALISED, post_processing=steps
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


def test_no_rows_are_refused():
    with pytest.raises(WeightError):
        uniform_weights(0)
    with pytest.raises(WeightError):
        weigh(Ratio(rows=0), None, debias=True)
