"""The network as weights: its prior, its calibration, and its place in `weigh`."""

import dataclasses
import math

import numpy as np
import pytest

from dpiw.errors import PrivacyError
from dpiw.methods.neural.backend import CPU
from dpiw.methods.neural.clipping import Balanced, ClipRule, Logistic, clipped_sum
from dpiw.methods.neural.networks import Network
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.paper.ratio import LIMIT, weigh
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.neural.mlp_world import (
    SCHEMA,
    UNIT,
    log_ratio,
    private,
    ready,
    real_rows,
    synthetic,
    uniform,
)
from tests.support.training_watch import Recorder


def measured_of(estimator, rows, *, others=None, seed=3):
    """Of so many private rows whose law is known, and synthetic ones."""
    tables = private(real_rows(rows, 1)), synthetic(uniform(others or rows, 2))
    return estimator.measure(*tables, noise=SeededNoise(seed))


def error(log_weights, u):
    target = log_ratio(u) - np.log(np.exp(log_ratio(u)).mean())
    return math.sqrt(np.mean((log_weights - target) ** 2)), math.sqrt(np.mean(target**2))


@pytest.mark.slow
def test_weights_of_a_known_ratio_beat_no_weights():
    """At a generous budget the error of the log weights is below half of that of weights one."""
    estimator = ready(
        rho=2.0, nominal_rows=4000, hidden=(16,), steps=300, lot=256, learning_rate=0.03
    )
    measured = measured_of(estimator, 4000)
    rows = uniform(2000, 4)
    ratio = estimator.ratio(measured, schema=SCHEMA)
    weights = weigh(ratio, synthetic(rows), debias=estimator.debias)
    weighted, without = error(weights.log_weights, rows)
    assert weighted < 0.5 * without
    mean = np.average(rows[:, 1] * rows[:, 2], weights=np.exp(weights.log_weights))
    truth = np.average(rows[:, 1] * rows[:, 2], weights=np.exp(log_ratio(rows)))
    plain = np.mean(rows[:, 1] * rows[:, 2])
    assert abs(mean - truth) < 0.3 * abs(plain - truth)


@pytest.mark.parametrize("sizes", [(2000, 6000), (3000, 500)])
def test_the_prior_is_right_whatever_the_tables_sizes(sizes):
    """One cell, w = N_G-free: the expected step vanishes at logit log w + log(N_D/n0).

    docs/method.md section 2: log w = logit + log(s0 N_G/(s1 N_D)); s1 = q, s0 = L/N_G per step.
    """
    rows, others = sizes
    estimator = ready(nominal_rows=2500)
    training = estimator.calibrated
    rate, lot = training.private.sampling_rate, training.private.divisor / 2
    cell = CPU.array(np.zeros((1, 3)))
    network = Network(
        architecture=training.architecture,
        parameters=training.architecture.initial(np.random.default_rng(0)),
    )
    # 40% of the private and 10% of the synthetic rows are in this cell.
    logit = math.log(0.4 / 0.1) + math.log(rows / 2500)
    parameters = network.parameters.clone()
    parameters[-1] += logit - network.outputs(cell)[0, 0]
    there = dataclasses.replace(network, parameters=parameters)
    force = {
        label: clipped_sum(there, cell, Balanced(label=label), clip=0.3, rule=ClipRule.OUTPUT)
        for label in (0, 1)
    }
    public = lot / min(training.batch, others)  # weight of a synthetic row of the minibatch
    expected = 0.4 * rows * rate * force[1]
    expected += 0.1 * min(training.batch, others) * public * force[0]
    assert np.linalg.norm(expected) < 1e-9 * np.linalg.norm(force[0]) * lot


def test_the_two_losses_have_the_log_ratio_as_their_stationary_point():
    z = CPU.array(np.linspace(-6, 6, 25)[:, None])
    for make in (Logistic, Balanced):
        ones, zeros = make(label=1).slopes(z), make(label=0).slopes(z)
        np.testing.assert_allclose(-zeros / ones, z.exp())
        assert ones.abs().max() <= 1
        assert zeros.abs().max() <= 1


def test_log_ratios_stay_inside_the_public_bound():
    estimator = ready()
    measured = measured_of(estimator, 500)
    ratio = estimator.ratio(measured, schema=SCHEMA)
    far = dataclasses.replace(ratio, logits=lambda rows: 1000 * ratio.logits(rows))
    assert np.abs(far.log_ratio(synthetic(uniform(100, 4)))).max() == LIMIT


def test_a_network_that_is_no_number_weighs_all_rows_alike():
    estimator = ready()
    arrays = {"parameters": np.full(estimator.calibrated.architecture.size, np.nan)}
    facts = {**estimator.parameters(), "schema": "three", "synthetic_rows": 3}
    measured = Measurement(kind="dp_mlp", arrays=arrays, facts=facts, publishable=True)
    with np.errstate(invalid="ignore"):
        log_ratios = estimator.ratio(measured, schema=SCHEMA).log_ratio(synthetic(uniform(5, 1)))
    np.testing.assert_array_equal(log_ratios, np.zeros(5))


def test_events_are_known_before_data_and_are_what_is_drawn(counting):
    estimator = ready()
    (event,) = estimator.events(schema=SCHEMA, unit=UNIT)
    assert event.sampling_probability == 64 / 1000
    estimator.measure(private(real_rows(700, 1)), synthetic(uniform(300, 2)), noise=counting)
    assert len(counting.scales) == 60
    assert event.count == 63  # what one resume may repeat is charged with them
    assert set(counting.scales) == {event.noise_multiplier * estimator.clip}


def test_checkpoints_and_what_a_resumed_training_must_have_reserved(counting):
    estimator, watch = ready(), Recorder()
    tables = private(real_rows(300, 1)), synthetic(uniform(300, 2))
    measured = estimator.measure(*tables, noise=counting, watch=watch)
    assert watch.steps == [(step, 60) for step in range(0, 61, 3)]
    estimator.measure(*tables, noise=counting, watch=Recorder(resumed=watch.saved[57]))
    assert len(counting.scales) == estimator.events(schema=SCHEMA, unit=UNIT)[0].count == 63
    with pytest.raises(PrivacyError):
        ready(resumes=0).measure(*tables, noise=counting, watch=Recorder(resumed=watch.saved[57]))
    assert estimator.ratio(measured, schema=SCHEMA).log_ratio(tables[1]).shape == (300,)


def test_the_verdict_says_that_its_noise_is_not_known():
    estimator, rows = ready(nominal_rows=400), synthetic(uniform(400, 7))
    ratio = estimator.ratio(measured_of(estimator, 400), schema=SCHEMA)
    weights = weigh(ratio, rows, debias=False)
    assert weights.steps == ("self-normalise",)
    assert weights.diagnostics.noise is None
    assert weights.diagnostics.verdict is not Verdict.USE
    assert "its noise was not assessed" in weights.diagnostics.reasons
