"""A released density ratio p_real/p_synthetic, the noise in it, and the weights that it gives.

Unnormalised weights take the factor b(x), self-normalised ones b(x - mu) (docs/method.md section
4). All of it is post-processing: free.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.tables import SyntheticTable
from dpiw.errors import PrivacyError, SpecError, WeightError
from dpiw.methods.weights.base import Normalisation, SampledRows, Weighing, WeightEstimator
from dpiw.methods.weights.diagnostics import Diagnostics, diagnose, objection
from dpiw.methods.weights.paper.steps import PostProcessing, Scored, SelfNormalise, fit_calibration
from dpiw.methods.weights.weigh import Weights, normalised, resample
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.schema.schema import PublicSchema
    from dpiw.privacy.measurement import Measurement

Array = NDArray[np.float64]


class DensityRatio(abc.ABC):
    """A released log ratio."""

    @abc.abstractmethod
    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The log ratio at some rows, and how its noise enters."""

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """log(p_real/p_synthetic) + log(N_D/n0), noisy, not debiased, shape (rows,)."""
        return self.scored(synthetic).log_ratio

    def debiased(self, others: SyntheticTable) -> DensityRatio:
        """The ratio debiased, with the help of unpublished rows; itself if no law is known."""
        return self


LIMIT = 5.0
"""Public bound of a classifier's log ratio."""


@dataclass(frozen=True, kw_only=True)
class ClassifierRatio(DensityRatio):
    """The logits of a classifier, shape (rows,), clipped to +-`LIMIT`; noise of unknown law."""

    logits: Callable[[SyntheticTable], Array]

    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The clipped logits, zero for NaN; no features carry noise."""
        log_ratio = np.clip(np.nan_to_num(self.logits(synthetic)), -LIMIT, LIMIT)
        return Scored(log_ratio=log_ratio, features=np.zeros((synthetic.rows, 0)), law=None)


def _squared_norms(features: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", features, features))


def log_noise_mean(law: NoiseLaw, features: Array) -> Array:
    """Log of E exp(z.x) = 1/b(x) per row, shape (n,), or infinite (docs/method.md section 4)."""
    if law.kind is NoiseKind.GAUSSIAN:
        return np.asarray(law.scale**2 * _squared_norms(features) / 2)
    if law.kind is NoiseKind.SPHERICAL:
        power, terms = (law.dimension + 1) / 2, law.scale**2 * _squared_norms(features)[:, None]
    else:
        power, terms = 1.0, (law.scale * features) ** 2
    logs = np.log(1.0 - np.where(terms < 1, terms, 0.0)).sum(axis=1)
    return np.where(np.all(terms < 1, axis=1), -power * logs, np.inf)


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
    return normalised(log_ratio + _centred(log_debias, law, features, log_ratio))


def _centred(
    function: Callable[[NoiseLaw, Array], Array], law: NoiseLaw, features: Array, logs: Array
) -> Array:
    """A function of each row less the rows' mean by log weights, without a copy of all."""
    centre, starts = weighted_centre(logs, features), range(0, len(features), _ROWS)
    parts = (function(law, features[start : start + _ROWS] - centre) for start in starts)
    return np.concatenate([np.zeros(0), *parts])


_ROWS = 8192
"""Rows that are centred at once."""

MOST_NOISE = 0.5

RULE = (
    " Weights of the paper's methods are reference implementations, and `use with care` at best;"
    " do not use: log-weight noise > 0.5. Noise: standard deviation of the privacy noise in a log"
    " weight (root mean square over rows, by weight)."
)
"""What the verdict on a ratio's weights adds to that of `diagnostics`."""


class RatioEstimator(WeightEstimator):
    """An estimator whose measurement is a density ratio, known at any row."""

    debias: ClassVar[bool] = False
    """Whether the noise's mean effect is divided out of the weights."""
    known_everywhere: ClassVar[bool] = True

    @abc.abstractmethod
    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> DensityRatio:
        """The density ratio of a measurement. Costs nothing, repeatable."""

    def weigh(
        self,
        measurement: Measurement,
        rows: SampledRows,
        weighing: Weighing,
        *,
        rng: np.random.Generator,
    ) -> Weights:
        """Weigh the rows by the released ratio; a beta calibration is fitted to it debiased."""
        ratio = self.ratio(measurement, schema=rows.weighed.schema)
        steps, public = weighing.post_processing, weighing.public
        if steps.calibrate is not None and public is not None:
            if not isinstance(public, SyntheticTable):
                allowed = "public rows, as SyntheticTable"
                raise PrivacyError(field="beta calibration", allowed=allowed)
            ratio = ratio.debiased(rows.fitting) if self.debias else ratio
            classes = (ratio.log_ratio(table) for table in (public, rows.fitting))
            steps = steps.with_calibration(fit_calibration(*classes, limit=steps.calibrate.limit))
        return weigh(
            ratio,
            rows.weighed,
            debias=self.debias,
            normalisation=weighing.normalisation,
            post_processing=steps,
            rng=rng,
        )


def weigh(
    ratio: DensityRatio,
    synthetic: SyntheticTable,
    *,
    debias: bool,
    normalisation: Normalisation = Normalisation.SELF,
    post_processing: PostProcessing | None = None,
    rng: np.random.Generator | None = None,
) -> Weights:
    """Weight the rows of `synthetic` by a released ratio; free.

    A beta-calibrated ratio, the one its calibration was fitted on, is not debiased again.
    `rng`, for `resample` alone, draws no privacy noise.

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
        noise = log_weight_noise(law, x)
        if own:
            noise = _centred(log_weight_noise, law, x, scored.log_ratio)
    weights = Weights(
        log_weights=final,
        steps=tuple(texts),
        noise=np.zeros(final.size) if noise is None else noise,
        diagnostics=_judged(diagnose(final, raw=raw), final, noise),
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


def _judged(stable: Diagnostics, log_weights: Array, noise: Array | None) -> Diagnostics:
    """The verdict by `RULE`. `noise`: per log weight, shape (n,); None if its law is unknown."""
    advice = "a reference implementation; weights.method: measured is recommended"
    findings = objection(True, False, advice)
    if noise is None:
        findings += objection(True, False, "its noise was not assessed")
        return stable.judged_with(findings, rule=RULE)
    shares = np.exp(log_weights - log_weights.max())
    mean_noise = math.sqrt(np.average(noise**2, weights=shares))
    text = f"log-weight noise {mean_noise:.2f} (expected <= {MOST_NOISE:g})"
    findings += objection(False, mean_noise > MOST_NOISE, text)
    return replace(stable, noise=mean_noise).judged_with(findings, rule=RULE)
