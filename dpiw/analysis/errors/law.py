"""The law of a release's weights, from its certificate, schema and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.sample import Published, WeightedSample, weighted_sample
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import SyntheticTable
from dpiw.errors import ReleaseError, SpecError
from dpiw.methods.admission import ADMITTED
from dpiw.methods.recipe import Played
from dpiw.methods.weights.measured.features import PARTS, ROOM
from dpiw.methods.weights.measured.law import MeansLaw, law_of_means
from dpiw.methods.weights.questions import Term

Array = NDArray[np.float64]

METHOD = "measured"
"""The weights with a known law; the paper's reference methods have none here."""

_NO_ERRORS = "Read the folder with the dpiw that published it, or pass (table, weights)"
_MEASURED_STEPS = ("tilt ", "choose ", "calibrate ", "debias b(x - mu)", "self-normalise")
"""Prefixes of the steps of `measured` weights."""


def law_of_release(release: Published) -> MeansLaw | None:
    """Return the law of a release's weights; ReleaseError if they contradict certificate and rows.

    None without weights of `METHOD`, or if rows that break the constraints were admitted.
    """
    certificate = release.certificate
    stage = next(
        (s for s in certificate.stages if s.stage == certificate.weights.get("stage")), None
    )
    if stage is None or stage.method != METHOD or not certificate.weights.get("published"):
        return None
    schema = PublicSchema.from_mapping(release.schema)
    return law_of_weights(
        stage.parameters,
        SyntheticTable(schema=schema, scaled=schema.scale(release.table)),
        np.asarray(release.log_weights, dtype=np.float64),
        steps=certificate.post_processing,
        diagnostics=certificate.diagnostics,
    )


def law_of_weights(
    parameters: Mapping[str, Any],
    rows: SyntheticTable,
    log_weights: Array,
    *,
    steps: tuple[str, ...],
    diagnostics: Mapping[str, Any],
) -> MeansLaw | None:
    """Return the law of published `measured` weights, logs in shape (n,); None if it is unknown."""
    own_steps = (step for step in steps if not step.startswith(ADMITTED))
    if not all(step.startswith(_MEASURED_STEPS) for step in own_steps):
        return None
    try:
        asked = {key for key in parameters["features"] if Term.read(key, rows.schema)}
        if retired := sorted(parameters["features"].keys() - {*PARTS, ROOM} - asked):
            raise ReleaseError(
                f"its weights use the features {', '.join(retired)} of an older dpiw, whose noise"
                f" this version does not know. {_NO_ERRORS}",
                field="certificate",
            )
        k_hat = diagnostics.get("k_hat")
        facts = diagnostics["measured"]
        law = law_of_means(parameters, rows.schema, rows.scaled, log_weights, facts=facts)
        return replace(law, base_k_hat=None if k_hat is None else float(k_hat))
    except KeyError as reason:
        fault = f"the entry {reason} of its measured weights is missing. {_NO_ERRORS}"
        raise ReleaseError(fault, field="certificate") from None
    except (SpecError, TypeError, ValueError, AttributeError, ArithmeticError):
        fault = f"its numbers about measured weights are not admissible. {_NO_ERRORS}"
        raise ReleaseError(fault, field="certificate") from None


def played_sample(played: Played) -> WeightedSample:
    """Return rows of a release made in memory, with weights of mean one and their law."""
    rows, weights, estimator = played.rows, played.weights, played.estimator
    if estimator is None:
        return replace(weighted_sample((rows.frame(), None)), schema=rows.schema)
    law = None
    if estimator.method == METHOD:
        law = law_of_weights(
            estimator.parameters(), rows, weights.log_weights, steps=weights.steps,
            diagnostics=weights.diagnostics.to_json() | dict(weights.facts),
        )  # fmt: skip
    own = np.exp(weights.log_weights - weights.log_weights.max())
    return WeightedSample(frame=rows.frame(), weights=own / own.mean(), law=law, schema=rows.schema)
