"""Fitting a beta calibration: on declared public rows for free, on private rows as a mechanism.

There is no third way: `calibrate_on_public_rows` takes `PublicRows`, which cannot be made from a
private table, and `BetaCalibration.measure` is the only function here that takes one; it returns
noisy coefficients under a declared event. A "small private validation set" is not free (METHOD
section 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError, UncalibratedError, WeightError
from dpiw.measurement import Measurement
from dpiw.mechanisms import noisy_vector
from dpiw.privacy import (
    GaussianEvent,
    LaplaceEvent,
    NoiseKind,
    NoiseLaw,
    PrivacyEvent,
    PrivacyUnit,
)
from dpiw.randomness import NoiseSource
from dpiw.schema import PublicSchema
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weights.base import DensityRatio
from dpiw.weights.beta import BetaRatio
from dpiw.weights.beta_map import (
    DIMENSION,
    CalibratedRatio,
    DebiasedRatio,
    calibration_features,
    identity,
    to_map,
)
from dpiw.weights.calibration import Calibration, calibration, check_moments
from dpiw.weights.features import FeatureBounds
from dpiw.weights.post_processing import BetaCalibrate
from dpiw.weights.settings import real
from dpiw.weights.solver import GRADIENT_TOLERANCE, Regression, solve

MEASUREMENT_KIND = "beta_calibration"

_SELDOM = (
    "beta_calibrate: seldom worth its budget in our simulations; dpiw.analysis.unshrunk, which is"
    " free, did better and cannot be used on calibrated weights (docs/spec.md)"
)

BOUNDS = FeatureBounds(
    dimension=DIMENSION,
    norm=math.sqrt(0.75),
    diameter=math.sqrt(2),
    l1_norm=1.5,
    l1_diameter=2.0,
    coordinate=0.5,
    reference_norm=math.sqrt(2 / 12 + 1 / 4),
)
"""Of the features g (`dpiw.weights.beta_map`), whatever the schema and the ratio: attained at
u = -limit and u = limit. They are those of two centred columns and the constant."""


@dataclass(frozen=True, kw_only=True)
class PublicRows:
    """Rows of the real distribution that are public, and the caller's word for it.

    Attributes:
        table: the rows, on the release's schema.
        declared: where they come from, in words; it is recorded in the certificate.
    """

    table: SyntheticTable
    declared: str

    def __post_init__(self) -> None:
        """Raises PrivacyError for a private table, SpecError without a declared origin."""
        if not isinstance(self.table, SyntheticTable):
            raise PrivacyError("beta calibration: only public rows are free; a private table must"
                               " be measured by the mechanism BetaCalibration")  # fmt: skip
        if not self.declared.strip():
            raise SpecError("beta calibration: declare where the public rows come from")


def calibrate_on_public_rows(
    ratio: DensityRatio, real_rows: PublicRows, synthetic: SyntheticTable, *, limit: float = 5.0
) -> BetaCalibrate:
    """Fit a and b >= 0 and c of the beta calibration on public labelled rows. Free.

    Both classes weigh the same in total, so the fitted log odds are the log ratio. A coefficient
    that comes out negative is set to zero and the others are fitted again (Kull et al. 2017,
    section 3.2), so that the calibrated ratio never falls as the ratio rises.

    Args:
        ratio: the released ratio, or a `DebiasedRatio` of it.
        real_rows: public rows of the real distribution.
        synthetic: rows of the synthetic distribution, best not those the ratio was fitted on.
        limit: clip bound of the log ratio.

    Returns:
        The step, with its numbers and the declared origin.

    Raises:
        WeightError: one of the tables has no rows.
    """
    if real_rows.table.rows == 0 or synthetic.rows == 0:
        raise WeightError("beta calibration: expected rows of both classes")
    ones = calibration_features(ratio.log_ratio(real_rows.table), limit)
    zeros = calibration_features(ratio.log_ratio(synthetic), limit)
    free = np.ones(DIMENSION, dtype=bool)
    coefficients = identity(limit)
    for _ in range(2):
        problem = Regression(
            private=ones[:, free],
            synthetic=zeros[:, free],
            synthetic_weight=len(ones) / len(zeros),
            penalty=1e-4 * len(ones),  # keeps a separable sample finite; pulls to no change
            centre=identity(limit)[free],
        )
        coefficients = np.zeros(DIMENSION)
        coefficients[free] = solve(problem, tolerance=1e-8 * len(ones))
        negative = coefficients < 0
        negative[2] = False
        if not negative.any():
            break
        free &= ~negative
    coefficients[:2] = np.maximum(coefficients[:2], 0.0)
    a, b, c = to_map(coefficients, limit)
    return BetaCalibrate(a=a, b=b, c=c, limit=limit, declared=real_rows.declared)


@dataclass(frozen=True, kw_only=True)
class BetaCalibration:
    """Beta calibration on private rows: a private stage of its own, with its own charge.

    The regression of METHOD section 1 on the features g of the released log ratio, d' = 3. The
    penalty pulls to the identity map, not to zero, so that little budget means little change. It
    is drawn after the weights' stage, whose released coefficients it treats as public; that is
    adaptive composition.

    What it changes: the scale and shape of the log ratio along itself (over- and underconfidence,
    shrinkage by the penalty), never the order of two rows unless a or b comes out negative by
    noise. It cannot find a direction the features missed. In exchange the generator and the
    weights have less budget.

    Attributes:
        noise: `gaussian` (default), `spherical` or `laplace`.
        tau: cap on the predicted noise it adds to a log weight, in (0, 1].
        limit: public clip bound of the log ratio, in (0, 50]. The features spread over twice the
            limit, so a wide one shrinks the fit towards no change; 2 keeps weights between 1/7
            and 7 before the map.
        calibrated: what `calibrate` found.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN
    tau: float = 0.2
    limit: float = 2.0
    calibrated: Calibration | None = None

    method: ClassVar[str] = "beta_calibration"
    private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        kinds = [kind.value for kind in NoiseKind]
        if not isinstance(self.noise, NoiseKind) and self.noise not in kinds:
            raise SpecError(f"weights.settings.noise: expected one of {', '.join(kinds)}")
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        object.__setattr__(self, "tau", real("tau", self.tau, above=0, at_most=1))
        object.__setattr__(self, "limit", real("limit", self.limit, above=0, at_most=50))

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set the penalty and the noise scale for effort `rho`; see `BetaRegression.calibrate`.

        Raises:
            SpecError: `rho` or `nominal_rows` is not positive.
        """
        if not (math.isfinite(rho) and rho > 0) or nominal_rows < 1:
            raise SpecError("beta calibration: expected an effort rho > 0 and nominal_rows >= 1")
        found = calibration(
            BOUNDS,
            multiplier=1 / math.sqrt(2 * rho),
            noise=self.noise,
            unit=unit,
            nominal_rows=nominal_rows,
            tau=self.tau,
        )
        return replace(self, calibrated=found)

    def _ready(self) -> Calibration:
        if self.calibrated is None:
            raise UncalibratedError(f"{self.method}: calibrate before use")
        return self.calibrated

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One draw of three coefficients.

        Raises:
            UncalibratedError: before `calibrate`, or calibrated for another unit.
        """
        ready = self._ready()
        if ready.unit != unit:
            raise UncalibratedError(f"{self.method}: calibrated for another unit")
        kind = GaussianEvent if self.noise is NoiseKind.GAUSSIAN else LaplaceEvent
        return (kind(noise_multiplier=ready.multiplier),)

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """Standard deviation this stage adds to a log weight at a reference row.

        Raises:
            UncalibratedError: before `calibrate`.
            SpecError: the noise's exponential may have no variance (`check_moments`).
        """
        ready = self._ready()
        check_moments(ready.law, BOUNDS, field="post_processing.beta_calibrate.noise")
        return ready.noise_level / ready.penalty

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Sentences a curator should read, from public facts."""
        if not self._ready().capped:
            return (_SELDOM,)
        return (
            _SELDOM,
            f"beta_calibrate: nominal_rows={nominal_rows} is small for this epsilon and share: the"
            f" penalty is set by the noise cap tau={self.tau:g}, so it changes little",
        )

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every number of the noise; JSON values."""
        found: dict[str, Any] = {"noise": self.noise.value, "tau": self.tau, "limit": self.limit}
        return found if self.calibrated is None else found | self.calibrated.to_json()

    def measure(
        self,
        table: PrivateTable,
        synthetic: SyntheticTable,
        *,
        ratio: BetaRatio | DebiasedRatio,
        noise: NoiseSource,
    ) -> Measurement:
        """Fit private against synthetic rows along the released ratio and draw the map.

        Args:
            table: the confidential rows.
            synthetic: the rows the weights were fitted on, or others that are not published;
                public.
            ratio: the released ratio, public; one with a feature map, so that it can be computed
                at any row.
            noise: where the draw comes from.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. Sensitivity: METHOD
            section 1 with the bounds of g, which hold for every ratio; the penalty's centre and
            the ratio are public and change no row's gradient bound. Solver error and lattice as
            for `BetaRegression`.
            Event: `GaussianEvent(scale / Delta2)`; spherical `LaplaceEvent(scale / Delta2)`;
            laplace `LaplaceEvent(scale / Delta1)`.

        Raises:
            UncalibratedError: before `calibrate`.
            WeightError: no synthetic rows.
        """
        ready, schema = self._ready(), table.schema
        if synthetic.schema != schema:
            raise UncalibratedError(f"{self.method}: rows of another schema")
        if synthetic.rows == 0:
            raise WeightError("weights: expected at least one synthetic row")
        own = ratio.score(ratio.map.matrix(table.confidential()))
        problem = Regression(
            private=calibration_features(own, self.limit),
            synthetic=calibration_features(ratio.log_ratio(synthetic), self.limit),
            synthetic_weight=ready.nominal_rows / synthetic.rows,
            penalty=ready.penalty,
            centre=identity(self.limit),
        )
        exact = solve(problem, tolerance=GRADIENT_TOLERANCE * ready.bounds.norm)
        return Measurement(
            kind=MEASUREMENT_KIND,
            arrays={"coefficients": noisy_vector(exact, law=ready.law, noise=noise)},
            facts={
                **self.parameters(),
                "schema": schema.name,
                "synthetic_rows": synthetic.rows,
            },
            publishable=noise.publishable,
        )

    def _coefficients(self, measurement: Measurement) -> NDArray[np.float64]:
        own = self.parameters()
        wrong = any(measurement.facts.get(key) != own[key] for key in own)
        if measurement.kind != MEASUREMENT_KIND or wrong:
            raise WeightError(f"{self.method}: not a measurement with these settings")
        found = np.asarray(measurement.arrays["coefficients"], dtype=np.float64)
        if found.shape != (DIMENSION,):
            raise WeightError(f"{self.method}: the measurement does not fit")
        return found

    def map(self, measurement: Measurement) -> tuple[float, float, float]:
        """(a, b, c) as released."""
        return to_map(self._coefficients(measurement), self.limit)

    def apply(self, ratio: DensityRatio, measurement: Measurement) -> CalibratedRatio:
        """The ratio seen through the released map; free. Give it the ratio of `measure`.

        Raises:
            WeightError: the measurement is of another kind or other settings.
        """
        facts = measurement.facts
        coefficients = self._coefficients(measurement)
        law = NoiseLaw(kind=NoiseKind(facts["noise"]), scale=facts["scale"], dimension=DIMENSION)
        return CalibratedRatio(base=ratio, coefficients=coefficients, limit=self.limit, law=law)


def private_calibration(step: BetaCalibrate, *, pure: bool) -> BetaCalibration:
    """The mechanism that a spec's `beta_calibrate` step of source `private` asks for.

    Args:
        step: the step.
        pure: whether the release promises delta = 0. Then the noise is spherical unless the step
            says laplace, and gaussian noise is refused.

    Raises:
        SpecError: gaussian noise at delta = 0.
    """
    kind = step.noise or (NoiseKind.SPHERICAL if pure else NoiseKind.GAUSSIAN)
    if pure and kind is NoiseKind.GAUSSIAN:
        raise SpecError(
            "post_processing.beta_calibrate.noise=gaussian: expected spherical or laplace at"
            " delta 0"
        )
    own = BetaCalibration(noise=kind, limit=step.bound)
    return own if step.tau is None else replace(own, tau=step.tau)
