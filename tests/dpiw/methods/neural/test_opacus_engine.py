"""Modules that no closed form knows: their norms and their sums.

Skipped without torch and Opacus; to be run where they are: `make test-neural`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw.errors import SpecError
from dpiw.methods.neural.clipping import ClipRule, clipped_sum
from dpiw.methods.neural.losses import Logistic
from dpiw.privacy.randomness import SeededNoise

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.grad_sample.linear import compute_linear_norm_sample  # noqa: E402

from dpiw.methods.neural import row_norms  # noqa: E402
from dpiw.methods.neural.module_passes import ModuleForward  # noqa: E402
from dpiw.methods.neural.row_norms import Watched  # noqa: E402
from tests.dpiw.methods.neural.modules import (  # noqa: E402
    Places,
    Twice,
    Words,
    architecture_of,
    conv,
    network_of,
    rows_for,
)  # fmt: skip

MODULES = {
    "convolution": conv, "embedding": Words, "places": lambda: Places(4, 2),
    "places in two axes": lambda: Places(2, 2, 2), "twice": Twice,
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_the_sum_is_that_of_rows_clipped_one_by_one(name, clip):
    module = MODULES[name]()
    network, values = network_of(architecture_of(module)), rows_for(module, 20, seed=3)
    rows, loss = network.backend.array(values), Logistic(label=1)
    expected = np.zeros(network.architecture.size)
    for row in rows[:, None]:
        outputs = network.forward(row).outputs
        alone = network.forward(row).backward(loss.slopes(outputs))
        gradient = alone.gradient().numpy()
        np.testing.assert_allclose(alone.norms, np.linalg.norm(gradient), rtol=1e-12)
        expected += gradient * min(1.0, clip / np.linalg.norm(gradient))
    total = clipped_sum(network, rows, loss, clip=clip, rule=ClipRule.LOSS)
    np.testing.assert_allclose(total, expected, atol=1e-12)
    halves = [
        clipped_sum(network, part, loss, clip=clip, rule=ClipRule.LOSS)
        for part in (rows[:7], rows[7:])
    ]
    np.testing.assert_allclose(total, halves[0] + halves[1], atol=1e-12)


@pytest.mark.parametrize("name", MODULES)
def test_the_sum_needs_a_second_backward_pass_only_where_the_first_leaves_too_little(
    name, monkeypatch
):
    """And what the first leaves, a gradient for each row, is gone with the pass that holds it."""
    module = MODULES[name]()
    network, values = network_of(architecture_of(module)), rows_for(module, 20, seed=3)
    passes, derivatives = [], ModuleForward.derivatives

    def counted(forward, *given, **named):
        passes.append(forward)
        return derivatives(forward, *given, **named)

    monkeypatch.setattr(ModuleForward, "derivatives", counted)
    rows = network.backend.array(values)
    clipped_sum(network, rows, Logistic(label=1), clip=0.1, rule=ClipRule.LOSS)
    assert len(passes) == (2 if name in {"embedding", "twice"} else 1)
    assert passes[0].module._kept == {}


def test_a_row_s_gradient_is_that_of_finite_differences():
    module = conv()
    network, row = network_of(architecture_of(module)), rows_for(module, 1, seed=4)
    tensor = network.backend.array(row)
    gradient = network.forward(tensor).backward(torch.ones(1, 1).double()).gradient().numpy()
    for place in range(0, gradient.size, 5):
        ends = []
        for step in (1e-6, -1e-6):
            moved = network.parameters.clone()
            moved[place] += step
            ends.append(dataclasses.replace(network, parameters=moved).row_outputs(row)[0, 0])
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


@pytest.mark.parametrize("size", [1e-8, 1e3, 1e150, 1e300, np.nan, np.inf])
def test_no_image_moves_the_sum_by_more_than_the_bound(size):
    module = conv()
    network, values = network_of(architecture_of(module)), rows_for(module, 5, seed=5)
    values[-1] *= size
    one, two = (
        clipped_sum(
            network, network.backend.array(part), Logistic(label=0), clip=0.1, rule=ClipRule.LOSS
        )
        for part in (values, values[:-1])
    )
    assert torch.isfinite(one).all()
    assert np.linalg.norm(one - two) <= 0.1 * (1 + 1e-12)


def check_places_that_cancel_keep_the_bound():
    """Places of 1e20 that cancel: half of the other rows would be lost beside them in the sum."""
    network = network_of(architecture_of(Places(4, 2)))
    values = np.abs(rows_for(network.architecture.module, 2001, seed=6))
    values[1000] = [1e20, 1e20, -1e20, -1e20, 0.01, 0.0, 0.0, 0.0]
    one, two = (
        clipped_sum(
            network, network.backend.array(part), Logistic(label=0), clip=1.0, rule=ClipRule.OUTPUT
        )
        for part in (values, np.delete(values, 1000, axis=0))
    )
    assert np.linalg.norm(one - two) <= 1.0 + 1e-9


def test_places_that_cancel_keep_the_bound():
    check_places_that_cancel_keep_the_bound()


def test_a_norm_that_forgets_what_cancels_is_found(monkeypatch):
    """The planted bug: the norm of the sum alone, where the sum is that of another pass."""
    monkeypatch.setattr(row_norms, "SHARE", 0.0)
    check_places_that_cancel_keep_the_bound()  # of the very gradients whose norms were found
    monkeypatch.setattr(Watched, "parameter_gradients", lambda module: None)
    with pytest.raises(AssertionError):
        check_places_that_cancel_keep_the_bound()


def test_the_ghost_norm_of_places_is_found(monkeypatch):
    """The planted bug: Opacus' own rule leaves out more than one axis of places."""
    monkeypatch.setattr(
        Watched, "_dense_norms", lambda module, *given: compute_linear_norm_sample(*given)
    )
    with pytest.raises(SpecError):
        architecture_of(Places(2, 2, 2))


@pytest.mark.parametrize("size", [np.nan, np.inf])
def test_words_that_are_no_numbers_count_as_zero(size):
    network, values = network_of(architecture_of(Words())), rows_for(Words(), 5, seed=5)
    values[1, 2] = size
    sums = [
        clipped_sum(network, network.backend.array(part), Logistic(label=0), clip=0.1, rule=rule)
        for rule in ClipRule
        for part in (values, np.delete(values, 1, axis=0))
    ]
    for one, two in (sums[:2], sums[2:]):
        np.testing.assert_allclose(one, two, atol=1e-12)
    assert np.flatnonzero(np.isnan(network.row_outputs(values)[:, 0])).tolist() == [1]


def test_another_number_of_parameters_is_refused():
    with pytest.raises(SpecError, match="parameters: not as many"):
        architecture_of(Twice()).network(np.zeros(3))


def test_the_module_that_was_given_stays_as_it_was():
    module = Words()
    before = [parameter.clone() for parameter in module.parameters()]
    network = network_of(architecture_of(module))
    network.forward(network.backend.array(rows_for(module, 4))).backward(torch.ones(4, 1)).norms  # noqa: B018
    for one, two in zip(before, module.parameters(), strict=True):
        assert torch.equal(one, two)
        assert two.dtype == torch.float32


def test_first_parameters_are_repeatable_and_scales_are_the_module_s():
    architecture = architecture_of(conv())
    first, again = (architecture.initial(np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.size == architecture.size == 3 * 9 + 3 + 3 + 3 + 12 + 1
    np.testing.assert_array_equal(first[27:36], [0, 0, 0, 1, 1, 1, 0, 0, 0])
    assert np.abs(first[:27]).max() <= np.sqrt(6 / 9)


def test_frozen_parameters_are_public_constants():
    module = conv()
    module[1].weight.requires_grad_(False)
    architecture = architecture_of(module)
    assert architecture.size == 3 + 3 + 3 + 12 + 1
    copied = network_of(architecture).module()
    assert torch.equal(copied[1].weight, module[1].weight.double())


def test_layers_behind_frozen_words_have_norms():
    module = Words()
    module.words.weight.requires_grad_(False)
    network = network_of(architecture_of(module))
    backward = network.forward(network.backend.array(rows_for(module, 1))).backward(
        torch.ones(1, 1).double()
    )
    np.testing.assert_allclose(backward.norms, backward.gradient().norm(), rtol=1e-12)


def test_memory_bounds_the_rows_at_once():
    assert architecture_of(conv()).rows_at_once == 2**25 // (64 * 16)


def test_the_backend_is_torch_on_every_device(monkeypatch):
    architecture = architecture_of(Twice())
    assert architecture.backend("cpu").device == "cpu"
    assert isinstance(architecture.backend("cpu").array(np.ones(2)), torch.Tensor)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert architecture.backend("auto").device == "cpu"
    with pytest.raises(SpecError, match="no CUDA device"):
        architecture.backend("cuda")


def test_images_are_learnt_under_privacy(settings):
    """Bars that lie against bars that stand: told apart at a noise multiplier of 1."""
    rng, sides = np.random.default_rng(0), []
    for standing in (False, True):
        image = rng.normal(size=(300, 4, 4)) * 0.3
        place = rng.integers(0, 4, 300)
        for row, line in enumerate(place):
            image[row][(slice(None), line) if standing else line] += 1.0
        sides.append(image.reshape(300, 16))
    architecture = architecture_of(conv())
    backend = architecture.backend("cpu")
    training = settings.training(steps=120, divisor=75.0, clip=1.0, noise_multiplier=1.0)
    lots = settings.lots()
    lots = dataclasses.replace(lots, architecture=architecture, rows=sides[1], backend=backend)
    others, noise = backend.array(sides[0]), SeededNoise(2)

    def public(network, step):
        return 0.25 * clipped_sum(network, others, Logistic(label=0), clip=1.0, rule=ClipRule.LOSS)

    start = training.start(architecture.initial(rng), publishable=False)
    end = training.train(start, lots, noise=noise, public=public)
    network = architecture.network(end.parameters)
    assert np.mean(network.row_outputs(sides[1]) > 0) > 0.85
    assert np.mean(network.row_outputs(sides[0]) < 0) > 0.85
