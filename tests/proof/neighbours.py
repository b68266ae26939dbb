"""What the sensitivity tests share: a tally of neighbouring pairs, and noise that is zero."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy import mechanisms

Array = NDArray[np.float64]


@dataclasses.dataclass
class Tally:
    """Pairs met so far.

    Attributes:
        pairs: how many.
        above: how many moved further than claimed.
        worst: the largest move, as a share of the claim.
    """

    pairs: int = 0
    above: int = 0
    worst: float = 0.0

    def met(self, share: float) -> None:
        """One more pair, which moved by this share of the claim."""
        assert np.isfinite(share)
        self.pairs += 1
        self.above += share > 1
        self.worst = max(self.worst, float(share))

    def check(self, *, least: float = 0.75) -> None:
        """None above the claim, and the search is known to bite: one pair comes near it."""
        assert self.above == 0
        assert self.worst >= least

    def __str__(self) -> str:
        return f"{self.pairs:,} pairs, {self.above} above the claim, worst {self.worst:.3f} of it"


class Zeros:
    """A noise source without noise: what is released is the exact value on its lattice."""

    publishable = False

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    discrete_laplace = discrete_gaussian

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        return np.zeros(dimension, dtype=np.int64)


class Asked(Zeros):
    """No noise, and a list of the scales that were asked for, times a lattice step."""

    def __init__(self, step: float, scales: list[float]) -> None:
        self._step, self._scales = step, scales

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        self._scales.append(scale * self._step)
        return super().discrete_gaussian(scale=scale, size=size)

    discrete_laplace = discrete_gaussian

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        self._scales.append(scale * self._step)
        return super().spherical_laplace(scale=scale, dimension=dimension)


@contextmanager
def drawn_scales() -> Iterator[list[float]]:
    """The scales that a noise source is asked for, in units of what is released; draws are zero.

    What a mechanism states in its facts may be another number.
    """
    scales: list[float] = []
    real = mechanisms._draw

    def draw(law: Any, *, step: float, noise: Any) -> Any:
        return real(law, step=step, noise=Asked(step, scales))

    with mock.patch.object(mechanisms, "_draw", draw):
        yield scales
