"""What a private calibration's stage draws and what weights it leaves, from compiled plans."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from dpiw.plan import compile_plan
from dpiw.randomness import SeededNoise
from dpiw.runs import ReleaseRun
from dpiw.spec import parse_spec
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weighting import Normalisation, starting_ratio, weigh
from dpiw.weights.beta_map import calibration_features, identity
from dpiw.weights.post_processing import parse_post_processing
from dpiw.weights.solver import Regression, solve
from tests.conftest import CALIBRATED, town


@pytest.fixture
def place(make_workplace):
    made = make_workplace()
    made.add_steps(CALIBRATED)
    return made


def plan_of(place, **changes):
    run = ReleaseRun.prepare(place.spec, period=None)
    mapping = run.spec.model_dump(mode="json", by_alias=True)
    weights = mapping["weights"] | changes.pop("weights", {})
    return compile_plan(parse_spec(mapping | changes | {"weights": weights}), run.plan.schema)


def noise_free(plan, private, synthetic, start):
    """The exact coefficients, by the formula."""
    own = plan.calibration
    x = plan.weights.feature_map(plan.schema).matrix
    problem = Regression(
        private=calibration_features(start.score(x(private)), own.limit),
        synthetic=calibration_features(start.score(x(synthetic.scaled)), own.limit),
        synthetic_weight=400 / synthetic.rows,
        penalty=own.calibrated.penalty,
        centre=identity(own.limit),
    )
    return solve(problem, tolerance=1e-10)


@pytest.mark.parametrize(
    ("changes", "reach", "law"),
    [
        ({}, math.sqrt(3) / 2, stats.norm),
        ({"relation": "replace_one"}, math.sqrt(2), stats.norm),
        ({"unit": {"max_rows": 3, "id_column": "id"}}, 3 * math.sqrt(3) / 2, stats.norm),
        ({"delta": "0"}, math.sqrt(3) / 2, None),
        (
            {"delta": "0", "weights": {"post_processing": [
                {"step": "beta_calibrate", "source": "private", "noise": "laplace"}]}},
            1.5, stats.laplace,
        ),
    ],
    ids=["gaussian", "replace_one", "three rows", "spherical", "laplace"],
)  # fmt: skip
def test_the_noise_drawn_is_that_of_the_reserved_event(place, changes, reach, law):
    """KS on 350 draws: accepts the event's scale (false alarm 1e-3), rejects 2/3 and 3/2.

    The scale expected is multiplier times sensitivity, the multiplier from the plan's event and
    the sensitivity by hand: Lam Delta is the bound of METHOD section 1 for two centred columns.
    """
    plan = plan_of(place, **changes)
    (event,) = plan.stages[2].events
    scale = event.noise_multiplier * reach / plan.calibration.calibrated.penalty
    schema = plan.schema
    private = schema.scale(town(400, seed=5))
    synthetic = SyntheticTable(schema=schema, scaled=schema.scale(town(300, seed=6)))
    table, noise = PrivateTable(schema=schema, scaled=private), SeededNoise(31)
    ratio = plan.weights.ratio(plan.weights.measure(table, synthetic, noise=noise), schema=schema)
    start = starting_ratio(ratio, synthetic, debias=True, normalisation=Normalisation.SELF)
    exact = noise_free(plan, private, synthetic, start)
    drawn = np.array(
        [
            plan.calibration.measure(table, synthetic, ratio=start, noise=noise).arrays[
                "coefficients"
            ]
            for _ in range(350)
        ]
    )
    residuals = drawn - exact
    if law is None:  # spherical: its length is gamma
        values, cdf = np.linalg.norm(residuals, axis=1), stats.gamma(3).cdf
    else:
        values, cdf = residuals.ravel(), law.cdf
    p = {f: stats.kstest(values / (f * scale), cdf).pvalue for f in (2 / 3, 1.0, 3 / 2)}
    assert p[1.0] > 1e-3
    assert max(p[2 / 3], p[3 / 2]) < 1e-4


def test_calibrated_totals_are_unbiased_given_the_released_ratio(place):
    """`unnormalised`: the mean over the map's noise is the total without it, to three errors.

    The control: without the factor b(g) the same mean is off by more than that.
    """
    plan = plan_of(place, weights={"normalisation": "unnormalised", "post_processing": [
        {"step": "beta_calibrate", "source": "private", "tau": 1.0, "limit": 0.3}]})  # fmt: skip
    schema = plan.schema
    private = schema.scale(town(400, seed=5))
    synthetic = SyntheticTable(schema=schema, scaled=schema.scale(town(300, seed=6)))
    rows = SyntheticTable(schema=schema, scaled=schema.scale(town(300, seed=8)))
    table, noise = PrivateTable(schema=schema, scaled=private), SeededNoise(5)
    ratio = plan.weights.ratio(plan.weights.measure(table, synthetic, noise=noise), schema=schema)
    unnormalised = Normalisation.UNNORMALISED
    start = starting_ratio(ratio, synthetic, debias=True, normalisation=unnormalised)
    exact = noise_free(plan, private, synthetic, start)
    g = calibration_features(start.log_ratio(rows), plan.calibration.limit)
    steps_ = parse_post_processing([{"step": "beta_calibrate", "source": "private"}])

    def total(drawn, debias):
        found = weigh(
            plan.calibration.apply(start, drawn), rows, debias=debias,
            normalisation=unnormalised, post_processing=steps_,
        )  # fmt: skip
        return np.exp(found.log_weights).mean(), found.steps

    draws = [
        plan.calibration.measure(table, synthetic, ratio=start, noise=noise) for _ in range(400)
    ]
    told = total(draws[0], True)[1]
    assert (told[0], told[2]) == ("debias b(x) before the calibration", "debias b(g)")
    target = np.exp(g @ exact).mean()
    for debias, holds in ((True, True), (False, False)):
        values = np.array([total(drawn, debias)[0] for drawn in draws])
        off = abs(values.mean() - target) / (values.std() / math.sqrt(len(values)))
        assert bool(off < 3) is holds


def test_a_calibration_without_effort_leaves_the_debiased_weights(place):
    """At the identity map: what is published is what would be without the step."""
    plan = plan_of(place, weights={"normalisation": "unnormalised"})
    schema = plan.schema
    rows = SyntheticTable(schema=schema, scaled=schema.scale(town(300, seed=8)))
    table = PrivateTable(schema=schema, scaled=schema.scale(town(400, seed=5)))
    asked = parse_post_processing([{"step": "beta_calibrate", "source": "private"}])
    ratio = plan.weights.ratio(
        plan.weights.measure(table, rows, noise=SeededNoise(5)), schema=schema
    )
    for normalisation in Normalisation:
        start = starting_ratio(ratio, rows, debias=True, normalisation=normalisation)
        own = dataclasses.replace(plan.calibration, limit=50.0)
        drawn = own.measure(table, rows, ratio=start, noise=SeededNoise(1))
        drawn = dataclasses.replace(drawn, arrays={"coefficients": identity(50.0)})
        found = weigh(
            own.apply(start, drawn), rows, debias=False, normalisation=normalisation,
            post_processing=asked,
        )  # fmt: skip
        plain = weigh(ratio, rows, debias=True, normalisation=normalisation)
        np.testing.assert_allclose(found.log_weights, plain.log_weights, atol=1e-9)
        json.dumps(found.diagnostics.to_json(), allow_nan=False)
