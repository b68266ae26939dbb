"""MST: a maximum spanning tree of noisy two-way marginals, and the graphical model of it.

Source: McKenna, Miklau & Sheldon (2021), section 4 and algorithm 2. Differences: the number of rows
is never read, selections are accounted by bounded range, and rows are drawn independently.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError
from dpiw.methods.base import FEWER_LEVELS, Running, check_effort
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.bayesian_network import MOST_CELLS, score_sensitivity
from dpiw.methods.generators.counted import SelectedMarginals, SelectedNoise, counting_seconds
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import (
    NoisyMarginal,
    known_one_way,
    measured_domain,
    one_way_tables,
    project_to_total,
)
from dpiw.methods.generators.marginal_noise import noise_scale, noise_variance, useful_bins
from dpiw.methods.generators.pgm.inference import (
    GraphicalModel,
    rows_of,
)
from dpiw.methods.generators.pgm.pairs import (
    UNIT,
    Merging,
    admissible_pairs,
    distance,
    merged_counts,
    spanning_pairs,
    unmerged_votes,
)
from dpiw.privacy import mechanisms
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class MST(SelectedMarginals):
    """MST before it has seen data.

    Attributes:
        max_cells: pairs of columns with more cells are not measured.

    Privacy: candidates and the number of mechanisms are public; the row count is never read.
    """

    max_cells: int = 65_536

    method: ClassVar[str] = "mst"
    joint: ClassVar[str] = "pair"
    shown: ClassVar[dict[str, str]] = {
        "one_way": "one_way_multiplier", "selection": "selection_epsilon",
        "joint": "pair_multiplier", "joints": "pairs",
    }  # fmt: skip

    ranges = SelectedMarginals.ranges | {"max_cells": (4, MOST_CELLS)}

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats on its rows, for the certificate."""
        return (
            "Columns of unweighted rows depend on each other through the measured pairs alone: a"
            f" tree of them, chosen by noisy scores among those of at most {self.max_cells} cells.",
            "In the pairs, levels whose noisy count is below three standard deviations are one:"
            " unweighted rows do not tell what sets them apart.",
        )

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Give one-way marginals, selections and two-way marginals a third of the effort each."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        bins = useful_bins(self.bins, nominal_rows)
        sizes = Domain.from_schema(schema, bins=bins).sizes
        for column, size in zip(schema.released, sizes, strict=True):
            if size > MOST_CELLS:
                raise SpecError(
                    f"found {size} levels or bins, and generator.method=mst takes fewer",
                    field=f"column {column.name}",
                    allowed=f"at most {MOST_CELLS}: {FEWER_LEVELS}",
                )
        pairs = spanning_pairs(sizes, self.max_cells)
        third = 1 / 3 if pairs else 1.0
        return self.with_shares(
            pairs, (third, third, third),
            rho=rho, schema=schema, unit=unit, nominal_rows=nominal_rows,
        )  # fmt: skip

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Forecast counts of every admissible pair, and the fit of the tree.

        15 columns of 10,000 rows took 0.3 s, 45 of 100,000 3.7 s and 40 MiB, 300 of 1,000 14 s.
        """
        ready = ready_for(self.calibrated, schema, method=self.method)
        sizes = Domain.from_schema(schema, bins=ready.bins).sizes
        pairs = [sizes[a] * sizes[b] for a, b in admissible_pairs(sizes, self.max_cells)]
        columns = len(sizes)
        counted = counting_seconds(len(pairs), nominal_rows)
        fitted = 0.1 + columns * (0.01 + 3e-7 * nominal_rows)
        cells = sum(sorted(pairs)[-ready.joints :]) if ready.joints else 0
        held = 32 * (cells + sum(sizes)) + 8 * columns * min(nominal_rows, 1 << 18)
        return Running(seconds=counted + fitted, held_bytes=held)

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Draw noisy one-way marginals, the pairs, and the pairs' noisy marginals.

        Privacy:
            Unit: `calibrated.unit`. Marginals: L1 = L2 = k add/remove; 2 k and sqrt(2) k
                replace-one; k = max_rows. Selections: score sensitivity k or 2 k.
            Event: `events`, in that order, each adaptive only on earlier noisy output.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        domain = Domain.from_schema(table.schema, bins=ready.bins)
        counter = ContingencyCounter.of(table, domain)
        facts: dict[str, Any] = {
            "noise": self.noise.value,
            "one_way_scale": noise_scale(self.noise, multiplier=ready.one_way, unit=ready.unit),
            "pair_scale": noise_scale(self.noise, multiplier=ready.joint, unit=ready.unit),
        }
        draw = partial(noisy_marginal, kind=self.noise, noise=noise)
        arrays = {
            f"one_way_{j}": draw(counts, scale=facts["one_way_scale"])
            for j, counts in enumerate(counter.one_way())
        }
        variance = noise_variance(self.noise, facts["one_way_scale"])
        marginals = one_way_tables(arrays, len(domain.sizes), variance=variance)
        merging = [Merging.of(marginal) for marginal in marginals]
        pairs = self._select(counter, marginals, merging, ready, noise)
        for number, counts in enumerate(merged_counts(counter, pairs, merging)):
            arrays[f"pair_{number}"] = draw(counts, scale=facts["pair_scale"]).ravel()
        facts["network"] = [list(pair) for pair in pairs]
        return self.measurement(arrays, facts, domain=domain, noise=noise)

    def _select(
        self,
        counter: ContingencyCounter,
        marginals: Sequence[NoisyMarginal],
        merging: Sequence[Merging],
        ready: SelectedNoise,
        noise: NoiseSource,
    ) -> list[tuple[int, int]]:
        from scipy.cluster.hierarchy import DisjointSet

        rows = rows_of(marginals)
        shares = [
            project_to_total(merger.summed(marginal.values), rows) / rows
            for marginal, merger in zip(marginals, merging, strict=True)
        ]
        sizes = [marginal.values.size for marginal in marginals]
        candidates = [*admissible_pairs(sizes, self.max_cells)]
        tables = merged_counts(counter, candidates, merging)
        scores = {
            (a, b): distance(counts, rows * np.outer(shares[a], shares[b])) / UNIT
            for (a, b), counts in zip(candidates, tables, strict=True)
        }
        trees, pairs, waiting = DisjointSet(range(len(sizes))), list[tuple[int, int]](), [*scores]
        for _ in range(ready.joints):
            waiting = [pair for pair in waiting if not trees.connected(*pair)]
            chosen = mechanisms.select(
                np.array([scores[pair] for pair in waiting]),
                epsilon=ready.selection,
                sensitivity=score_sensitivity(ready.unit),
                noise=noise,
            )
            trees.merge(*waiting[chosen])
            pairs.append(waiting[chosen])
        return pairs

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> GraphicalModel:
        """The graphical model of all marginals; fitted when rows are asked."""
        domain = measured_domain(measurement, kind=self.method, schema=schema)
        facts, arrays = measurement.facts, measurement.arrays
        kind = NoiseKind(facts["noise"])
        variance = noise_variance(kind, facts["one_way_scale"])
        singles = one_way_tables(arrays, len(domain.sizes), variance=variance)
        merging = [Merging.of(marginal) for marginal in singles]
        variance = noise_variance(kind, facts["pair_scale"])
        pairs = [
            NoisyMarginal(
                columns=(a, b),
                values=arrays[f"pair_{number}"].reshape(merging[a].size, merging[b].size),
                variance=variance,
            )
            for number, (a, b) in enumerate(facts["network"])
        ]
        votes = [*singles, *unmerged_votes(pairs, merging)]
        one_way, _ = known_one_way(domain, [*singles, *pairs], bins=int(facts["bins"]), votes=votes)
        summed = [
            replace(marginal, values=merger.summed(marginal.values), merged=merger.members)
            for marginal, merger in zip(singles, merging, strict=True)
        ]
        return GraphicalModel(
            domain=domain, marginals=[*summed, *pairs], merging=merging, one_way=one_way
        )
