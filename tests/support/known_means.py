"""A law of weights in worlds whose features explain all that a generator can have wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.measured.law import MeansLaw


class KnownMeans(MeansLaw):
    """The law of measured weights without its guess: noise and samples alone."""

    @property
    def prior(self) -> NDArray[np.float64]:  # type: ignore[override]
        """Nothing is out of sight."""
        return np.zeros(len(self.weights))
