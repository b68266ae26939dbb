"""Makers of the values under test: a small network, its optimiser, its training, its lots."""

import dataclasses
import itertools
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from dpiw.methods.neural.backend import CPU, library
from dpiw.methods.neural.clipping import Logistic
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining
from dpiw.methods.neural.networks import Architecture
from tests.support.worlds import UNIT


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Gradient descent with heavy-ball momentum; plain descent at momentum 0."""

    rule: ClassVar[str] = "momentum"
    learning_rate: float = 0.1
    momentum: float = 0.9

    def start(self, size):
        return np.zeros((1, size))

    def update(self, parameters, gradient, moments, step):
        kept = self.momentum * moments + gradient
        return parameters - self.learning_rate * kept[0], kept

    def parameters(self):
        return {"rule": self.rule, **asdict(self)}


ARCHITECTURE = Architecture(widths=(3, 5, 1), activation="tanh")


def training(**changes):
    constants = {
        "sampling_rate": 0.25, "steps": 20, "clip": 0.5, "divisor": 10.0, "unit": UNIT,
        "noise_multiplier": 1.5, "optimiser": Momentum(learning_rate=1.0, momentum=0.0),
    } | changes  # fmt: skip
    return PrivateTraining(**constants)


def rows(values):
    """Rows where the engine computes."""
    return CPU.array(values)


def values(count=40):
    return np.random.default_rng(5).normal(size=(count, 3))


def lots(count=40, **changes):
    rows = changes.pop("rows", values(count))
    found = PrivateLots(architecture=ARCHITECTURE, rows=rows, loss=Logistic(label=1))
    return dataclasses.replace(found, **changes)


def start(training, noise):
    initial = ARCHITECTURE.initial(np.random.default_rng(6))
    return training.start(initial, publishable=noise.publishable)


def network(*widths, activation="tanh", seed=0):
    architecture = Architecture(widths=widths, activation=activation)
    rng = np.random.default_rng(seed)
    return architecture.network(rng.normal(size=architecture.size))


def layers(*widths):
    """Places of each layer's weights and biases, by turns, among a network's parameters."""
    sizes = [n for i, o in itertools.pairwise(widths) for n in (i * o, o)]
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def gradient(network, rows, slopes):
    """By the parameters, of the sum of slopes times outputs; by autograd, nothing watched."""
    learning = network.learning()
    return library().autograd.grad(learning.outputs(rows), learning.parameters, slopes)[0].numpy()
