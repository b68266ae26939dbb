"""What is made of a noisy gradient: post-processing, so any rule is free."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError

Vector = NDArray[np.float64]


def _check(name: str, value: float, *, above: float, below: float) -> None:
    if not above < value < below:
        raise SpecError(f"optimiser.{name}: expected above {above:g}, below {below:g}")


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Kingma & Ba (2015), with bias correction; its moments are in the training state.

    Not torch's class, which keeps a state of its own and takes seven times as long here.
    """

    rule: ClassVar[str] = "adam"
    learning_rate: float = 1e-3
    first: float = 0.9
    second: float = 0.999
    floor: float = 1e-8

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is out of range."""
        _check("learning_rate", self.learning_rate, above=0, below=1e6)
        _check("first", self.first, above=-1e-12, below=1)
        _check("second", self.second, above=-1e-12, below=1)
        _check("floor", self.floor, above=0, below=1)

    def start(self, size: int) -> Vector:
        """Moments before the first step, shape (2, size)."""
        return np.zeros((2, size))

    def update(
        self, parameters: Vector, gradient: Vector, moments: Vector, step: int
    ) -> tuple[Vector, Vector]:
        """New parameters and moments after step `step` (from 1); the arguments are left alone."""
        rates = np.array([[self.first], [self.second]])
        averages = rates * moments + (1 - rates) * np.stack([gradient, gradient * gradient])
        mean, square = averages / (1 - rates**step)
        return parameters - self.learning_rate * mean / (np.sqrt(square) + self.floor), averages

    def parameters(self) -> dict[str, Any]:
        """Public settings, JSON values."""
        return {"rule": self.rule, **asdict(self)}
