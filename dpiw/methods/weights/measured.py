"""Measured weights: one noisy sum of features is paid for; all the fitting is on public numbers.

`measure` releases sum_i phi(x_i) and the number of rows, in one Gaussian event. Everything after
it is free: noisy means, an exponential tilting of as many base rows as are wanted
(`weights.tilting`), the credit that the base deserves (`weights.credit`), and a table of the rows
asked for with mild weights (`weights.thinning`).
Source: docs/method.md section 14; closest relatives: Balog et al. (2018), Harder et al. (2021,
DP-MERF), Liu et al. (2021, PMW-Pub), McKenna et al. (2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.one_way import OneWayMarginals
from dpiw.methods.weights.means_noise import means_noise
from dpiw.methods.weights.settings import real, whole
from dpiw.methods.weights.stack import Stack, public_shares
from dpiw.methods.weights.tilting import Targets
from dpiw.privacy.events import GaussianEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.mechanisms import calibrated_law, noisy_vector
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit

MEASUREMENT_KIND = "measured"

UNIT = 2.0**-24
"""Every feature of a private row is rounded to a multiple of it, so that sums are exact integers:
what the other rows are changes nothing in a row's part, and no order of adding does."""

REPLICATES = (20, 1000)
"""Fewest and most: the relative error of a variance from R replicates is about sqrt(2/R)."""

_LARGEST = 2**53
"""Sums beyond so many units are clipped: as whole numbers, and then exact as doubles."""

_BLOCK = 4096

MOST_FEATURES = 8192
"""A fit takes their square in memory, and their cube in time."""

MOST_ROWS = 2**28
"""Of norm one: their sums are far from being clipped."""

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """Every public number of one calibrated measurement.

    Attributes:
        unit: the unit and relation of the sensitivity.
        nominal_rows: n0; under replace-one the public number of rows.
        dimension: d, features of a row.
        norm: R_phi, bound on a row's features.
        constant: c, by which a row counts beside its features; 0 where the number is public.
        multiplier: noise scale over sensitivity, as accounted.
        sensitivity: of the sum in L2, rounding of the rows included.
        law: of the noise; its scale covers the lattice rounding as well.
    """

    unit: PrivacyUnit
    nominal_rows: int
    dimension: int
    norm: float
    constant: float
    multiplier: float
    sensitivity: float
    law: NoiseLaw

    def to_json(self) -> dict[str, Any]:
        """Public numbers for the certificate."""
        return {
            "relation": self.unit.relation.value,
            "max_rows": self.unit.max_rows,
            "nominal_rows": self.nominal_rows,
            "dimension": self.dimension,
            "norm_bound": self.norm,
            "constant": self.constant,
            "sensitivity": self.sensitivity,
            "noise_multiplier": self.multiplier,
            "scale": self.law.scale,
        }


def sum_noise(stack: Stack, *, multiplier: float, unit: PrivacyUnit, nominal_rows: int) -> SumNoise:
    """Sensitivity and noise of the sum of a stack's features.

    Add or remove k rows: k sqrt(R_phi^2 + c^2), as the row count is a coordinate of its own, c per
    row. Replace one row: the diameter, at most 2 R_phi; the count does not change and is not
    measured. Rounding moves a row's d (+ 1) coordinates by at most half a unit each.
    """
    replaced = unit.relation is NeighbouringRelation.REPLACE_ONE
    # Half the norm, as a power of two: a multiple of the unit, and then rounded by nothing.
    constant = 0.0 if replaced else 2.0 ** round(math.log2(stack.norm / 2))
    length = stack.dimension + (0 if replaced else 1)
    slack = math.sqrt(length) * UNIT / 2
    reach = 2 * (stack.norm + slack) if replaced else math.hypot(stack.norm + slack, constant)
    sensitivity = unit.max_rows * reach * (1 + 1e-12)
    law = calibrated_law(
        kind=NoiseKind.GAUSSIAN,
        noise_multiplier=multiplier,
        sensitivity=sensitivity,
        dimension=length,
    )
    return SumNoise(
        unit=unit,
        nominal_rows=nominal_rows,
        dimension=stack.dimension,
        norm=stack.norm,
        constant=constant,
        multiplier=multiplier,
        sensitivity=sensitivity,
        law=law,
    )


def exact_sum(stack: Stack, rows: ScaledTable, *, constant: float) -> Array:
    """Sum of the rounded features, and c times the number of rows; exact in doubles.

    Privacy:
        Unprotected: of private rows it is confidential. One row changes it by that row's rounded
        features alone, to the last bit. A row of more than the stack's norm, or of none, adds
        nothing but its count: the schema's box holds no such row, and a table from elsewhere may.
    """
    total = np.zeros(stack.dimension, dtype=np.int64)
    most = (stack.norm * (1 + 1e-12)) ** 2
    for start in range(0, rows.rows, _BLOCK):
        block = stack.matrix(rows.take(np.arange(start, min(start + _BLOCK, rows.rows))))
        block[~(np.einsum("ij,ij->i", block, block) <= most)] = 0.0
        total += np.rint(block / UNIT).astype(np.int64).sum(axis=0)
    if constant:
        total = np.append(total, rows.rows * round(constant / UNIT))
    return np.asarray(np.clip(total, -_LARGEST, _LARGEST) * UNIT, dtype=np.float64)


def _shares(given: object) -> dict[str, float]:
    if not isinstance(given, Mapping) or not given:
        raise SpecError("weights.settings.features: expected shares of the norm by part")
    return {
        str(part): real(f"features.{part}", share, above=1e-4, at_most=100)
        for part, share in given.items()
    }


def _scales(given: object) -> tuple[float, ...]:
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= 8:
        raise SpecError("weights.settings.scales: expected a list of 1 to 8 numbers")
    return tuple(real("scales", one, above=0, at_most=1e3) for one in given)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Settings of measured weights; frozen and public.

    Attributes:
        features: shares of the norm of the stack's parts (`weights.stack.Stack`); None: by a rule
            of the schema (`weights.stack.public_shares`), set by `calibrate`.
        scales: of the Fourier frequencies, in public scales; None: by the same rule.
        frequencies: of the Fourier features; two features each.
        omega_seed: public integer that fixes the frequencies.
        credit: `evidence`, `risk`, or alpha itself.
        base_rows: how many rows of the generator are weighted; None: `base_rows_for`.
        design_effect: most that the published weights' may be; the rest is in which rows are
            published. 1: no weights at all.
        debias: whether the mean effect of theta's noise is divided out.
        replicates: how many replicate weights are published beside the weights; 0: none.
        calibrated: what `calibrate` found.
    """

    features: Mapping[str, float] | None = None
    scales: tuple[float, ...] | None = None
    frequencies: int = 300
    omega_seed: int | None = None
    credit: str | float = "evidence"
    base_rows: int | None = None
    design_effect: float = 2.0
    debias: bool = False
    replicates: int = 0
    calibrated: SumNoise | None = None

    method: ClassVar[str] = "measured"
    private: ClassVar[bool] = True
    effort: ClassVar[float] = 0.3
    """Usual share of the effort: models are bettered by little of it, single columns hardly at all,
    and the generator's own marginals are kept. `dpiw rehearse` compares it with others, free."""

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        if self.features is not None:
            object.__setattr__(self, "features", _shares(self.features))
        if self.scales is not None:
            object.__setattr__(self, "scales", _scales(self.scales))
        whole("frequencies", self.frequencies, low=1, high=2048)
        if self.omega_seed is not None:
            whole("omega_seed", self.omega_seed, low=0, high=2**64 - 1)
        elif self.features is None or "fourier" in self.features:
            raise SpecError(
                "weights.settings.omega_seed: `fourier` needs a public whole number >= 0"
            )
        if self.credit not in ("evidence", "risk"):
            credit = self.credit
            if isinstance(credit, str):
                raise SpecError("weights.settings.credit: expected evidence, risk or a number > 0")
            object.__setattr__(self, "credit", real("credit", credit, above=0, at_most=1e15))
        if self.base_rows is not None:
            whole("base_rows", self.base_rows, low=100, high=10**7)
        effect = real("design_effect", self.design_effect, above=1 - 1e-12, at_most=1e6)
        object.__setattr__(self, "design_effect", max(1.0, effect))
        if not isinstance(self.debias, bool):
            raise SpecError("weights.settings.debias: expected true or false")
        if self.replicates != 0 or isinstance(self.replicates, bool):
            whole("replicates", self.replicates, low=REPLICATES[0], high=REPLICATES[1])

    def stack(self, schema: PublicSchema) -> Stack:
        """The public feature map on this schema."""
        shares, scales = public_shares(schema)
        return Stack(
            schema=schema,
            shares=shares if self.features is None else self.features,
            scales=scales if self.scales is None else self.scales,
            frequencies=self.frequencies,
            omega_seed=self.omega_seed or 0,
        )

    def base_rows_for(self, published_rows: int) -> int:
        """How many rows of the generator are weighted; free, and not published.

        As set, or five for each published one, at least 10,000 and at most a million: a low share
        of effective rows then still leaves many.
        """
        return self.base_rows or max(10_000, min(5 * published_rows, 1_000_000))

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set the noise for effort `rho`: a multiplier of 1/sqrt(2 rho).

        Raises:
            SpecError: `rho` or `nominal_rows` is not positive, or a part that the schema lacks.
        """
        if not (math.isfinite(rho) and rho > 0):
            raise SpecError("weights: expected an effort rho > 0")
        if nominal_rows < 1:
            raise SpecError(f"nominal_rows={nominal_rows}: expected a whole number >= 1")
        stack = self.stack(schema)
        if stack.dimension > MOST_FEATURES:
            raise SpecError(
                f"weights.settings.features: {stack.dimension} features on this schema; expected at"
                f" most {MOST_FEATURES}"
            )
        if nominal_rows * stack.norm > MOST_ROWS:
            most = int(MOST_ROWS / stack.norm)
            raise SpecError(
                f"nominal_rows={nominal_rows}: expected at most {most} with these features' shares"
            )
        found = sum_noise(
            stack, multiplier=1 / math.sqrt(2 * rho), unit=unit, nominal_rows=nominal_rows
        )
        return replace(self, features=stack.shares, scales=stack.scales, calibrated=found)

    def _ready(self) -> SumNoise:
        if self.calibrated is None:
            raise UncalibratedError(f"{self.method}: calibrate before use")
        return self.calibrated

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One draw of the sum.

        Raises:
            UncalibratedError: before `calibrate`, or calibrated for another unit or schema.
        """
        ready, stack = self._ready(), self.stack(schema)
        if ready.unit != unit or (ready.dimension, ready.norm) != (stack.dimension, stack.norm):
            raise UncalibratedError(f"{self.method}: calibrated for another unit or schema")
        return (GaussianEvent(noise_multiplier=ready.multiplier),)

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """Standard deviation of a mean's noise over a row's norm: what one feature is known to."""
        ready = self._ready()
        return ready.law.scale / ready.nominal_rows / ready.norm

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """l/(l + s^2), in [0, 1]: l a feature's share of the squared norm, s the noise of a mean.

        As if all features had one variance; near zero where a mean's noise is larger than what a
        feature can vary, so that nothing can be learned.
        """
        ready = self._ready()
        spread = (ready.law.scale / nominal_rows) ** 2
        mean = ready.norm**2 / ready.dimension
        return mean / (mean + spread)

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """None."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every number of the noise; JSON values."""
        found: dict[str, Any] = {
            "features": None if self.features is None else dict(self.features),
            "scales": None if self.scales is None else list(self.scales),
            "frequencies": self.frequencies,
            "omega_seed": self.omega_seed,
            "noise": NoiseKind.GAUSSIAN.value,
            "credit": self.credit,
            "base_rows": self.base_rows,
            "design_effect": self.design_effect,
            "debias": self.debias,
            "replicates": self.replicates,
        }
        return found if self.calibrated is None else found | self.calibrated.to_json()

    def _facts(self) -> dict[str, Any]:
        """What a measurement is of; what is done with it afterwards is not in it."""
        after = ("credit", "base_rows", "design_effect", "debias", "replicates")
        return {name: value for name, value in self.parameters().items() if name not in after}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Draw the noisy sum of the private rows' features, and of their number.

        Args:
            table: the private rows.
            synthetic: not looked at; base rows are wanted only afterwards.
            noise: draws the noise.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. L2 sensitivity: `sum_noise`.
            Event: one `GaussianEvent(scale / sensitivity)`.

        Raises:
            UncalibratedError: before `calibrate`, or for another schema.
        """
        ready, stack = self._ready(), self.stack(table.schema)
        if (ready.dimension, ready.norm) != (stack.dimension, stack.norm):
            raise UncalibratedError(f"{self.method}: calibrated for another schema")
        exact = exact_sum(stack, table.confidential(), constant=ready.constant)
        return Measurement(
            kind=MEASUREMENT_KIND,
            arrays={"sum": noisy_vector(exact, law=ready.law, noise=noise)},
            facts={**self._facts(), "schema": table.schema.name},
            publishable=noise.publishable,
        )

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> NoReturn:
        """There is none before base rows are there: `dpiw.methods.weights.weigh_measured`.

        Raises:
            WeightError: always.
        """
        raise WeightError(f"{self.method}: its weights need base rows; expected weigh_measured")

    def targets(
        self, measurement: Measurement, *, about: Array, known: OneWayMarginals | None = None
    ) -> Targets:
        """Noisy means and the covariance of their noise (`means_noise`); free.

        Args:
            measurement: the noisy sum.
            about: public means near the true ones, such as the base's, shape (d,): of the stack's
                features, and after them of those of the known marginals.
            known: one-way distributions that the generator knows, further targets.

        Raises:
            WeightError: the measurement is of another kind, or does not fit these settings.
        """
        ready, facts, own = self._ready(), measurement.facts, self._facts()
        if measurement.kind != MEASUREMENT_KIND or any(facts.get(k) != own[k] for k in own):
            raise WeightError(f"{self.method}: not a measurement with these settings")
        drawn = np.asarray(measurement.arrays["sum"], dtype=np.float64)
        if drawn.shape != (ready.law.dimension,):
            raise WeightError(f"{self.method}: the measurement does not fit this schema")
        rows, sums = float(ready.nominal_rows), drawn
        if ready.constant:  # noise may leave less than a row
            rows, sums = max(1.0, float(drawn[-1]) / ready.constant), drawn[:-1]
        shares, law = (np.zeros(0), None) if known is None else (known.shares, known.law)
        noise = means_noise(
            scale=ready.law.scale, rows=rows, constant=ready.constant, about=about, known=law
        )
        means = np.concatenate([sums / rows, shares])
        return Targets(means=means, covariance=noise, rows=rows, fresh=sums.size)
