"""A small network, a training, and noise sources that count, copy or keep silent."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining
from dpiw.methods.neural.losses import Logistic
from dpiw.methods.neural.mlp import Architecture, Network
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.dpiw.methods.neural.momentum import Momentum


class CountingNoise(SeededNoise):
    """Seeded noise that remembers what was asked of it."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.scales, self.lots = [], []

    def gaussian_vector(self, *, scale, size):
        self.scales.append(scale)
        return super().gaussian_vector(scale=scale, size=size)

    def poisson_sample(self, *, rows, probability):
        found = super().poisson_sample(rows=rows, probability=probability)
        self.lots.append(found)
        return found


class NoNoise(CountingNoise):
    """The lots of seeded noise, and zeros for noise: what a step does to the exact sum."""

    def gaussian_vector(self, *, scale, size):
        return np.zeros_like(super().gaussian_vector(scale=scale, size=size))


class Settings:
    """Makers of the values under test."""

    unit = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
    architecture = Architecture(widths=(3, 5, 1), activation="tanh")

    def training(self, **changes):
        constants = {
            "sampling_rate": 0.25, "steps": 20, "clip": 0.5, "divisor": 10.0, "unit": self.unit,
            "noise_multiplier": 1.5, "optimiser": Momentum(learning_rate=1.0, momentum=0.0),
        } | changes  # fmt: skip
        return PrivateTraining(**constants)

    def lots(self, count=40, **changes):
        values = np.random.default_rng(5).normal(size=(count, 3))
        found = PrivateLots(architecture=self.architecture, rows=values, loss=Logistic(label=1))
        return dataclasses.replace(found, **changes)

    def start(self, training, noise):
        initial = self.architecture.initial(np.random.default_rng(6))
        return training.start(initial, publishable=noise.publishable)

    def network(self, *widths, activation="tanh", seed=0):
        architecture = Architecture(widths=widths, activation=activation)
        rng = np.random.default_rng(seed)
        return Network(architecture=architecture, parameters=rng.normal(size=architecture.size))


@pytest.fixture
def settings():
    return Settings()


@pytest.fixture
def counting():
    return CountingNoise()


@pytest.fixture
def no_noise():
    return NoNoise()
