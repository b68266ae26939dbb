"""An optimiser of the tests' own: its steps can be followed by hand."""

from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Gradient descent with heavy-ball momentum; plain descent at momentum 0."""

    rule: ClassVar[str] = "momentum"
    learning_rate: float = 0.1
    momentum: float = 0.9

    def start(self, size):
        return np.zeros((1, size))

    def update(self, parameters, gradient, moments, step):
        kept = self.momentum * moments + gradient
        return parameters - self.learning_rate * kept[0], kept

    def parameters(self):
        return {"rule": self.rule, **asdict(self)}
