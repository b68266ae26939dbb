"""Each named step of post-processing: its settings, its text, what it does.

`dpiw.methods.weights.post_processing` has their order, and the spec's words for them.
"""

from __future__ import annotations

import abc
import contextlib
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.weights.beta_map import CalibratedRatio, TemperedRatio, to_coefficients
from dpiw.methods.weights.debiasing import normalised
from dpiw.methods.weights.density_ratio import DensityRatio
from dpiw.methods.weights.resampling import Resampling
from dpiw.methods.weights.smoothing import pareto_smooth

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Step(abc.ABC):
    """One step; what it does not act on, it leaves alone."""

    step: ClassVar[str]
    rescales: ClassVar[bool] = False
    """Whether it loses the weights' scale."""
    files: ClassVar[tuple[str, ...]] = ()
    """Settings that are paths of files: where one lies is no promise, its SHA-256 is."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """For the certificate."""

    def on_ratio(self, ratio: DensityRatio) -> DensityRatio | None:
        """The ratio rewritten; None if this is no step on ratios."""
        return None

    def on_log_weights(self, log_weights: Array) -> Array | None:
        """Log weights reshaped; None if this is no step on weights."""
        return None


def _number(name: str, value: object, *, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise SpecError(f"weights.post_processing.{name}: expected a number")
    number = math.inf
    with contextlib.suppress(OverflowError):  # a whole number of more than 308 digits
        number = float(value)
    if not low < number <= high:
        raise SpecError(
            f"weights.post_processing.{name}={number:g}: expected above {low:g}, at most {high:g}"
        )
    return number


@dataclass(frozen=True, kw_only=True)
class BetaCalibrate(Step):
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
    rescales: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("rows",)
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
            raise SpecError("weights.post_processing.beta_calibrate.source: expected public")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None or name == "limit":
                number = _number(f"beta_calibrate.{name}", value, low=low, high=high)
                object.__setattr__(self, name, number)
        for name in ("declared", "rows", "sha256"):
            value = getattr(self, name)
            if not isinstance(value, str) and (name == "declared" or value is not None):
                raise SpecError(f"weights.post_processing.beta_calibrate.{name}: expected text")
        is_given = [getattr(self, name) is not None for name in "abc"]
        if not (self.declared and (all(is_given) or self.rows)):
            raise SpecError(
                "weights.post_processing.beta_calibrate: expected a, b, c and `declared`, where the"
                " labelled rows came from; or `rows`, a file, and `declared`"
            )
        if any(is_given) and not all(is_given):
            raise SpecError(
                "weights.post_processing.beta_calibrate: expected all of a, b, c or none"
            )

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

    def on_ratio(self, ratio: DensityRatio) -> CalibratedRatio:
        """Seen through the map; UncalibratedError while it has not been fitted."""
        fitted = to_coefficients(*self.map, self.limit)
        return CalibratedRatio(base=ratio, coefficients=fitted, limit=self.limit)


_RANGES = (("a", -1e6, 1e6), ("b", -1e6, 1e6), ("c", -1e6, 1e6), ("limit", 0, 50))


@dataclass(frozen=True, kw_only=True)
class Temper(Step):
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

    def on_ratio(self, ratio: DensityRatio) -> TemperedRatio:
        """To the power alpha."""
        return TemperedRatio(base=ratio, alpha=self.alpha)


@dataclass(frozen=True, kw_only=True)
class ParetoSmooth(Step):
    """Pareto smoothing of the largest weights; see `dpiw.methods.weights.smoothing`."""

    step: ClassVar[str] = "pareto_smooth"

    @property
    def text(self) -> str:
        """For the certificate."""
        return "Pareto-smooth the largest weights"

    def on_log_weights(self, log_weights: Array) -> Array:
        """The largest replaced by quantiles of a fitted tail."""
        return pareto_smooth(log_weights)[0]


@dataclass(frozen=True, kw_only=True)
class Clip(Step):
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

    def on_log_weights(self, log_weights: Array) -> Array:
        """The largest cut."""
        mean = log_weights - normalised(log_weights)  # the log of the mean weight, row by row
        return np.asarray(np.minimum(log_weights, mean + np.log(self.at)))


@dataclass(frozen=True, kw_only=True)
class SelfNormalise(Step):
    """Mean weight one. Done anyway under `normalisation: self`; refused under `unnormalised`."""

    step: ClassVar[str] = "self_normalise"
    rescales: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """For the certificate."""
        return "self-normalise"


@dataclass(frozen=True, kw_only=True)
class Resample(Step):
    """`rows` rows redrawn by weight; the weights are then one. See `Resampling`."""

    step: ClassVar[str] = "resample"
    rescales: ClassVar[bool] = True
    rows: int
    scheme: Resampling = Resampling.SYSTEMATIC

    def __post_init__(self) -> None:
        """Raises SpecError: rows is no whole number >= 1, or the scheme is unknown."""
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise SpecError("weights.post_processing.resample.rows: expected a whole number >= 1")
        schemes = [scheme.value for scheme in Resampling]
        if not isinstance(self.scheme, Resampling) and self.scheme not in schemes:
            raise SpecError(
                f"weights.post_processing.resample.scheme: expected one of {', '.join(schemes)}"
            )
        object.__setattr__(self, "scheme", Resampling(self.scheme))

    @property
    def text(self) -> str:
        """For the certificate."""
        return f"resample {self.rows} rows by weight ({self.scheme.value}); weights are one"
