"""An optimiser of the tests' own: its steps can be followed by hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from dpiw.methods.neural.checkpoints import Vector


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Gradient descent with heavy-ball momentum; plain descent at momentum 0."""

    rule: ClassVar[str] = "momentum"
    learning_rate: float = 0.1
    momentum: float = 0.9

    def start(self, size: int) -> Vector:
        return np.zeros((1, size))

    def update(
        self, parameters: Vector, gradient: Vector, moments: Vector, step: int
    ) -> tuple[Vector, Vector]:
        kept = self.momentum * moments + gradient
        return parameters - self.learning_rate * kept[0], kept

    def parameters(self) -> dict[str, Any]:
        return {"rule": self.rule, **asdict(self)}
