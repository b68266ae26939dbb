"""No weights: every synthetic row counts once. Always a legitimate outcome, and free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import WeightError
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class UnitRatio:
    """The ratio that is one everywhere: no feature, no coefficient, no noise."""

    @property
    def law(self) -> NoiseLaw:
        """No noise in no coefficient."""
        return NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.0, dimension=0)

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Shape (0,)."""
        return np.zeros(0)

    def features(self, synthetic: SyntheticTable) -> NDArray[np.float64]:
        """Shape (rows, 0)."""
        return np.zeros((synthetic.rows, 0))

    def log_ratio(self, synthetic: SyntheticTable) -> NDArray[np.float64]:
        """Zeros, shape (rows,)."""
        return np.zeros(synthetic.rows)

    def sampling_covariance(self, synthetic: SyntheticTable) -> None:
        """None: there is no noise."""


@dataclass(frozen=True, kw_only=True)
class NoWeights:
    """The estimator that reads nothing and says nothing."""

    method: ClassVar[str] = "none"
    private: ClassVar[bool] = True
    debias: ClassVar[bool] = False

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Nothing to calibrate."""
        return self

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """None: nothing is read."""
        return ()

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """Zero."""
        return 0.0

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """Zero: nothing of the log ratio is shown."""
        return 0.0

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """None."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """None."""
        return {}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """An empty measurement.

        Privacy:
            The table is not read. Unit: any. Sensitivity 0. No event.
        """
        return Measurement(kind="none", arrays={}, facts={}, publishable=True)

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> UnitRatio:
        """The unit ratio; WeightError for a measurement of another kind."""
        if measurement.kind != "none":
            raise WeightError("none: not a measurement of this method")
        return UnitRatio()
