"""A small network, a training, and noise sources that count, copy or keep silent."""

import numpy as np
import pytest

from tests.dpiw.methods.generators.neural_world import Counting
from tests.dpiw.methods.neural.settings import Settings


class NoNoise(Counting):
    """The lots of seeded noise, and zeros for noise: what a step does to the exact sum."""

    def gaussian_vector(self, *, scale, size):
        return np.zeros_like(super().gaussian_vector(scale=scale, size=size))


@pytest.fixture
def settings():
    return Settings()


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def no_noise():
    return NoNoise()
