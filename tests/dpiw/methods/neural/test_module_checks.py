"""Modules of which a row may move the sum by more than the bound are refused, one planted for each.

Skipped without torch and Opacus; to be run where they are: `make test-neural`.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpiw.errors import SpecError

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from dpiw.methods.neural.opacus_engine import ModuleArchitecture  # noqa: E402
from dpiw.methods.neural.row_norms import LAYERS  # noqa: E402
from tests.dpiw.methods.neural.modules import (  # noqa: E402
    Given,
    Own,
    Signs,
    Words,
    architecture_of,
    conv,
    dense,
    gated,
    network_of,
    rows_for,
    with_hook,
)  # fmt: skip

nn, F = torch.nn, torch.nn.functional
RNG = np.random.default_rng(0)


def before(*layers, shape):
    """Layers on rows of 32 numbers in a shape, then a dense one."""
    body = nn.Sequential(nn.Unflatten(1, shape), *layers, nn.Tanh(), nn.Flatten()).double()
    with torch.no_grad():
        width = body(torch.ones(1, 32).double()).shape[1]
    return nn.Sequential(body, nn.Linear(width, 1))


class ByWord(nn.Module):
    """An embedding, as a layer before others."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 2)

    def forward(self, rows):
        return self.words(torch.floor(4 + torch.tanh(rows) * 4).long())


class ChannelsLast(nn.Module):
    """A convolution whose inputs lie in another order in memory."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)

    def forward(self, rows):
        return self.conv(rows.permute(0, 3, 1, 2))


EACH = {
    "Linear": [lambda: before(nn.Linear(4, 3), shape=(8, 4)),
               lambda: before(nn.Linear(32, 3, bias=False), shape=(32,))],
    "Conv1d": [lambda: before(nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), shape=(4, 8)),
               lambda: before(nn.Conv1d(1, 2, 3, dilation=2, bias=False), shape=(1, 32))],
    "Conv2d": [lambda: before(nn.Conv2d(2, 4, 3, padding=(0, 2), groups=2), shape=(2, 4, 4)),
               lambda: before(nn.Conv2d(2, 3, 2, dilation=2, stride=3), shape=(2, 4, 4)),
               lambda: before(ChannelsLast(), shape=(4, 4, 2))],
    "Conv3d": [lambda: before(nn.Conv3d(2, 4, 2, padding=1, groups=2), shape=(2, 2, 2, 4)),
               lambda: before(nn.Conv3d(1, 2, (1, 2, 3), stride=(1, 1, 2)), shape=(1, 2, 4, 4))],
    "ConvTranspose2d": [lambda: before(nn.ConvTranspose2d(2, 3, 4, 2, 1), shape=(2, 4, 4))],
    "Embedding": [lambda: before(ByWord(), shape=(4, 8))],
    "LayerNorm": [lambda: before(nn.Linear(8, 6), nn.LayerNorm(6), shape=(4, 8)),
                  lambda: before(nn.LayerNorm((4, 8)), shape=(4, 8))],
    "GroupNorm": [lambda: before(nn.GroupNorm(2, 4), shape=(4, 8)),
                  lambda: before(nn.GroupNorm(1, 2), shape=(2, 4, 4))],
}  # fmt: skip


def test_each_layer_is_tested():
    assert set(EACH) == {kind.__name__ for kind in LAYERS}


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("make", [make for makes in EACH.values() for make in makes])
def test_each_layer_s_norm_is_that_of_the_row_s_gradient(make, by_rows):
    """And the weighted sum, made of what the norms left, is that of autograd's gradients."""
    architecture = ModuleArchitecture(module=make(), example=RNG.normal(size=(3, 32)))
    network = network_of(architecture)
    rows = network.backend.array(3 * RNG.normal(size=(6, 32)))
    forward = network.forward(rows, by_rows=by_rows)
    backward = forward.backward(torch.ones_like(forward.outputs))
    factors, total = np.linspace(-0.5, 2.0, len(rows)), torch.zeros(architecture.size)
    for row, norm, factor in zip(rows[:, None], backward.norms, factors, strict=True):
        module = network.module()
        parts = torch.autograd.grad(module(row).sum(), list(module.parameters()))
        gradient = torch.cat([part.reshape(-1) for part in parts])
        assert float(norm) == pytest.approx(float(gradient.norm()), rel=1e-12)
        total = total + factor * gradient
    weighted = backward.gradient(factors)
    torch.testing.assert_close(weighted, total, rtol=1e-12, atol=1e-12 * float(total.abs().max()))
    has_words = any(isinstance(layer, nn.Embedding) for layer in network.module().modules())
    assert (backward._watched[1] is None) == has_words


def hooked(kind):
    module = dense(nn.Tanh())
    getattr(module[0], kind)(lambda *given: None)
    return module


class Bag(nn.Module):
    """Words that are summed by torch; a word may be there twice."""

    def __init__(self):
        super().__init__()
        self.words, self.bag = nn.Embedding(10, 4), nn.EmbeddingBag(10, 4, mode="sum")
        self.last = nn.Linear(8, 1)

    def forward(self, rows):
        words = rows.long()
        bags = self.bag(words.reshape(-1), torch.arange(0, words.numel(), words.shape[1]))
        return self.last(torch.tanh(torch.cat([bags, self.words(words[:, 0])], 1)))


def tied():
    module = Own(lambda self, rows: self.last(torch.tanh(self.other(self.dense(rows)))))
    module.other = nn.Linear(8, 8)
    module.other.weight = module.dense.weight
    return module


def patched():
    module = dense(nn.Tanh())
    module[0].forward = lambda rows: F.linear(rows, module[0].weight)
    return module


class Twofold(nn.Linear):
    """A layer with a second argument."""

    def forward(self, rows, gate=None):
        return super().forward(rows if gate is None else rows * gate)


LISTED, ALONE, OWN = "in these layers alone", "that row alone, without", "its own layer alone"
OPTIONS = [{"padding_idx": 0}, {"max_norm": 3.0}, {"sparse": True}, {"scale_grad_by_freq": True}]
REFUSED = {
    "batch statistics": (lambda: dense(nn.BatchNorm1d(8)), "BatchNorm1d: .*" + LISTED),
    "batch statistics without parameters": (
        lambda: dense(nn.BatchNorm1d(8, affine=False, track_running_stats=False)), "BatchNorm1d"),
    "batch statistics by a function": (
        lambda: Own(lambda self, rows: self.last(
            F.batch_norm(self.dense(rows), None, None, training=True))), "ValueError"),
    "recurrence": (lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.GRU(4, 2)), "GRU"),
    "a bag of words": (Bag, "EmbeddingBag: .*" + LISTED),
    "a layer of one's own": (lambda: Own(None, scale=nn.Parameter(torch.ones(8))), "Own: "),
    "a subclass": (lambda: nn.Sequential(Twofold(8, 1)), "Twofold: .*" + LISTED),
    "another forward pass": (patched, "Linear: .*" + LISTED),
    **{f"words of option {name}": (lambda one=option: Words(**one), "embeddings without options")
       for option in OPTIONS for name in option},
    **{f"padding of mode {mode}": (lambda one=mode: conv(padding_mode=one), "Conv2d: .*" + LISTED)
       for mode in ("circular", "reflect", "replicate")},
    "padding by a word": (
        lambda: before(nn.Conv2d(2, 4, 3, padding="same"), shape=(2, 4, 4)), "a number of zeros"),
    "a parameter of two layers": (tied, "one layer only"),
    "rows that see each other": (lambda: dense(nn.Softmax(dim=0)), ALONE),
    "rows that see their mean": (
        lambda: Given(lambda layer, rows: layer(rows - rows.mean(0).detach())), ALONE),
    "random numbers": (lambda: dense(nn.Dropout(0.5)), "without random numbers"),
    "rare random numbers": (lambda: dense(nn.Dropout(1e-6)), "without random numbers"),
    "random slopes": (lambda: dense(nn.RReLU()), "without random numbers"),
    "random numbers by a function": (
        lambda: Given(lambda layer, rows: F.dropout(layer(rows), 1e-6)), "without random numbers"),
    "places as rows": (
        lambda: Given(lambda layer, rows: layer(rows[:, None].repeat(1, 2, 1).flatten(0, 1))
                      .reshape(-1, 2).sum(1, keepdim=True)), "its rows first"),
    "an argument by name": (lambda: Given(lambda layer, rows: layer(input=rows)), "one tensor"),
    "a parameter in a function": (
        lambda: Given(lambda layer, rows: F.linear(rows, layer.weight, layer.bias)), OWN),
    "a parameter in a function that no example reaches": (lambda: Own(gated), OWN),
    "another tensor with a gradient": (
        lambda: Given(lambda layer, rows: layer(rows + torch.ones(8).double().requires_grad_())),
        OWN),
    "a normalisation without a bias": (lambda: dense(nn.LayerNorm(8, bias=False)), OWN),
    "a parameter that is not used": (lambda: Given(lambda layer, rows: rows[:, :1]), OWN),
    "a sign of slopes": (lambda: with_hook(torch.sign), "tensors without hooks"),
    "slopes of one size": (lambda: with_hook(lambda g: g / g.norm()), "tensors without hooks"),
    "slopes with a limit": (lambda: with_hook(lambda g: g.clamp(-1e9, 1e9)), "without hooks"),
    "slopes changed in the graph": (
        lambda: with_hook(lambda *given: None, way="graph"), "tensors without hooks"),
    "a derivative of one's own": (
        lambda: Given(lambda layer, rows: Signs.apply(layer(rows))), "no autograd.Function"),
    **{kind: (lambda one=kind: hooked(one), "layers without hooks") for kind in (
        "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
        "register_full_backward_pre_hook")},
    "a change in place": (lambda: dense(nn.ReLU(inplace=True)), "RuntimeError .* in its place"),
    "single precision": (
        lambda: Given(lambda layer, rows: layer(rows).float()), "double precision"),
    "a parameter without a gradient": (
        lambda: Own(lambda self, rows: self.last(0.0 * self.dense(rows))), "gradient is zero"),
    "no parameter": (lambda: nn.Tanh(), "a trainable parameter at least"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    make, told = REFUSED[name]
    module = make()
    rows = RNG.normal(size=(3, 32)) if "padding by" in name else rows_for(module, 3)
    if isinstance(module, Bag):
        rows = rows_for(Words(), 3)
    with pytest.raises(SpecError, match=told):
        ModuleArchitecture(module=module, example=rows)


@pytest.mark.parametrize("hook", [torch.sign, torch.relu, lambda g: g.clamp(-1e30, 1e30)])
def test_slopes_that_are_not_linear_are_found_without_a_sign_of_a_hook(hook, monkeypatch):
    """The second net: the gradient itself, at slopes of many magnitudes."""
    monkeypatch.setattr("dpiw.methods.neural.module_checks._HOOKS", ())
    with pytest.raises(SpecError, match="linear in the slopes"):
        architecture_of(with_hook(hook))


def test_equal_examples_are_refused():
    """They cannot tell a row from the mean of rows."""
    for rows in (np.ones((2, 8)), np.zeros((3, 8))):
        with pytest.raises(SpecError, match="no two are equal"):
            ModuleArchitecture(module=nn.Linear(8, 1), example=rows)


def test_one_example_is_none():
    with pytest.raises(SpecError, match="two example rows"):
        ModuleArchitecture(module=nn.Linear(8, 1), example=np.ones((1, 8)))
