"""Public parameters of a local collection, and the noise that keeps its promise.

A client checks the promise itself. Features and label compose exactly (docs/method.md section 17).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpiw.data.documents import Count, DecimalText, Document, settle
from dpiw.errors import ManifestError, PrivacyError, ReleaseError, SpecError
from dpiw.privacy.accounting import LATTICE_MARGIN
from dpiw.privacy.gaussian import gaussian_delta, gaussian_noise_multiplier, smallest_multiplier
from dpiw.privacy.mechanisms import calibrated_law, lattice_slack
from dpiw.privacy.randomised_response import RandomisedResponse
from dpiw.privacy.units import NoiseKind, NoiseLaw, float_below

FORMAT = "dpiw-local-parameters 1"
NAME = "parameters.json"

MIN_EPSILON, MAX_EPSILON = Decimal("0.001"), Decimal(20)
"""Policy range of a report's epsilon."""

MIN_DELTA, MAX_DELTA = Decimal("1E-30"), Decimal("0.001")
"""Policy range with Gaussian noise: above it, one person in 1,000 may be unprotected."""

RADIUS, STDDEV = (1e-6, 1e6), (1e-9, 1e12)
"""Ranges of ball and noise, in units of features in [-1, 1]."""

USABLE = 1.5
"""Largest stddev times norm of a model: variance is e^(1.5^2) = 9.5 times the clean one."""

RESERVED = ("parameters", "report_id")
"""Names in a report that no feature or label may have."""

ROUNDING = 1e-12
"""By how much a projected norm may exceed the radius, relative: double arithmetic."""


def total_fault(epsilon: Decimal, delta: Decimal, *, noised: bool) -> SpecError | None:
    """Return why a report may not promise this total, or None; delta must be 0 unless `noised`."""
    if not (epsilon.is_finite() and MIN_EPSILON <= epsilon <= MAX_EPSILON):
        return SpecError(field="epsilon", allowed=f"a decimal in [{MIN_EPSILON}, {MAX_EPSILON}]")
    if not noised and not delta.is_zero():
        return SpecError(field="delta", allowed="0, because no feature is private")
    if noised and not (delta.is_finite() and MIN_DELTA <= delta <= MAX_DELTA):
        allowed = f"a decimal in [{MIN_DELTA}, {MAX_DELTA}], as a feature is private"
        return SpecError(field="delta", allowed=allowed)
    return None


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A number with public bounds, reported as -1 and +1, declared without looking at any data.

    If it is not `private` it gets no noise, and nothing protects it.
    """

    name: str
    low: float
    high: float
    private: bool = True

    def __post_init__(self) -> None:
        for bound in ("low", "high"):
            object.__setattr__(self, bound, float(getattr(self, bound)))
        if not 0 < self.high - self.low < math.inf:  # which no infinite or missing bound passes
            found, allowed = f"found low={self.low:g}, high={self.high:g}", "finite low < high"
            raise ManifestError(found, field=f"feature {self.name}", allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class LocalParameters(Document):
    """What every client applies to its own record. One person reports once to a collection.

    Attributes:
        radius: of the ball onto which private features are projected; 0: none is private.
        stddev: of the noise in each private feature, on the scale of [-1, 1]; 0: no noise.
        kept: the label is kept with probability kept / 2^60, else another level; 0: no label.
        epsilon: of the whole report, features and label together, decimal text; so is `delta`.
    """

    collection: str
    features: tuple[Feature, ...]
    radius: float
    stddev: float
    label: str | None
    levels: tuple[str, ...]
    kept: Count
    epsilon: DecimalText
    delta: DecimalText

    name = NAME
    states = (("format", FORMAT),)

    def __post_init__(self) -> None:
        settle(self, what=NAME)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ManifestError(field=NAME, allowed="features and a label of different names")
        if not self.dimension and self.label is None:
            raise ManifestError(
                "nothing in it is private, so a report would be the record",
                field=NAME,
                allowed="a label, or a feature with private: true",
            )
        if taken := sorted({*RESERVED} & {*self.names}):
            fault = f"a feature or label is called {taken[0]}, which every report has of its own"
            raise ManifestError(f"{fault}; its collector must rename it", field=NAME)
        if (self.label is None) is not (self.kept == 0 and not self.levels):
            raise ManifestError("label, levels and kept go together: all, or none", field=NAME)
        if self.label is not None and len(set(self.levels)) < max(2, len(self.levels)):
            raise ManifestError(field=f"{NAME} levels", allowed="two different levels or more")
        for name, (low, high) in (("radius", RADIUS), ("stddev", STDDEV)):
            value = getattr(self, name)
            if self.dimension and not low <= value <= high:
                raise ManifestError(
                    field=f"{NAME} {name}", allowed=f"a number in [{low:g}, {high:g}]"
                )
            if not self.dimension and value != 0:
                raise ManifestError(field=f"{NAME} {name}", allowed="0, as no feature is private")
        assert self.response is None or self.kept  # build once: checks `kept`

    @property
    def names(self) -> tuple[str, ...]:
        """Names of features, then of the label."""
        label = () if self.label is None else (self.label,)
        return (*(feature.name for feature in self.features), *label)

    @property
    def private(self) -> NDArray[np.bool_]:
        """Which features are noised, shape (features,)."""
        return np.array([feature.private for feature in self.features], dtype=bool)

    @property
    def bare(self) -> tuple[str, ...]:
        """Names of the unprotected features, which are sent without noise."""
        return tuple(feature.name for feature in self.features if not feature.private)

    @property
    def dimension(self) -> int:
        """Number of private features."""
        return int(self.private.sum())

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance of the noise in each feature, shape (features,)."""
        return np.where(self.private, self.stddev**2, 0.0)

    @property
    def largest_norm(self) -> float:
        """Largest norm of a model that reports can teach; infinite without noise."""
        return USABLE / self.stddev if self.stddev else math.inf

    @cached_property
    def response(self) -> RandomisedResponse | None:
        """The label's mechanism; None without a label."""
        if self.label is None:
            return None
        return RandomisedResponse(levels=len(self.levels), kept=self.kept)

    def law(self, records: int) -> NoiseLaw:
        """Law of the noise in the private features of `records` records."""
        return NoiseLaw(
            kind=NoiseKind.GAUSSIAN, scale=self.stddev, dimension=records * self.dimension
        )

    def exact_delta(self) -> float:
        """Return the delta of one report at `epsilon`, from noise, radius and probabilities.

        Privacy:
            Unit: one record, replaced by any other with the same features that are not private.
            L2 sensitivity: twice the radius, and the rounding to the lattice.
        """
        epsilon = float_below(Decimal(self.epsilon))
        if not self.dimension:
            response_epsilon = 0.0 if self.response is None else self.response.epsilon
            return 0.0 if response_epsilon <= epsilon else 1.0
        sensitivity = 2 * self.radius * (1 + ROUNDING) + lattice_slack(self.law(1))
        multiplier = self.stddev / sensitivity / (1 + LATTICE_MARGIN)
        if self.response is None:
            return gaussian_delta(multiplier, epsilon)
        return self.response.joint_delta(multiplier, epsilon)

    def check(self) -> None:
        """Raise PrivacyError unless the noise keeps a promise inside the policy's range."""
        epsilon, delta = Decimal(self.epsilon), Decimal(self.delta)
        fault = total_fault(epsilon, delta, noised=self.dimension > 0)
        if fault is not None:
            raise PrivacyError(f"{NAME} {fault}; do not report with it, and tell the collector")
        if not self.exact_delta() <= float_below(delta):
            raise PrivacyError(
                f"its noise costs more than the epsilon={self.epsilon}, delta={self.delta} that it"
                " promises; do not report with it, and tell the collector",
                field=NAME,
            )

    @classmethod
    def from_json(cls, data: bytes) -> LocalParameters:
        """Read canonical JSON (else ManifestError), and `check` the promise."""
        parameters = super().from_json(data)
        parameters.check()
        return parameters

    @classmethod
    def read(cls, path: str | Path) -> LocalParameters:
        """Read a file as `from_json`; ReleaseError if it cannot be read."""
        try:
            data = Path(path).read_bytes()
        except OSError as reason:
            raise ReleaseError(
                f"the parameters file cannot be read: {reason.strerror}", field=Path(path).name
            ) from reason
        return cls.from_json(data)


MAX_NORM = 1e6


def calibrated(
    *,
    collection: str,
    features: Sequence[Feature],
    levels: Sequence[str] = (),
    label: str | None = None,
    epsilon: Decimal,
    delta: Decimal,
    radius: float | None = None,
    parameter_norm: float = 0.0,
) -> LocalParameters:
    """Return the parameters with the least noise that keeps the promise.

    Args:
        collection: its name.
        features: with their public bounds.
        levels: of the label.
        label: its name, or None.
        epsilon: of a whole report, in [0.001, 20].
        delta: in [1e-30, 1e-3] if a feature is private, else 0.
        radius: of the public ball for features in [-1, 1], in [1e-6, 1e6]; None: holds all records.
        parameter_norm: public guess at the norm of a model, in [0, 1e6]; shifts the split.

    Raises SpecError out of these ranges; else as `LocalParameters`.
    """
    dimension = sum(feature.private for feature in features)
    fault = total_fault(epsilon, delta, noised=dimension > 0)
    if fault is not None:
        raise fault
    ball = math.sqrt(dimension) if radius is None or not dimension else radius
    if dimension and not RADIUS[0] <= ball <= RADIUS[1]:
        raise SpecError(field="radius", allowed=f"a number in [{RADIUS[0]:g}, {RADIUS[1]:g}]")
    if not 0 <= parameter_norm <= MAX_NORM:
        raise SpecError(field="parameter_norm", allowed=f"a number in [0, {MAX_NORM:g}]")
    target, small = float_below(epsilon), float_below(delta)
    response, stddev = None, 0.0
    if label is not None:
        share = split(target, small, levels=len(levels), norm=parameter_norm * ball)
        response = RandomisedResponse.of_epsilon(target * share if dimension else target,
                                                 len(levels))  # fmt: skip
    if dimension:
        multiplier = noise_multiplier(target, small, response) * (1 + LATTICE_MARGIN)
        stddev = calibrated_law(
            kind=NoiseKind.GAUSSIAN, noise_multiplier=multiplier * (1 + ROUNDING),
            sensitivity=2 * ball * (1 + ROUNDING), dimension=dimension,
        ).scale  # fmt: skip
    parameters = LocalParameters(
        collection=collection, features=tuple(features), radius=ball, stddev=stddev, label=label,
        levels=tuple(levels), kept=0 if response is None else response.kept,
        epsilon=str(epsilon), delta=str(delta),
    )  # fmt: skip
    parameters.check()
    return parameters


def noise_multiplier(epsilon: float, delta: float, response: RandomisedResponse | None) -> float:
    """Return the least Gaussian noise, over L2 sensitivity, for the total with a response."""
    if response is None:
        return gaussian_noise_multiplier(epsilon, delta)
    return smallest_multiplier(lambda m: response.joint_delta(m, epsilon), delta)


def split(epsilon: float, delta: float, *, levels: int = 2, norm: float = 0.0) -> float:
    """Return the label's share of epsilon, in (0, 1), with the least variance of a gradient step.

    Minimises a(e)^2 sigma^2 exp(sigma^2 r^2), a(e) = (exp(e) + k - 1) / (exp(e) - 1), k `levels`,
    sigma the noise in a ball of radius 1, r = `norm` of the parameters times the radius. With
    `delta` 0 there is only a label, which gets all.
    """
    from scipy.optimize import minimize_scalar

    if delta == 0:
        return 1.0

    def log_variance(log_odds: float) -> float:
        share = 1 / (1 + math.exp(-log_odds))
        response = RandomisedResponse.of_epsilon(share * epsilon, levels)
        sigma = 2 * noise_multiplier(epsilon, delta, response)
        gap = response.keep - response.exchange
        return 2 * math.log(sigma / gap) + (sigma * norm) ** 2

    # Coarse grid of log odds first: a large r leaves only a narrow valley.
    odds = [-6.0 + 0.5 * step for step in range(21)]
    best = min(odds, key=log_variance)
    solved = minimize_scalar(
        log_variance, bounds=(best - 0.5, best + 0.5), method="bounded", options={"xatol": 1e-6}
    )
    return float(1 / (1 + math.exp(-solved.x)))
