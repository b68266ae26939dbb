"""The named steps between a released ratio and the published weights: free, public, recorded.

    beta_calibrate   rewrites the ratio on its own scale (Kull et al. 2017)
    temper           raises it to a public power
    pareto_smooth    replaces the largest weights by quantiles of a fitted tail
    clip             cuts weights at a public multiple of their mean
    self_normalise   scales weights to mean one
    resample         redraws rows by weight; the weights are then one

They are applied in this order, each at most once, by `dpiw.methods.weights.weigh.weigh`. The first
two act on the log-linear ratio and come before debiasing, because the debiasing factor must know
them; a tail is fitted before it is cut, because a cut tail is none. Every step is a function of
released values and public constants, so it costs nothing; a beta calibration is fitted on declared
public rows (`dpiw.methods.weights.beta_map_fit`).
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
from dpiw.methods.weights.resampling import Scheme


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
        source: `public`, the only one: the numbers are fitted on public labelled rows, or chosen.
        a, b, c: the map; a = b = 1 and c = 0 change nothing. None until they are fitted.
        limit: public bound: u is clipped to [-limit, limit] first.
        declared: where public labelled rows came from, in words for the certificate.
        rows: CSV file of public labelled rows.
        sha256: of that file's bytes, hexadecimal.
    """

    step: ClassVar[str] = "beta_calibrate"
    source: str = "public"
    a: float | None = None
    b: float | None = None
    c: float | None = None
    limit: float = 5.0
    declared: str = ""
    rows: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is out of range or missing."""
        if self.source != "public":
            raise SpecError("post_processing.beta_calibrate.source: expected public")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None or name == "limit":
                found = _number(f"beta_calibrate.{name}", value, low=low, high=high)
                object.__setattr__(self, name, found)
        for name in ("declared", "rows", "sha256"):
            value = getattr(self, name)
            if not isinstance(value, str) and (name == "declared" or value is not None):
                raise SpecError(f"post_processing.beta_calibrate.{name}: expected text")
        given = [getattr(self, name) is not None for name in "abc"]
        if not (self.declared and (all(given) or self.rows)):
            raise SpecError(
                "post_processing.beta_calibrate: expected a, b, c and `declared`, where the"
                " labelled rows came from; or `rows`, a file, and `declared`"
            )
        if any(given) and not all(given):
            raise SpecError("post_processing.beta_calibrate: expected all of a, b, c or none")

    @property
    def map(self) -> tuple[float, float, float]:
        """(a, b, c); UncalibratedError while they have not been fitted."""
        if self.a is None or self.b is None or self.c is None:
            raise UncalibratedError("beta_calibrate: its calibration has not been fitted")
        return self.a, self.b, self.c

    @property
    def text(self) -> str:
        """For the certificate."""
        if self.a is None:
            return f"beta calibration on {self.declared}"
        return f"beta calibration (a={self.a:.4g}, b={self.b:.4g}, c={self.c:.4g}; {self.declared})"


_RANGES = (("a", -1e6, 1e6), ("b", -1e6, 1e6), ("c", -1e6, 1e6), ("limit", 0, 50))


@dataclass(frozen=True, kw_only=True)
class Temper:
    """The ratio to the power of a public constant alpha in (0, 1].

    It changes what is estimated: the target lies between the synthetic law (alpha = 0) and the
    real one (1). Debiasing uses the factor at alpha x, not a power of the factor at x
    (docs/method.md section 11: mean 0.9998 against 0.932).
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
    """Pareto smoothing of the largest weights; see `dpiw.methods.weights.smoothing`."""

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
            SpecError: `self_normalise`, `resample` or a beta calibration, whose number of public
                rows says nothing, with unnormalised weights: their scale is what they are
                published for.
        """
        for step in self.steps:
            rescales = isinstance(step, BetaCalibrate | SelfNormalise | Resample)
            if rescales and not self_normalised:
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

    def with_calibration(self, a: float, b: float, c: float) -> PostProcessing:
        """The same steps with the numbers that were fitted."""
        return PostProcessing(
            steps=tuple(
                replace(step, a=a, b=b, c=c) if isinstance(step, BetaCalibrate) else step
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
