"""Noise sources that count, or keep silent."""

import numpy as np
import pytest

from tests.dpiw.methods.generators.neural_world import Counting


class NoNoise(Counting):
    """The lots of seeded noise, and zeros for noise: what a step does to the exact sum."""

    def gaussian_vector(self, *, scale, size):
        return np.zeros_like(super().gaussian_vector(scale=scale, size=size))


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def no_noise():
    return NoNoise()
