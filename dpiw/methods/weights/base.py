"""What an estimator of the density ratio p_real/p_synthetic is, as a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseLaw, PrivacyUnit


class DensityRatio(Protocol):
    """A released log-linear ratio: noisy coefficients, features, and the law of the noise.

    A ratio without such a law (`dpiw.methods.weights.mlp_ratio`) has no coefficients and no
    features.
    """

    @property
    def law(self) -> NoiseLaw | None:
        """Law of the noise in the coefficients, of dimension d'; None: noise of unknown law."""
        ...

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Noisy coefficients, shape (d',)."""
        ...

    def features(self, synthetic: SyntheticTable) -> NDArray[np.float64]:
        """Feature matrix, shape (rows, d')."""
        ...

    def log_ratio(self, synthetic: SyntheticTable) -> NDArray[np.float64]:
        """Noisy log ratio up to a constant, shape (rows,), natural log, not debiased."""
        ...

    def sampling_covariance(self, synthetic: SyntheticTable) -> NDArray[np.float64] | None:
        """Covariance of the coefficients before noise if real and synthetic law agree, (d', d').

        Public: from the published rows and nominal_rows. None where there is no noise to tell
        from (`dpiw.methods.weights.signal`).
        """
        ...


class WeightEstimator(Protocol):
    """A density-ratio estimator before it has seen data: frozen public settings.

    The guarantees of `Synthesizer` hold here word for word. The synthetic table is public.
    """

    @property
    def method(self) -> str:
        """The registry's name of this method."""
        ...

    @property
    def private(self) -> bool:
        """False for benchmark-only methods, which publication refuses."""
        ...

    @property
    def debias(self) -> bool:
        """Whether the noise's mean effect is divided out of the weights."""
        ...

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Return settings whose noise spends the zCDP-equivalent effort `rho` > 0."""
        ...

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """What `measure` will do. Raises `UncalibratedError` before `calibrate`."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """Public settings, Lambda, sensitivity and noise scale, JSON values only."""
        ...

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Sentences for the curator, from public facts (for instance: the noise cap binds)."""
        ...

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """tau: standard deviation of the log-weight noise at a reference row, public."""
        ...

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """Share of the log ratio's variance that survives shrinkage, in [0, 1], public."""
        ...

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Fit on private against synthetic rows and return noisy coefficients."""
        ...

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> DensityRatio:
        """Post-process a measurement into a density ratio. Costs nothing, repeatable."""
        ...
