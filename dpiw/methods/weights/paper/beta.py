"""Noisy coefficients of a ridge logistic regression: `beta_noised` and `beta_debiased`.

One noisy draw of the coefficients is released; debiasing is post-processing. Source: docs/method.md
sections 3, 4, 8 and 12, which correct Ji & Elkan (2013) and arXiv 2108.10934.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, WeightError, setting_error
from dpiw.methods.base import StatedNoise, calibrated_for, check_effort, real
from dpiw.methods.weights.base import one_draw
from dpiw.methods.weights.paper.ratio import (
    DensityRatio,
    RatioEstimator,
    log_debias,
    weighted_centre,
)
from dpiw.methods.weights.paper.regression import (
    GRADIENT_TOLERANCE,
    Calibration,
    LinearMap,
    Regression,
    calibration,
    resolved_share,
    solve,
)
from dpiw.methods.weights.paper.steps import Scored
from dpiw.privacy.events import GaussianEvent, LaplaceEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.mechanisms import noisy_vector
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BetaRatio(DensityRatio):
    """A released log-linear density ratio: b_bar.x, with b_bar of shape (d',).

    `centre` is mu, shape (d',), if the debiasing factor b(x - mu) is part of the log ratio.
    """

    law: NoiseLaw
    coefficients: Array
    map: LinearMap
    centre: Array | None = None

    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The log ratio, and the features that carry its noise."""
        x = self.map.matrix(synthetic.scaled)
        texts: tuple[str, ...] = ()
        log_ratio = x @ self.coefficients
        if self.centre is not None:
            log_ratio += log_debias(self.law, x - self.centre)
            texts = ("debias b(x - mu) before the calibration",)
        return Scored(log_ratio=log_ratio, features=x, law=self.law, texts=texts)

    def debiased(self, others: SyntheticTable) -> BetaRatio:
        """With the debiasing factor about the weighted mean of the other rows' features."""
        x = self.map.matrix(others.scaled)
        return replace(self, centre=weighted_centre(x @ self.coefficients, x))


@dataclass(frozen=True, kw_only=True)
class BetaDebiased(RatioEstimator):
    """Settings of the noisy regression, its weights debiased in closed form; frozen and public.

    Attributes:
        noise: `gaussian` (default), `spherical` or `laplace`; the last two are pure epsilon-DP.
        tau: cap on the predicted standard deviation of the log-weight noise, in (0, 1].
        penalty: Lam; None (recommended) for the public rule of docs/method.md section 6.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN
    tau: float = 0.2
    penalty: float | None = None
    calibrated: Calibration | None = None

    method: ClassVar[str] = "beta_debiased"
    kind: ClassVar[str] = "beta"
    private: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "Weights correct towards the regularised regression fit, not all the way to the truth.",
        "On four public tables these weights improved regressions more often than not, and"
        " figures of single columns never. Take those with and without weights.",
        "Standard errors of weighted analyses leave out the privacy noise of these weights; no"
        " interval of dpiw.analysis includes it. weights.method: measured has such intervals.",
    )
    debias: ClassVar[bool] = True
    """Whether weights are debiased; the measurement is the same."""
    pure_noise: ClassVar[str] = NoiseKind.SPHERICAL.value
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"features": ("linear",)}

    def __post_init__(self) -> None:
        kinds = [kind.value for kind in NoiseKind]
        if self.noise not in [*NoiseKind, *kinds]:
            raise setting_error(self, "weights.settings.noise", f"one of {', '.join(kinds)}")
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        object.__setattr__(self, "tau", real("weights.settings.tau", self.tau, above=0, at_most=1))
        if self.penalty is not None:
            penalty = real("weights.settings.penalty", self.penalty, above=0, at_most=1e12)
            object.__setattr__(self, "penalty", penalty)

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set Lam and the noise scale for effort `rho`: scale / sensitivity = 1/sqrt(2 rho).

        Gaussian noise spends rho exactly, pure epsilon noise at most epsilon^2/2.
        """
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows, width=schema.width)
        noise, level_factor = self._level(schema)
        calibrated = calibration(
            LinearMap(schema).bounds,
            multiplier=1 / math.sqrt(2 * rho),
            noise=noise,
            unit=unit,
            nominal_rows=nominal_rows,
            tau=self.tau,
            penalty=self.penalty,
            level_factor=level_factor,
        )
        return replace(self, calibrated=calibrated)

    def _level(self, schema: PublicSchema) -> tuple[NoiseKind, float]:
        """The noise that the coefficients are calibrated for, and the factor on its K."""
        return self.noise, 1.0

    def _ready(self) -> Calibration:
        return calibrated_for(self.calibrated, method=self.method)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One draw of the coefficients; UncalibratedError for another unit or schema."""
        ready, bounds = self._ready(), LinearMap(schema).bounds
        calibrated_for(ready, ready.unit == unit, ready.bounds == bounds, method=self.method)
        kind = GaussianEvent if self.noise is NoiseKind.GAUSSIAN else LaplaceEvent
        return (kind(noise_multiplier=ready.multiplier),)

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """The noise of the coefficients."""
        ready = self._ready()
        return one_draw("coefficients", ready.law, sensitivity=ready.sensitivity)

    def check(self, *, schema: PublicSchema) -> None:
        """SpecError unless scale * norm(x) < 1/2 (laplace: max|x_j|) for x and x - mu. Public.

        Else the noise's exponential has no variance at some row.
        """
        law, bounds = self._ready().law, LinearMap(schema).bounds
        laplace = law.kind is NoiseKind.LAPLACE
        reach = 2 * bounds.coordinate if laplace else max(bounds.norm, bounds.diameter)
        product = law.scale * reach
        if law.kind is not NoiseKind.GAUSSIAN and product >= 0.5:
            lacking = "variance" if product < 1 else "mean"
            raise SpecError(
                f"debiased weights may have no {lacking}: scale times row length is "
                f"{product:.3g} (expected < 0.5); raise epsilon, nominal_rows or penalty,"
                " lower tau, or use gaussian noise",
                field=f"weights.settings.noise={law.kind.value}",
            )

    def forecast(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[float, float]:
        """K/Lam, the standard deviation of z.x at a reference row, and `resolved_share`."""
        self.check(schema=schema)
        ready, variances = self._ready(), LinearMap(schema).reference_eigenvalues()
        share = resolved_share(variances, nominal_rows=nominal_rows, penalty=ready.penalty)
        return ready.noise_level / ready.penalty, share

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Sentences a curator should read, from public facts."""
        if self.penalty is None and self._ready().capped:
            return (
                f"weights: nominal_rows={nominal_rows} is small for this epsilon and schema: the"
                f" penalty is set by the noise cap tau={self.tau:g}, so weights are shrunk; raise"
                " epsilon, or release fewer columns",
            )
        return ()

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every number of the noise; JSON values."""
        parameters: dict[str, Any] = {
            "features": "linear",
            "noise": self.noise.value,
            "tau": self.tau,
            "debias": self.debias,
        }
        if self.penalty is not None:
            parameters["penalty_setting"] = self.penalty
        if self.calibrated is not None:
            parameters |= self.calibrated.to_json()
        return parameters

    def _facts(self) -> dict[str, Any]:
        # The measurement is the same whether or not it will be debiased.
        return {key: value for key, value in self.parameters().items() if key != "debias"}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Fit and draw noisy coefficients; raises UncalibratedError, SpecError or WeightError.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. Sensitivity: the exact
            minimiser's (docs/method.md section 3), plus 2 tolerance/Lam for the solver, plus
            `lattice_slack`; the scale holds all three. Event: `GaussianEvent(scale / Delta2)`,
            spherical `LaplaceEvent(scale / Delta2)`, laplace `LaplaceEvent(scale / Delta1)`. The
            synthetic table may depend on the private one only through measurements that were paid
            for.
        """
        schema, ready = table.schema, self._ready()
        exact = self.solution(self.regression(table, synthetic))
        return Measurement(
            kind=self.kind,
            arrays={"coefficients": noisy_vector(exact, law=ready.law, noise=noise)},
            facts={**self._facts(), "schema": schema.name, "synthetic_rows": synthetic.rows},
            publishable=noise.publishable,
            noise=self.released_noise(schema=schema, unit=ready.unit),
        )

    def regression(self, table: PrivateTable, synthetic: SyntheticTable) -> Regression:
        """The problem `measure` solves; raises as `measure`.

        Privacy:
            Holds confidential rows: lives only inside a confidential stage.
        """
        ready, schema = self._ready(), table.schema
        self.check(schema=schema)
        features = LinearMap(schema)
        same = ready.bounds == features.bounds and synthetic.schema == schema
        calibrated_for(ready, same, method=self.method)
        if synthetic.rows == 0:
            raise WeightError(field="weights", allowed="at least one synthetic row")
        return Regression(
            private=partial(features.chunks, table.confidential()),
            synthetic=partial(features.chunks, synthetic.scaled),
            synthetic_weight=ready.nominal_rows / synthetic.rows,
            penalty=ready.penalty,
        )

    def solution(self, problem: Regression) -> Array:
        """Exact coefficients of a `regression`, shape (d',), within the calibrated tolerance.

        Privacy:
            Confidential until noise of the calibrated law is added.
        """
        return solve(problem, tolerance=GRADIENT_TOLERANCE * self._ready().bounds.norm)

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> BetaRatio:
        """The density ratio of a measurement; WeightError if it does not fit."""
        features = LinearMap(schema)
        coefficients = self.released(measurement, "coefficients", features.bounds.dimension)
        return BetaRatio(law=self._ready().law, coefficients=coefficients, map=features)


@dataclass(frozen=True, kw_only=True)
class BetaNoised(BetaDebiased):
    """Noisy coefficients, weights as they are: biased by the noise; a baseline."""

    method: ClassVar[str] = "beta_noised"
    debias: ClassVar[bool] = False
