"""What a synthetic data generating process is, as a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import UncalibratedError
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import PrivacyUnit


class GenerativeModel(Protocol):
    """A fitted SDGP: a pure function of a measurement, so sampling costs nothing."""

    @property
    def one_way(self) -> OneWayMarginals | None:
        """One-way distributions that it knows, and how well; None if none were measured."""
        ...

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent synthetic rows; the same `rng` state gives the same rows."""
        ...


class Synthesizer(Protocol):
    """An SDGP before it has seen data: frozen public settings.

    Formal guarantees:
        `events` is known before any data is read and is what `measure` does to the data.
        `measure` reads the table once and returns only noisy values.
        `model(measurement)` needs nothing but the measurement and the public settings.
    """

    @property
    def method(self) -> str:
        """The registry's name of this method."""
        ...

    @property
    def private(self) -> bool:
        """False for benchmark-only methods, which publication refuses."""
        ...

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Return settings whose noise spends the zCDP-equivalent effort `rho` > 0.

        The plan varies `rho` until the total (epsilon, delta) of the whole run is met, so noise
        must be continuous and decreasing in `rho`.
        """
        ...

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """What `measure` will do. Raises `UncalibratedError` before `calibrate`."""
        ...

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise scales, JSON values only, for plan and certificate."""
        ...

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Read the private table and return noisy values."""
        ...

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> GenerativeModel:
        """Post-process a measurement into a sampler. Costs nothing, repeatable."""
        ...


class CalibratedNoise(Protocol):
    """What `calibrate` decided, and for whom."""

    @property
    def schema(self) -> PublicSchema:
        """For which schema."""
        ...

    @property
    def unit(self) -> PrivacyUnit:
        """For which unit."""
        ...


_Noise = TypeVar("_Noise", bound=CalibratedNoise)


def ready_for(
    calibrated: _Noise | None, schema: PublicSchema, unit: PrivacyUnit | None = None, *, method: str
) -> _Noise:
    """What was calibrated, if it was for this schema and, if given, this unit.

    Raises:
        UncalibratedError: it was not, or not at all.
    """
    if calibrated is None:
        raise UncalibratedError(f"{method}: calibrate before asking for events or measuring")
    if calibrated.schema != schema or (unit is not None and calibrated.unit != unit):
        raise UncalibratedError(f"{method}: calibrated for another schema or privacy unit")
    return calibrated
