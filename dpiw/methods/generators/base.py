"""Protocols of generators: before data, fitted, of outside rows, and of found levels."""

from collections.abc import Mapping
from dataclasses import Field, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.base import CriticKind, Judge, Method, calibrated_for
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.events import DeclaredEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import PrivacyUnit


class GenerativeModel(Protocol):
    """A fitted SDGP: a pure function of a measurement, so sampling costs nothing."""

    @property
    def one_way(self) -> OneWayMarginals | None:
        """Measured one-way distributions and their noise; None if none were measured."""

    @property
    def judge(self) -> Judge | None:
        """The model itself if its discriminator can judge rows; else None."""

    @property
    def at_hand(self) -> int | None:
        """Number of fixed rows, drawn all at once; None if the model makes any number."""

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent synthetic rows; the same `rng` state gives the same rows."""


class Synthesizer(Method, Protocol):
    """An SDGP before it has seen data: a frozen dataclass of public settings; has defaults."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    files: ClassVar[frozenset[str]] = frozenset()
    """Settings that say where a file lies; its SHA-256 is the promise."""
    set_later: ClassVar[frozenset[str]] = frozenset({"calibrated"})
    """Fields that no spec may hold."""
    needs_delta: ClassVar[str] = ""
    """Why it takes no delta of 0; empty if it does."""
    retired: ClassVar[dict[str, tuple[Any, ...]]] = {}
    """Settings that went, with their old default, which a spec may still say."""

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences about the use of its rows, for the certificate."""
        return ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences about extra assumptions of its guarantee."""
        return ()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """Build an uncalibrated generator; SpecError for settings that do not fit.

        `pure`: whether delta is 0, so that the noise must be pure.
        """
        return cls(**settings)

    @property
    def critic(self) -> CriticKind:
        """What the discriminator of its models can say."""

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Read the private table and return noisy values; UncalibratedError for another schema."""

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> GenerativeModel:
        """Turn a measurement into a free, repeatable sampler; SpecError for a wrong measurement."""


@dataclass(frozen=True, kw_only=True)
class CalibratedNoise:
    """What `calibrate` set, for a schema and a unit; all public."""

    schema: PublicSchema
    unit: PrivacyUnit


_Noise = TypeVar("_Noise", bound=CalibratedNoise)


def ready_for(
    calibrated: _Noise | None, schema: PublicSchema, unit: PrivacyUnit | None = None, *, method: str
) -> _Noise:
    """Return `calibrated` if it fits the schema and unit; UncalibratedError otherwise."""
    ready = calibrated_for(calibrated, method=method)
    return calibrated_for(ready, ready.schema == schema, unit in (None, ready.unit), method=method)


@runtime_checkable
class MadeElsewhere(Protocol):
    """A generator that reads no private row: its rows are in a public file, at a declared cost."""

    @property
    def counted_by(self) -> str | None:
        """Key of the run of the same ledger that paid for the rows; None: this release pays."""

    def at(self, path: Path) -> Self:
        """Return a copy with its rows at another path."""

    def check_file(self, source: Path) -> None:
        """Raise SpecError for another file than declared, or the confidential `source`."""

    def kept(self, schema: PublicSchema) -> dict[str, int]:
        """Check the file and count its `rows` and `distinct_rows`; SpecError if a cell is wrong."""

    def rows_model(self, schema: PublicSchema) -> GenerativeModel:
        """The file's rows, read and checked as by `kept`; each is drawn once. Costs nothing."""

    def declared(self, unit: PrivacyUnit) -> DeclaredEvent:
        """Return the cost for `unit`; SpecError, or NotPublishableError without an epsilon."""

    def declaration(self) -> dict[str, Any]:
        """Who declares what, on what evidence: JSON values."""


@runtime_checkable
class FindsLevels(Protocol):
    """A generator of the columns of unseen levels: its rows have their own schema."""

    def within(self, delta: Decimal) -> Self:
        """Return a copy with a total delta to divide between thresholds and noise."""

    def found_schema(
        self, measurement: Measurement, *, schema: PublicSchema, provenance: str
    ) -> PublicSchema:
        """Return the schema of the unseen columns, with the levels that were found."""

    def level_files(self, measurement: Measurement) -> Mapping[str, bytes]:
        """Return a `levels_file` for each column in order: its levels and their noisy counts."""
