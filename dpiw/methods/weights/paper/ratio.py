"""A released density ratio p_real/p_synthetic, the noise in it, and the weights that it gives.

Unnormalised weights take the factor b(x), self-normalised ones b(x - mu) (docs/method.md section
4). All of it is post-processing: free.
"""

from __future__ import annotations

import abc
import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.base import Normalisation, SampledRows, Weighing, WeightEstimator
from dpiw.methods.weights.diagnostics import Diagnostics, Signal, diagnose, objection
from dpiw.methods.weights.paper.steps import PostProcessing, Scored, SelfNormalise
from dpiw.methods.weights.weigh import Weights, normalised, resample
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.schema import PublicSchema
    from dpiw.data.tables import SyntheticTable
    from dpiw.privacy.measurement import Measurement

Array = NDArray[np.float64]

DRAWS = 999
"""R of the signal test where the law of the noise is known; of networks the setting `replays`."""


class DensityRatio(abc.ABC):
    """A released log ratio."""

    @abc.abstractmethod
    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The log ratio at some rows, and how its noise enters."""

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """log(p_real/p_synthetic) + log(N_D/n0), noisy, not debiased, shape (rows,)."""
        return self.scored(synthetic).log_ratio

    def chance(self, synthetic: SyntheticTable) -> Array | None:
        """Variances of the log ratio if real and synthetic law agree, shape (R,), or None."""
        return None

    def signal(self, synthetic: SyntheticTable) -> Signal | None:
        """The test whether the log ratio is more than chance; None: not testable."""
        null = self.chance(synthetic)
        return None if null is None else Signal.of(self.log_ratio(synthetic), null)


def clamped(logits: Array, limit: float) -> Array:
    """Logits clipped to [-limit, limit]; zero for NaN."""
    return np.asarray(np.clip(np.nan_to_num(logits), -limit, limit))


def _squared_norms(features: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", features, features))


def _log_mean_laplace(scale: float, features: Array) -> Array:
    terms = 1.0 - (scale * features) ** 2
    exists = np.all(terms > 0, axis=1)
    safe = np.where(terms > 0, terms, 1.0)
    return np.where(exists, -np.log(safe).sum(axis=1), np.inf)


def _log_mean_spherical(scale: float, features: Array, dimension: int) -> Array:
    terms = 1.0 - scale**2 * _squared_norms(features)
    safe = np.where(terms > 0, terms, 1.0)
    return np.where(terms > 0, -(dimension + 1) / 2 * np.log(safe), np.inf)


def log_noise_mean(law: NoiseLaw, features: Array) -> Array:
    """Log of E exp(z.x) = 1/b(x) per row, shape (n,), or infinite (docs/method.md section 4)."""
    if law.scale == 0:
        return np.zeros(len(features))
    if law.kind is NoiseKind.GAUSSIAN:
        return np.asarray(law.scale**2 * _squared_norms(features) / 2)
    if law.kind is NoiseKind.SPHERICAL:
        return _log_mean_spherical(law.scale, features, law.dimension)
    return _log_mean_laplace(law.scale, features)


def log_debias(law: NoiseLaw, features: Array) -> Array:
    """Natural log of b(x) per row, shape (n,), <= 0; WeightError where it does not exist."""
    log_means = log_noise_mean(law, features)
    if not np.all(np.isfinite(log_means)):
        raise WeightError(
            f"{law.kind.value} noise of scale {law.scale:.4g} has no exponential mean at"
            " some feature rows",
            field="debiasing",
            allowed="scale * norm(x) < 1 (laplace: scale * max|x_j| < 1)",
        )
    return -log_means


def log_weight_noise(law: NoiseLaw, features: Array) -> Array:
    """Standard deviation of z.x per row, shape (n,). Source: docs/method.md section 4."""
    factor = {
        NoiseKind.GAUSSIAN: 1.0,
        NoiseKind.SPHERICAL: law.dimension + 1.0,
        NoiseKind.LAPLACE: 2.0,
    }[law.kind]
    return np.asarray(law.scale * np.sqrt(factor * _squared_norms(features)))


def weighted_centre(log_weights: Array, features: Array) -> Array:
    """Weighted mean of the features, shape (d',): mu_hat of docs/method.md section 5."""
    return np.asarray(np.exp(normalised(log_weights)) @ features / len(features))


def debiased(log_ratio: Array, features: Array, law: NoiseLaw, how: Normalisation) -> Array:
    """Log weights with the factor b(x), or of mean weight one with b(x - mu), shape (n,).

    Unnormalised weights are unbiased per row; the bias of self-normalised ones is of second order.
    """
    if how is Normalisation.UNNORMALISED:
        return np.asarray(log_ratio + log_debias(law, features))
    centre = weighted_centre(log_ratio, features)
    return normalised(log_ratio + log_debias(law, features - centre))


def public_number(released: Array) -> int:
    """A seed that follows from released values, so that simulations can be repeated."""
    return int.from_bytes(hashlib.sha256(released.tobytes()).digest()[:8], "big")


def simulated_noise(law: NoiseLaw, draws: int, rng: np.random.Generator) -> Array:
    """Draws of a noise law for comparison, shape (draws, dimension); never released."""
    shape = (draws, law.dimension)
    if law.kind is NoiseKind.LAPLACE:
        return rng.laplace(scale=law.scale, size=shape)
    normals = rng.standard_normal(shape)
    if law.kind is NoiseKind.GAUSSIAN:
        return np.asarray(law.scale * normals)
    radii = rng.gamma(law.dimension, law.scale, draws)
    return np.asarray(normals * (radii / np.linalg.norm(normals, axis=1))[:, None])


def simulated_errors(covariance: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws of normal errors with a covariance that may be singular, shape (draws, d')."""
    values, axes = np.linalg.eigh(covariance)
    roots = axes * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.standard_normal((draws, len(values))) @ roots.T)


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

    debias: ClassVar[bool] = False
    """Whether the noise's mean effect is divided out of the weights."""

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
    steps, own = post_processing or PostProcessing(), normalisation is Normalisation.SELF
    steps.check(self_normalised=own)
    if steps.resample is not None and rng is None:
        raise SpecError(field="weights.post_processing.resample", allowed="a random generator")
    scored = ratio.scored(synthetic)
    if scored.log_ratio.size == 0:
        raise WeightError(field="weights", allowed="at least one synthetic row")
    for step in steps.steps:
        scored = step.on_ratio(scored)
    law, x, texts = scored.law, scored.features, list(scored.texts)
    if debias and law is not None and law.scale > 0 and scored.factor is not None:
        raw = debiased(scored.log_ratio, x, law, normalisation)
        texts.append(f"debias b({scored.factor[own]})")
    else:
        raw = normalised(scored.log_ratio) if own else scored.log_ratio
    final = raw
    for step in steps.steps:
        reshaped = step.on_log_weights(final)
        if reshaped is not None:
            final = reshaped
            texts.append(step.text)
    if own:
        final = normalised(final)
        texts.append(SelfNormalise().text)
    noise = None
    if law is not None:
        noise = log_weight_noise(law, x - weighted_centre(scored.log_ratio, x) if own else x)
    weights = Weights(
        log_weights=final,
        steps=tuple(texts),
        noise=np.zeros(final.size) if noise is None else noise,
        diagnostics=_judged(
            diagnose(final, raw=raw),
            final,
            noise=noise,
            resolution=resolution,
            signal=ratio.signal(synthetic),
        ),
    )
    last = steps.resample
    if last is None or rng is None:
        return weights
    chosen = resample(final, last.rows, rng=rng)
    return replace(
        weights,
        log_weights=np.zeros(chosen.size),
        steps=(*weights.steps, last.text),
        noise=weights.noise[chosen],
        chosen=chosen,
    )


def _judged(
    stable: Diagnostics,
    log_weights: Array,
    *,
    noise: Array | None,
    resolution: float | None,
    signal: Signal | None,
) -> Diagnostics:
    """The verdict by `RULE`. `noise`: per log weight, shape (n,); None if its law is unknown."""
    advice = "a reference implementation; weights.method: measured is recommended"
    findings = objection(True, False, advice)
    mean_noise = None
    if noise is None:
        findings += objection(True, False, "neither signal nor noise was assessed")
    else:
        shares = np.exp(log_weights - log_weights.max())
        mean_noise = math.sqrt(np.average(noise**2, weights=shares))
        text = f"log-weight noise {mean_noise:.2f} (expected <= {MOST_NOISE:g})"
        findings += objection(False, mean_noise > MOST_NOISE, text)
    if resolution is not None:
        text = f"resolution {resolution:.2f} (expected >= {LEAST_RESOLUTION:g})"
        findings += objection(False, resolution < LEAST_RESOLUTION, text)
    if signal is not None:
        text = (
            "the log ratio varies no more than chance alone could make it (signal test p"
            f" {signal.p_value:.2g}, expected <= {MOST_P_VALUE:g})"
        )
        findings += objection(False, signal.p_value > MOST_P_VALUE, text)
    known = replace(stable, noise=mean_noise, resolution=resolution, signal=signal)
    return known.judged_with(findings, rule=RULE)
