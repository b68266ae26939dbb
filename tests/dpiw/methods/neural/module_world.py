"""The perceptrons of the tests as torch modules: the second engine, given the first one's nets."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import torch

from dpiw.methods.neural.backend import TorchBackend
from dpiw.methods.neural.mlp import Architecture
from dpiw.methods.neural.opacus_engine import ModuleArchitecture, ModuleNetwork
from tests.dpiw.methods.neural.settings import Settings

CPU = TorchBackend("cpu")


class Words(torch.nn.Module):
    """A logit of the mean of ten words' embeddings; a row holds their numbers."""

    def __init__(self):
        super().__init__()
        self.words, self.last = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 1)

    def forward(self, rows):
        return self.last(self.words(rows.long()).mean(1))


@functools.cache
def as_module(architecture: Architecture) -> ModuleArchitecture:
    """The module that computes what a perceptron does, tried on public rows."""
    layers = []
    for inputs, outputs in itertools.pairwise(architecture.widths):
        activation = torch.nn.Tanh() if architecture.activation == "tanh" else torch.nn.ReLU()
        layers += [torch.nn.Linear(inputs, outputs), activation]
    example = np.random.default_rng(8).normal(size=(3, architecture.widths[0]))
    return ModuleArchitecture(module=torch.nn.Sequential(*layers[:-1]), example=example)


def places(architecture: Architecture):
    """Where the module's parameters lie among the perceptron's: its weights are transposed."""
    indices, start = [], 0
    for inputs, outputs in architecture.shapes:
        weights = np.arange(start, start + inputs * outputs).reshape(inputs, outputs)
        start += (inputs + 1) * outputs
        indices += [weights.T.ravel(), np.arange(start - outputs, start)]
    return np.concatenate(indices)


class ModuleSettings(Settings):
    """Makers of the same values for the engine of modules."""

    kind = ModuleNetwork

    def __init__(self):
        self.places = places(Settings.architecture)
        self.architecture = as_module(Settings.architecture)

    def rows(self, values):
        return CPU.array(values)

    def lots(self, count=40, **changes):
        lots = super().lots(count, **changes)
        return dataclasses.replace(lots, backend=CPU)

    def start(self, training, noise):
        state = super().start(training, noise)
        initial = Settings.architecture.initial(np.random.default_rng(6))[self.places]
        return dataclasses.replace(state, parameters=initial)

    def network(self, *widths, activation="tanh", seed=0):
        given = super().network(*widths, activation=activation, seed=seed)
        parameters = given.parameters[places(given.architecture)]
        return as_module(given.architecture).network(CPU.array(parameters))

    def layers(self, *widths):
        order = np.argsort(places(Architecture(widths=widths)))
        return [order[part] for part in super().layers(*widths)]
