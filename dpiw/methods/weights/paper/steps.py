"""The named steps between a released ratio and the published weights: free, public, recorded.

The order is fixed: steps on the ratio before debiasing, whose factor must know them; a tail is
fitted before it is cut.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, UncalibratedError, nearest, one_of
from dpiw.methods.weights.diagnostics import fit_generalised_pareto, k_hat, tail_length
from dpiw.methods.weights.paper.ratio import Scored, calibrated, calibration_slope
from dpiw.methods.weights.resampling import Resampling
from dpiw.methods.weights.weigh import normalised

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Step(abc.ABC):
    """One step of post-processing."""

    step: ClassVar[str]
    rescales: ClassVar[bool] = False
    """Whether it loses the weights' scale."""
    files: ClassVar[tuple[str, ...]] = ()
    """Settings that are paths of files: where one lies is no promise, its SHA-256 is."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The line in the certificate."""

    def on_ratio(self, scored: Scored) -> Scored | None:
        """The log ratio rewritten; None if this is no step on ratios."""
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
        limit: u is clipped to [-limit, limit] first.
        declared: where public labelled rows came from, for the certificate.
        rows, sha256: CSV file of public labelled rows, and its bytes' digest, hexadecimal.
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
        """The line in the certificate."""
        if self.a is None:
            return f"beta calibration on {self.declared}"
        return f"beta calibration (a={self.a:.4g}, b={self.b:.4g}, c={self.c:.4g}; {self.declared})"

    def on_ratio(self, scored: Scored) -> Scored:
        """The log ratio through the map, fitted to the noisy ratio: no debiasing factor is left."""
        u = scored.log_ratio
        return replace(
            scored,
            log_ratio=calibrated(u, self.map, self.limit),
            features=calibration_slope(u, self.map, self.limit)[:, None] * scored.features,
            factor=None,
        )


_RANGES = (("a", -1e6, 1e6), ("b", -1e6, 1e6), ("c", -1e6, 1e6), ("limit", 0, 50))


@dataclass(frozen=True, kw_only=True)
class Temper(Step):
    """The ratio to the power alpha in (0, 1]; debiased at alpha x (docs/method.md section 11)."""

    step: ClassVar[str] = "temper"
    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", _number("temper.alpha", self.alpha, low=0, high=1))

    @property
    def text(self) -> str:
        """The line in the certificate."""
        return f"temper to the power {self.alpha:g}"

    def on_ratio(self, scored: Scored) -> Scored:
        """To the power alpha: the same noise on features alpha x."""
        return replace(
            scored,
            log_ratio=self.alpha * scored.log_ratio,
            features=self.alpha * scored.features,
            factor=scored.factor and ("alpha x", "alpha (x - mu)"),
        )


def generalised_pareto_quantile(shares: Array, *, shape: float, scale: float) -> Array:
    """Quantiles of the generalised Pareto law on (0, infinity) at `shares` in (0, 1)."""
    if shape == 0:
        return np.asarray(-scale * np.log1p(-shares))
    return np.asarray(scale * np.expm1(-shape * np.log1p(-shares)) / shape)


def pareto_smooth(log_weights: Array) -> tuple[Array, float | None]:
    """Log weights, shape (n,), whose largest are quantiles of the fitted tail, and k-hat before.

    Unchanged where `k_hat` is None. Source: Vehtari et al. (2024), algorithm 1.

    Raises:
        WeightError: as `k_hat`.
    """
    k = k_hat(log_weights)
    if k is None:
        return log_weights, None
    top = float(log_weights.max())
    order = np.argsort(log_weights, kind="stable")
    tail = order[-tail_length(log_weights.size) :]
    cutoff = np.exp(log_weights[order[-tail.size - 1]] - top)
    excesses = np.exp(log_weights[tail] - top) - cutoff
    real = excesses > 1e-12  # ties with the cutoff stay as they are, as in `k_hat`
    tail, excesses = tail[real], excesses[real]
    shape, scale = fit_generalised_pareto(excesses)
    middle = (np.arange(tail.size) + 0.5) / tail.size
    smoothed = cutoff + generalised_pareto_quantile(middle, shape=shape, scale=scale)
    result = log_weights.copy()
    result[tail] = top + np.log(np.minimum(smoothed, 1.0))
    return result, k


@dataclass(frozen=True, kw_only=True)
class ParetoSmooth(Step):
    """Pareto smoothing of the largest weights; see `pareto_smooth`."""

    step: ClassVar[str] = "pareto_smooth"

    @property
    def text(self) -> str:
        """The line in the certificate."""
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
        object.__setattr__(self, "at", _number("clip.at", self.at, low=1, high=1e9))

    @property
    def text(self) -> str:
        """The line in the certificate."""
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
        """The line in the certificate."""
        return "self-normalise"


@dataclass(frozen=True, kw_only=True)
class Resample(Step):
    """`rows` rows redrawn by weight; the weights are then one. See `Resampling`."""

    step: ClassVar[str] = "resample"
    rescales: ClassVar[bool] = True
    rows: int
    scheme: Resampling = Resampling.SYSTEMATIC

    def __post_init__(self) -> None:
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
        """The line in the certificate."""
        return f"resample {self.rows} rows by weight ({self.scheme.value}); weights are one"


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


def files_of(step: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of a spec's step that are paths of files; none of an unknown step."""
    return next((kind.files for kind in STEPS if kind.step == step.get("step")), ())


@dataclass(frozen=True, kw_only=True)
class PostProcessing:
    """Steps in the order of `STEPS`, each at most once; none by default."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        ranks = [STEPS.index(type(step)) for step in self.steps]
        if any(later <= earlier for earlier, later in itertools.pairwise(ranks)):
            names = ", ".join(step.step for step in self.steps)
            raise SpecError(
                f"weights.post_processing: {names}: expected the order {ORDER}, each at most once"
            )

    def check(self, *, self_normalised: bool) -> None:
        """Raise SpecError for steps that lose the scale of unnormalised weights."""
        for step in self.steps:
            if step.rescales and not self_normalised:
                raise SpecError(
                    f"weights.post_processing.{step.step}: loses the scale that"
                    " weights.normalisation: unnormalised keeps; remove one of the two"
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


def _step(value: object) -> Step:
    kinds = {kind.step: kind for kind in STEPS}
    name = value.get("step") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str) or name not in kinds:
        raise SpecError(
            f"weights.post_processing: each a mapping with `step`; {one_of(name, kinds)}"
        )
    kind = kinds[name]
    settings = {key: setting for key, setting in value.items() if key != "step"}
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(str(name) for name in set(settings) - set(known))
    if unknown:
        hint = nearest(unknown[0], known) or f" (known: {', '.join(known) or 'none'})"
        raise SpecError(f"weights.post_processing.{kind.step}.{unknown[0]}: unknown{hint}")
    for key, field in known.items():
        if field.default is MISSING and key not in settings:
            raise SpecError(f"weights.post_processing.{kind.step}.{key}: missing")
    return kind(**settings)


def parse_post_processing(value: object) -> PostProcessing:
    """Steps from a spec's list, `[{step: clip, at: 20}]`, in their order, or SpecError."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise SpecError("weights.post_processing: expected a list of steps")
    return PostProcessing(steps=tuple(_step(item) for item in value))
