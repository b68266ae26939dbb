"""The steps between a ratio and its weights: reading, smoothing, calibration."""

import itertools
import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import PrivacyError, SpecError, WeightError
from dpiw.methods.weights.base import SampledRows, Weighing
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaRatio
from dpiw.methods.weights.paper.ratio import ClassifierRatio, weigh
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.methods.weights.paper.steps import (
    STEPS,
    BetaCalibrate,
    Clip,
    ParetoSmooth,
    PostProcessing,
    Resample,
    SelfNormalise,
    Temper,
    calibrated,
    calibration_features,
    calibration_slope,
    fit_calibration,
    pareto_smooth,
    parse_post_processing,
    to_map,
)
from dpiw.methods.weights.registry import make_weights
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.support.worlds import UNIT, numbers, uniform_rows

PUBLIC = {"step": "beta_calibrate", "rows": "survey.csv", "declared": "the 2020 survey"}

ALL = [
    PUBLIC, {"step": "temper", "alpha": Decimal("0.5")}, {"step": "pareto_smooth"},
    {"step": "clip", "at": 20}, {"step": "self_normalise"}, {"step": "resample", "rows": 100},
]  # fmt: skip


def test_a_spec_list_becomes_steps():
    parsed = parse_post_processing(ALL)
    assert parsed.steps == (
        BetaCalibrate(rows="survey.csv", declared="the 2020 survey"), Temper(alpha=0.5),
        ParetoSmooth(), Clip(at=20.0), SelfNormalise(), Resample(rows=100),
    )  # fmt: skip
    assert tuple(type(step) for step in parsed.steps) == STEPS
    assert parse_post_processing([]) == PostProcessing()
    assert (parsed.calibrate, parsed.resample) == (parsed.steps[0], parsed.steps[5])
    assert PostProcessing().calibrate is None
    assert PostProcessing().resample is None


def test_one_order_and_each_step_once():
    for i, j in itertools.product(range(len(ALL)), repeat=2):
        if i < j:
            assert len(parse_post_processing([ALL[i], ALL[j]]).steps) == 2
        else:
            with pytest.raises(SpecError, match="expected the order"):
                parse_post_processing([ALL[i], ALL[j]])


NO_STEPS = ("temper", None, ["temper"], [{"step": "smooth"}], [{"step": ["temper"]}])
NO_STEP = {
    "temper.alpha": ({}, {"alpha": True}), "temper.beta": ({"alpha": 1, "beta": 1},),
    "temper.7": ({7: 1, "alpha": 1},), "temper.alpha=0": ({"alpha": 0},),
    "temper.alpha=nan": ({"alpha": math.nan},), "pareto_smooth.k": ({"k": 1},),
    "clip.at=1": ({"at": 1},), "clip.at=inf": ({"at": 10**400},),
    "resample.rows": ({"rows": 0},), "resample.scheme": ({"rows": 5, "scheme": "x"},),
    "beta_calibrate.declared": ({}, PUBLIC | {"declared": 3}),
    "beta_calibrate.source": (PUBLIC | {"source": "private"},),
    "beta_calibrate.a": (PUBLIC | {"a": 1},), "beta_calibrate.map": (PUBLIC | {"map": [1, 1, 0]},),
    "beta_calibrate": (PUBLIC | {"rows": ""},), "beta_calibrate.rows": (PUBLIC | {"rows": None},),
    "beta_calibrate.limit=0": (PUBLIC | {"limit": 0},),
    "beta_calibrate.limit": (PUBLIC | {"limit": None},),
}  # fmt: skip
"""Steps that are none, by the field that a refusal names."""


def test_what_is_no_post_processing():
    steps = [
        (field, {"step": field.split(".")[0]} | settings)
        for field, every in NO_STEP.items()
        for settings in every
    ]
    for field, value in [*((None, value) for value in NO_STEPS), *((f, [s]) for f, s in steps)]:
        with pytest.raises(SpecError) as caught:
            parse_post_processing(value)
        named = str(caught.value.field).removeprefix("weights.post_processing.")
        assert named == (field or "weights.post_processing"), value


def test_steps_that_lose_the_scale_are_refused_where_it_is_published():
    fitted = BetaCalibrate(rows="survey.csv", declared="a survey")
    for step in (fitted, SelfNormalise(), Resample(rows=5)):
        single = PostProcessing(steps=(step,))
        single.check(self_normalised=True)
        with pytest.raises(SpecError, match=f"{step.step}: loses the scale"):
            single.check(self_normalised=False)
    PostProcessing(steps=(Temper(alpha=0.5), ParetoSmooth(), Clip(at=3))).check(
        self_normalised=False
    )


def test_a_calibration_on_a_file_has_no_numbers_until_it_is_fitted():
    unfitted = parse_post_processing([PUBLIC | {"limit": 2}])
    assert unfitted.calibrate.text == "beta calibration on the 2020 survey"
    assert unfitted.calibrate.map is None
    filled = unfitted.with_calibration((1.2, 0.8, 0.1))
    assert (filled.calibrate.map, filled.calibrate.limit) == ((1.2, 0.8, 0.1), 2.0)
    assert filled.calibrate.text == "beta calibration (a=1.2, b=0.8, c=0.1; the 2020 survey)"


GOLDEN = json.loads((Path(__file__).parents[4] / "golden" / "psis.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: f"{c['rows']}-{c['spread']}")
def test_as_arviz_smooths(case):
    """Values of arviz-stats 0.8.0, made by tests/golden/make_psis.py."""
    # A stored vector and not a seed: NumPy may change what a seed gives.
    smoothed, shape = pareto_smooth(np.array(case["log_weights"]))
    assert shape == pytest.approx(case["k_hat"], rel=1e-9)
    smoothed -= np.log(np.exp(smoothed).sum())
    np.testing.assert_allclose(smoothed, case["smoothed"], rtol=0, atol=1e-9)


def test_nothing_to_smooth():
    for log_weights in (np.zeros(1000), np.arange(24.0), np.minimum(np.arange(500.0), 300.0)):
        smoothed, shape = pareto_smooth(log_weights)
        assert shape is None
        np.testing.assert_array_equal(smoothed, log_weights)


def tilt(schema, rng, slope, count):
    """Rows of the law with log ratio slope (x0 - 1/2) + constant against uniform rows."""
    table = uniform_rows(schema, count, rng)
    table.columns["x0"][:] = np.log1p(table.columns["x0"] * np.expm1(slope)) / slope
    return table


def ratio_of(schema, slope, scale=0.0):
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=scale, dimension=3)
    return BetaRatio(law=law, coefficients=np.array([slope, 0.0, 0.0]), map=LinearMap(schema))


def fitted(ratio, real, synthetic):
    return fit_calibration(ratio.log_ratio(real), ratio.log_ratio(synthetic), limit=5.0)


@pytest.fixture
def tables():
    schema, rng = numbers(2), np.random.default_rng(91)
    private = PrivateTable(schema=schema, scaled=tilt(schema, rng, 2.0, 2000))
    return schema, private, SyntheticTable(schema=schema, scaled=uniform_rows(schema, 2000, rng))


def test_the_map_is_kulls():
    u = np.linspace(-4, 4, 9)
    s = 1 / (1 + np.exp(-u))
    for a, b, c in ((1.0, 1.0, 0.0), (1.7, 0.4, -0.3)):
        expected = a * np.log(s) - b * np.log1p(-s) + c
        np.testing.assert_allclose(calibrated(u, (a, b, c), 5.0), expected, atol=1e-12)
    np.testing.assert_allclose(calibrated(u, (1.0, 1.0, 0.0), 5.0), u, atol=1e-12)
    coefficients = np.array([3.0, 2.0, -0.7])
    found = calibrated(u, to_map(coefficients, 5.0), 5.0)
    np.testing.assert_allclose(calibration_features(u, 5.0) @ coefficients, found, atol=1e-12)
    far = calibration_features(np.array([-900.0, -5.0, 5.0, 900.0]), 5.0)
    np.testing.assert_array_equal(far[0], far[1])
    np.testing.assert_array_equal(far[2], far[3])


RATIOS = {
    "coefficients": lambda schema: ratio_of(schema, 1.0),
    "network": lambda _: ClassifierRatio(logits=lambda t: t.scaled.columns["x0"] - 0.5),
}


@pytest.mark.parametrize("make", RATIOS.values(), ids=RATIOS)
def test_public_rows_repair_a_misscaled_ratio(make):
    """A ratio whose log is half the true one comes back: slope 2 from 1, within 10%."""
    schema, rng = numbers(2), np.random.default_rng(92)
    real = SyntheticTable(schema=schema, scaled=tilt(schema, rng, 2.0, 40_000))
    synthetic = SyntheticTable(schema=schema, scaled=uniform_rows(schema, 40_000, rng))
    ratio = make(schema)
    step = BetaCalibrate(
        rows="survey.csv", declared="a public survey", map=fitted(ratio, real, synthetic)
    )
    weights = weigh(ratio, synthetic, debias=True, post_processing=PostProcessing(steps=(step,)))
    x = synthetic.scaled.columns["x0"] - 0.5
    slope = np.polyfit(x, weights.log_weights, 1)[0]
    assert slope == pytest.approx(2.0, rel=0.1)
    assert weights.steps == (step.text, "self-normalise")


def test_public_fit_keeps_the_order_of_rows():
    """A ratio that points the wrong way: a and b stop at zero, the weights become equal."""
    schema, rng = numbers(2), np.random.default_rng(93)
    real = SyntheticTable(schema=schema, scaled=tilt(schema, rng, 2.0, 5000))
    synthetic = SyntheticTable(schema=schema, scaled=uniform_rows(schema, 5000, rng))
    ratio = ratio_of(schema, -1.0)
    found = fitted(ratio, real, synthetic)
    assert min(found[:2]) == 0.0
    # What is left was fitted again: the intercept's own gradient vanishes.
    shares = []
    for table, sign in ((real, 1.0), (synthetic, -1.0)):
        logits = calibrated(0.5 - table.scaled.columns["x0"], found, 5.0)
        shares.append(float(np.mean(1 / (1 + np.exp(sign * logits)))))
    assert shares[0] == pytest.approx(shares[1], abs=1e-3)
    assert calibration_slope(ratio.log_ratio(synthetic), found, 5.0).min() >= -1e-12


def test_no_free_calibration_on_private_rows(tables):
    schema, private, synthetic = tables
    step = BetaCalibrate(rows="survey.csv", declared="a survey")
    weighing = Weighing(rows=10, post_processing=PostProcessing(steps=(step,)), public=private)
    estimator = BetaDebiased().calibrate(rho=1.0, schema=schema, unit=UNIT, nominal_rows=2000)
    measured = estimator.measure(private, synthetic, noise=SeededNoise(1))
    sampled = SampledRows(weighed=synthetic, fitting=synthetic)
    with pytest.raises(PrivacyError):
        estimator.weigh(measured, sampled, weighing, rng=np.random.default_rng(1))
    public = replace(weighing, public=synthetic)
    assert estimator.weigh(measured, sampled, public, rng=np.random.default_rng(1)).rows == 2000
    with pytest.raises(WeightError):
        fit_calibration(np.zeros(0), np.zeros(5), limit=5.0)


def test_noise_passes_through_the_slope(tables):
    """Noise of the base through the map, by differences; the map has none of its own."""
    schema, _, synthetic = tables
    base = ratio_of(schema, 1.0, scale=0.01)
    step = BetaCalibrate(rows="survey.csv", declared="a survey", map=(1.6, 0.7, 0.1))
    u, small = base.log_ratio(synthetic), 1e-5
    slope = calibration_slope(u, step.map, 5.0)
    moved = [calibrated(u + sign * small, step.map, 5.0) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * small), rtol=1e-6)
    assert np.all(calibration_slope(u, step.map, 0.2)[np.abs(u) > 0.2] == 0)
    steps = PostProcessing(steps=(step, Temper(alpha=0.5)))
    weights = weigh(base, synthetic, debias=True, post_processing=steps)
    p = np.exp(0.5 * calibrated(u, step.map, 5.0))
    p /= p.sum()
    f = 0.5 * slope[:, None] * base.map.matrix(synthetic.scaled)
    np.testing.assert_allclose(weights.noise, 0.01 * np.linalg.norm(f - p @ f, axis=1))
    assert weights.steps == (
        *(step.text for step in steps.steps),
        "self-normalise",
    )  # and no factor


def test_a_retired_setting_at_its_old_default_says_nothing():
    """A run that was drawn under it goes on; another value needs the version that began it."""
    plain, old = {"step": "resample", "rows": 5}, {"scheme": "systematic"}
    assert parse_post_processing([plain | old]) == parse_post_processing([plain])
    usual = {"measured": {"omega_seed": 1}}
    for method, name, values in (
        ("measured", "debias", (False,)), ("beta_noised", "features", ("linear",)),
        ("dp_mlp", "replays", (39,)), ("dp_mlp", "loss", ("balanced",)),
        ("discriminator", "limit", (5, 5.0)),
    ):  # fmt: skip
        settings = usual.get(method, {})
        for value in values:
            same = make_weights(method, {**settings, name: value})
            assert same == make_weights(method, settings)
            assert method != "dp_mlp" or same.parameters()["replays"] == 39  # as a drawn run has it
        with pytest.raises(SpecError, match=f"{name}: this setting was removed"):
            make_weights(method, {**settings, name: "other"})
