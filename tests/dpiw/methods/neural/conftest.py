"""A small network, a training, and noise sources that count, copy or keep silent."""

from __future__ import annotations

import importlib.util

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


ENGINES = ["closed form", *(["opacus"] if importlib.util.find_spec("opacus") else [])]
"""Without Opacus one alone; `test_opacus_engine.py` says once for all that it is skipped."""


@pytest.fixture(params=ENGINES)
def engine(request):
    """The settings of each engine in turn."""
    if request.param == "closed form":
        return Settings()
    from tests.dpiw.methods.neural.module_world import ModuleSettings

    return ModuleSettings()


@pytest.fixture
def counting():
    return CountingNoise()


@pytest.fixture
def no_noise():
    return NoNoise()
