"""From a released density ratio to the weights of the synthetic rows: post-processing, free."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.beta_map import (
    CalibratedRatio,
    DebiasedRatio,
    TemperedRatio,
    to_coefficients,
)
from dpiw.methods.weights.debiasing import (
    debias_self_normalised,
    debias_unnormalised,
    log_weight_noise,
    normalised,
    weighted_centre,
)
from dpiw.methods.weights.diagnostics import Diagnostics, diagnose
from dpiw.methods.weights.mlp_ratio import NetworkRatio
from dpiw.methods.weights.post_processing import (
    Clip,
    ParetoSmooth,
    PostProcessing,
    SelfNormalise,
    Temper,
    parse_post_processing,
)
from dpiw.methods.weights.resampling import resample_rows
from dpiw.methods.weights.signal import Signal, noise_test
from dpiw.methods.weights.smoothing import pareto_smooth
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.tables import SyntheticTable
    from dpiw.methods.weights.base import DensityRatio
    from dpiw.methods.weights.beta import BetaRatio

__all__ = [
    "Normalisation",
    "PostProcessing",
    "Weights",
    "parse_post_processing",
    "starting_ratio",
    "uniform_weights",
    "weigh",
]

Array = NDArray[np.float64]


class Normalisation(enum.Enum):
    """What the weights are scaled to.

    `SELF`: mean one; estimates are ratios, with a bias of second order. `UNNORMALISED`: as they
    are; debiased estimates are unbiased for those with the non-private weights.
    """

    SELF = "self"
    UNNORMALISED = "unnormalised"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Importance weights of synthetic rows.

    Attributes:
        log_weights: shape (n,), natural log; mean weight one after self-normalisation; zeros
            after resampling.
        steps: what was done to the noisy log ratio, in order.
        law: law of the coefficient noise; None when the weights carry none, or one without law.
        noise: shape (n,), standard deviation of each log weight's privacy noise:
            sigma norm(x - mu) after self-normalisation, sigma norm(x) before; of a network as its
            replays vary, and zero without replays. After resampling:
            of the log weight by which the row was drawn.
        diagnostics: effective sample size, k-hat, signal, verdict; of the weights before
            resampling.
        chosen: shape (n,), indices of the resampled rows in the table that was weighted,
            ascending, rows may repeat; None without resampling.
        facts: what else the certificate says of them, JSON values.
    """

    log_weights: Array
    steps: tuple[str, ...]
    law: NoiseLaw | None
    noise: Array
    diagnostics: Diagnostics
    chosen: NDArray[np.int64] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of weighted rows."""
        return int(self.log_weights.size)


def uniform_weights(rows: int) -> Weights:
    """Weight one for every row: always a legitimate outcome."""
    if rows < 1:
        raise WeightError("weights: expected at least one synthetic row")
    log_weights = np.zeros(rows)
    return Weights(
        log_weights=log_weights,
        steps=("none",),
        law=None,
        noise=np.zeros(rows),
        diagnostics=diagnose(log_weights),
    )


def starting_ratio(
    ratio: BetaRatio, fitting: SyntheticTable, *, debias: bool
) -> BetaRatio | DebiasedRatio:
    """What a beta calibration starts from: the ratio as its weights would be without one.

    Args:
        ratio: the released ratio.
        fitting: public rows that are not published; mu is the weighted mean of their features.
        debias: as for `weigh`.
    """
    if not debias:
        return ratio
    features = ratio.features(fitting)
    return DebiasedRatio(base=ratio, centre=weighted_centre(ratio.score(features), features))


def weigh(
    ratio: DensityRatio,
    synthetic: SyntheticTable,
    *,
    debias: bool,
    normalisation: Normalisation = Normalisation.SELF,
    resolution: float | None = None,
    post_processing: PostProcessing | None = None,
    rng: np.random.Generator | None = None,
) -> Weights:
    """Weight the rows of `synthetic` by a released ratio.

    Order: beta calibration, tempering, debiasing, Pareto smoothing, clipping, self-normalisation,
    resampling. Everything is computed from released values and public constants: free. After a
    calibration there is no factor: it is in the ratio before it (`starting_ratio`), or left to the
    calibration.

    Args:
        ratio: the ratio with the law of its noise; with a beta calibration, the ratio it was
            fitted on.
        synthetic: the rows to weight, public.
        debias: divide out the mean of the noise's exponential (`beta_debiased`) or not.
        normalisation: self-normalised or as they are.
        resolution: the plan's public forecast; enters the verdict when given.
        post_processing: named steps; none by default.
        rng: for `resample` alone; no privacy noise. The same state gives the same rows.

    Raises:
        WeightError: no rows, or the debiasing factor does not exist.
        SpecError: a step contradicts `normalisation`, or resampling without `rng`.
        UncalibratedError: a beta calibration was asked for and not fitted.
    """
    steps = PostProcessing() if post_processing is None else post_processing
    steps.check(self_normalised=normalisation is Normalisation.SELF)
    if steps.resample is not None and rng is None:
        raise SpecError("post_processing.resample: expected a random generator")
    whole, reworded = _rewritten(ratio, steps)
    features, log_ratio = whole.features(synthetic), whole.log_ratio(synthetic)
    if log_ratio.size == 0:
        raise WeightError("weights: expected at least one synthetic row")
    raw, debiased = _debiased(log_ratio, features, whole.law, debias, steps, normalisation)
    final, reshaped = _reshaped(raw, steps, normalisation)
    parts = _noise_parts(whole, synthetic)
    noise = _noise(parts, log_ratio, normalisation)
    signal = _signal(ratio, synthetic)
    assessed = whole.law is not None or signal is not None
    found = Weights(
        log_weights=final,
        steps=(*reworded, *debiased, *reshaped),
        law=whole.law and next((law for law, _ in parts if law.scale > 0), None),
        noise=noise,
        diagnostics=diagnose(
            final,
            noise=noise if assessed else None,
            resolution=resolution,
            raw=raw,
            signal=signal,
            assessed=assessed,
        ),
    )
    return found if rng is None else _resampled(found, steps, rng)


def _rewritten(ratio: DensityRatio, steps: PostProcessing) -> tuple[DensityRatio, tuple[str, ...]]:
    """The ratio after the steps that act on it, and their texts."""
    texts = []
    calibrate = steps.calibrate
    if calibrate is not None:
        texts += [ratio.text] if isinstance(ratio, DebiasedRatio) else []
        texts.append(calibrate.text)
        coefficients = to_coefficients(*calibrate.map, calibrate.limit)
        ratio = CalibratedRatio(base=ratio, coefficients=coefficients, limit=calibrate.limit)
    for step in steps.steps:
        if isinstance(step, Temper):
            texts.append(step.text)
            ratio = TemperedRatio(base=ratio, alpha=step.alpha)
    return ratio, tuple(texts)


def _debiased(
    log_ratio: Array,
    features: Array,
    law: NoiseLaw | None,
    debias: bool,
    steps: PostProcessing,
    normalisation: Normalisation,
) -> tuple[Array, tuple[str, ...]]:
    # The features of a tempered ratio are alpha x, so b(alpha x) and b(alpha (x - mu)) come out.
    tempered = any(isinstance(step, Temper) for step in steps.steps)
    if normalisation is Normalisation.UNNORMALISED:
        if not debias or law is None or law.scale == 0:
            return log_ratio, ()
        told = "debias b(alpha x)" if tempered else "debias b(x)"
        return debias_unnormalised(log_ratio, features, law), (told,)
    if not debias or law is None or law.scale == 0:
        return normalised(log_ratio), ()
    told = "debias b(alpha (x - mu))" if tempered else "debias b(x - mu)"
    return debias_self_normalised(log_ratio, features, law)[0], (told,)


def _reshaped(
    raw: Array, steps: PostProcessing, normalisation: Normalisation
) -> tuple[Array, tuple[str, ...]]:
    """Log weights after the steps that act on them, and their texts."""
    found, texts = raw, []
    for step in steps.steps:
        if isinstance(step, ParetoSmooth):
            found, _ = pareto_smooth(found)
            texts.append(step.text)
        elif isinstance(step, Clip):
            mean = found - normalised(found)  # the log of the mean weight, row by row
            found = np.minimum(found, mean + np.log(step.at))
            texts.append(step.text)
    if normalisation is Normalisation.SELF:
        found = normalised(found)
        texts.append(SelfNormalise().text)
    return found, tuple(texts)


def _noise_parts(ratio: DensityRatio, synthetic: SyntheticTable) -> list[tuple[NoiseLaw, Array]]:
    """Independent noises z and the features f with which z.f enters the log weights.

    Through a calibration the base's noise passes by its slope, to first order. The calibration
    has seen the base's noise and removes some of it; that is not subtracted.
    """
    if isinstance(ratio, NetworkRatio):  # no law: as the replays vary, sampling error included
        played = ratio.chance(synthetic)
        own = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=1.0, dimension=played.shape[1])
        return [(own, played / max(1, played.shape[1] - 1) ** 0.5)]
    if isinstance(ratio, TemperedRatio):
        return [(law, ratio.alpha * x) for law, x in _noise_parts(ratio.base, synthetic)]
    if isinstance(ratio, CalibratedRatio):
        slope = ratio.slope(synthetic)[:, None]
        return [(law, slope * x) for law, x in _noise_parts(ratio.base, synthetic)]
    return [] if ratio.law is None else [(ratio.law, ratio.features(synthetic))]


def _noise(
    parts: list[tuple[NoiseLaw, Array]], log_ratio: Array, normalisation: Normalisation
) -> Array:
    total = np.zeros(log_ratio.size)
    for law, x in parts:
        self_normalised = normalisation is Normalisation.SELF
        centre = weighted_centre(log_ratio, x) if self_normalised else np.zeros(x.shape[1])
        total += log_weight_noise(law, x - centre) ** 2
    return np.asarray(np.sqrt(total))


def _signal(ratio: DensityRatio, synthetic: SyntheticTable) -> Signal | None:
    """Asked of the released ratio itself: calibration and tempering add nothing to it."""
    if isinstance(ratio, CalibratedRatio | TemperedRatio):
        return _signal(ratio.base, synthetic)
    if isinstance(ratio, NetworkRatio):
        return ratio.signal(synthetic)
    if ratio.law is None or ratio.law.scale == 0:
        return None
    return noise_test(
        ratio.coefficients,
        ratio.features(synthetic),
        ratio.law,
        ratio.sampling_covariance(synthetic),
    )


def _resampled(weights: Weights, steps: PostProcessing, rng: np.random.Generator) -> Weights:
    step = steps.resample
    if step is None:
        return weights
    chosen = resample_rows(weights.log_weights, step.rows, scheme=step.scheme, rng=rng)
    return Weights(
        log_weights=np.zeros(chosen.size),
        steps=(*weights.steps, step.text),
        law=weights.law,
        noise=weights.noise[chosen],
        diagnostics=weights.diagnostics,
        chosen=chosen,
    )
