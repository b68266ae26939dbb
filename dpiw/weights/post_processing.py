"""The named steps between a released ratio and the published weights: free, public, recorded.

    beta_calibrate   rewrites the ratio on its own scale (Kull et al. 2017)
    temper           raises it to a public power
    pareto_smooth    replaces the largest weights by quantiles of a fitted tail
    clip             cuts weights at a public multiple of their mean
    self_normalise   scales weights to mean one
    resample         redraws rows by weight; the weights are then one

They are applied in this order, each at most once, by `dpiw.weighting.weigh`. The first two act on
the log-linear ratio and come before debiasing, because the debiasing factor must know them; a
tail is fitted before it is cut, because a cut tail is none. Every step is a function of released
values and public constants, so it costs nothing. Only a beta calibration on private rows costs:
it is a measurement of its own (`dpiw.weights.beta_calibration`).
Imports nothing but NumPy.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from decimal import Decimal
from typing import Any, ClassVar

from dpiw.errors import SpecError, UncalibratedError
from dpiw.privacy import NoiseKind
from dpiw.weights.resampling import Scheme


def _number(name: str, value: object, *, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise SpecError(f"post_processing.{name}: expected a number")
    found = math.inf
    with contextlib.suppress(OverflowError):  # a whole number of more than 308 digits
        found = float(value)
    if not low < found <= high:
        raise SpecError(
            f"post_processing.{name}={found:g}: expected above {low:g}, at most {high:g}"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class BetaCalibrate:
    """The calibrated log ratio a log s - b log(1-s) + c, s = sigmoid(u), u the ratio's log.

    Attributes:
        source: `public`: the numbers are fitted on public labelled rows, or chosen;
            `private`: they come from the charged mechanism `BetaCalibration`. Until they are
            there, a, b and c are None.
        a, b, c: the map; a = b = 1 and c = 0 change nothing.
        limit: public bound: u is clipped to [-limit, limit] first. Default 5; private 2.
        declared: where public labelled rows came from, in words for the certificate.
        rows: CSV file of public labelled rows.
        sha256: of that file's bytes, hexadecimal.
        noise, tau: settings of `BetaCalibration`; None: its own defaults.
    """

    step: ClassVar[str] = "beta_calibrate"
    source: str = "public"
    a: float | None = None
    b: float | None = None
    c: float | None = None
    limit: float | None = None
    declared: str = ""
    rows: str | None = None
    sha256: str | None = None
    noise: NoiseKind | None = None
    tau: float | None = None

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is out of range, missing, or of the other source."""
        if self.source not in ("public", "private"):
            raise SpecError("post_processing.beta_calibrate.source: expected public or private")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None:
                found = _number(f"beta_calibrate.{name}", value, low=low, high=high)
                object.__setattr__(self, name, found)
        if self.limit is None:
            object.__setattr__(self, "limit", 2.0 if self.source == "private" else 5.0)
        for name in ("declared", "rows", "sha256"):
            value = getattr(self, name)
            if not isinstance(value, str) and (name == "declared" or value is not None):
                raise SpecError(f"post_processing.beta_calibrate.{name}: expected text")
        if self.noise is not None:
            object.__setattr__(self, "noise", _noise(self.noise))
        self._check_source()

    def _check_source(self) -> None:
        foreign = ("noise", "tau") if self.source == "public" else ("declared", "rows", "sha256")
        for name in foreign:
            if getattr(self, name):
                raise SpecError(
                    f"post_processing.beta_calibrate.{name}: not with source {self.source}"
                )
        given = [getattr(self, name) is not None for name in "abc"]
        if self.source == "public" and not (self.declared and (all(given) or self.rows)):
            raise SpecError(
                "post_processing.beta_calibrate: with source public expected a, b, c and"
                " `declared`, where the labelled rows came from; or `rows`, a file, and `declared`"
            )
        if any(given) and not all(given):
            raise SpecError("post_processing.beta_calibrate: expected all of a, b, c or none")

    @property
    def bound(self) -> float:
        """`limit`, which always has a value."""
        assert self.limit is not None
        return self.limit

    @property
    def map(self) -> tuple[float, float, float]:
        """(a, b, c); UncalibratedError while they have not been drawn or fitted."""
        if self.a is None or self.b is None or self.c is None:
            how = "drawn" if self.source == "private" else "fitted"
            raise UncalibratedError(
                f"beta_calibrate: its {self.source} calibration has not been {how}"
            )
        return self.a, self.b, self.c

    @property
    def text(self) -> str:
        """For the certificate."""
        private = self.source == "private"
        origin = "a private stage of its own" if private else self.declared
        if self.a is None:
            return f"beta calibration by {origin}" if private else f"beta calibration on {origin}"
        return f"beta calibration (a={self.a:.4g}, b={self.b:.4g}, c={self.c:.4g}; {origin})"


_RANGES = (
    ("a", -1e6, 1e6), ("b", -1e6, 1e6), ("c", -1e6, 1e6), ("limit", 0, 50), ("tau", 0, 1),
)  # fmt: skip


def _noise(value: object) -> NoiseKind:
    kinds = [kind.value for kind in NoiseKind]
    if not isinstance(value, NoiseKind) and value not in kinds:
        raise SpecError(f"post_processing.beta_calibrate.noise: expected one of {', '.join(kinds)}")
    return NoiseKind(value)


@dataclass(frozen=True, kw_only=True)
class Temper:
    """The ratio to the power of a public constant alpha in (0, 1].

    It changes what is estimated: the target lies between the synthetic law (alpha = 0) and the
    real one (1). Debiasing uses the factor at alpha x, not a power of the factor at x (METHOD
    section 7: mean 0.9998 against 0.932).
    """

    step: ClassVar[str] = "temper"
    alpha: float

    def __post_init__(self) -> None:
        """Raises SpecError: alpha is no number in (0, 1]."""
        object.__setattr__(self, "alpha", _number("temper.alpha", self.alpha, low=0, high=1))

    @property
    def text(self) -> str:
        """For the certificate."""
        return f"temper to the power {self.alpha:g}"


@dataclass(frozen=True, kw_only=True)
class ParetoSmooth:
    """Pareto smoothing of the largest weights; see `dpiw.smoothing`."""

    step: ClassVar[str] = "pareto_smooth"

    @property
    def text(self) -> str:
        """For the certificate."""
        return "Pareto-smooth the largest weights"


@dataclass(frozen=True, kw_only=True)
class Clip:
    """Weights above `at` times the mean weight are set to it. A public constant above 1."""

    step: ClassVar[str] = "clip"
    at: float

    def __post_init__(self) -> None:
        """Raises SpecError: `at` is no number above 1."""
        object.__setattr__(self, "at", _number("clip.at", self.at, low=1, high=1e9))

    @property
    def text(self) -> str:
        """For the certificate."""
        return f"clip at {self.at:g} times the mean weight"


@dataclass(frozen=True, kw_only=True)
class SelfNormalise:
    """Mean weight one. Done anyway under `normalisation: self`; refused under `unnormalised`."""

    step: ClassVar[str] = "self_normalise"

    @property
    def text(self) -> str:
        """For the certificate."""
        return "self-normalise"


@dataclass(frozen=True, kw_only=True)
class Resample:
    """`rows` rows redrawn by weight; the weights are then one. See `Scheme`."""

    step: ClassVar[str] = "resample"
    rows: int
    scheme: Scheme = Scheme.SYSTEMATIC

    def __post_init__(self) -> None:
        """Raises SpecError: rows is no whole number >= 1, or the scheme is unknown."""
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise SpecError("post_processing.resample.rows: expected a whole number >= 1")
        known = [scheme.value for scheme in Scheme]
        if not isinstance(self.scheme, Scheme) and self.scheme not in known:
            raise SpecError(f"post_processing.resample.scheme: expected one of {', '.join(known)}")
        object.__setattr__(self, "scheme", Scheme(self.scheme))

    @property
    def text(self) -> str:
        """For the certificate."""
        return f"resample {self.rows} rows by weight ({self.scheme.value}); weights are one"


Step = BetaCalibrate | Temper | ParetoSmooth | Clip | SelfNormalise | Resample

STEPS: tuple[type[Step], ...] = (
    BetaCalibrate,
    Temper,
    ParetoSmooth,
    Clip,
    SelfNormalise,
    Resample,
)
"""Every step, in the only order."""

ORDER = ", ".join(kind.step for kind in STEPS)


@dataclass(frozen=True, kw_only=True)
class PostProcessing:
    """Steps in the order of `STEPS`, each at most once; none by default."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Raises SpecError: a step twice, or out of order."""
        ranks = [STEPS.index(type(step)) for step in self.steps]
        if any(later <= earlier for earlier, later in itertools.pairwise(ranks)):
            given = ", ".join(step.step for step in self.steps)
            raise SpecError(
                f"post_processing: {given}: expected the order {ORDER}, each at most once"
            )

    def check(self, *, self_normalised: bool) -> None:
        """Refuse steps that contradict the release's normalisation.

        Raises:
            SpecError: `self_normalise`, `resample` or a calibration on public rows, whose number
                says nothing, with unnormalised weights: their scale is what they are published
                for.
        """
        for step in self.steps:
            public = isinstance(step, BetaCalibrate) and step.source == "public"
            if not self_normalised and (public or isinstance(step, SelfNormalise | Resample)):
                raise SpecError(
                    f"post_processing.{step.step}: loses the scale that weights.normalisation:"
                    " unnormalised keeps; remove one of the two"
                )

    @property
    def calibrate(self) -> BetaCalibrate | None:
        """The beta calibration, if any."""
        return next((step for step in self.steps if isinstance(step, BetaCalibrate)), None)

    @property
    def resample(self) -> Resample | None:
        """The resampling, if any."""
        return next((step for step in self.steps if isinstance(step, Resample)), None)

    @property
    def needs_private_stage(self) -> bool:
        """Whether a plan must reserve and draw a `BetaCalibration` for these steps."""
        found = self.calibrate
        return found is not None and found.source == "private"

    def with_calibration(self, a: float, b: float, c: float, *, limit: float) -> PostProcessing:
        """The same steps with the numbers that were drawn or fitted."""
        return PostProcessing(
            steps=tuple(
                replace(step, a=a, b=b, c=c, limit=limit)
                if isinstance(step, BetaCalibrate)
                else step
                for step in self.steps
            )
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """One public sentence per step."""
        return tuple(step.text for step in self.steps)

    def to_json(self) -> list[dict[str, Any]]:
        """JSON values; `parse_post_processing` reads them back."""
        return [_to_json(step) for step in self.steps]

    @classmethod
    def from_json(cls, value: Sequence[Mapping[str, Any]]) -> PostProcessing:
        """Read what `to_json` wrote."""
        return parse_post_processing(value)


def _to_json(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {"step": step.step}
    for name in (field.name for field in fields(step)):
        value = getattr(step, name)
        if value is not None:
            found[name] = value.value if isinstance(value, enum.Enum) else value
    return found


def _step(value: object) -> Step:
    kinds = {kind.step: kind for kind in STEPS}
    name = value.get("step") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str) or name not in kinds:
        raise SpecError(f"post_processing: expected mappings with `step`, one of {ORDER}")
    kind = kinds[name]
    settings = {key: given for key, given in value.items() if key != "step"}
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(str(name) for name in set(settings) - set(known))
    if unknown:
        told = ", ".join(known) or "none"
        raise SpecError(f"post_processing.{kind.step}.{unknown[0]}: unknown (known: {told})")
    for key, field in known.items():
        if field.default is MISSING and key not in settings:
            raise SpecError(f"post_processing.{kind.step}.{key}: missing")
    return kind(**settings)


def parse_post_processing(value: object) -> PostProcessing:
    """Steps from a spec's list of mappings: `[{step: temper, alpha: 0.5}, {step: clip, at: 20}]`.

    Raises:
        SpecError: not a list of known steps in their order, or a setting is missing, unknown or
            out of range. Numbers may be decimals.
    """
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise SpecError("post_processing: expected a list of steps")
    return PostProcessing(steps=tuple(_step(item) for item in value))
