"""What generators of noisy counts have in common: settings, events and the facts of a measurement.

Counts are of public codes of the columns (`dpiw.data.discretisation.Domain`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema
from dpiw.errors import setting_error
from dpiw.methods.base import CriticKind
from dpiw.methods.generators.base import CalibratedNoise, Synthesizer, ready_for
from dpiw.methods.generators.marginal_noise import (
    COUNT_NOISES,
    marginals_event,
    released_counts,
    typed,
    with_noise,
)
from dpiw.privacy.events import ExponentialMechanismEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit


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

    private: ClassVar[bool] = True
    in_batches: ClassVar[bool] = True
    critic: ClassVar[CriticKind] = CriticKind.NONE

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise setting_error(self, "generator.settings.bins", "a whole number >= 2")

    def measurement(
        self,
        arrays: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        domain: Domain,
        ready: CountedNoise,
        noise: NoiseSource,
    ) -> Measurement:
        """Return what was drawn, with the public facts that `measured_domain` reads."""
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
class CountedMarginals(CountedColumns):
    """A generator of noisy marginals.

    Attributes:
        noise: `gaussian`, or `laplace` if delta is 0.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in COUNT_NOISES.values():
            raise setting_error(self, "generator.settings.noise", "gaussian or laplace")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; noise is Laplace where delta is 0."""
        return cls(**typed(cls, with_noise(settings, pure=pure)))


@dataclass(frozen=True, kw_only=True)
class SelectedNoise(CountedNoise):
    """Calibrated multipliers (scale / sensitivity) and epsilon of each selection; all public.

    Attributes:
        one_way, joint: multipliers of the columns' marginals and of the selected ones.
        joints: number of selections, and of selected marginals.
    """

    one_way: float
    selection: float
    joint: float
    joints: int


@dataclass(frozen=True, kw_only=True)
class SelectedMarginals(CountedMarginals):
    """A generator of all one-way marginals, then selections and the marginals they chose."""

    calibrated: SelectedNoise | None = None

    joint: ClassVar[str]
    """What a selected marginal is called in the certificate."""

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One-way marginals, selections, selected marginals; their number is public."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        one_way = marginals_event(self.noise, ready.one_way, count=len(schema.released))
        if not ready.joints:
            return (one_way,)
        return (
            one_way,
            ExponentialMechanismEvent(epsilon=ready.selection, count=ready.joints),
            marginals_event(self.noise, ready.joint, count=ready.joints),
        )

    def released_noise(
        self, *, schema: PublicSchema, unit: PrivacyUnit
    ) -> tuple[ReleasedNoise, ...]:
        """Noise of one-way and of selected marginals; selections have no scale."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        stated = partial(released_counts, kind=self.noise, unit=unit)
        one_way = stated("one_way", multiplier=ready.one_way, event=0)
        joint = stated(self.joint, multiplier=ready.joint, event=2)
        return (one_way, joint) if ready.joints else (one_way,)
