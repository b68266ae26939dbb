"""AIM: repeatedly measures the two-way marginal where the model of earlier ones is worst.

Source: McKenna, Mullins, Sheldon & Miklau (2022), algorithms 1 to 3, on all pairs. Differences: the
number of rows is never read, and effort comes in equal parts. A round's parts depend on earlier
noisy output, so they are of Gaussian differential privacy, which has a filter for that
(docs/method.md section 18). If runs may resume, a round takes at most a twentieth of the rounds'
effort.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.base import FEWER_LEVELS, Running, StatedNoise, check_effort
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.bayesian_network import MOST_CELLS
from dpiw.methods.generators.counted import CountedColumns, CountedNoise, counting_seconds
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import known_one_way, measured_domain, pooled
from dpiw.methods.generators.marginal_noise import (
    marginal_sensitivity,
    noise_scale,
    released_counts,
    stated,
    useful_bins,
)
from dpiw.methods.generators.pgm.aim_rounds import (
    MOST_BYTES,
    PARTS,
    Round,
    Workload,
    draw_round,
    drawn_marginals,
    expected_counts,
    fitted,
    spent,
    taught,
)
from dpiw.methods.generators.pgm.inference import (
    GraphicalModel,
    rows_of,
)
from dpiw.methods.generators.pgm.pairs import Merging
from dpiw.privacy.events import GaussianEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, Resumption, TrainingWatch, interval
from dpiw.privacy.units import NoiseKind, PrivacyUnit

MOST_COLUMNS = 64
"""Most columns: a round scores every pair in a model of its own size, which takes hours beyond."""


@dataclass(frozen=True, kw_only=True)
class AIMNoise(CountedNoise):
    """Calibrated constants, all public; `part` is the multiplier that costs one part of effort."""

    part: float
    parts: int


@dataclass(frozen=True, kw_only=True)
class AIM(CountedColumns):
    """AIM before it has seen data.

    Attributes:
        max_cells: pairs of columns with more cells are not measured.
        max_model_cells: of the final junction tree; proportionally fewer at a share of the effort.
        resumes: resumes after the last round, each charged a twentieth in advance. 0: no limit on a
            round's effort, and a killed run is lost.

    Privacy: candidates and total effort are public; rounds and their costs follow from noisy
    output. The number of rows is never read. Fits receive only noisy output.
    """

    max_cells: int = 10_000
    max_model_cells: int = 10_000_000
    resumes: int = 0
    calibrated: AIMNoise | None = None

    method: ClassVar[str] = "aim"
    needs_delta: ClassVar[str] = "its noise is gaussian (mst has laplace)"

    ranges = CountedColumns.ranges | {
        "max_cells": (4, MOST_CELLS), "max_model_cells": (1, 1 << 27), "resumes": (0, 20),
    }  # fmt: skip

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats on its rows and on the price of its rounds, for the certificate."""
        return (
            "Columns of unweighted rows depend on each other through the measured pairs alone,"
            f" which were chosen by noisy scores among those of at most {self.max_cells} cells, as"
            f" far as a model of at most {self.max_model_cells} cells holds them.",
            "What rounds cost follows from noisy output. That they cost no more than declared rests"
            " on the filter of Gaussian differential privacy (Smith & Thakurta 2022), to which a"
            " selection of parameter e is a Gaussian mechanism of shift e sqrt(pi/8).",
        )

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise, JSON values, for the plan and the certificate."""
        return {
            **stated(self, part="part_multiplier", parts="parts"),
            "noise": NoiseKind.GAUSSIAN.value,
        }

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Share the effort among 16 equal parts a column, and those that a resume may repeat."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        bins = useful_bins(self.bins, nominal_rows)
        sizes = Domain.from_schema(schema, bins=bins).sizes
        if len(sizes) > MOST_COLUMNS:
            raise SpecError(
                f"{len(sizes)} columns",
                field="generator.method=aim",
                allowed=f"at most {MOST_COLUMNS}, or another generator.method",
            )
        # The first round may fill as much as the one-way marginals and itself have cost.
        if max(sizes) > MOST_CELLS:
            raise SpecError(
                f"a column of {max(sizes)} levels or bins",
                field="generator.method=aim",
                allowed=f"at most {MOST_CELLS} a column: {FEWER_LEVELS}",
            )
        if sum(sizes) * PARTS > self.max_model_cells:
            raise SpecError(
                f"found {self.max_model_cells}",
                field="generator.settings.max_model_cells",
                allowed=f"at least {PARTS * sum(sizes)}, {PARTS} times the {sum(sizes)} levels and"
                " bins of all columns, or fewer of these",
            )
        if self._workload(sizes).held_bytes() > MOST_BYTES:
            raise SpecError(
                f"a round may need more than {MOST_BYTES >> 20} MiB of memory besides the table",
                field="generator.settings.max_model_cells, max_cells",
                allowed="smaller numbers, or columns with fewer levels or bins",
            )
        rounds = (PARTS - 1) * len(sizes)
        terms = Resumption.of(steps=rounds, resumes=self.resumes)
        part = sqrt((len(sizes) + rounds + (terms.reserve if terms else 0)) / (2 * rho))
        noise = AIMNoise(part=part, parts=rounds, bins=bins, schema=schema, unit=unit)
        return replace(self, calibrated=noise)

    def _workload(self, sizes: tuple[int, ...]) -> Workload:
        return Workload(sizes=sizes, max_cells=self.max_cells, max_model_cells=self.max_model_cells)

    @property
    def resumption(self) -> Resumption | None:
        """The terms of resuming a killed run; None: it is lost."""
        ready = self.calibrated
        return None if ready is None else Resumption.of(steps=ready.parts, resumes=self.resumes)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """All one-way marginals as one Gaussian mechanism, and every part of the rounds."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        terms, columns = self.resumption, len(schema.released)
        repeated = terms.reserve if terms else 0
        return (
            GaussianEvent(noise_multiplier=ready.part / sqrt(columns)),
            GaussianEvent(noise_multiplier=ready.part, count=ready.parts + repeated),
        )

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Return noise of the one-way marginals together, and of one part of a round.

        A round of p parts draws its marginal with this scale over sqrt((1 - `SELECTION`) p).
        """
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        part = released_counts(
            "part of a round", NoiseKind.GAUSSIAN, multiplier=ready.part, unit=unit, event=1
        )
        reach = marginal_sensitivity(unit, NoiseKind.GAUSSIAN) * sqrt(len(schema.released))
        return (replace(part, values="one_way", sensitivity=reach, event=0), part)

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Forecast two rounds per column, though noise may ask for more.

        Ten dependent columns of 27,000 rows took 37 s (30 columns without dependence 12 s).
        """
        columns = len(schema.released)
        tables = 2 * columns * columns * (columns + 1) / 2
        counted = counting_seconds(tables, nominal_rows)
        return Running(seconds=counted + 4 * columns, held_bytes=(32 + 2 * columns) << 20)

    def measure(
        self, table: PrivateTable, *, noise: NoiseSource, watch: TrainingWatch = UNWATCHED
    ) -> Measurement:
        """Draw the one-way marginals, then rounds: a selection and the noisy marginal it chose.

        Privacy:
            Unit: `calibrated.unit`. Marginals: L2 = k add/remove, sqrt(2) k replace-one; k =
                max_rows.
            Selections: score sensitivity k or 2 k times the largest weight.
            Event: `events`. Parts of the rounds, chosen by noisy output, sum to at most theirs
                (Smith & Thakurta 2022). A resumed run repeats at most one round, which `events`
                counts.

        Raises:
            PrivacyError: a checkpoint, and no part is reserved to be repeated.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        domain = Domain.from_schema(table.schema, bins=ready.bins)
        counter = ContingencyCounter.of(table, domain)
        steps, sizes, workload = ready.parts, domain.sizes, self._workload(domain.sizes)
        drawn = self._resumed(watch, publishable=noise.publishable)
        if drawn is None:
            drawn = self._start(counter, domain, ready, noise)
            watch.at(0, steps, drawn.to_bytes)
        model = fitted(drawn)
        while drawn.facts["next"]:
            price = Round(part=ready.part, parts=drawn.facts["next"])
            share = (len(sizes) + spent(drawn) + price.parts) / (len(sizes) + steps)
            marginals = drawn_marginals(drawn)
            cliques = [marginal.columns for marginal in marginals]
            candidates = workload.affordable(cliques, share=share)
            drawn = draw_round(
                counter, drawn, expected_counts(model, candidates, rows_of(marginals)),
                price=price, weights=workload.weights(), unit=ready.unit, noise=noise,
            )  # fmt: skip
            before, steps_left = model, steps - spent(drawn)
            model = fitted(drawn) if steps_left else before
            following = price.next(
                left=steps_left,
                most=interval(steps) if self.resumes else steps,
                taught=taught(before, model, drawn),
            )
            drawn = replace(drawn, facts={**drawn.facts, "next": following.parts})
            watch.at(steps - steps_left, steps, drawn.to_bytes)
        return drawn

    def _start(
        self, counter: ContingencyCounter, domain: Domain, ready: AIMNoise, noise: NoiseSource
    ) -> Measurement:
        scale = noise_scale(NoiseKind.GAUSSIAN, multiplier=ready.part, unit=ready.unit)
        draw = partial(noisy_marginal, kind=NoiseKind.GAUSSIAN, scale=scale, noise=noise)
        one_way = {f"one_way_{j}": draw(counts) for j, counts in enumerate(counter.one_way())}
        kind = NoiseKind.GAUSSIAN.value
        facts = {"noise": kind, "one_way_scale": scale, "network": [], "next": 1}
        arrays = {**one_way, "rounds": np.zeros(0)}
        return self.measurement(arrays, facts, domain=domain, noise=noise)

    def _resumed(self, watch: TrainingWatch, *, publishable: bool) -> Measurement | None:
        if (checkpoint := watch.resumed()) is None:
            return None
        if not self.resumes:
            raise PrivacyError("cannot continue from a checkpoint: resumes is 0", field="aim")
        measurement = Measurement.from_bytes(checkpoint)
        return replace(measurement, publishable=measurement.publishable and publishable)

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> GraphicalModel:
        """The graphical model of all marginals; fitted when rows are asked."""
        domain = measured_domain(measurement, kind=self.method, schema=schema)
        marginals = pooled(drawn_marginals(measurement))
        one_way, _ = known_one_way(domain, marginals, bins=int(measurement.facts["bins"]))
        return GraphicalModel(
            domain=domain,
            marginals=marginals,
            merging=[Merging(codes=np.arange(size, dtype=np.int32)) for size in domain.sizes],
            one_way=one_way,
        )
