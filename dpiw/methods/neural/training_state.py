"""Where a training run stands: everything a resume needs, and nothing that was not noised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError
from dpiw.privacy.measurement import Measurement

_KIND = "dp_sgd_state"


def read_checkpoint(data: bytes, *, kind: str) -> Measurement:
    """The stored arrays and facts of a checkpoint of a kind; PrivacyError: the bytes are none."""
    try:
        stored = Measurement.from_bytes(data)
    except Exception:
        raise PrivacyError("training: not a checkpoint") from None
    if stored.kind != kind:
        raise PrivacyError("training: not a checkpoint")
    return stored


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingState:
    """The state after `step` steps: a function of noisy sums and public values.

    Attributes:
        step: noised steps taken.
        parameters: of the network, shape (p,).
        moments: of the optimiser, shape (k, p).
        average: mean of the parameters over the averaged tail so far, shape (p,).
        settings: digest of the `PrivateTraining` it belongs to.
        publishable: whether all noise in it came from a publishable source.
    """

    step: int
    parameters: NDArray[np.float64]
    moments: NDArray[np.float64]
    average: NDArray[np.float64]
    settings: str
    publishable: bool

    def to_bytes(self) -> bytes:
        """The same bytes for the same state; a checkpoint belongs in the confidential workspace."""
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
        """Read what `to_bytes` wrote.

        Raises:
            PrivacyError: the bytes are no state.
        """
        stored = read_checkpoint(data, kind=_KIND)
        return cls(
            step=stored.facts["step"],
            parameters=stored.arrays["parameters"],
            moments=stored.arrays["moments"],
            average=stored.arrays["average"],
            settings=stored.facts["settings"],
            publishable=stored.publishable,
        )
