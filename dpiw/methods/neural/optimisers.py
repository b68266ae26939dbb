"""What is made of a noisy gradient: post-processing, so any rule is free."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import library

Vector = NDArray[np.float64]


def _check(name: str, value: float, *, above: float, below: float) -> None:
    if not above < value < below:
        raise SpecError(f"optimiser.{name}: expected above {above:g}, below {below:g}")


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Settings of torch's Adam (Kingma & Ba 2015); its moments are in the training state."""

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
        from torch.optim.adam import adam

        torch = library()
        moved, averages, slope = (
            torch.tensor(values, dtype=torch.float64) for values in (parameters, moments, gradient)
        )
        adam(
            [moved], [slope], [averages[0]], [averages[1]], [], [torch.tensor(step - 1.0)],
            amsgrad=False, beta1=self.first, beta2=self.second, lr=self.learning_rate,
            weight_decay=0.0, eps=self.floor, maximize=False, foreach=False,
        )  # fmt: skip
        return moved.numpy(), averages.numpy()

    def parameters(self) -> dict[str, Any]:
        """Public settings, JSON values."""
        return {"rule": self.rule, **asdict(self)}
