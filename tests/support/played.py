"""The law of weights as a run knows it."""

import json

import numpy as np

from dpiw.data.tables import SyntheticTable
from dpiw.methods.weights.measured.law import law_of_means
from dpiw.plan.stages import WEIGHTS_STAGE
from dpiw.run.weigh import PUBLISHED_ROWS, committed_measurement, read_rows


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
