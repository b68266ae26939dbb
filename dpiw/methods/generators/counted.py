"""What generators of noisy counts have in common: settings, events and the facts of a measurement.

Counts are of public codes of the columns (`dpiw.data.schema.discretisation.Domain`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import setting_error
from dpiw.methods.base import TABLE_ROW_SECONDS, TABLE_SECONDS, CriticKind, StatedNoise, real, whole
from dpiw.methods.generators.base import CalibratedNoise, Synthesizer, ready_for
from dpiw.methods.generators.marginal_noise import (
    COUNT_NOISES,
    marginal_multiplier,
    marginals_event,
    released_counts,
    selection_epsilon,
    stated,
    useful_bins,
    with_noise,
)
from dpiw.privacy.events import ExponentialMechanismEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit

Arrays = Mapping[str, NDArray[Any]]


def counting_seconds(tables: float, nominal_rows: int) -> float:
    """Forecast of counting so many tables."""
    return tables * (TABLE_SECONDS + TABLE_ROW_SECONDS * nominal_rows)


@dataclass(frozen=True, kw_only=True)
class CountedNoise(CalibratedNoise):
    """Calibrated constants of a generator of counts; `bins` as of `useful_bins`."""

    bins: int


@dataclass(frozen=True, kw_only=True)
class CountedColumns(Synthesizer):
    """A generator that reads counts of the columns' codes, in batches of rows.

    Attributes:
        bins: most bins of a numeric column without `bins` or `cuts` (see `useful_bins`).
    """

    bins: int = 16
    calibrated: CountedNoise | None = None

    ranges: ClassVar[dict[str, tuple[int, int]]] = {"bins": (2, 2**62)}
    """Least and largest values of settings that are whole numbers."""
    bounds: ClassVar[dict[str, tuple[float, float]]] = {}
    """Values that settings which are numbers are above, and their largest ones."""

    private: ClassVar[bool] = True
    in_batches: ClassVar[bool] = True
    critic: ClassVar[CriticKind] = CriticKind.NONE

    def __post_init__(self) -> None:
        for name, (low, high) in self.ranges.items():
            whole(f"generator.settings.{name}", getattr(self, name), low=low, high=high)
        for name, (above, most) in self.bounds.items():
            real(f"generator.settings.{name}", getattr(self, name), above=above, at_most=most)

    def measurement(
        self, arrays: Arrays, facts: Mapping[str, Any], *, domain: Domain, noise: NoiseSource
    ) -> Measurement:
        """Return what was drawn, with the public facts that `measured_domain` reads."""
        ready = ready_for(self.calibrated, domain.schema, method=self.method)
        return Measurement(
            kind=self.method,
            arrays=arrays,
            facts={
                **facts,
                "bins": ready.bins,
                "columns": [column.name for column in domain.schema.released],
                "sizes": list(domain.sizes),
            },
            publishable=noise.publishable,
            noise=self.released_noise(schema=domain.schema, unit=ready.unit),
        )


@dataclass(frozen=True, kw_only=True)
class OneWayNoise(CountedNoise):
    """Calibrated multiplier (scale / sensitivity) of the columns' marginals."""

    one_way: float


@dataclass(frozen=True, kw_only=True)
class CountedMarginals(CountedColumns):
    """A generator of noisy marginals, each column's own first.

    Attributes:
        noise: `gaussian`, or `laplace` if delta is 0.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN
    calibrated: OneWayNoise | None = None

    singles: ClassVar[str] = "one_way"
    """What the columns' own marginals are called in the certificate."""
    shown: ClassVar[dict[str, str]] = {}
    """Fields of `calibrated` by their names in the certificate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in COUNT_NOISES.values():
            raise setting_error(self, "generator.settings.noise", "gaussian or laplace")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; noise is Laplace where delta is 0."""
        return cls(**with_noise(settings, pure=pure))

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise, JSON values, for the plan and the certificate."""
        return stated(self, **self.shown)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One noisy marginal per released column."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        return (marginals_event(self.noise, ready.one_way, count=len(schema.released)),)

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Noise of every column's marginal."""
        multiplier = ready_for(self.calibrated, schema, unit, method=self.method).one_way
        stated = released_counts(
            self.singles, self.noise, multiplier=multiplier, unit=unit, event=0
        )
        return (stated,)


@dataclass(frozen=True, kw_only=True)
class SelectedNoise(OneWayNoise):
    """Calibrated epsilon of each selection, and multiplier of the marginals they chose.

    Attributes:
        joints: number of selections, and of selected marginals.
    """

    selection: float
    joint: float
    joints: int
    nominal_rows: int


@dataclass(frozen=True, kw_only=True)
class SelectedMarginals(CountedMarginals):
    """A generator of all one-way marginals, then selections and the marginals they chose."""

    calibrated: SelectedNoise | None = None

    joint: ClassVar[str]
    """What a selected marginal is called in the certificate."""

    def with_shares(
        self,
        joints: int,
        shares: tuple[float, float, float],
        *,
        rho: float,
        schema: PublicSchema,
        unit: PrivacyUnit,
        nominal_rows: int,
    ) -> Self:
        """Give one-way marginals, selections and selected marginals their shares of the effort."""
        multiplier = partial(marginal_multiplier, self.noise, rho=rho)
        one_way, selection, joint = shares
        count = max(1, joints)
        noise = SelectedNoise(
            one_way=multiplier(share=one_way, count=len(schema.released)),
            selection=selection_epsilon(self.noise, rho=rho, share=selection, count=count),
            joint=multiplier(share=joint, count=count),
            joints=joints,
            bins=useful_bins(self.bins, nominal_rows),
            schema=schema,
            unit=unit,
            nominal_rows=nominal_rows,
        )
        return replace(self, calibrated=noise)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One-way marginals, selections, selected marginals; their number is public."""
        one_way = super().events(schema=schema, unit=unit)
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        if not ready.joints:
            return one_way
        return (
            *one_way,
            ExponentialMechanismEvent(epsilon=ready.selection, count=ready.joints),
            marginals_event(self.noise, ready.joint, count=ready.joints),
        )

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Noise of one-way and of selected marginals; selections have no scale."""
        one_way = super().released_noise(schema=schema, unit=unit)
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        if not ready.joints:
            return one_way
        joint = released_counts(self.joint, self.noise, multiplier=ready.joint, unit=unit, event=2)
        return (*one_way, joint)
