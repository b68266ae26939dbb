"""The log-linear density ratio that noisy coefficients on a feature map release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.data.tables import SyntheticTable
from dpiw.methods.weights.beta_map import DebiasedRatio
from dpiw.methods.weights.debiasing import weighted_centre
from dpiw.methods.weights.density_ratio import DensityRatio
from dpiw.methods.weights.features import LinearMap
from dpiw.methods.weights.signal import (
    DRAWS,
    FitFacts,
    public_number,
    sampling_covariance,
    simulated_errors,
    simulated_noise,
)
from dpiw.privacy.units import NoiseLaw


@dataclass(frozen=True, kw_only=True)
class BetaRatio(DensityRatio):
    """A released log-linear density ratio on a public feature map.

    Attributes:
        law: law of the noise in `coefficients`.
        coefficients: b_bar, shape (d',).
        map: the feature map.
        fit: public facts of the fit; None for a fit without noise.
    """

    law: NoiseLaw
    coefficients: NDArray[np.float64]
    map: LinearMap
    fit: FitFacts | None = None

    def features(self, synthetic: SyntheticTable) -> NDArray[np.float64]:
        """Feature rows, shape (rows, d')."""
        return self.map.matrix(synthetic.scaled)

    def score(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """b_bar.x at feature rows of `map`, shape (rows,)."""
        return np.asarray(features @ self.coefficients)

    def log_ratio(self, synthetic: SyntheticTable) -> NDArray[np.float64]:
        """b_bar.x, shape (rows,): log(p_real/p_synthetic) + log(N_D/n0), noisy, not debiased."""
        return self.score(self.features(synthetic))

    def chance(self, synthetic: SyntheticTable) -> NDArray[np.float64] | None:
        """Of `DRAWS` draws of noise and sampling error; None of a fit without noise."""
        if self.fit is None:
            return None
        x = self.features(synthetic)
        rng = np.random.default_rng(public_number(self.coefficients))
        drawn = simulated_noise(self.law, DRAWS, rng)
        drawn += simulated_errors(sampling_covariance(x, self.fit), DRAWS, rng)
        centred = x - x.mean(axis=0)
        return np.asarray(((drawn @ (centred.T @ centred)) * drawn).sum(axis=1) / len(x))

    def debiased(self, others: SyntheticTable) -> DebiasedRatio:
        """With its own debiasing factor in it, about the weighted mean of other rows' features.

        Args:
            others: public rows that are not published.
        """
        features = self.features(others)
        return DebiasedRatio(base=self, centre=weighted_centre(self.score(features), features))
