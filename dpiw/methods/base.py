"""What generators and weights have in common, and the little they may know of each other."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import SpecError, UncalibratedError, nearest
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import ReleasedNoise
from dpiw.privacy.units import PrivacyUnit

StatedNoise = tuple[ReleasedNoise, ...]
"""The noise that a method adds, in the order of its events."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """Rough public forecast of a method's cost besides reading the table, weighing included.

    Attributes:
        seconds: on one core.
        held_bytes: peak memory besides the table.
    """

    seconds: float
    held_bytes: int


class Method(Protocol):
    """A method that a spec names, before it has seen data: frozen public settings.

    Privacy: `events` is known before data is read and accounts for `measure`, which returns only
    noisy values. Everything later uses the measurement and public settings: free and repeatable.
    """

    @property
    def method(self) -> str:
        """The registry's name of this method."""

    @property
    def private(self) -> bool:
        """False for methods without a guarantee, which no plan takes."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions that its guarantee rests on, beyond those of every run."""
        return ()

    @property
    def device(self) -> str:
        """Where its networks compute: `cpu`, `cuda` or `auto`."""
        return "cpu"

    @property
    def in_batches(self) -> bool:
        """Whether `measure` holds one batch of rows at a time; others hold all rows."""
        return False

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running | None:
        """Return a calibrated method's forecast, None if unknown. Reads no data."""
        return None

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Sentences for the curator, from public facts (for instance: the noise cap binds)."""
        return ()

    def check_fits(self) -> None:
        """Try the fit on public numbers before the run is charged; StageFailedError if it fails."""
        return

    @abc.abstractmethod
    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Return settings whose noise spends the zCDP-equivalent effort `rho`, or raise SpecError.

        The plan searches over `rho`, so noise must be continuous and decreasing in `rho` > 0.
        """

    @abc.abstractmethod
    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """Return the events of `measure`; UncalibratedError for another schema or unit."""

    @abc.abstractmethod
    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Return the noise that `measure` adds, in the order of its events, before data is read.

        Events without a single scale have no entry. Raises `UncalibratedError` as `events` does.
        """

    @abc.abstractmethod
    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise scales, JSON values only, for plan and certificate."""


def own_libraries(*methods: Method | None) -> tuple[str, ...]:
    """Sorted `libraries` of a plan's generator and weights."""
    return tuple(sorted({name for method in methods if method for name in method.libraries}))


TABLE_ROW_SECONDS, TABLE_SECONDS = 1e-8, 3e-4
"""Seconds to count one row into a table of codes, and per table (1,770 tables of 100,000 rows took
2.3 s on one shared core, November 2026)."""

DRAW_SECONDS, FEATURE_SECONDS, TILT_SECONDS = 3e-3, 1.5e-8, 5.5e-10
"""Seconds per `bayes` parameter, per feature of a row, per row and squared feature of a tilting
(10,000 and 100,000 rows of 15 and 45 columns, by `benchmarks/scale.py` of df7790b4)."""

STEP_SECONDS, NUMBER_SECONDS, MULTIPLY_SECONDS = 4.5e-3, 1.2e-7, 9e-10
"""Seconds of networks: per step, per number of a row made or read, per parameter and row."""


class CriticKind(enum.Enum):
    """What a discriminator's output means: nothing, or log(p_real/p_synthetic) up to a constant."""

    NONE = "none"
    LOG_RATIO = "log ratio"


class Judge(Protocol):
    """A fitted generator that can tell its rows from real ones."""

    @property
    def ratio(self) -> bool:
        """Whether `critic` is a log ratio, up to a constant."""

    def critic(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """The discriminator's output for synthetic rows, shape (rows,), higher where more real."""


MOST_FEATURES = 8192
"""Numbers of a row at most: a regression takes their square in memory and their cube in time."""

OTHER_SCHEMA = (
    "it was drawn for another data dictionary: its columns or their sizes differ; restore the"
    " dictionary, or start a new run"
)

FEWER_LEVELS = "group a column's many levels (hierarchy_file, or hash_buckets)"


def check_effort(what: str, *, rho: float, nominal_rows: int, width: int = 0) -> None:
    """Raise SpecError if the effort or nominal size is not positive, or a row is too wide."""
    if not (math.isfinite(rho) and rho > 0):
        allowed = "an effort rho > 0: raise epsilon, or this stage's share (`shares`)"
        raise SpecError(f"found rho={rho:g}", field=what, allowed=allowed)
    if nominal_rows < 1:
        raise SpecError(field=f"nominal_rows={nominal_rows}", allowed="a whole number >= 1")
    if width > MOST_FEATURES:
        raise SpecError(
            f"a row of this schema is {width} numbers",
            field=what,
            allowed=f"at most {MOST_FEATURES}: {FEWER_LEVELS}",
        )


def real(field: str, value: object, *, above: float, at_most: float) -> float:
    """`value` as a float in (above, at_most], or SpecError."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise SpecError(f"found {value!r:.60}", field=field, allowed="a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf if value > 0 else -math.inf
    if not above < number <= at_most:
        least = "at least 0" if -1e-6 < above < 0 else f"above {above:g}"  # zero is in the range
        raise SpecError(field=f"{field}={number:g}", allowed=f"{least}, at most {at_most:g}")
    return number


BELOW_ZERO = math.nextafter(0.0, -1.0)
"""The bound that admits zero, where a bound itself is not admitted."""


def whole(field: str, value: object, *, low: int, high: int) -> int:
    """`value` as a whole number in [low, high], or SpecError."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        allowed = f"a whole number from {low} to {high}"
        raise SpecError(f"found {value!r:.60}", field=field, allowed=allowed)
    return value


_Ready = TypeVar("_Ready")


def calibrated_for(calibrated: _Ready | None, *others: bool, method: str) -> _Ready:
    """Return what `calibrate` set; UncalibratedError if it is None or one of `others` is false."""
    if calibrated is None:
        raise UncalibratedError("has no noise yet; call `calibrate` first", field=method)
    if not all(others):
        fault = "calibrated for another schema or privacy unit; call `calibrate` with this one"
        raise UncalibratedError(fault, field=method)
    return calibrated


def own_settings(
    kind: Any, settings: Mapping[str, Any], *, field: str, name: str
) -> dict[str, Any]:
    """Return a spec's settings of the dataclass `kind`, without retired ones that change nothing.

    `field` and `name` are the words of the spec. SpecError for the first unknown setting, a missing
    one, or a retired one with a value that would change something.
    """
    retired: Mapping[str, tuple[Any, ...]] = kind.retired
    for key in sorted(retired.keys() & settings.keys()):
        said = settings[key]
        old = [value for value in retired[key] if isinstance(value, bool) == isinstance(said, bool)]
        if said not in old:
            raise SpecError(
                "this setting was removed; delete it. A run that began with it goes on only with"
                " the dpiw that began it",
                field=f"{field}.{key}",
            )
    live = {key: value for key, value in settings.items() if key not in retired}
    known = {own.name: own for own in fields(kind) if own.name not in kind.set_later}
    for key in live:
        if key not in known:
            hint = nearest(key, known) or f" (known: {', '.join(sorted(known)) or 'none'})"
            raise SpecError(f"{name} has no such setting{hint}", field=f"{field}.{key}")
    for key, own in known.items():
        if own.default is MISSING and key not in live:
            raise SpecError(f"missing; {name} needs it", field=f"{field}.{key}")
    return live
