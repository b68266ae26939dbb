"""Fixtures of the privacy proof suite."""

import secrets
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).resolve().parents[1]
FIXED = 20270101
"""The seed of the fast tier."""


def _full(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("proof") is not None


@pytest.fixture
def prove(request, figures):
    """Tell one row of the proof table, under the marker `proof`: `prove("P1: what", reached)`."""
    node = f"{Path(request.path).relative_to(TESTS).as_posix()}::{request.node.originalname}"

    def tell(what, reached):
        if _full(request):
            figures(f"proof {what}", node=node, reached=reached)

    return tell


@pytest.fixture
def seed(request):
    """Fixed in the fast tier, fresh in the full one; pytest shows it when the test fails."""
    value = secrets.randbits(64) if _full(request) else FIXED
    print(f"seed {value}")
    return value


@pytest.fixture
def rng(seed):
    """Chooses the neighbours and, where a test says so, draws its noise."""
    return np.random.default_rng(seed)
