"""Logistic regression without noise, for comparisons alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.weights.paper.beta import BetaRatio
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.methods.weights.paper.weigh import RatioEstimator
from dpiw.methods.weights.settings import real
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class LogisticRegressionRatio(RatioEstimator):
    """scikit-learn's penalised logistic regression of private against synthetic rows.

    The constant is an appended, penalised feature, and rows of both classes weigh the same in
    total, as in `dpiw.methods.weights.paper.beta`. Not private: its measurement is not publishable.

    Attributes:
        penalty: Lam = 1/C of the sum objective, > 0.
    """

    penalty: float = 1.0

    method: ClassVar[str] = "logreg"
    private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        penalty = real("penalty", self.penalty, above=0, at_most=1e12)
        object.__setattr__(self, "penalty", penalty)

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Nothing to calibrate: no noise is drawn."""
        return self

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """None that an accountant could compose."""
        return ()

    def released_noise(
        self, *, schema: PublicSchema, unit: PrivacyUnit
    ) -> tuple[ReleasedNoise, ...]:
        """Return nothing: no noise is drawn."""
        return ()

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """One: nothing is hidden by noise."""
        return 1.0

    def parameters(self) -> dict[str, Any]:
        """Settings, JSON values."""
        return {"penalty": self.penalty}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Exact coefficients.

        Privacy:
            None. Unit: none. Event: none. The measurement is marked as not publishable.

        Raises:
            WeightError: one of the tables has no rows; scikit-learn needs both classes.
        """
        from sklearn.linear_model import LogisticRegression

        features = LinearMap(table.schema)
        real = features.matrix(table.confidential())
        drawn = features.matrix(synthetic.scaled)
        if len(real) == 0 or len(drawn) == 0:
            raise WeightError("logreg: expected rows in both tables")
        model = LogisticRegression(
            C=1 / self.penalty, fit_intercept=False, solver="newton-cholesky", tol=1e-10
        )
        model.fit(
            np.vstack([real, drawn]),
            np.repeat([1, 0], [len(real), len(drawn)]),
            sample_weight=np.repeat([1.0, len(real) / len(drawn)], [len(real), len(drawn)]),
        )
        return Measurement(
            kind="logreg",
            arrays={"coefficients": np.asarray(model.coef_[0], dtype=np.float64)},
            facts=self.parameters(),
            publishable=False,
        )

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> BetaRatio:
        """The density ratio, with no noise; WeightError for another kind of measurement."""
        features = LinearMap(schema)
        if measurement.kind != "logreg":
            raise WeightError("logreg: not a measurement of this method")
        coefficients = np.asarray(measurement.arrays["coefficients"], dtype=np.float64)
        if coefficients.shape != (features.bounds.dimension,):
            raise WeightError("logreg: the measurement does not fit this schema")
        law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.0, dimension=coefficients.size)
        return BetaRatio(law=law, coefficients=coefficients, map=features)
