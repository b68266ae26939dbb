"""Both engines keep the contract of `dpiw.methods.neural.engine`, and compute the same.

What rests on it is asked of both elsewhere, by the fixture `engine`: clipped sums
(`test_clipping.py`), lots, events and resuming (`test_dp_sgd.py`), bugs that are planted and found
(`test_planted_bugs.py`). Without torch and Opacus the second engine is skipped.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw.methods.neural.backend import TorchBackend
from dpiw.methods.neural.clipping import ClipRule, clipped_sum
from dpiw.methods.neural.losses import Logistic
from dpiw.methods.neural.optimisers import Adam
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.neural.settings import Settings
from tests.support.devices import DEVICES, need

SHAPES = [((3, 1), "relu"), ((3, 5, 1), "tanh"), ((4, 6, 5, 2), "tanh"), ((4, 6, 5, 2), "relu")]
rng_of = np.random.default_rng


@pytest.fixture
def modules():
    """The engine of modules alone."""
    pytest.importorskip("opacus")
    from tests.dpiw.methods.neural import module_world

    return module_world


@pytest.mark.parametrize(("widths", "activation"), SHAPES)
def test_both_find_the_same_outputs_norms_and_gradients(settings, modules, widths, activation):
    perceptron = settings.network(*widths, activation=activation)
    module = modules.as_module(perceptron.architecture)
    order = modules.places(perceptron.architecture)
    x, slopes = rng_of(1).normal(size=(7, widths[0])), rng_of(2).normal(size=(7, widths[-1]))
    factors = rng_of(3).random(7)
    passes = [
        network.forward(rows).backward(given)
        for network, rows, given in (
            (perceptron, x, slopes),
            (
                module.network(perceptron.parameters[order]),
                modules.CPU.array(x),
                modules.CPU.array(slopes),
            ),
        )
    ]
    for ours, theirs in [
        (passes[0].norms, passes[1].norms),
        (passes[0].gradient(factors)[order], passes[1].gradient(factors)),
        (passes[0].gradient()[order], passes[1].gradient()),
        (passes[0].row_gradients(), passes[1].row_gradients()),
        (passes[0].forward.outputs, passes[1].forward.outputs),
    ]:
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e3, 1e150, 1e300])
@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e160])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_no_row_moves_the_sum_by_more_than_the_bound(engine, size, weight, activation):
    """Nor does one that is no number spoil the sum of the others."""
    network = engine.network(3, 5, 1, activation=activation)
    network = dataclasses.replace(network, parameters=weight * network.parameters)
    x = np.vstack([rng_of(4).normal(size=(3, 3)), size * rng_of(5).normal(size=(1, 3))])
    for rule in ClipRule:
        whole, fewer = (
            clipped_sum(network, engine.rows(rows), Logistic(label=0), clip=0.3, rule=rule)
            for rows in (x, x[:-1])
        )
        assert np.isfinite(np.asarray(whole)).all()
        assert np.linalg.norm(whole - fewer) <= 0.3 * (1 + 1e-12)


def test_a_pass_leaves_no_trace(engine):
    """Whatever is asked of a network, in whatever order, the answers stay the same."""
    network, x = engine.network(3, 5, 1), engine.rows(engine.values(9))
    before = np.array(network.parameters.tolist())
    first = network.forward(x)
    slopes = 0 * first.outputs + 1
    backward = first.backward(slopes)
    gradient, norms = np.array(backward.gradient().tolist()), np.array(backward.norms.tolist())
    network.forward(3 * x).backward(slopes).norms  # noqa: B018  another pass
    first.backward(2 * slopes).gradient(np.ones(9))
    np.testing.assert_allclose(first.backward(2 * slopes).norms, 2 * norms)
    for again in (backward, first.backward(slopes), network.forward(x).backward(slopes)):
        np.testing.assert_allclose(again.gradient(), gradient, rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(again.norms, norms)
        np.testing.assert_allclose(again.gradient(), gradient, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(network.parameters, before)


def test_rows_that_are_not_kept_count_nothing(engine):
    network, values = engine.network(3, 5, 1), engine.values(6)
    keep = np.arange(6) != 2
    spoiled = np.where(keep[:, None], values, np.nan)
    forward = network.forward(engine.rows(spoiled))
    backward = forward.backward(0 * forward.outputs + 1).kept(
        forward.outputs[:, 0] == forward.outputs[:, 0]
    )
    alone = network.forward(engine.rows(values[keep]))
    expected = alone.backward(0 * alone.outputs + 1).gradient()
    np.testing.assert_allclose(backward.gradient(engine.rows(1.0 * keep)), expected, atol=1e-13)


def test_no_rows_are_a_pass_like_any_other(engine):
    network = engine.network(3, 5, 1)
    forward = network.forward(engine.rows(np.empty((0, 3))))
    backward = forward.backward(forward.outputs)
    assert tuple(forward.outputs.shape) == (0, 1)
    assert tuple(backward.norms.shape) == (0,)
    assert tuple(backward.row_gradients().shape) == (0, 3)
    np.testing.assert_array_equal(backward.gradient(backward.norms), np.zeros(26))
    assert network.row_outputs(np.empty((0, 3))).shape == (0, 1)


def test_a_row_s_own_output_has_the_same_bits_in_every_table(engine):
    network, values = engine.network(3, 5, 1), engine.values(30)
    values[::7] = [np.nan, 1e300, -np.inf]
    whole = network.row_outputs(values)
    for part in ([7], range(3, 20), rng_of(0).permutation(30)):
        again = network.row_outputs(np.asfortranarray(values[list(part)]))
        assert np.array_equal(again, whole[list(part)], equal_nan=True)


def same_steps(ours, theirs):
    """Sums differ in the last bits, so single coordinates may round to the next lattice point."""
    assert np.mean(np.abs(ours - theirs) < 1e-9) > 0.9
    np.testing.assert_allclose(ours, theirs, atol=1e-2)


def test_both_take_the_same_steps(settings, modules):
    """The same lots and the same noise: trainings, moments and averages included."""
    module_settings, ends = modules.ModuleSettings(), []

    class Reordered(SeededNoise):
        def gaussian_vector(self, **law):
            return super().gaussian_vector(**law)[module_settings.places]

    for engine, noise in ((settings, SeededNoise(3)), (module_settings, Reordered(3))):
        training = engine.training(optimiser=Adam(learning_rate=0.05), averaged=0.5)
        ends.append(training.train(engine.start(training, noise), engine.lots(), noise=noise))
    assert ends[0].settings == ends[1].settings
    same_steps(ends[0].parameters[module_settings.places], ends[1].parameters)
    same_steps(ends[0].average[module_settings.places], ends[1].average)
    same_steps(ends[0].moments[:, module_settings.places], ends[1].moments)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["closed form", "opacus"])
def test_a_device_takes_the_same_steps(settings, modules, device, name):
    need(device)
    engine = Settings() if name == "closed form" else modules.ModuleSettings()
    training = engine.training(optimiser=Adam(learning_rate=0.05))
    lots, there = engine.lots(), TorchBackend(device)
    ends = [
        training.train(engine.start(training, SeededNoise(3)), given, noise=SeededNoise(3))
        for given in (lots, dataclasses.replace(lots, backend=there))
    ]
    same_steps(ends[0].parameters, ends[1].parameters)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["convolution", "embedding"])
def test_a_device_finds_the_same_norms_and_gradients(modules, device, name):
    need(device)
    import torch

    words = rng_of(1).integers(0, 9, (12, 16)).astype(float)
    module, rows = {
        "convolution": lambda: (
            torch.nn.Sequential(
                torch.nn.Unflatten(1, (1, 4, 4)), torch.nn.Conv2d(1, 3, 3, padding=1),
                torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(48, 1),
            ),
            rng_of(0).normal(size=(12, 16)),
        ),
        "embedding": lambda: (modules.Words(), words),
    }[name]()  # fmt: skip
    architecture = modules.ModuleArchitecture(module=module, example=rows[:3])
    parameters, passes = architecture.initial(rng_of(2)), []
    for backend in (modules.CPU, TorchBackend(device)):
        forward = architecture.network(backend.array(parameters)).forward(backend.array(rows))
        backward = forward.backward(0 * forward.outputs + 1)
        passes.append([backend.to_numpy(array) for array in (backward.norms, backward.gradient())])
    for ours, theirs in zip(*passes, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
