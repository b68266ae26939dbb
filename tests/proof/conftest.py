"""Fixtures of the privacy proof suite; see `figures.py` for how a test tells its figures."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).resolve().parents[1]
FIXED = 20270101
"""The seed of the fast tier."""


def _full(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("proof") is not None


@pytest.fixture
def prove(request: pytest.FixtureRequest, figures: Callable[..., None]) -> Callable[..., None]:
    """Tell one row of the proof table: `prove(promise, what, power=, reached=, limit=)`."""
    place = Path(request.path).relative_to(TESTS).as_posix()
    node = f"{place}::{request.node.originalname}"

    def tell(promise: str, what: str, *, power: str, reached: str, limit: str) -> None:
        if _full(request):
            figures(
                f"proof {promise}", what=what, node=node, power=power, reached=reached, limit=limit
            )

    return tell


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Fixed in the fast tier, fresh in the full one; pytest shows it when the test fails."""
    value = secrets.randbits(64) if _full(request) else FIXED
    print(f"seed {value}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Chooses the neighbours and, where a test says so, draws its noise."""
    return np.random.default_rng(seed)
