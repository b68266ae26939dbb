"""Clipped sums: the bound on one row's part, additivity over rows, rows that are no numbers."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import CPU
from dpiw.methods.neural.clipping import LEAST_CLIP, ClipRule, Critic, Logistic, clipped_sum
from dpiw.methods.neural.networks import Architecture

rules = pytest.mark.parametrize("rule", ClipRule)


def rows(count, scale=1.0, seed=3):
    return scale * np.random.default_rng(seed).normal(size=(count, 3))


@rules
@hypothesis_settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-8, 1.0, 1e3, 1e150, 1e300]),
    weight=st.sampled_from([1e-3, 1.0, 1e3, 1e160]),
    clip=st.sampled_from([1e-6, 0.3, 1e4]),
    activation=st.sampled_from(["relu", "tanh"]),
    label=st.sampled_from([0, 1]),
)
def test_no_row_moves_the_sum_by_more_than_the_bound(
    rule, seed, scale, weight, clip, activation, label
):
    rng = np.random.default_rng(seed)
    architecture = Architecture(widths=(3, 4, 1), activation=activation)
    parameters = weight * rng.normal(size=architecture.size)
    network = architecture.network(parameters)
    row = CPU.array(scale * rng.normal(size=(1, 3)))
    loss = Logistic(label=label)
    part = clipped_sum(network, row, loss, clip=clip, rule=rule)
    assert part.isfinite().all()
    assert np.linalg.norm(part) <= clip * (1 + 1e-12)


@rules
def test_the_sum_adds_over_rows_and_forgets_their_order(settings, rule):
    """No statistic of a lot enters: the sum over two lots is the sum of their sums."""
    network, x = settings.network(3, 5, 1), settings.rows(rows(31))

    def total(part):
        return clipped_sum(network, part, Logistic(label=1), clip=0.4, rule=rule)

    np.testing.assert_allclose(total(x), total(x[:9]) + total(x[9:]), atol=1e-13)
    np.testing.assert_allclose(total(x), total(settings.rows(rows(31)[::-1].copy())), atol=1e-13)
    np.testing.assert_array_equal(total(x[:0]), np.zeros(network.architecture.size))


@pytest.mark.parametrize("rule", ClipRule)
def test_squares_too_small_for_doubles_keep_the_least_bound(settings, rule):
    """A slope near 1e-157 times an input near 1e154; a bound of 1e-6 is missed by a 30,000th."""
    network, worst = settings.network(2, 1), {LEAST_CLIP: 0.0, 1e-6: 0.0}
    network = dataclasses.replace(network, parameters=0 * network.parameters)
    network.parameters[1] = 1.0
    for large in np.geomspace(1e150, 1.3e154, 12):
        for logit in np.linspace(340, 372, 40):
            x = settings.rows(np.array([[large, logit]]))
            for clip in worst:
                total = clipped_sum(network, x, Logistic(label=1), clip=clip, rule=rule)
                worst[clip] = max(worst[clip], float(np.linalg.norm(np.asarray(total))) / clip)
    assert worst[LEAST_CLIP] <= 1 + 1e-9
    if rule is ClipRule.LOSS:
        assert worst[1e-6] > 1 + 1e-8


def test_large_lots_go_in_parts(settings, monkeypatch):
    network, x = settings.network(3, 5, 1), settings.rows(rows(50))
    whole = clipped_sum(network, x, Logistic(label=1), clip=0.4, rule=ClipRule.LOSS)
    monkeypatch.setattr(type(network.architecture), "rows_at_once", 8)
    parts = clipped_sum(network, x, Logistic(label=1), clip=0.4, rule=ClipRule.LOSS)
    np.testing.assert_allclose(parts, whole, atol=1e-13)


def test_output_clipping_weighs_both_labels_alike(settings):
    """At one place and logit 0 the two classes' parts cancel under any clip bound."""
    network, x = settings.network(3, 5, 1), settings.rows(rows(6))
    shifted = network.parameters + 0.0
    for part in x[:, None, :]:
        shifted[-1] = network.parameters[-1] - float(network.outputs(part)[0, 0])
        there = dataclasses.replace(network, parameters=shifted + 0.0)
        both = sum(
            clipped_sum(there, part, Logistic(label=label), clip=0.01, rule=ClipRule.OUTPUT)
            for label in (0, 1)
        )
        np.testing.assert_allclose(both, 0, atol=1e-12)


def test_output_clipping_keeps_its_stationary_point_and_loss_clipping_moves_it(settings):
    """Three synthetic rows for each private one at a point: the logit log(1/3) is stationary."""
    network, x = settings.network(3, 5, 1), settings.rows(rows(1))
    parameters = network.parameters + 0.0
    parameters[-1] += np.log(1 / 3) - float(network.outputs(x)[0, 0])
    there = dataclasses.replace(network, parameters=parameters)

    def force(rule):
        return np.linalg.norm(
            clipped_sum(there, x, Logistic(label=1), clip=0.3, rule=rule)
            + 3 * clipped_sum(there, x, Logistic(label=0), clip=0.3, rule=rule)
        )

    assert force(ClipRule.OUTPUT) < 1e-12
    assert force(ClipRule.LOSS) > 0.1


def test_output_clipping_needs_one_output_and_bounded_slopes(settings):
    with pytest.raises(SpecError, match="one output"):
        clipped_sum(
            settings.network(3, 2),
            settings.rows(rows(2)),
            Critic(sign=1),
            clip=1.0,
            rule=ClipRule.OUTPUT,
        )

    class Steep:
        def slopes(self, outputs):
            return outputs * 0.0 - 50.0

    part = clipped_sum(
        settings.network(3, 5, 1), settings.rows(rows(1)), Steep(), clip=0.2, rule=ClipRule.OUTPUT
    )
    assert np.linalg.norm(part) == pytest.approx(0.2)
