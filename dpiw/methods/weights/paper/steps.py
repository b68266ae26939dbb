"""The named steps between a released ratio and the published weights: free, public, recorded.

The order is fixed: steps on the ratio before debiasing, whose factor must know them; a tail is
fitted before it is cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, UncalibratedError, WeightError, one_of
from dpiw.methods.base import own_settings, real, whole
from dpiw.methods.weights.diagnostics import fit_generalised_pareto, k_hat, tail_length
from dpiw.methods.weights.paper.regression import CONSTANT, Regression, sigmoid, solve
from dpiw.methods.weights.weigh import normalised
from dpiw.privacy.units import NoiseLaw

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """A log ratio at some rows, and how noise enters it.

    Attributes:
        log_ratio: shape (n,), natural log, up to a constant, not debiased.
        features: shape (n, d'); noise z of the law adds z.features.
        factor: argument of b, unnormalised and self-normalised; None: no factor.
    """

    log_ratio: Array
    features: Array
    law: NoiseLaw | None
    factor: tuple[str, str] | None = ("x", "x - mu")
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of post-processing."""

    step: ClassVar[str]
    line: ClassVar[str]
    """The certificate's line, with the settings as `{0.name}`."""
    rescales: ClassVar[bool] = False
    """Whether it loses the weights' scale."""
    files: ClassVar[tuple[str, ...]] = ()
    """Settings that are paths of files: where one lies is no promise, its SHA-256 is."""
    set_later: ClassVar[frozenset[str]] = frozenset()
    """Fields that no spec may hold."""
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Settings that went, with their values that change nothing (`own_settings`)."""

    @property
    def text(self) -> str:
        """The line in the certificate."""
        return self.line.format(self)

    def on_ratio(self, scored: Scored) -> Scored:
        """The log ratio rewritten, with the step's text; as it is if this is no step on ratios."""
        return scored

    def on_log_weights(self, log_weights: Array) -> Array | None:
        """Log weights reshaped; None if this is no step on weights."""
        return None


_SETTINGS = "weights.post_processing"


def _set_real(step: Step, name: str, *, above: float, at_most: float) -> None:
    value = getattr(step, name)
    number = real(f"{_SETTINGS}.{step.step}.{name}", value, above=above, at_most=at_most)
    object.__setattr__(step, name, number)


Map = tuple[float, float, float]
"""a, b, c of a beta calibration: a log s - b log(1-s) + c, s = sigmoid(u), u the log ratio."""


def _middle(limit: float) -> float:
    """The middle of -log s over u in [-limit, limit]."""
    return limit / 2 + math.log1p(math.exp(-limit))


def calibration_features(log_ratio: Array, limit: float) -> Array:
    """Features in which a calibration is linear, shape (n, 3); u is clipped to +-limit first."""
    clipped = np.clip(log_ratio, -limit, limit)
    first = (_middle(limit) - np.logaddexp(0, -clipped)) / limit
    second = (np.logaddexp(0, clipped) - _middle(limit)) / limit
    return np.column_stack([first, second, np.full(clipped.size, CONSTANT)])


def to_map(coefficients: Array, limit: float) -> Map:
    """The map of coefficients on `calibration_features`."""
    a, b = float(coefficients[0] / limit), float(coefficients[1] / limit)
    return a, b, float(coefficients[2] * CONSTANT + (a - b) * _middle(limit))


def calibrated(log_ratio: Array, map_: Map, limit: float) -> Array:
    """The calibrated log ratio, shape (n,)."""
    u, (a, b, c) = np.clip(log_ratio, -limit, limit), map_
    return np.asarray(b * np.logaddexp(0, u) - a * np.logaddexp(0, -u) + c)


def calibration_slope(log_ratio: Array, map_: Map, limit: float) -> Array:
    """d(calibrated)/d(log ratio), shape (n,): a (1-s) + b s inside the limit, 0 outside."""
    share = sigmoid(log_ratio)
    a, b, _ = map_
    return np.where(np.abs(log_ratio) < limit, a * (1 - share) + b * share, 0.0)


def fit_calibration(real_rows: Array, synthetic_rows: Array, *, limit: float) -> Map:
    """The map fitted to log ratios of public labelled rows, not those of the ratio's own fit; free.

    Negative coefficients are set to zero, the others fitted again (Kull et al. 2017, section 3.2).

    Raises:
        WeightError: one of the classes has no rows.
    """
    if real_rows.size == 0 or synthetic_rows.size == 0:
        allowed = "at least one public row, and one synthetic row"
        raise WeightError(field="beta calibration", allowed=allowed)
    ones = calibration_features(real_rows, limit)
    zeros = calibration_features(synthetic_rows, limit)
    unchanged = np.array([limit, limit, 0.0])  # a = b = 1, c = 0
    free = np.ones(unchanged.size, dtype=bool)
    for _ in range(2):
        problem = Regression(
            private=ones[:, free],
            synthetic=zeros[:, free],
            synthetic_weight=len(ones) / len(zeros),
            penalty=1e-4 * len(ones),  # keeps a separable sample finite; pulls to no change
            centre=unchanged[free],
        )
        coefficients = np.zeros(unchanged.size)
        coefficients[free] = solve(problem, tolerance=1e-8 * len(ones))
        negative = coefficients < 0
        negative[2] = False
        if not negative.any():
            break
        free &= ~negative
    coefficients[:2] = np.maximum(coefficients[:2], 0.0)
    return to_map(coefficients, limit)


@dataclass(frozen=True, kw_only=True)
class BetaCalibrate(Step):
    """The calibrated log ratio a log s - b log(1-s) + c, s = sigmoid(u), u the ratio's log.

    Attributes:
        declared: where the public labelled rows came from, for the certificate.
        rows, sha256: CSV file of these rows, and its bytes' digest, hexadecimal.
        source: `public`, the only one.
        limit: u is clipped to [-limit, limit] first.
        map: a, b, c, once they are fitted; a = b = 1 and c = 0 change nothing.
    """

    step: ClassVar[str] = "beta_calibrate"
    rescales: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("rows",)
    set_later: ClassVar[frozenset[str]] = frozenset({"map"})
    declared: str
    rows: str
    source: str = "public"
    limit: float = 5.0
    sha256: str | None = None
    map: Map | None = None

    def __post_init__(self) -> None:
        field = f"{_SETTINGS}.{self.step}"
        if self.source != "public":
            raise SpecError(
                field=f"{field}.source",
                allowed="public (the word), because these rows are read without privacy noise",
            )
        for name in ("declared", "rows", "sha256"):
            value = getattr(self, name)
            if not isinstance(value, str) and (name != "sha256" or value is not None):
                raise SpecError(field=f"{field}.{name}", allowed="text")
        _set_real(self, "limit", above=0, at_most=50)
        if not self.declared.strip() or not self.rows:
            raise SpecError(
                field=field, allowed="`rows`, a file, and `declared`, where its rows came from"
            )

    @property
    def text(self) -> str:
        """The line in the certificate."""
        if self.map is None:
            return f"beta calibration on {self.declared}"
        a, b, c = self.map
        return f"beta calibration (a={a:.4g}, b={b:.4g}, c={c:.4g}; {self.declared})"

    def on_ratio(self, scored: Scored) -> Scored:
        """The log ratio through the map, fitted to the noisy ratio: no debiasing factor is left.

        UncalibratedError while the map has not been fitted.
        """
        if self.map is None:
            raise UncalibratedError("call `with_calibration` first", field="beta_calibrate")
        u = scored.log_ratio
        return replace(
            scored,
            log_ratio=calibrated(u, self.map, self.limit),
            features=calibration_slope(u, self.map, self.limit)[:, None] * scored.features,
            factor=None,
            texts=(*scored.texts, self.text),
        )


@dataclass(frozen=True, kw_only=True)
class Temper(Step):
    """The ratio to the power alpha in (0, 1]; debiased at alpha x (docs/method.md section 11)."""

    step: ClassVar[str] = "temper"
    line: ClassVar[str] = "temper to the power {0.alpha:g}"
    alpha: float

    def __post_init__(self) -> None:
        _set_real(self, "alpha", above=0, at_most=1)

    def on_ratio(self, scored: Scored) -> Scored:
        """To the power alpha: the same noise on features alpha x."""
        return replace(
            scored,
            log_ratio=self.alpha * scored.log_ratio,
            features=self.alpha * scored.features,
            factor=scored.factor and ("alpha x", "alpha (x - mu)"),
            texts=(*scored.texts, self.text),
        )


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
    log_survival = np.log1p(-(np.arange(tail.size) + 0.5) / tail.size)
    # Quantiles of the fitted law at evenly spaced shares.
    powers = -log_survival if shape == 0 else np.expm1(-shape * log_survival)
    smoothed = cutoff + scale * powers / (shape or 1.0)
    result = log_weights.copy()
    result[tail] = top + np.log(np.minimum(smoothed, 1.0))
    return result, k


@dataclass(frozen=True, kw_only=True)
class ParetoSmooth(Step):
    """Pareto smoothing of the largest weights; see `pareto_smooth`."""

    step: ClassVar[str] = "pareto_smooth"
    line: ClassVar[str] = "Pareto-smooth the largest weights"

    def on_log_weights(self, log_weights: Array) -> Array:
        """The largest replaced by quantiles of a fitted tail."""
        return pareto_smooth(log_weights)[0]


@dataclass(frozen=True, kw_only=True)
class Clip(Step):
    """Weights above `at` times the mean weight are set to it. A public constant above 1."""

    step: ClassVar[str] = "clip"
    line: ClassVar[str] = "clip at {0.at:g} times the mean weight"
    at: float

    def __post_init__(self) -> None:
        _set_real(self, "at", above=1, at_most=1e9)

    def on_log_weights(self, log_weights: Array) -> Array:
        """The largest cut."""
        mean = log_weights - normalised(log_weights)  # the log of the mean weight, row by row
        return np.asarray(np.minimum(log_weights, mean + np.log(self.at)))


@dataclass(frozen=True, kw_only=True)
class SelfNormalise(Step):
    """Mean weight one. Done anyway under `normalisation: self`; refused under `unnormalised`."""

    step: ClassVar[str] = "self_normalise"
    line: ClassVar[str] = "self-normalise"
    rescales: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Resample(Step):
    """`rows` rows redrawn by weight, evenly spaced; the weights are then one."""

    step: ClassVar[str] = "resample"
    line: ClassVar[str] = "resample {0.rows} rows by weight (systematic); weights are one"
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"scheme": ("systematic",)}
    rescales: ClassVar[bool] = True
    rows: int

    def __post_init__(self) -> None:
        whole(f"{_SETTINGS}.resample.rows", self.rows, low=1, high=10**9)


STEPS = (BetaCalibrate, Temper, ParetoSmooth, Clip, SelfNormalise, Resample)
"""Every step, in the only order."""

_KINDS: Mapping[str, type[Step]] = {kind.step: kind for kind in STEPS}


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
                f"{names}: expected the order {', '.join(_KINDS)}, each at most once",
                field=_SETTINGS,
            )

    def check(self, *, self_normalised: bool) -> None:
        """Raise SpecError for steps that lose the scale of unnormalised weights."""
        for step in self.steps:
            if step.rescales and not self_normalised:
                raise SpecError(
                    "loses the scale that weights.normalisation: unnormalised keeps; remove this"
                    " step, or the normalisation",
                    field=f"{_SETTINGS}.{step.step}",
                )

    @property
    def calibrate(self) -> BetaCalibrate | None:
        """The beta calibration, if any."""
        return next((step for step in self.steps if isinstance(step, BetaCalibrate)), None)

    @property
    def resample(self) -> Resample | None:
        """The resampling, if any."""
        return next((step for step in self.steps if isinstance(step, Resample)), None)

    def with_calibration(self, fitted: Map) -> PostProcessing:
        """The same steps with the numbers that were fitted."""
        steps = (
            replace(step, map=fitted) if isinstance(step, BetaCalibrate) else step
            for step in self.steps
        )
        return PostProcessing(steps=tuple(steps))


def _step(value: object) -> Step:
    name = value.get("step") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str) or name not in _KINDS:
        raise SpecError(
            field=_SETTINGS,
            allowed="a list of mappings, each with a field `step`; step: expected "
            f"{one_of(name, _KINDS)}",
        )
    kind, place = _KINDS[name], f"{_SETTINGS}.{name}"
    settings = {key: value[key] for key in sorted(value, key=str) if key != "step"}
    return kind(**own_settings(kind, settings, field=place, name=name))


def parse_post_processing(value: object) -> PostProcessing:
    """Steps from a spec's list, `[{step: clip, at: 20}]`, in their order, or SpecError."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise SpecError(field=_SETTINGS, allowed="a list of steps")
    return PostProcessing(steps=tuple(_step(item) for item in value))
