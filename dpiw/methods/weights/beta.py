"""Noisy coefficients of a ridge logistic regression: `beta_noised` and `beta_debiased`.

Private rows are regressed against synthetic rows; one noisy draw of the coefficient vector is all
that leaves. The two methods draw the same measurement: debiasing is post-processing.
Source: docs/method.md sections 3, 4, 8 and 12, which correct Ji & Elkan (2013) and arXiv
2108.10934.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.weights.critic_features import Critic, CriticMap
from dpiw.methods.weights.features import FeatureMap, feature_map
from dpiw.methods.weights.penalty import (
    Calibration,
    calibration,
    check_moments,
    resolved_share,
)
from dpiw.methods.weights.settings import check_features, real
from dpiw.methods.weights.signal import FitFacts, sampling_covariance
from dpiw.methods.weights.solver import GRADIENT_TOLERANCE, Regression, solve
from dpiw.privacy.events import GaussianEvent, LaplaceEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.mechanisms import noisy_vector
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit

MEASUREMENT_KIND = "beta"


@dataclass(frozen=True, kw_only=True)
class BetaRatio:
    """A released log-linear density ratio on a public feature map.

    Attributes:
        law: law of the noise in `coefficients`.
        coefficients: b_bar, shape (d',).
        map: the feature map.
        fit: public facts of the fit; None for a fit without noise.
    """

    law: NoiseLaw
    coefficients: NDArray[np.float64]
    map: FeatureMap
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

    def sampling_covariance(self, synthetic: SyntheticTable) -> NDArray[np.float64] | None:
        """See `dpiw.methods.weights.signal.sampling_covariance`."""
        if self.fit is None:
            return None
        return sampling_covariance(self.features(synthetic), self.fit)


@dataclass(frozen=True, kw_only=True)
class BetaRegression:
    """Settings of the noisy regression; frozen and public.

    Attributes:
        features: `linear`, `interactions` or `fourier` (see `dpiw.methods.weights.features`), or
            `critic` (see `dpiw.methods.weights.critic_features`).
        noise: `gaussian` (default), `spherical` or `laplace`; the last two are pure epsilon-DP.
        tau: cap on the predicted standard deviation of the log-weight noise, in (0, 1].
        penalty: Lam; None (recommended) for the public rule of docs/method.md section 6.
        frequencies, frequency_scale, omega_seed: of the `fourier` features.
        calibrated: what `calibrate` found.
        critic: of the fitted generator, for the map of that name; public.
    """

    features: str = "linear"
    noise: NoiseKind = NoiseKind.GAUSSIAN
    tau: float = 0.2
    penalty: float | None = None
    frequencies: int = 300
    frequency_scale: float | None = None
    omega_seed: int | None = None
    calibrated: Calibration | None = None
    critic: Critic | None = field(default=None, repr=False, compare=False)

    method: ClassVar[str] = "beta_debiased"
    private: ClassVar[bool] = True
    debias: ClassVar[bool] = True
    """Whether `dpiw.methods.weights.weigh` should debias; the measurement is the same."""

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        kinds = [kind.value for kind in NoiseKind]
        if not isinstance(self.noise, NoiseKind) and self.noise not in kinds:
            raise SpecError(f"weights.settings.noise: expected one of {', '.join(kinds)}")
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        object.__setattr__(self, "tau", real("tau", self.tau, above=0, at_most=1))
        if self.penalty is not None:
            penalty = real("penalty", self.penalty, above=0, at_most=1e12)
            object.__setattr__(self, "penalty", penalty)
        scale = check_features(
            self.features, self.frequencies, self.frequency_scale, self.omega_seed
        )
        object.__setattr__(self, "frequency_scale", scale)

    def feature_map(self, schema: PublicSchema) -> FeatureMap:
        """The public feature map on this schema."""
        if self.features == "critic":
            return CriticMap(schema, self.critic)
        return feature_map(
            self.features,
            schema,
            frequencies=self.frequencies,
            frequency_scale=self.frequency_scale,
            omega_seed=self.omega_seed,
        )

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set Lam and the noise scale for effort `rho`.

        Gaussian noise of multiplier s_w spends rho = 1/(2 s_w^2) of zCDP exactly; pure epsilon
        noise spends at most epsilon^2/2, so epsilon = sqrt(2 rho). Hence scale / sensitivity is
        1/sqrt(2 rho) for every law.

        Never refuses a small `rho` on the way to the plan's total: whether the noise's moments
        exist at the final one is asked by `check`.

        Raises:
            SpecError: `rho` or `nominal_rows` is not positive.
        """
        if not (math.isfinite(rho) and rho > 0):
            raise SpecError("weights: expected an effort rho > 0")
        if nominal_rows < 1:
            raise SpecError(f"nominal_rows={nominal_rows}: expected a whole number >= 1")
        found = calibration(
            self.feature_map(schema).bounds,
            multiplier=1 / math.sqrt(2 * rho),
            noise=self.noise,
            unit=unit,
            nominal_rows=nominal_rows,
            tau=self.tau,
            penalty=self.penalty,
            eigenvalues=self._eigenvalues(schema),
        )
        return replace(self, calibrated=found)

    def _eigenvalues(self, schema: PublicSchema) -> NDArray[np.float64] | None:
        fourier = self.features == "fourier"
        return self.feature_map(schema).reference_eigenvalues() if fourier else None

    def _ready(self) -> Calibration:
        if self.calibrated is None:
            raise UncalibratedError(f"{self.method}: calibrate before use")
        return self.calibrated

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One draw of the coefficient vector.

        Raises:
            UncalibratedError: before `calibrate`, or calibrated for another unit or schema.
        """
        ready = self._ready()
        if ready.unit != unit or ready.bounds != self.feature_map(schema).bounds:
            raise UncalibratedError(f"{self.method}: calibrated for another unit or schema")
        if self.noise is NoiseKind.GAUSSIAN:
            return (GaussianEvent(noise_multiplier=ready.multiplier),)
        return (LaplaceEvent(noise_multiplier=ready.multiplier),)

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """K/Lam: the standard deviation of z.x at a reference row.

        Raises:
            UncalibratedError: before `calibrate`.
            SpecError: see `check`.
        """
        self.check(schema=schema)
        ready = self._ready()
        return ready.noise_level / ready.penalty

    def check(self, *, schema: PublicSchema) -> None:
        """Refuse noise whose exponential has no variance at some admissible row. Public.

        Needs scale * norm(x) < 1/2 (laplace: scale * max|x_j| < 1/2) for x and for x - mu.
        Gaussian noise always passes, and so does the public Lam rule at the default tau.

        Raises:
            UncalibratedError: before `calibrate`.
            SpecError: names the noise, the value and the range.
        """
        check_moments(self._ready().law, self.feature_map(schema).bounds)

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """Share of the log ratio's variance that survives shrinkage, in [0, 1].

        sum_j l_j h_j / sum_j l_j with h_j = (n0/2) l_j / ((n0/2) l_j + Lam), l_j the eigenvalues
        of the feature covariance under a uniform public row. The Hessian of J is at most
        Lam I + (n0/2) covariance: 2 n0 rows of curvature at most 1/4 (docs/method.md section 6).
        """
        eigenvalues = self.feature_map(schema).reference_eigenvalues()
        return resolved_share(eigenvalues, nominal_rows=nominal_rows, penalty=self._ready().penalty)

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Sentences a curator should read, from public facts."""
        if self.penalty is None and self._ready().capped:
            return (
                f"weights: nominal_rows={nominal_rows} is small for this epsilon and schema: the"
                f" penalty is set by the noise cap tau={self.tau:g}, so weights are shrunk",
            )
        return ()

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every number of the noise; JSON values."""
        found: dict[str, Any] = {
            "features": self.features,
            "noise": self.noise.value,
            "tau": self.tau,
            "debias": self.debias,
        }
        if self.penalty is not None:
            found["penalty_setting"] = self.penalty
        if self.features == "fourier":
            found["frequencies"] = self.frequencies
            found["frequency_scale"] = self.frequency_scale
            found["omega_seed"] = self.omega_seed
        if self.calibrated is not None:
            found |= self.calibrated.to_json()
        return found

    def _facts(self) -> dict[str, Any]:
        # The measurement is the same whether or not it will be debiased.
        return {key: value for key, value in self.parameters().items() if key != "debias"}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Fit private against synthetic rows and draw noisy coefficients.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. Sensitivity of the exact
            minimiser: docs/method.md section 3; of what the solver returns: plus 2 tolerance/Lam;
            of its lattice rounding: plus `lattice_slack`. All three are inside the scale.
            Event: `GaussianEvent(scale / Delta2)`; spherical `LaplaceEvent(scale / Delta2)`;
            laplace `LaplaceEvent(scale / Delta1)`.
            The synthetic table is public; it may depend on the private one only through
            measurements that were paid for.

        Raises:
            UncalibratedError: before `calibrate`, or for another schema.
            SpecError: see `check`.
            WeightError: no synthetic rows.
        """
        problem = self.regression(table, synthetic)
        drawn = noisy_vector(self.solution(problem), law=self._ready().law, noise=noise)
        return self.measurement(
            drawn,
            schema=table.schema.name,
            synthetic_rows=synthetic.rows,
            publishable=noise.publishable,
        )

    def regression(self, table: PrivateTable, synthetic: SyntheticTable) -> Regression:
        """The problem `measure` solves; it holds confidential rows.

        Privacy:
            Releases nothing; lives only inside a confidential stage.

        Raises:
            UncalibratedError, SpecError, WeightError: as `measure`.
        """
        ready, schema = self._ready(), table.schema
        self.check(schema=schema)
        features = self.feature_map(schema)
        if ready.bounds != features.bounds or synthetic.schema != schema:
            raise UncalibratedError(f"{self.method}: calibrated for another schema")
        if synthetic.rows == 0:
            raise WeightError("weights: expected at least one synthetic row")
        return Regression(
            private=features.matrix(table.confidential()),
            synthetic=features.matrix(synthetic.scaled),
            synthetic_weight=ready.nominal_rows / synthetic.rows,
            penalty=ready.penalty,
        )

    def solution(self, problem: Regression) -> NDArray[np.float64]:
        """Exact coefficients of a `regression`, shape (d',), within the calibrated tolerance.

        Privacy:
            Releases nothing: confidential until noise of the calibrated law is added.
        """
        return solve(problem, tolerance=GRADIENT_TOLERANCE * self._ready().bounds.norm)

    def measurement(
        self,
        coefficients: NDArray[np.float64],
        *,
        schema: str,
        synthetic_rows: int,
        publishable: bool,
    ) -> Measurement:
        """Noisy coefficients with the public facts of their fit."""
        return Measurement(
            kind=MEASUREMENT_KIND,
            arrays={"coefficients": coefficients},
            facts={**self._facts(), "schema": schema, "synthetic_rows": synthetic_rows},
            publishable=publishable,
        )

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> BetaRatio:
        """The density ratio of a measurement; needs nothing but these settings.

        Raises:
            WeightError: the measurement is of another kind, or does not fit schema and settings.
        """
        features = self.feature_map(schema)
        facts, arrays = measurement.facts, measurement.arrays
        own = self._facts()
        if measurement.kind != MEASUREMENT_KIND or any(facts.get(k) != own[k] for k in own):
            raise WeightError(f"{self.method}: not a measurement with these settings")
        coefficients = np.asarray(arrays["coefficients"], dtype=np.float64)
        if coefficients.shape != (features.bounds.dimension,):
            raise WeightError(f"{self.method}: the measurement does not fit this schema")
        law = NoiseLaw(
            kind=NoiseKind(facts["noise"]), scale=facts["scale"], dimension=coefficients.size
        )
        fit = FitFacts(
            penalty=facts["penalty"],
            nominal_rows=facts["nominal_rows"],
            synthetic_rows=facts["synthetic_rows"],
        )
        return BetaRatio(law=law, coefficients=coefficients, map=features, fit=fit)


@dataclass(frozen=True, kw_only=True)
class BetaDebiased(BetaRegression):
    """Noisy coefficients, weights debiased in closed form (docs/method.md section 4)."""


@dataclass(frozen=True, kw_only=True)
class BetaNoised(BetaRegression):
    """Noisy coefficients, weights as they are: biased by the noise; a baseline."""

    method: ClassVar[str] = "beta_noised"
    debias: ClassVar[bool] = False
