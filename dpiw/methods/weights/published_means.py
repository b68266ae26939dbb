"""The law of published `measured` weights, from the facts that their certificate states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.row_weights import mean_one_weights
from dpiw.data.schema import ScaledTable
from dpiw.errors import ReleaseError
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.means_law import MeansLaw
from dpiw.methods.weights.means_noise import means_noise
from dpiw.methods.weights.ranges import Ranges
from dpiw.methods.weights.stack import Stack, all_features

Array = NDArray[np.float64]

_UNTOLD = 4.0
"""Least doubt where a release does not say what its fit left: nothing else holds the shrinkage."""


def law_of_means(
    stack: Stack,
    rows: ScaledTable,
    log_weights: Array,
    *,
    scale: float,
    constant: float,
    max_rows: int,
    facts: Mapping[str, Any],
) -> MeansLaw:
    """The law of published rows' weights, from public facts.

    Args:
        stack: the measured features, without ranges.
        rows: as published, on the schema's scale.
        log_weights: theirs, shape (n,).
        scale: of the noise of the features' sums.
        constant: by which a row counts; 0 where their number is public.
        max_rows: most rows of one person.
        facts: what the certificate says of the fit: `rows`, `credit`, `effective_base_rows`, and if
            it has them `least_credit`, `calibration`, `one_way`, `residual` and `ranges`.

    Raises:
        KeyError: a fact is missing.
        ReleaseError: facts that fit no law.
    """
    one_way, ranges = None, Ranges.from_json(facts.get("ranges", {}), stack.schema)
    stack = replace(stack, ranges=ranges)
    if "one_way" in facts:
        one_way = OneWayLaw.from_json(facts["one_way"], stack.schema)
    weights, features = mean_one_weights(log_weights), all_features(stack, one_way, rows)
    credit, rows_told = float(facts["credit"]), float(facts["rows"])
    least = float(facts.get("least_credit", credit))
    residual = _residual(facts, size=features.shape[1])
    if not (0 < least <= credit < np.inf and 0 < rows_told < np.inf):
        raise ReleaseError("certificate: expected finite numbers > 0 of measured weights")
    noise = means_noise(
        scale=scale,
        rows=rows_told,
        constant=constant,
        about=weights @ features / len(features),
        known=one_way,
    )
    counts = () if one_way is None else one_way.variances
    law = MeansLaw(
        count_noise=math.sqrt(max(counts, default=0.0)),
        bins={} if one_way is None else one_way.bins_of(rows),
        features=features,
        weights=weights,
        covariance=noise,
        rows=rows_told,
        credit=credit,
        doubt=max(1.0 if residual is not None else _UNTOLD, credit / least),
        base_rows=float(facts["effective_base_rows"]),
        calibration=float(facts.get("calibration", np.inf)),
        residual=residual,
        relative=_relative(facts, credit, stack, size=features.shape[1]),
        max_rows=max_rows,
    )
    positive = (law.base_rows, scale, min(law.calibration, 1.0), *np.diag(noise))
    if not all(0 < number < np.inf for number in positive):
        raise ReleaseError("certificate: expected finite numbers > 0 of measured weights")
    return law


def _residual(facts: Mapping[str, Any], *, size: int) -> Array | None:
    if "residual" not in facts:
        return None
    residual = np.asarray(facts["residual"], dtype=np.float64)
    if residual.shape != (size,) or not np.isfinite(residual).all():
        raise ReleaseError("certificate: expected a finite `residual` of every feature")
    return residual


def _relative(facts: Mapping[str, Any], credit: float, stack: Stack, *, size: int) -> Array | None:
    pairs_credit = float(facts.get("pairs_credit", credit))
    if not 0 < pairs_credit <= credit:
        raise ReleaseError("certificate: expected `pairs_credit` above 0, at most `credit`")
    if pairs_credit == credit:
        return None
    relative = np.ones(size)
    relative[stack.pairs] = pairs_credit / credit
    return relative
