"""From a released density ratio to the weights of the synthetic rows: post-processing, free."""

from __future__ import annotations

import abc
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.base import Normalisation, SampledRows, Weighing, WeightEstimator
from dpiw.methods.weights.diagnostics import Diagnostics, Signal, Verdict, diagnose
from dpiw.methods.weights.paper.ratio import (
    DensityRatio,
    Scored,
    debias_self_normalised,
    debias_unnormalised,
    log_weight_noise,
    weighted_centre,
)
from dpiw.methods.weights.paper.steps import PostProcessing, SelfNormalise
from dpiw.methods.weights.resampling import resample
from dpiw.methods.weights.weigh import Weights, normalised

if TYPE_CHECKING:
    from dpiw.data.schema import PublicSchema
    from dpiw.data.tables import SyntheticTable
    from dpiw.privacy.measurement import Measurement

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


class RatioEstimator(WeightEstimator):
    """An estimator whose measurement is a density ratio, known at any row."""

    @abc.abstractmethod
    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> DensityRatio:
        """The density ratio of a measurement. Costs nothing, repeatable."""

    def calibrated_on(
        self, measurement: Measurement, rows: SampledRows, weighing: Weighing
    ) -> tuple[DensityRatio, PostProcessing]:
        """The ratio to weigh by, and the steps, with a calibration fitted if there is one."""
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
        """Weigh the rows by the released ratio."""
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
    """Weight the rows of `synthetic` by a released ratio; free.

    A beta-calibrated ratio, the one its calibration was fitted on, is not debiased again.
    `resolution` is the plan's public forecast. `rng`, for `resample` alone, draws no privacy noise.

    Raises:
        WeightError: no rows, or the debiasing factor does not exist.
        SpecError: a step contradicts `normalisation`, or resampling without `rng`.
        UncalibratedError: a beta calibration was asked for and not fitted.
    """
    steps = PostProcessing() if post_processing is None else post_processing
    steps.check(self_normalised=normalisation is Normalisation.SELF)
    if steps.resample is not None and rng is None:
        raise SpecError("weights.post_processing.resample: expected a random generator")
    scored = _rewritten(ratio.scored(synthetic), steps)
    if scored.log_ratio.size == 0:
        raise WeightError("weights: expected at least one synthetic row")
    raw, debiased = _debiased(scored, debias, normalisation)
    final, reshaped = _reshaped(raw, steps, normalisation)
    noise = _noise(scored, normalisation)
    weights = Weights(
        log_weights=final,
        steps=(*scored.texts, *debiased, *reshaped),
        noise=noise,
        diagnostics=_judged(
            diagnose(final, raw=raw),
            final,
            noise=None if scored.law is None else noise,
            resolution=resolution,
            signal=ratio.signal(synthetic),
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
    """The verdict by `RULE`. `noise`: per log weight, shape (n,); None if its law is unknown."""
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


def _rewritten(scored: Scored, steps: PostProcessing) -> Scored:
    for step in steps.steps:
        rewritten = step.on_ratio(scored)
        if rewritten is not None:
            scored = replace(rewritten, texts=(*scored.texts, step.text))
    return scored


def _debiased(
    scored: Scored, debias: bool, normalisation: Normalisation
) -> tuple[Array, tuple[str, ...]]:
    law, log_ratio = scored.law, scored.log_ratio
    self_normalised = normalisation is Normalisation.SELF
    if not debias or law is None or law.scale == 0 or scored.factor is None:
        return normalised(log_ratio) if self_normalised else log_ratio, ()
    plain, centred = scored.factor
    if not self_normalised:
        return debias_unnormalised(log_ratio, scored.features, law), (f"debias b({plain})",)
    return debias_self_normalised(log_ratio, scored.features, law)[0], (f"debias b({centred})",)


def _reshaped(
    raw: Array, steps: PostProcessing, normalisation: Normalisation
) -> tuple[Array, tuple[str, ...]]:
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


def _noise(scored: Scored, normalisation: Normalisation) -> Array:
    if scored.law is None:
        return np.zeros(scored.log_ratio.size)
    x = scored.features
    if normalisation is Normalisation.SELF:
        x = x - weighted_centre(scored.log_ratio, x)
    return log_weight_noise(scored.law, x)


def _resampled(weights: Weights, steps: PostProcessing, rng: np.random.Generator) -> Weights:
    step = steps.resample
    if step is None:
        return weights
    chosen = resample(weights.log_weights, step.rows, method=step.scheme, rng=rng)
    return Weights(
        log_weights=np.zeros(chosen.size),
        steps=(*weights.steps, step.text),
        noise=weights.noise[chosen],
        diagnostics=weights.diagnostics,
        chosen=chosen,
    )
