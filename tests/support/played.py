"""Releases made in memory, as estimators take them."""

from dataclasses import replace

import numpy as np

from dpiw.analysis.errors.law import METHOD, law_of_weights
from dpiw.analysis.sample import WeightedSample, weighted_sample
from dpiw.methods.recipe import Played


def played_sample(played: Played) -> WeightedSample:
    """Return rows of a release made in memory, with weights and their law."""
    rows, weights, estimator = played.rows, played.weights, played.estimator
    if estimator is None:
        return replace(weighted_sample((rows.frame(), None)), schema=rows.schema)
    law = None
    if estimator.method == METHOD:
        law = law_of_weights(
            estimator.parameters(), rows, weights.log_weights, steps=weights.steps,
            diagnostics=weights.diagnostics.to_json() | dict(weights.facts),
        )  # fmt: skip
    exponentials = np.exp(weights.log_weights - weights.log_weights.max())
    weights_of_mean_one = exponentials / exponentials.mean()
    return WeightedSample(
        frame=rows.frame(), weights=weights_of_mean_one, law=law, schema=rows.schema
    )  # fmt: skip
