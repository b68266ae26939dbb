"""A release without files, ledger and processes: one straight way from a table to weighted rows.

By the steps of a `dpiw.methods.recipe.Recipe`, as a run takes them. Rehearsals and benchmarks
take them here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.recipe import Recipe, ready_to_measure
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.weigh import Weights
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """A release, in memory.

    Attributes:
        rows: as published.
        weights: theirs.
        estimator: by which they were made; None where they are all one.
        fitted: the generator's measurement.
        measurement: that the weights are made of; the generator's where they draw nothing.
    """

    rows: SyntheticTable
    weights: Weights
    estimator: WeightEstimator | None
    fitted: Measurement
    measurement: Measurement


def play(
    recipe: Recipe, table: PrivateTable, *, noise: SeededNoise, rng: np.random.Generator
) -> Played:
    """Make a release.

    Args:
        recipe: how.
        table: in the place of the confidential one.
        noise: of the measurements; seeded, so that nothing made of it can be published.
        rng: of rows, and of choices among them; no privacy noise.

    Privacy:
        The events of generator and weights, for tables that are public: nothing is charged here.
        A confidential table goes through `dpiw.run`.

    Raises:
        WeightError: weights do not exist.
    """
    fitted = measurement = recipe.generator.measure(table, noise=noise)
    model = recipe.generator.model(fitted, schema=recipe.schema)
    rows = recipe.sample(model, rng=rng)
    estimator = None if recipe.weights is None else recipe.weights.informed(model.judge)
    if estimator is not None and estimator.draws:
        ready, fitting = ready_to_measure(estimator, rows)
        measurement = ready.measure(table, fitting, noise=noise)
    weights = recipe.weigh(estimator, measurement, rows, rng=rng)
    if rows.admission is not None:
        weights = rows.admission.judged(weights)
    weighed_rows = rows.weighed
    if weights.chosen is not None:
        weighed_rows = SyntheticTable(
            schema=recipe.schema, scaled=weighed_rows.scaled.take(weights.chosen)
        )
    return Played(
        rows=weighed_rows,
        weights=weights,
        estimator=estimator,
        fitted=fitted,
        measurement=measurement,
    )
