"""The law of a release's weights, recovered from its certificate, schema and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpiw.analysis.coefficients_law import Array, CoefficientsLaw
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.errors import ReleaseError
from dpiw.methods.admission import ADMITTED
from dpiw.methods.weights.debiasing import log_debias, weighted_centre
from dpiw.methods.weights.features import feature_map
from dpiw.methods.weights.means_law import MeansLaw
from dpiw.methods.weights.published_means import law_of_means
from dpiw.methods.weights.stack import Stack
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.analysis.release import Release

_RECOVERY = 1e-6
"""Largest misfit, in log weights, of coefficients recovered from a release."""

_UNDERSTOOD = {"debias b(x - mu)", "debias b(x)", "self-normalise"}

_MEASURED_STEPS = ("tilt ", "choose ", "calibrate ", "debias b(x - mu)", "self-normalise")
"""How the steps of `measured` weights begin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedWeights:
    """Weights as published, and what is said of them.

    Attributes:
        schema: the public schema.
        rows: their rows, scaled.
        log_weights: shape (n,).
        steps: what was done to them.
        nominal_rows: n0.
        diagnostics: of the certificate.
        coefficients: the released ones, shape (d',); None: they are recovered from the weights.
    """

    schema: PublicSchema
    rows: ScaledTable
    log_weights: Array
    steps: tuple[str, ...]
    nominal_rows: int
    diagnostics: Mapping[str, Any]
    coefficients: Array | None = None


def law_of_release(release: Release) -> CoefficientsLaw | MeansLaw | None:
    """The law of a release's weights, from its certificate, schema and rows.

    None where weights are not published, or were changed after debiasing by steps this version
    does not model (the certificate's `post_processing` names them), or where so few rows satisfied
    the constraints that others were forced to.

    Raises:
        ReleaseError: the weights are not what certificate and rows say.
    """
    certificate = release.certificate
    stage = next(
        (s for s in certificate.stages if s.stage == certificate.weights.get("stage")), None
    )
    if stage is None or stage.method not in _LAWS or not certificate.weights.get("published"):
        return None
    schema = PublicSchema.from_mapping(release.schema)
    published = PublishedWeights(
        schema=schema,
        rows=schema.scale(release.table),
        log_weights=np.asarray(release.log_weights, dtype=np.float64),
        steps=certificate.post_processing,
        nominal_rows=certificate.nominal_rows,
        diagnostics=certificate.diagnostics,
    )
    return law_of_weights(stage.method, stage.parameters, published)


def law_of_weights(
    method: str, parameters: Mapping[str, Any], published: PublishedWeights
) -> CoefficientsLaw | MeansLaw | None:
    """The law of published weights; None where there is none, or this version does not know it.

    Args:
        method: of the weights' stage.
        parameters: of that stage, as in the plan and in the certificate.
        published: the weights.

    Raises:
        ReleaseError: the weights are not what the parameters say.
    """
    if method not in _LAWS:
        return None
    steps = tuple(step for step in published.steps if not step.startswith(ADMITTED))
    return _LAWS[method](dict(parameters), replace(published, steps=steps))


def _law_of_coefficients(
    facts: dict[str, Any], published: PublishedWeights
) -> CoefficientsLaw | None:
    """The law of weights that are log-linear in features, with noise on the coefficients."""
    steps = set(published.steps)
    if not steps <= _UNDERSTOOD:
        return None
    if facts["features"] == "critic":  # the generator's discriminator is not in the release
        return None
    features = feature_map(
        facts["features"],
        published.schema,
        frequencies=facts.get("frequencies", 0),
        frequency_scale=facts.get("frequency_scale"),
        omega_seed=facts.get("omega_seed"),
    ).matrix(published.rows)
    noise = NoiseLaw(
        kind=NoiseKind(facts["noise"]), scale=float(facts["scale"]), dimension=features.shape[1]
    )
    coefficients = published.coefficients
    if coefficients is None:
        coefficients = recover(published.log_weights, features, noise, steps=steps)
    return CoefficientsLaw(
        features=features,
        coefficients=coefficients,
        noise=noise,
        penalty=float(facts["penalty"]),
        nominal_rows=published.nominal_rows,
        fitting_rows=len(features),
        debias=bool(facts["debias"]),
        max_rows=int(facts.get("max_rows", 1)),
    )


def _law_of_means(facts: dict[str, Any], published: PublishedWeights) -> MeansLaw | None:
    """The law of weights that move rows to noisy means: of steps that this version knows."""
    if not all(step.startswith(_MEASURED_STEPS) for step in published.steps):
        return None
    try:
        stack = Stack(
            schema=published.schema,
            shares={str(part): float(share) for part, share in facts["features"].items()},
            scales=tuple(float(scale) for scale in facts["scales"]),
            frequencies=int(facts["frequencies"]),
            omega_seed=int(facts["omega_seed"] or 0),
        )
        law = law_of_means(
            stack,
            published.rows,
            published.log_weights,
            scale=float(facts["scale"]),
            constant=float(facts["constant"]),
            max_rows=int(facts.get("max_rows", 1)),
            facts=published.diagnostics["measured"],
        )
        k_hat = published.diagnostics.get("k_hat")
        return replace(law, base_k_hat=None if k_hat is None else float(k_hat))
    except KeyError as reason:
        raise ReleaseError(f"certificate: measured weights without {reason}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        raise ReleaseError("certificate: what it says of measured weights fits no law") from None


_LAWS: Mapping[
    str, Callable[[dict[str, Any], PublishedWeights], CoefficientsLaw | MeansLaw | None]
] = {
    "measured": _law_of_means,
    "beta_debiased": _law_of_coefficients,
    "beta_noised": _law_of_coefficients,
}
"""By what certificates name: how the law is read. Other weights have none that is known."""


def recover(log_weights: Array, features: Array, noise: NoiseLaw, *, steps: set[str]) -> Array:
    """The released coefficients from the released weights, shape (d',).

    log w = b.phi + log b(phi - mu) + constant has the known debiasing factor, so b follows by
    least squares; mu, the centre under the weights without the factor, by iteration.

    Raises:
        ReleaseError: no coefficients explain the weights: rows, features or steps do not match.
    """
    free = np.column_stack([features, np.ones(len(features))])
    target = log_weights
    if "debias b(x)" in steps:
        target = log_weights - log_debias(noise, features)
    if "debias b(x - mu)" in steps:
        for _ in range(100):
            centre = weighted_centre(target, features)
            moved = log_weights - log_debias(noise, features - centre)
            change = float(np.ptp(moved - target))
            target = moved
            if change < 1e-12:
                break
    solution = np.linalg.lstsq(free, target, rcond=1e-10)[0]
    if np.ptp(target - free @ solution) > _RECOVERY:
        raise ReleaseError("weights: they do not follow from the certificate's feature map")
    return np.asarray(solution[:-1])
