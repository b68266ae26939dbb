"""From a released density ratio to the weights of the synthetic rows: post-processing, free."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.base import (
    Normalisation,
    SampledRows,
    Weighing,
    WeightEstimator,
)
from dpiw.methods.weights.debiasing import (
    debias_self_normalised,
    debias_unnormalised,
    log_weight_noise,
    normalised,
    weighted_centre,
)
from dpiw.methods.weights.density_ratio import DensityRatio
from dpiw.methods.weights.diagnostics import Diagnostics, Signal, Verdict, diagnose
from dpiw.methods.weights.post_processing import (
    PostProcessing,
    SelfNormalise,
    parse_post_processing,
)
from dpiw.methods.weights.resampling import resample
from dpiw.privacy.units import NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.schema import PublicSchema
    from dpiw.data.tables import SyntheticTable
    from dpiw.privacy.measurement import Measurement

__all__ = [
    "Normalisation",
    "PostProcessing",
    "RatioEstimator",
    "Weighing",
    "Weights",
    "parse_post_processing",
    "uniform_weights",
    "weigh",
]

Array = NDArray[np.float64]

MOST_NOISE, LEAST_RESOLUTION, MOST_P_VALUE = 0.5, 0.25, 0.03

RULE = (
    " Weights of the paper's methods are reference implementations, and `use with care` at best;"
    " do not use: log-weight noise > 0.5, resolution < 0.25, or signal test p > 0.03. Signal test:"
    " how many of R draws of privacy noise and sampling error, as if real and synthetic rows had"
    " one law, vary at least as much over the published rows as the released log ratio; such"
    " weights pass it with probability 0.03. R is 999; of a network its trainings on synthetic"
    " rows alone. Noise: standard deviation of the privacy noise in a log weight (root mean square"
    " over rows, by weight). Resolution: public forecast of the share of the log ratio's variance"
    " that survives shrinkage."
)
"""What the verdict on a ratio's weights adds to that of `diagnostics`."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Importance weights of synthetic rows.

    Attributes:
        log_weights: shape (n,), natural log; mean weight one after self-normalisation; zeros
            after resampling.
        steps: what was done to the noisy log ratio, in order.
        law: law of the coefficient noise; None when the weights carry none, or one without law.
        noise: standard deviation of each log weight's privacy noise, shape (n,), or of fewer rows,
            evenly spaced: sigma norm(x - mu) after self-normalisation, sigma norm(x) before; of a
            network as its replays vary, and zero without replays. After resampling: of the log
            weight by which the row was drawn.
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


class RatioEstimator(WeightEstimator):
    """An estimator whose measurement is a density ratio that can be asked of any row."""

    @abc.abstractmethod
    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> DensityRatio:
        """Post-process a measurement into a density ratio. Costs nothing, repeatable."""

    def calibrated_on(
        self, measurement: Measurement, rows: SampledRows, weighing: Weighing
    ) -> tuple[DensityRatio, PostProcessing]:
        """The ratio to weigh by, and the steps; a calibration among them is fitted where it can."""
        schema = rows.weighed.schema
        return self.ratio(measurement, schema=schema), weighing.post_processing

    def weigh(
        self,
        measurement: Measurement,
        rows: SampledRows,
        weighing: Weighing,
        *,
        rng: np.random.Generator,
    ) -> Weights:
        """As `WeightEstimator.weigh`: `weigh` by the released ratio."""
        ratio, steps = self.calibrated_on(measurement, rows, weighing)
        return weigh(
            ratio,
            rows.weighed,
            debias=self.debias,
            normalisation=weighing.normalisation,
            resolution=weighing.resolution,
            post_processing=steps,
            rng=rng,
        )


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
    calibration there is no factor: it is in the ratio before it (`DebiasedRatio`), or left to the
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
        raise SpecError("weights.post_processing.resample: expected a random generator")
    final_ratio, reworded = _rewritten(ratio, steps)
    features, log_ratio = final_ratio.features(synthetic), final_ratio.log_ratio(synthetic)
    if log_ratio.size == 0:
        raise WeightError("weights: expected at least one synthetic row")
    raw, debiased = _debiased(final_ratio, log_ratio, features, debias, normalisation)
    final, reshaped = _reshaped(raw, steps, normalisation)
    parts = final_ratio.noise_parts(synthetic)
    noise, signal = _noise(parts, log_ratio, normalisation), ratio.signal(synthetic)
    weights = Weights(
        log_weights=final,
        steps=(*reworded, *debiased, *reshaped),
        law=final_ratio.law and next((law for law, _ in parts if law.scale > 0), None),
        noise=noise,
        diagnostics=_judged(
            diagnose(final, raw=raw),
            final,
            noise=noise if final_ratio.law is not None or signal is not None else None,
            resolution=resolution,
            signal=signal,
        ),
    )
    return weights if rng is None else _resampled(weights, steps, rng)


def _judged(
    stable: Diagnostics,
    log_weights: Array,
    *,
    noise: Array | None,
    resolution: float | None,
    signal: Signal | None,
) -> Diagnostics:
    """The verdict by `RULE`.

    Args:
        stable: of the published weights.
        log_weights: they, shape (n,).
        noise: standard deviation of each one's privacy noise, shape (n,); None: nothing is known
            of it.
        resolution: the plan's forecast; None without one.
        signal: None: the ratio was compared with nothing.
    """
    findings = [
        (Verdict.CARE, "a reference implementation; weights.method: measured is recommended")
    ]
    mean_noise = None
    if noise is None:
        findings.append((Verdict.CARE, "neither signal nor noise was assessed"))
    else:
        shares = np.exp(log_weights - log_weights.max())
        mean_noise = math.sqrt(np.average(noise**2, weights=shares))
        if mean_noise > MOST_NOISE:
            text = f"log-weight noise {mean_noise:.2f} (expected <= {MOST_NOISE:g})"
            findings.append((Verdict.DO_NOT_USE, text))
    if resolution is not None and resolution < LEAST_RESOLUTION:
        text = f"resolution {resolution:.2f} (expected >= {LEAST_RESOLUTION:g})"
        findings.append((Verdict.DO_NOT_USE, text))
    if signal is not None and signal.p_value > MOST_P_VALUE:
        text = (
            "the log ratio varies no more than chance alone could make it (signal test p"
            f" {signal.p_value:.2g}, expected <= {MOST_P_VALUE:g})"
        )
        findings.append((Verdict.DO_NOT_USE, text))
    known = replace(stable, noise=mean_noise, resolution=resolution, signal=signal)
    return known.judged_with(findings, rule=RULE)


def _rewritten(ratio: DensityRatio, steps: PostProcessing) -> tuple[DensityRatio, tuple[str, ...]]:
    """The ratio after the steps that act on it, and their texts."""
    texts = [*ratio.texts]
    for step in steps.steps:
        rewritten = step.on_ratio(ratio)
        if rewritten is not None:
            ratio = rewritten
            texts.append(step.text)
    return ratio, tuple(texts)


def _debiased(
    ratio: DensityRatio,
    log_ratio: Array,
    features: Array,
    debias: bool,
    normalisation: Normalisation,
) -> tuple[Array, tuple[str, ...]]:
    """Log weights without the noise's mean effect. Of a tempered ratio the features are alpha x."""
    law, (plain, centred) = ratio.law, ratio.argument
    self_normalised = normalisation is Normalisation.SELF
    if not debias or law is None or law.scale == 0:
        return normalised(log_ratio) if self_normalised else log_ratio, ()
    if not self_normalised:
        return debias_unnormalised(log_ratio, features, law), (f"debias b({plain})",)
    return debias_self_normalised(log_ratio, features, law)[0], (f"debias b({centred})",)


def _reshaped(
    raw: Array, steps: PostProcessing, normalisation: Normalisation
) -> tuple[Array, tuple[str, ...]]:
    """Log weights after the steps that act on them, and their texts."""
    log_weights, texts = raw, []
    for step in steps.steps:
        reshaped = step.on_log_weights(log_weights)
        if reshaped is not None:
            log_weights = reshaped
            texts.append(step.text)
    if normalisation is Normalisation.SELF:
        log_weights = normalised(log_weights)
        texts.append(SelfNormalise().text)
    return log_weights, tuple(texts)


def _noise(
    parts: list[tuple[NoiseLaw, Array]], log_ratio: Array, normalisation: Normalisation
) -> Array:
    total = np.zeros(log_ratio.size)
    for law, x in parts:
        self_normalised = normalisation is Normalisation.SELF
        centre = weighted_centre(log_ratio, x) if self_normalised else np.zeros(x.shape[1])
        total += log_weight_noise(law, x - centre) ** 2
    return np.asarray(np.sqrt(total))


def _resampled(weights: Weights, steps: PostProcessing, rng: np.random.Generator) -> Weights:
    step = steps.resample
    if step is None:
        return weights
    chosen = resample(weights.log_weights, step.rows, method=step.scheme, rng=rng)
    return Weights(
        log_weights=np.zeros(chosen.size),
        steps=(*weights.steps, step.text),
        law=weights.law,
        noise=weights.noise[chosen],
        diagnostics=weights.diagnostics,
        chosen=chosen,
    )
