"""Networks against slow, obviously right twins: loops over layers, autograd row by row."""

import dataclasses
import itertools
import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch

from dpiw.errors import SpecError
from dpiw.methods.generators.gan.images import ImageDiscriminator
from dpiw.methods.neural.backend import CPU, Backend, make_backend
from dpiw.methods.neural.clipping import LEAST_CLIP, ClipRule, Critic, Logistic, clipped_sum
from dpiw.methods.neural.networks import Architecture
from dpiw.methods.neural.row_norms import SHARE, AllGradients, Convolution
from tests.dpiw.methods.neural import settings
from tests.dpiw.methods.neural.settings import gradient
from tests.support.devices import DEVICES, need

NETWORKS = [
    Architecture(widths=(3, 1)), Architecture(widths=(3, 5, 1), activation="tanh"),
    Architecture(widths=(4, 6, 5, 1)),
    ImageDiscriminator(sides=(8, 8), labels=3, channels=(2, 3)),
    ImageDiscriminator(sides=(5, 4), labels=0, channels=(2,)),
    ImageDiscriminator(sides=(4, 4), labels=2, channels=()),
]  # fmt: skip
networks = pytest.mark.parametrize("architecture", NETWORKS, ids=range(len(NETWORKS)))


def at(architecture, rows=9):
    rng = np.random.default_rng(1)
    parameters = architecture.initial(rng) + 0.1 * rng.normal(size=architecture.size)
    return architecture.network(parameters), CPU.array(rng.normal(size=(rows, architecture.inputs)))


def one_by_one(network, rows, *, clip, rule):
    total, loss = np.zeros(network.architecture.size), Logistic(label=1)
    for row in rows[:, None]:
        slopes = loss.slopes(network.outputs(row))
        by_loss = rule is ClipRule.LOSS
        own = gradient(network, row, slopes if by_loss else 0 * slopes + 1)
        own *= min(1.0, clip / np.linalg.norm(own))
        total += own if by_loss else float(slopes[0, 0]) * own
    return total


@networks
@pytest.mark.parametrize("rule", ClipRule)
@pytest.mark.parametrize("clip", [0.01, 0.7, 1e3])
def test_every_layer_s_rows_are_clipped_as_one_by_one(architecture, rule, clip):
    network, rows = at(architecture)
    found = clipped_sum(network, rows, Logistic(label=1), clip=clip, rule=rule)
    np.testing.assert_allclose(found, one_by_one(network, rows, clip=clip, rule=rule), atol=1e-12)


@networks
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_wild_row_does_not_reach_the_others(architecture, bad):
    network, rows = at(architecture)
    arguments = {"loss": Logistic(label=1), "clip": 0.4, "rule": ClipRule.OUTPUT}
    wild = torch.cat([rows, torch.full_like(rows[:1], bad)])
    part = clipped_sum(network, wild, **arguments) - clipped_sum(network, rows, **arguments)
    assert float(part.norm()) <= 0.4 * (1 + 1e-9)
    if not np.isfinite(bad):
        assert float(part.norm()) <= 1e-12


@networks
@pytest.mark.parametrize("rule", ClipRule)
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, -np.inf])
def test_an_empty_lot_is_zero_whatever_the_network(architecture, rule, bad):
    """A sum that is not finite stops the stage: it must not tell an empty lot from another."""
    network, rows = at(architecture)
    for place in (slice(None), slice(0, 1), slice(-1, None)):
        network.parameters[place] = bad
        arguments = {"loss": Logistic(label=1), "clip": 0.4, "rule": rule}
        np.testing.assert_array_equal(clipped_sum(network, rows[:0], **arguments), 0)
        assert clipped_sum(network, rows, **arguments).isfinite().all()


def test_places_that_cancel_keep_the_bound():
    """Two pixels of opposite sign: a large row with a small gradient does not drown the others."""
    layer = Convolution(torch.nn.Conv2d(1, 1, 1, device="meta"), held=100)
    values = 1e12 * torch.tensor([[[[1.0, 1.0]]]], dtype=torch.float64)
    slopes = torch.tensor([[[[1.0, -1.0]]]], dtype=torch.float64)
    rows = layer.row_gradients(values, slopes)
    assert float(rows.squares()) < 1e-6
    assert float(AllGradients((rows,)).norms()) >= 2e12 * SHARE


def test_a_perceptron_is_its_layers_one_by_one():
    architecture = Architecture(widths=(4, 6, 5, 2), activation="tanh")
    network, rows = at(architecture)
    value, start = rows.numpy(), 0
    for inputs, outputs in itertools.pairwise(architecture.widths):
        middle, stop = start + inputs * outputs, start + (inputs + 1) * outputs
        flat = network.parameters.numpy()
        value = value @ flat[start:middle].reshape(inputs, outputs) + flat[middle:stop]
        value, start = value if stop == architecture.size else np.tanh(value), stop
    np.testing.assert_allclose(network.outputs(rows), value, rtol=1e-12)


def test_parameters_of_another_number_are_refused():
    with pytest.raises(SpecError):
        Architecture(widths=(3, 1)).network(np.zeros(3))


@pytest.mark.parametrize("label", [0, 1])
def test_logistic_slopes_are_those_of_the_cross_entropy(label):
    z = np.array([[-800.0], [-3.0], [0.0], [0.7], [800.0]])
    slopes = Logistic(label=label).slopes(CPU.array(z))
    expected = 1 / (1 + np.exp(-np.clip(z, -500, 500))) - label
    np.testing.assert_allclose(slopes, expected, atol=1e-15)
    assert slopes.abs().max() <= 1


def test_a_gpu_that_is_counted_and_does_not_compute_is_not_there(monkeypatch):
    fails = mock.Mock(side_effect=RuntimeError("CUDA error: no kernel image is available"))
    counted = SimpleNamespace(is_available=lambda: True)
    fake = SimpleNamespace(cuda=counted, ones=fails)
    monkeypatch.setattr(sys.modules["dpiw.methods.neural.backend"], "library", lambda: fake)
    assert make_backend("auto").device == "cpu"
    with pytest.raises(SpecError):
        make_backend("cuda")


@pytest.mark.parametrize("device", DEVICES)
@networks
def test_a_device_computes_the_same(architecture, device):
    need(device)
    network, rows = at(architecture)
    there = Backend(device)
    sums = [
        backend.to_numpy(
            clipped_sum(
                architecture.network(backend.array(network.parameters.numpy())),
                backend.array(rows.numpy()), Logistic(label=1), clip=0.4, rule=ClipRule.OUTPUT,
            )
        )
        for backend in (CPU, there)
    ]  # fmt: skip
    np.testing.assert_allclose(*sums, atol=1e-10)


rules = pytest.mark.parametrize("rule", ClipRule)


def rows_of(count):
    return np.random.default_rng(3).normal(size=(count, 3))


@rules
def test_squares_too_small_for_doubles_keep_the_least_bound(rule):
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


def test_large_lots_go_in_parts(monkeypatch):
    network, x = settings.network(3, 5, 1), settings.rows(rows_of(50))
    whole = clipped_sum(network, x, Logistic(label=1), clip=0.4, rule=ClipRule.LOSS)
    monkeypatch.setattr(type(network.architecture), "rows_at_once", 8)
    parts = clipped_sum(network, x, Logistic(label=1), clip=0.4, rule=ClipRule.LOSS)
    np.testing.assert_allclose(parts, whole, atol=1e-13)


def test_output_clipping_needs_one_output_and_bounded_slopes():
    def clipped(widths, rows, loss):
        network, x = settings.network(*widths), settings.rows(rows_of(rows))
        return clipped_sum(network, x, loss, clip=0.2, rule=ClipRule.OUTPUT)

    with pytest.raises(SpecError):
        clipped((3, 2), 2, Critic(sign=1))
    steep = SimpleNamespace(slopes=lambda outputs: outputs * 0.0 - 50.0)
    assert np.linalg.norm(clipped((3, 5, 1), 1, steep)) == pytest.approx(0.2)
