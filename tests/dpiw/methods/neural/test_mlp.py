"""The network against slow, obviously right twins: finite differences, loops, torch, Opacus."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import TorchBackend, make_backend
from dpiw.methods.neural.losses import Balanced, Critic, Logistic
from dpiw.methods.neural.mlp import Architecture, Network
from tests.support.devices import DEVICES, need

SHAPES = [((3, 1), "relu"), ((3, 5, 1), "tanh"), ((4, 6, 5, 2), "tanh"), ((4, 6, 5, 2), "relu")]
shapes = pytest.mark.parametrize(("widths", "activation"), SHAPES)


def naive_output(network, row):
    value = row
    for weights, biases in network.layers[:-1]:
        value = value @ weights + biases
        tanh = network.architecture.activation == "tanh"
        value = np.tanh(value) if tanh else np.maximum(value, 0)
    weights, biases = network.layers[-1]
    return value @ weights + biases


def naive_gradient(network, row, slope, step=1e-6):
    """Central differences of slope . output by each parameter."""
    gradient = np.empty(network.parameters.size)
    for j in range(gradient.size):
        ends = []
        for sign in (1, -1):
            moved = network.parameters.copy()
            moved[j] += sign * step
            there = Network(architecture=network.architecture, parameters=moved)
            ends.append(float(slope @ naive_output(there, row)))
        gradient[j] = (ends[0] - ends[1]) / (2 * step)
    return gradient


def passes(settings, widths, activation, rows=7):
    network = settings.network(*widths, activation=activation, seed=len(widths))
    rng = np.random.default_rng(1)
    x, slopes = rng.normal(size=(rows, widths[0])), rng.normal(size=(rows, widths[-1]))
    return network, x, slopes, network.forward(x).backward(slopes)


@shapes
def test_outputs_are_those_of_the_layers_one_by_one(settings, widths, activation):
    network, x, _, _ = passes(settings, widths, activation)
    expected = [naive_output(network, row) for row in x]
    np.testing.assert_allclose(network.forward(x).outputs, expected, rtol=1e-12)


@shapes
def test_every_rows_gradient_is_that_of_finite_differences(settings, widths, activation):
    network, x, slopes, backward = passes(settings, widths, activation)
    for i, row in enumerate(x):
        alone = np.eye(len(x))[i]
        gradient, expected = backward.gradient(alone), naive_gradient(network, row, slopes[i])
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
        assert backward.norms[i] == pytest.approx(np.linalg.norm(gradient), rel=1e-12)


@shapes
def test_a_weighted_sum_is_the_sum_of_weighted_rows(settings, widths, activation):
    _, x, _, backward = passes(settings, widths, activation)
    factors = np.random.default_rng(2).random(len(x))
    parts = [factors[i] * backward.gradient(np.eye(len(x))[i]) for i in range(len(x))]
    np.testing.assert_allclose(backward.gradient(factors), np.sum(parts, axis=0), atol=1e-12)
    np.testing.assert_allclose(backward.gradient(), backward.gradient(np.ones(len(x))), atol=1e-12)
    gradient = backward.gradient(factors)
    np.testing.assert_array_equal(backward.gradient(factors), gradient)
    np.testing.assert_array_equal(backward.gradient(factors, last=True), gradient)


@shapes
def test_the_gradient_by_the_rows_is_that_of_finite_differences(settings, widths, activation):
    network, x, slopes, backward = passes(settings, widths, activation)
    step = 1e-6 * np.eye(widths[0])
    for i, row in enumerate(x):
        expected = [
            slopes[i] @ (naive_output(network, row + h) - naive_output(network, row - h)) / 2e-6
            for h in step
        ]
        np.testing.assert_allclose(backward.row_gradients()[i], expected, atol=1e-6)


def test_no_rows_give_no_gradient(settings):
    network = settings.network(3, 5, 1)
    backward = network.forward(np.empty((0, 3))).backward(np.empty((0, 1)))
    np.testing.assert_array_equal(backward.gradient(np.empty(0)), np.zeros(network.parameters.size))


def test_initial_parameters_are_repeatable_and_without_bias():
    architecture = Architecture(widths=(20, 64, 64, 1))
    assert architecture.size == 20 * 64 + 64 + 64 * 64 + 64 + 64 + 1 == 5569
    first = architecture.initial(np.random.default_rng(3))
    np.testing.assert_array_equal(first, architecture.initial(np.random.default_rng(3)))
    network = Network(architecture=architecture, parameters=first)
    assert all(np.all(biases == 0) for _, biases in network.layers)
    assert np.std(first[:1280]) == pytest.approx(np.sqrt(2 / 20), rel=0.1)


@pytest.mark.parametrize(
    ("widths", "activation", "text"),
    [((3,), "relu", "widths"), ((3, 0, 1), "relu", "widths"), ((3, 1), "gelu", "activation")],
)
def test_shapes_that_are_none_are_refused(widths, activation, text):
    with pytest.raises(SpecError, match=text):
        Architecture(widths=widths, activation=activation)
    with pytest.raises(SpecError, match="parameters"):
        Network(architecture=Architecture(widths=(3, 1)), parameters=np.zeros(3))


@pytest.mark.parametrize("label", [0, 1])
def test_logistic_slopes_are_those_of_the_cross_entropy(label):
    z = np.array([[-800.0], [-3.0], [0.0], [0.7], [800.0]])
    slopes = Logistic(label=label).slopes(z)
    expected = 1 / (1 + np.exp(-np.clip(z, -500, 500))) - label
    np.testing.assert_allclose(slopes, expected, atol=1e-15)
    assert np.all(np.abs(slopes) <= 1)


def test_losses_know_their_labels():
    np.testing.assert_array_equal(Critic(sign=-1).slopes(np.ones((3, 1))), -np.ones((3, 1)))
    for make in (lambda: Logistic(label=2), lambda: Critic(sign=0)):
        with pytest.raises(SpecError):
            make()


@pytest.mark.parametrize("device", ["gpu", ""])
def test_unknown_devices_are_refused(device):
    with pytest.raises(SpecError, match="device"):
        make_backend(device)


def test_the_cpu_is_numpy():
    assert make_backend("cpu").device == "cpu"
    assert isinstance(make_backend("cpu").array(np.ones(2)), np.ndarray)


def test_a_gpu_that_is_counted_and_does_not_compute_is_not_there(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available")

    counted = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=counted, ones=fails))
    assert make_backend("auto").device == "cpu"
    with pytest.raises(SpecError, match="no CUDA device here"):
        make_backend("cuda")


@pytest.mark.parametrize("device", DEVICES)
@shapes
def test_torch_computes_the_same(settings, widths, activation, device):
    pytest.importorskip("torch")
    need(device)
    network, x, slopes, backward = passes(settings, widths, activation)
    there = TorchBackend(device)
    twin = Network(architecture=network.architecture, parameters=there.array(network.parameters))
    twin_backward = twin.forward(there.array(x)).backward(there.array(slopes))
    factors = np.random.default_rng(2).random(len(x))
    for ours, theirs in [
        (backward.norms, twin_backward.norms),
        (backward.gradient(factors), twin_backward.gradient(there.array(factors))),
        (backward.gradient(), twin_backward.gradient()),
        (backward.row_gradients(), twin_backward.row_gradients()),
        *(
            (loss.slopes(x), loss.slopes(there.array(x)))
            for loss in (Logistic(label=1), Balanced(label=1), Balanced(label=0))
        ),
    ]:
        np.testing.assert_allclose(ours, there.to_numpy(theirs), atol=1e-12)


@shapes
def test_a_row_s_own_output_has_the_same_bits_in_every_table(widths, activation):
    """Any number of rows, order, memory layout and neighbours, wild ones included."""
    rng = np.random.default_rng(5)
    architecture = Architecture(widths=widths, activation=activation)
    network = Network(architecture=architecture, parameters=rng.normal(size=architecture.size))
    rows = rng.normal(size=(3000, widths[0]))
    rows[::50] = rng.choice([np.inf, -np.inf, np.nan, 1e308, 0.0], size=(60, widths[0]))
    outputs = network.row_outputs(rows)
    assert outputs.shape == (3000, widths[-1])
    tame = np.arange(3000) % 50 > 0
    np.testing.assert_allclose(
        outputs[tame], network.forward(rows[tame]).outputs, rtol=1e-12, atol=1e-12
    )
    for part in ([7], range(1, 4), range(100, 1123), range(5, 1030), rng.permutation(3000)):
        again = network.row_outputs(np.asfortranarray(rows[list(part)]))
        assert np.array_equal(again, outputs[list(part)], equal_nan=True)
    assert network.row_outputs(rows[:0]).shape == (0, widths[-1])


def test_an_activation_gives_a_number_the_same_bits_wherever_it_stands():
    """What `row_outputs` takes for granted of NumPy: vector lanes and remainders agree."""
    values = np.r_[np.linspace(-30, 30, 257), 0.0, -0.0, 5e-324, 1e-300, 1e300]
    single = np.array([np.tanh(values[i : i + 1])[0] for i in range(len(values))])
    for offset in range(17):
        for length in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 64, 200):
            part = slice(offset, offset + length)
            assert np.array_equal(np.tanh(values[part]), single[part])
            assert np.array_equal(np.tanh(np.repeat(values[part], 3)[::3]), single[part])
