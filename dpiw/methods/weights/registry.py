"""Every weight estimator, at one glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dpiw.errors import SpecError
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.beta import BetaDebiased, BetaNoised, BetaRegression
from dpiw.methods.weights.discriminator import DiscriminatorWeights
from dpiw.methods.weights.dp_mlp import DensityNetwork
from dpiw.methods.weights.logreg import LogisticRegressionRatio
from dpiw.methods.weights.measured import Measured
from dpiw.methods.weights.none import NoWeights
from dpiw.methods.weights.output import OutputNoised
from dpiw.privacy.units import NoiseKind

WEIGHTS: dict[
    str,
    type[BetaRegression]
    | type[NoWeights]
    | type[LogisticRegressionRatio]
    | type[DensityNetwork]
    | type[DiscriminatorWeights]
    | type[Measured],
] = {
    "measured": Measured,
    "beta_debiased": BetaDebiased,
    "beta_noised": BetaNoised,
    "output_noised": OutputNoised,
    "dp_mlp": DensityNetwork,
    "discriminator": DiscriminatorWeights,
    "none": NoWeights,
    "logreg": LogisticRegressionRatio,
}


_SET_LATER = {"calibrated", "published", "critic", "judge"}
"""Fields that no spec may hold."""


def usual_effort(method: str) -> float:
    """Share of the effort that weights of this method get where a spec does not say; in [0, 1]."""
    return float(getattr(WEIGHTS.get(method), "effort", 0.5))


def make_weights(
    method: str, settings: Mapping[str, Any], *, pure: bool = False, rows: int | None = None
) -> WeightEstimator | None:
    """The estimator of a spec, or None for `none`.

    Args:
        method: a name in `WEIGHTS`.
        settings: public settings of the method.
        pure: whether the release promises delta = 0. Then `beta_*` and `output_noised` default
            to spherical noise and refuse gaussian noise.
        rows: number of rows the release will publish; `output_noised` needs it.

    Raises:
        SpecError: unknown method or setting, gaussian noise at delta = 0, or settings for
            another number of published rows.
    """
    if method not in WEIGHTS:
        raise SpecError(f"weights.method={method}: expected one of {', '.join(WEIGHTS)}")
    chosen = WEIGHTS[method]
    allowed = {field.name for field in fields(chosen)} - _SET_LATER
    unknown = sorted(set(settings) - allowed)
    if unknown:
        known = ", ".join(sorted(allowed)) or "none"
        raise SpecError(f"weights.settings.{unknown[0]}: unknown for {method} (known: {known})")
    if pure and chosen in (DensityNetwork, Measured):
        raise SpecError(f"weights.method={method}: its noise is Gaussian; expected a delta > 0")
    given = dict(settings)
    if pure and issubclass(chosen, BetaRegression):
        given.setdefault("noise", NoiseKind.SPHERICAL)
    sized = rows is not None and issubclass(chosen, OutputNoised)
    if sized and given.setdefault("rows", rows) != rows:
        raise SpecError(f"weights.settings.rows: expected {rows}, the release's synthetic_rows")
    estimator = chosen(**given)
    if isinstance(estimator, NoWeights):
        return None
    gaussian = isinstance(estimator, BetaRegression) and estimator.noise is NoiseKind.GAUSSIAN
    if pure and gaussian:
        raise SpecError("weights.settings.noise=gaussian: expected spherical or laplace at delta 0")
    return estimator
