"""A small network, a training, and noise sources that count, copy or keep silent."""

import numpy as np
import pytest

from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.neural.settings import Settings


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


@pytest.fixture
def settings():
    return Settings()


@pytest.fixture
def counting():
    return CountingNoise()


@pytest.fixture
def no_noise():
    return NoNoise()
