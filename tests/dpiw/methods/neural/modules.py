"""Modules that no closed form knows, rows for them, and their networks; torch is needed."""

from __future__ import annotations

import numpy as np
import torch

from dpiw.methods.neural.opacus_engine import ModuleArchitecture

nn, F = torch.nn, torch.nn.functional


class Words(nn.Module):
    """A bag of words: rows are five numbers of words."""

    def __init__(self, **options):
        super().__init__()
        self.words, self.last = nn.Embedding(10, 4, **options), nn.Linear(4, 1)

    def forward(self, rows):
        return self.last(torch.tanh(self.words(rows.long()).sum(1)))


class Places(nn.Module):
    """One dense layer at every place of a row, their outputs summed."""

    def __init__(self, *shape):
        super().__init__()
        self.shape, self.dense = shape, nn.Linear(shape[-1], 1)

    def forward(self, rows):
        return self.dense(rows.reshape(-1, *self.shape)).flatten(1).sum(1, keepdim=True)


class Twice(nn.Module):
    """A layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.dense, self.last = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, rows):
        return self.last(torch.tanh(self.dense(torch.tanh(self.dense(rows)))))


class Given(nn.Module):
    """A dense layer, used as a function says."""

    def __init__(self, use):
        super().__init__()
        self.dense, self.use = nn.Linear(8, 1), use

    def forward(self, rows):
        return self.use(self.dense, rows)


class Signs(torch.autograd.Function):
    """A function with a derivative of its own."""

    @staticmethod
    def forward(ctx, values):
        return values * 1.0

    @staticmethod
    def backward(ctx, slopes):
        return slopes.sign()


def with_hook(hook, way="tensor"):
    """A dense layer whose output's slopes are changed on their way back."""

    def use(layer, rows):
        outputs = layer(rows)
        if outputs.requires_grad:
            where = outputs if way == "tensor" else outputs.grad_fn
            where.register_hook(hook)
        return torch.tanh(outputs)

    return Given(use)


class Own(nn.Module):
    """A parameter of the module's own, or a layer that is used outside of itself."""

    def __init__(self, use, **own):
        super().__init__()
        self.dense, self.last, self.use = nn.Linear(8, 8), nn.Linear(8, 1), use
        for name, value in own.items():
            setattr(self, name, value)

    def forward(self, rows):
        return self.use(self, rows)


def gated(self, rows):
    """What no example row reaches uses a parameter once more."""
    hidden = torch.tanh(self.dense(rows))
    far = F.linear(torch.relu(rows - 9), self.dense.weight)
    return self.last(hidden) + far.sum(1, keepdim=True)


def conv(**options):
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 3, stride=2, padding=1, **options), nn.Tanh(),
        nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(12, 1),
    )  # fmt: skip


def dense(*layers):
    return nn.Sequential(nn.Linear(8, 8), *layers, nn.Linear(8, 1))


def rows_for(module, count, seed=1):
    rng = np.random.default_rng(seed)
    if isinstance(module, Words):
        return rng.integers(0, 10, (count, 5)).astype(float)
    is_image = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    return rng.normal(size=(count, 16 if is_image else 8))


def architecture_of(module):
    return ModuleArchitecture(module=module, example=rows_for(module, 3))


def network_of(architecture, seed=2):
    return architecture.network(architecture.initial(np.random.default_rng(seed)))
