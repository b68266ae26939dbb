"""All weight estimators by name."""

from collections.abc import Mapping
from typing import Any

from dpiw.errors import SpecError, one_of
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.paper.beta import BetaDebiased, BetaNoised
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.mlp import DensityNetwork
from dpiw.methods.weights.paper.output import OutputNoised

WEIGHTS: Mapping[str, type[WeightEstimator]] = {
    "measured": Measured,
    "beta_debiased": BetaDebiased,
    "beta_noised": BetaNoised,
    "output_noised": OutputNoised,
    "dp_mlp": DensityNetwork,
    "discriminator": DiscriminatorWeights,
}

NONE = "none"
"""The method name for no weights: every synthetic row counts once. Free."""


def usual_effort(method: str) -> float:
    """Usual share of the effort of weights of this method, in [0, 1]."""
    return WEIGHTS[method].effort if method in WEIGHTS else WeightEstimator.effort


def check_known_everywhere(method: str) -> None:
    """Raise SpecError for a method whose released ratio is not known at every row."""
    if method != NONE and (method not in WEIGHTS or WEIGHTS[method].known_everywhere):
        return
    names = " or ".join(name for name, kind in WEIGHTS.items() if kind.known_everywhere)
    raise SpecError(
        "beta_calibrate needs weights that are known at every row",
        field="weights.post_processing",
        allowed=f"weights.method {names}",
    )


def make_weights(
    method: str, settings: Mapping[str, Any], *, pure: bool = False, rows: int | None = None
) -> WeightEstimator | None:
    """The estimator of a spec, or None for `none`; SpecError for what it does not know.

    `pure`: whether the release promises delta = 0. `rows`: number of published rows.
    """
    if method == NONE:
        if settings:
            raise SpecError(
                "method: none has no settings; delete it", field=f"weights.settings.{min(settings)}"
            )
        return None
    if method not in WEIGHTS:
        raise SpecError(field=f"weights.method={method}", allowed=one_of(method, (*WEIGHTS, NONE)))
    return WEIGHTS[method].from_settings(settings, pure=pure, rows=rows)
