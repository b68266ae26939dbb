"""What generators and weights have in common, and the little they may know of each other."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import ReleasedNoise
from dpiw.privacy.units import PrivacyUnit


class Method(Protocol):
    """A method that a spec names, before it has seen data: frozen public settings.

    Formal guarantees:
        `events` is known before any data is read, and is what `measure` does to the data.
        `measure` reads the table and returns only noisy values.
        Everything after it needs only the measurement and public settings: free and repeatable.
    """

    @property
    def method(self) -> str:
        """The registry's name of this method."""
        ...

    @property
    def private(self) -> bool:
        """False for methods without a guarantee, which no plan takes."""
        ...

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions that its guarantee rests on, beyond those of every run."""
        return ()

    def check_fits(self) -> None:
        """Try on public numbers what the fit needs, before anything is charged.

        Raises:
            StageFailedError: it does not work.
        """
        return

    @abc.abstractmethod
    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Return settings whose noise spends the zCDP-equivalent effort `rho` > 0.

        The plan varies `rho` until the total (epsilon, delta) of the whole run is met, so noise
        must be continuous and decreasing in `rho`.
        """
        ...

    @abc.abstractmethod
    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """What `measure` will do.

        Raises:
            UncalibratedError: not calibrated, or for another schema or unit.
        """
        ...

    @abc.abstractmethod
    def released_noise(
        self, *, schema: PublicSchema, unit: PrivacyUnit
    ) -> tuple[ReleasedNoise, ...]:
        """Return the noise that `measure` adds, in the order of the events that account for it.

        An event whose noise has no single scale has no entry. The certificate states it, so it
        must be known before any data is read. Raises `UncalibratedError` as `events`.
        """
        ...

    @abc.abstractmethod
    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise scales, JSON values only, for plan and certificate."""
        ...


def own_libraries(*methods: Method | None) -> tuple[str, ...]:
    """Sorted `libraries` of a plan's generator and weights."""
    return tuple(sorted({name for method in methods if method for name in method.libraries}))


TABLE_ROW_SECONDS, TABLE_SECONDS = 1e-8, 3e-4
"""Seconds to count a row into a table of codes, and per table: `mst` on 60 columns of 8 codes and
100,000 rows counted 1,770 tables in 2.3 s on one core of a shared machine (November 2026)."""

DRAW_SECONDS, FEATURE_SECONDS, TILT_SECONDS = 3e-3, 1.5e-8, 5.5e-10
"""Seconds per parameter of `bayes`, per feature of a row, and per row and squared feature of a
tilting. These and the next by `python benchmarks/scale.py --rows 10000` (also with `--rows 100000`,
and `--copies 3`) on one core of a shared machine (November 2026)."""

STEP_SECONDS, NUMBER_SECONDS, MULTIPLY_SECONDS = 4.5e-3, 1.2e-7, 9e-10
"""Seconds of networks: per step, per number of a row made or read, per parameter and row."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """Rough forecast of what a method takes besides reading the table, from public facts.

    Includes weighing and drawing rows after the draw.

    Attributes:
        seconds: on one core of the machine of the constants.
        held_bytes: at once, besides the table.
    """

    seconds: float
    held_bytes: int


@runtime_checkable
class Forecasts(Protocol):
    """A method that forecasts its running; plans state none for others."""

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running | None:
        """Forecast of a calibrated method; None where unknown. Reads no data.

        Args:
            schema: it was calibrated for.
            nominal_rows: the public nominal size.
            published: rows of the release.
        """
        ...


@runtime_checkable
class ReadsBatches(Protocol):
    """A method whose `measure` holds one batch of rows at a time; others hold all rows."""

    @property
    def in_batches(self) -> bool:
        """True."""
        ...


class CriticKind(enum.Enum):
    """What a model's discriminator says about a row.

    `NONE`: no discriminator, or no ratio follows from it (a Wasserstein critic). `LOG_RATIO`:
    log(p_real/p_synthetic), up to a constant (docs/method.md section 12).
    """

    NONE = "none"
    LOG_RATIO = "log ratio"


class Judge(Protocol):
    """A fitted generator that can tell its rows from real ones."""

    @property
    def ratio(self) -> bool:
        """Whether `critic` is a log ratio, up to a constant."""
        ...

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Synthetic rows."""
        ...

    def critic(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """The discriminator's output for synthetic rows, shape (rows,), higher where more real."""
        ...


MOST_FEATURES = 8192
"""Numbers of a row at most: a regression takes their square in memory and their cube in time."""

FEWER_LEVELS = "group a column's many levels (hierarchy_file, or hash_buckets)"


def check_effort(what: str, *, rho: float, nominal_rows: int, width: int = 0) -> None:
    """Refuse an effort or schema that no method can be calibrated for.

    Args:
        what: the method, by name.
        rho: the effort.
        nominal_rows: the public nominal size.
        width: numbers by which the method holds a row, where it is the schema's.

    Raises:
        SpecError: the effort or the nominal size is not positive, or a row is too wide.
    """
    if not (math.isfinite(rho) and rho > 0):
        raise SpecError(f"{what}: expected an effort rho > 0")
    if nominal_rows < 1:
        raise SpecError(f"nominal_rows={nominal_rows}: expected a whole number >= 1")
    if width > MOST_FEATURES:
        raise SpecError(
            f"{what}: a row of this schema is {width} numbers; expected at most {MOST_FEATURES}:"
            f" {FEWER_LEVELS}"
        )


_Ready = TypeVar("_Ready")


def calibrated_for(calibrated: _Ready | None, *others: bool, method: str) -> _Ready:
    """Return what `calibrate` decided, if it is set and all `others` hold.

    Args:
        calibrated: of the method; None before `calibrate`.
        others: whether it was for this schema, this unit, and so on.
        method: by name.

    Raises:
        UncalibratedError: it is None, or one of `others` does not hold.
    """
    if calibrated is None:
        raise UncalibratedError(f"{method}: calibrate before use")
    if not all(others):
        raise UncalibratedError(f"{method}: calibrated for another schema or privacy unit")
    return calibrated
