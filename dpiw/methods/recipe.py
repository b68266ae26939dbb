"""How a release is made: the steps from a fitted generator to weighted rows, each said once.

A run takes them one by one, with a record between them; in memory they are one way
(`dpiw.methods.play`). Each step says what it costs; those after a measurement are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.methods.admission import Admission, admitted
from dpiw.methods.generators.base import GenerativeModel, Synthesizer
from dpiw.methods.weights.base import SampledRows, Weighing, WeightEstimator
from dpiw.methods.weights.paper.calibration import PublicRows
from dpiw.methods.weights.weigh import Weights, uniform_weights
from dpiw.privacy.measurement import Measurement

DRAWN_ROWS = 1 << 18
"""Most rows that a model is asked for at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Everything that a release is made with, decided before data is read.

    Attributes:
        schema: the public schema.
        generator: calibrated.
        weights: calibrated; None where rows are published unweighted.
        weighing: how weights are made of a measurement, and how many rows are published.
    """

    schema: PublicSchema
    generator: Synthesizer
    weights: WeightEstimator | None
    weighing: Weighing

    @property
    def sampled(self) -> tuple[int, int]:
        """Rows to sample: to weigh, and to fit weights on."""
        published = self.weighing.rows
        return (published, 0) if self.weights is None else self.weights.sampled(published)

    def with_public_rows(self, scaled: ScaledTable) -> Recipe:
        """With rows of the real law that are public, if a beta calibration asks for them."""
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

        At most `DRAWN_ROWS` at a time, or all at once of a model that `draws_once`, and no more
        than it has `at_hand`. Where rows had to be projected their order is chance: the first are
        a sample of all. Costs nothing.
        """
        rules = self.schema.rules
        rows = min(rows, getattr(model, "at_hand", rows))
        most = max(1, rows) if getattr(model, "draws_once", False) else DRAWN_ROWS
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
        """Weights of the rows; one each where there are none. Costs nothing.

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


def ready_to_measure(
    weights: WeightEstimator, rows: SampledRows
) -> tuple[WeightEstimator, SyntheticTable]:
    """Weights that know the published rows if their noise depends on them, and rows to fit on.

    Others than the published ones, so that a row's weight does not depend on its having been in
    the fit; the published ones where the release is of their weights alone, or nothing is fitted.
    """
    on_published = weights.bound_to_rows or rows.fitting.rows == 0
    return weights.for_rows(rows.weighed), rows.weighed if on_published else rows.fitting
