"""How a release is made: the steps from a fitted generator to weighted rows, each written once.

A run takes the steps one by one and records each; `play` takes them in memory, for rehearsals and
benchmarks. Each step states its cost; steps after a measurement are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.admission import RULE, Admission, admitted
from dpiw.methods.generators.base import GenerativeModel, Synthesizer
from dpiw.methods.weights.base import SampledRows, Weighing, WeightEstimator
from dpiw.methods.weights.paper.calibration import PublicRows
from dpiw.methods.weights.weigh import Weights, uniform_weights
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise

DRAWN_ROWS = 1 << 18
"""Most rows that a model is asked for at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Everything that a release is made with, decided before data is read.

    Attributes:
        schema: the public schema.
        generator: calibrated.
        weights: calibrated; None where rows are published unweighted.
        weighing: how weights follow from a measurement, and how many rows are published.
    """

    schema: PublicSchema
    generator: Synthesizer
    weights: WeightEstimator | None
    weighing: Weighing

    @property
    def sampled(self) -> tuple[int, int]:
        """Rows to weigh, and rows to fit weights on."""
        published = self.weighing.rows
        return (published, 0) if self.weights is None else self.weights.sampled(published)

    def with_public_rows(self, scaled: ScaledTable) -> Recipe:
        """With public rows of the real law, if a beta calibration needs them."""
        step = self.weighing.post_processing.calibrate
        if step is None:
            return self
        table = SyntheticTable(schema=self.schema, scaled=scaled)
        public = PublicRows(table=table, declared=step.declared)
        return replace(self, weighing=replace(self.weighing, public=public))

    def draw(
        self, model: GenerativeModel, rows: int, *, rng: np.random.Generator
    ) -> Iterator[tuple[SyntheticTable, Admission | None]]:
        """Rows of the model that satisfy the constraints: the one door of every generator's rows.

        Yields at most `DRAWN_ROWS` at a time, or all at once of a model that has only rows
        `at_hand`. Projected rows are in random
        order: the first are a sample of all. Costs nothing.
        """
        rules = self.schema.rules
        most = DRAWN_ROWS
        if model.at_hand is not None:
            rows = min(rows, model.at_hand)
            most = max(1, rows)
        for start in range(0, max(1, rows), most):
            size = min(most, rows - start)
            if rules is None:
                yield model.sample(size, rng=rng), None
                continue
            scaled, admission = admitted(
                lambda count: model.sample(count, rng=rng).scaled, size, rules=rules
            )
            if admission is not None and admission.forced:  # these are the last
                scaled = scaled.take(rng.permutation(size))
            yield SyntheticTable(schema=self.schema, scaled=scaled), admission

    def sample(self, model: GenerativeModel, *, rng: np.random.Generator) -> SampledRows:
        """The model's rows. Costs nothing."""
        tables, bound = [], []
        for rows in self.sampled:
            parts = [*self.draw(model, rows, rng=rng)]
            scaled = ScaledTable.concatenate([part.scaled for part, _ in parts])
            tables.append(SyntheticTable(schema=parts[0][0].schema, scaled=scaled))
            bound += [admission for _, admission in parts if admission is not None]
        weighed, fitting = tables
        return SampledRows(
            weighed=weighed, fitting=fitting, one_way=model.one_way,
            admission=Admission.together(bound) if bound else None,
        )  # fmt: skip

    def weigh(
        self,
        weights: WeightEstimator | None,
        measurement: Measurement,
        rows: SampledRows,
        *,
        rng: np.random.Generator,
    ) -> Weights:
        """Weights of the rows; one each where the recipe has none. Costs nothing.

        Args:
            weights: those of the recipe, informed.
            measurement: the weights' own, or the generator's where weights draw nothing.
            rows: of the generator.
            rng: of choices among rows; the same state gives the same weights.

        Raises:
            WeightError: weights do not exist.
        """
        if weights is None:
            return uniform_weights(self.weighing.rows)
        return weights.weigh(measurement, rows, self.weighing, rng=rng)


def judged(weights: Weights, admission: Admission) -> Weights:
    """Weights whose steps, verdict and facts include what constraints did to the rows."""
    return replace(
        weights,
        steps=(*admission.steps, *weights.steps),
        diagnostics=weights.diagnostics.judged_with(admission.findings, rule=RULE),
        facts={**weights.facts, "constraints": admission.to_json()},
    )


def ready_to_measure(
    weights: WeightEstimator, rows: SampledRows
) -> tuple[WeightEstimator, SyntheticTable]:
    """Weights that know the published rows if their noise depends on them, and rows to fit on.

    Fitting uses other rows than the published ones, so that a row's weight does not depend on its
    part in the fit. It uses the published ones where the release is of their weights alone, or
    there are no others.
    """
    on_published = weights.bound_to_rows or rows.fitting.rows == 0
    return weights.for_rows(rows.weighed), rows.weighed if on_published else rows.fitting


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """A release in memory.

    Attributes:
        rows: as published.
        weights: theirs.
        estimator: of the weights; None where they are all one.
        fitted: the generator's measurement.
        measurement: of the weights; the generator's where they draw nothing.
    """

    rows: SyntheticTable
    weights: Weights
    estimator: WeightEstimator | None
    fitted: Measurement
    measurement: Measurement


def play(
    recipe: Recipe, table: PrivateTable, *, noise: SeededNoise, rng: np.random.Generator
) -> Played:
    """Make a release in memory.

    Args:
        recipe: of the release.
        table: instead of the confidential one.
        noise: of the measurements; seeded, so nothing made with it can be published.
        rng: of rows, and of choices among them; no privacy noise.

    Privacy:
        The events of generator and weights, for public tables: nothing is charged. Confidential
            tables go through `dpiw.run`.

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
        weights = judged(weights, rows.admission)
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
