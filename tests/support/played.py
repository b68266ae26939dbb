"""Releases made in memory, as estimators take them, and the law that a run knows."""

import json
from dataclasses import replace

import numpy as np

from dpiw.analysis.errors.law import METHOD, law_of_weights
from dpiw.analysis.sample import WeightedSample, weighted_sample
from dpiw.data.tables import SyntheticTable
from dpiw.methods.recipe import Played
from dpiw.methods.weights.measured.law import law_of_means
from dpiw.plan.stages import WEIGHTS_STAGE
from dpiw.run.weigh import PUBLISHED_ROWS, committed_measurement, read_rows


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


def law_inside(run):
    """The law as a run knows it, and its rows, in the order before they were shuffled."""
    with np.load(run.directory / "weights.npz") as stored:
        logs, chosen = stored["log_weights"], stored["chosen"]
    facts = json.loads((run.directory / "weights.json").read_bytes())["diagnostics"]["measured"]
    rows = read_rows(run, PUBLISHED_ROWS).scaled.take(chosen)
    table = SyntheticTable(schema=run.plan.schema, scaled=rows)
    measurement = committed_measurement(run, WEIGHTS_STAGE)
    parameters = run.plan.weights.parameters()
    law = law_of_means(parameters, table.schema, table.scaled, logs, facts=facts)
    return law, table, measurement
