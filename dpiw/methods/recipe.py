"""Steps from a fitted generator to weighted rows, shared by runs and by `play` (in memory)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.admission import RULE, Admission, admitted
from dpiw.methods.generators.base import GenerativeModel, Synthesizer
from dpiw.methods.weights.base import SampledRows, Weighing, WeightEstimator
from dpiw.methods.weights.weigh import Weights, uniform_weights
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise

DRAWN_ROWS = 1 << 18
"""Most rows that a model is asked for at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Everything a release is made with, decided before data is read; no `weights`: all are 1."""

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
        if self.weighing.post_processing.calibrate is None:
            return self
        public = SyntheticTable(schema=self.schema, scaled=scaled)
        return replace(self, weighing=replace(self.weighing, public=public))

    def draw(
        self, model: GenerativeModel, rows: int, *, rng: np.random.Generator
    ) -> Iterator[tuple[SyntheticTable, Admission | None]]:
        """Yield rows that satisfy the constraints; every generator's rows pass through here.

        Yields at most `DRAWN_ROWS` at a time, or all rows of a model with `at_hand`. Shuffles
        projected rows, so that the first ones are a sample. Costs nothing.
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
        """Return weights of the rows, all one if the recipe has none, or raise WeightError. Free.

        `weights` are informed; `measurement` is the generator's if they draw nothing; `rng` makes
        no noise. One BLAS thread: more would round sums differently, and wait for our own threads
        (100,000 rows of Adult then took 3.6 times the processor time).
        """
        from threadpoolctl import threadpool_limits

        if weights is None:
            return uniform_weights(self.weighing.rows)
        with threadpool_limits(limits=1):
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
    """Return weights that know the published rows, if they need them, and the rows to fit on.

    Fits on rows that are not published, so that a row does not influence its own weight. Fits on
    published rows if only their weights are released, or there are no others.
    """
    on_published = weights.bound_to_rows or rows.fitting.rows == 0
    return weights.for_rows(rows.weighed), rows.weighed if on_published else rows.fitting


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A generator that was fitted in memory, for several plays.

    Attributes:
        noise: the source after the generator's draws; each play goes on with a copy.
    """

    measurement: Measurement
    model: GenerativeModel
    noise: SeededNoise


def fit(recipe: Recipe, table: PrivateTable, *, noise: SeededNoise) -> Fitted:
    """Fit the generator of a recipe to a public table, as `play` does.

    Privacy:
        Charges nothing: for public tables only, as `play`.
    """
    measurement = recipe.generator.measure(table, noise=noise)
    model = recipe.generator.model(measurement, schema=recipe.schema)
    return Fitted(measurement=measurement, model=model, noise=noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """A release in memory.

    Attributes:
        estimator: of the weights; None if all are one.
        fitted: the generator's measurement.
    """

    rows: SyntheticTable
    weights: Weights
    estimator: WeightEstimator | None
    fitted: Measurement


def play(
    recipe: Recipe,
    table: PrivateTable,
    *,
    noise: SeededNoise,
    rng: np.random.Generator,
    fitted: Fitted | None = None,
) -> Played:
    """Make a release in memory from a public table; WeightError if weights do not exist.

    `fitted`: a fit of the same generator to the same table, in place of `noise`.

    Privacy:
        Charges nothing: for public tables only. Noise is seeded and unpublishable, `rng` draws
        rows. Confidential tables go through `dpiw.run`.
    """
    if fitted is None:
        fitted = fit(recipe, table, noise=noise)
    else:
        noise = copy.deepcopy(fitted.noise)
    measurement = fitted.measurement
    rows = recipe.sample(fitted.model, rng=rng)
    estimator = None if recipe.weights is None else recipe.weights.informed(fitted.model.judge)
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
        fitted=fitted.measurement,
    )
