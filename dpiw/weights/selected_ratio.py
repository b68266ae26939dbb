"""The ratio that a repeat-and-select released. Imports nothing but NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy import NoiseLaw

if TYPE_CHECKING:
    from dpiw.tables import SyntheticTable
    from dpiw.weights.base import DensityRatio

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SelectedRatio:
    """The best of a hidden number of noisy fits.

    Its noise was looked at before it was chosen, so it no longer has the law of one run: no
    debiasing factor and no interval may be read off `law`. An event that has probability p in one
    run has at most `mean_runs` p in the winner.

    Attributes:
        base: the winner's ratio, with the law that one run's noise has.
        mean_runs: mean of the number of runs.
        candidate: which candidate won, from 0.
    """

    base: DensityRatio
    mean_runs: float
    candidate: int

    @property
    def law(self) -> NoiseLaw | None:
        """Of one run, before the choice."""
        return self.base.law

    @property
    def coefficients(self) -> Array:
        """Those of the base."""
        return self.base.coefficients

    def features(self, synthetic: SyntheticTable) -> Array:
        """Those of the base."""
        return self.base.features(synthetic)

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """That of the base."""
        return self.base.log_ratio(synthetic)

    def sampling_covariance(self, synthetic: SyntheticTable) -> Array | None:
        """That of the base."""
        return self.base.sampling_covariance(synthetic)
