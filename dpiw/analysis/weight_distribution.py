"""The law of a release's weights, recovered from its certificate, schema and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpiw.analysis.noise import Array, WeightLaw
from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.methods.weights.debiasing import log_debias, weighted_centre
from dpiw.methods.weights.features import feature_map
from dpiw.methods.weights.means_law import MeansLaw, law_of_means
from dpiw.methods.weights.stack import Stack
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.analysis.release import Release
    from dpiw.release.certificate import StageRecord

_RECOVERY = 1e-6
"""Largest misfit, in log weights, of coefficients recovered from a release."""

_UNDERSTOOD = {"debias b(x - mu)", "debias b(x)", "self-normalise"}


_MEASURED_STEPS = ("tilt ", "choose ", "calibrate ", "debias b(x - mu)", "self-normalise")
"""How the steps of `measured` weights begin."""


def law_of_release(release: Release) -> WeightLaw | MeansLaw | None:
    """The law of a release's weights, from its certificate, schema and rows.

    None where weights are not published, or were changed after debiasing by steps this version
    does not model (the certificate's `post_processing` names them).

    Raises:
        ReleaseError: the weights are not what certificate and rows say.
    """
    certificate = release.certificate
    stage = next(
        (s for s in certificate.stages if s.stage == certificate.weights.get("stage")), None
    )
    if stage is None or not certificate.weights.get("published", False):
        return None
    if stage.method == "measured":
        return _law_of_means(release, stage)
    steps = set(certificate.post_processing)
    if stage.method not in ("beta_debiased", "beta_noised") or not steps <= _UNDERSTOOD:
        return None
    facts: dict[str, Any] = dict(stage.parameters)
    if facts["features"] == "critic":  # the generator's discriminator is not in the release
        return None
    schema = PublicSchema.from_mapping(release.schema)
    features = feature_map(
        facts["features"],
        schema,
        frequencies=facts.get("frequencies", 0),
        frequency_scale=facts.get("frequency_scale"),
        omega_seed=facts.get("omega_seed"),
    ).matrix(schema.scale(release.table))
    noise = NoiseLaw(
        kind=NoiseKind(facts["noise"]), scale=float(facts["scale"]), dimension=features.shape[1]
    )
    logs = np.asarray(release.log_weights, dtype=np.float64)
    coefficients = recover(logs, features, noise, steps=steps)
    return WeightLaw(
        features=features,
        coefficients=coefficients,
        noise=noise,
        penalty=float(facts["penalty"]),
        nominal_rows=certificate.nominal_rows,
        fitting_rows=len(features),
        debias=bool(facts["debias"]),
    )


def _law_of_means(release: Release, stage: StageRecord) -> MeansLaw | None:
    """The law of `measured` weights: of steps that this version knows."""
    certificate = release.certificate
    if not all(step.startswith(_MEASURED_STEPS) for step in certificate.post_processing):
        return None
    facts: dict[str, Any] = dict(stage.parameters)
    schema = PublicSchema.from_mapping(release.schema)
    try:
        stack = Stack(
            schema=schema,
            shares={str(part): float(share) for part, share in facts["features"].items()},
            scales=tuple(float(one) for one in facts["scales"]),
            frequencies=int(facts["frequencies"]),
            omega_seed=int(facts["omega_seed"] or 0),
        )
        return law_of_means(
            stack,
            schema.scale(release.table),
            np.asarray(release.log_weights, dtype=np.float64),
            scale=float(facts["scale"]),
            constant=float(facts["constant"]),
            facts=certificate.diagnostics["measured"],
        )
    except KeyError as reason:
        raise ReleaseError(f"certificate: measured weights without {reason}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        raise ReleaseError("certificate: what it says of measured weights fits no law") from None


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
    found = np.linalg.lstsq(free, target, rcond=1e-10)[0]
    if np.ptp(target - free @ found) > _RECOVERY:
        raise ReleaseError("weights: they do not follow from the certificate's feature map")
    return np.asarray(found[:-1])
