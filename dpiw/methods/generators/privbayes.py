"""PrivBayes on mixed types: a Bayesian network from noisy low-dimensional marginals.

Differences: measures one-way marginals first and scores by them; penalises a score by its noise
(AIM, McKenna et al. 2022); discrete Gaussian noise by default; makes tables consistent. Bins,
levels and sizes are public. Source: Zhang et al. (2017), PrivBayes, TODS 42(4).
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import ColumnRole, PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError
from dpiw.methods.base import (
    BELOW_ZERO,
    TABLE_ROW_SECONDS,
    TABLE_SECONDS,
    Running,
    calibrated_for,
    check_effort,
)
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.bayesian_network import (
    MOST_CELLS,
    Family,
    NetworkModel,
    candidate_count,
    choose_network,
    score_sensitivity,
    whole_shares,
)
from dpiw.methods.generators.counted import SelectedMarginals, SelectedNoise
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import (
    NoisyMarginal,
    conditionals,
    distribution,
    known_one_way,
    measured_domain,
    one_way_tables,
)
from dpiw.methods.generators.marginal_noise import noise_scale, noise_size, noise_variance
from dpiw.privacy import mechanisms
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit

MOST_CANDIDATES = 200_000
"""Most families scored: the plan refuses more, which take minutes."""


@dataclass(frozen=True, kw_only=True)
class PrivBayes(SelectedMarginals):
    """PrivBayes before it has seen data.

    Attributes:
        degree: most parents of a column.
        max_cells: most cells of a family.
        usefulness: PrivBayes' theta: least average cell of a family at the nominal size, in units
            of the expected noise in a cell.
        noise_penalty: share of a family's expected L1 noise that lowers its score; below 1, because
            consistency removes much of the noise.
        one_way_share, selection_share: of the effort; families get the rest.

    Privacy: bins, levels, caps and the number of mechanisms are public. The number of rows is never
    read: totals come from noisy marginals.
    """

    degree: int = 2
    max_cells: int = 4096
    usefulness: float = 2.0
    noise_penalty: float = 0.25
    one_way_share: float = 0.15
    selection_share: float = 0.1

    method: ClassVar[str] = "privbayes"
    joint: ClassVar[str] = "family"
    shown: ClassVar[dict[str, str]] = {
        "one_way": "one_way_multiplier", "selection": "selection_epsilon",
        "joint": "family_multiplier", "nominal_rows": "nominal_rows",
    }  # fmt: skip

    ranges = SelectedMarginals.ranges | {"degree": (1, 4), "max_cells": (4, MOST_CELLS)}
    bounds = SelectedMarginals.bounds | {
        "usefulness": (0, 1e300), "noise_penalty": (BELOW_ZERO, 1e300), "one_way_share": (0, 1),
        "selection_share": (0, 1),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.one_way_share + self.selection_share >= 1:
            raise SpecError(
                field="generator.settings.one_way_share, selection_share",
                allowed="numbers > 0 whose sum is below 1",
            )

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort `rho` over marginals and selections (`marginal_noise`)."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        columns = len(schema.released)
        if candidate_count(columns, self.degree) > MOST_CANDIDATES:
            raise SpecError(
                f"{columns} columns give more than {MOST_CANDIDATES} candidate families",
                field=f"generator.settings.degree={self.degree}",
                allowed="a smaller degree",
            )
        one_way = self.one_way_share if columns > 1 else 1.0
        rest = 1.0 - self.one_way_share - self.selection_share
        return self.with_shares(
            columns - 1, (one_way, self.selection_share, rest),
            rho=rho, schema=schema, unit=unit, nominal_rows=nominal_rows,
        )  # fmt: skip

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Every candidate is counted; 40 columns of 100,000 rows took 9 s."""
        candidates = candidate_count(len(schema.released), self.degree)
        seconds = candidates * (TABLE_SECONDS / 10 + TABLE_ROW_SECONDS * nominal_rows)
        return Running(seconds=seconds, held_bytes=32 * self.max_cells * len(schema.released))

    def cell_cap(self) -> int:
        """Most cells of a family: `max_cells` or theta-usefulness (PrivBayes, def. 4.7); public."""
        ready = calibrated_for(self.calibrated, method=self.method)
        noise = noise_size(self.noise, self._scale(ready, ready.joint))
        return int(min(self.max_cells, ready.nominal_rows / (self.usefulness * noise)))

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Warn of columns whose table with the target (else the narrowest) exceeds `cell_cap`.

        On five tables, epsilon 0.5 to 6, models of the rows were no better than chance exactly then
        (`benchmarks/test_weights_table.py::test_what_the_plan_warns_of_was_measured`).
        """
        ready, released = calibrated_for(self.calibrated, method=self.method), schema.released
        sizes, cap = [*Domain.from_schema(schema, bins=ready.bins).sizes], self.cell_cap()
        targets = (j for j, column in enumerate(released) if column.role is ColumnRole.TARGET)
        target = next(targets, sizes.index(min(sizes)))
        size = sizes.pop(target)
        wide = sum(size * other > cap for other in sizes)
        text = (
            f"generator: privbayes counts tables of at most {cap} cells, too few for {wide} of"
            f" {len(sizes)} columns with column {released[target].name}, so unweighted rows may"
            " predict it no better than chance; raise epsilon, release fewer columns or bins, or"
            " use weights.method measured"
        )
        return (text,) if wide else ()

    def _scale(self, ready: SelectedNoise, multiplier: float) -> float:
        return noise_scale(self.noise, multiplier=multiplier, unit=ready.unit)

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Draw noisy one-way marginals, the network, and the families' noisy marginals.

        Privacy:
            Unit: `calibrated.unit`. Marginals: L1 = L2 = k add/remove; 2 k and sqrt(2) k
                replace-one; k = max_rows. Selections: score sensitivity k or 2 k.
            Event: `events`, in that order, each adaptive only on earlier noisy output.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        domain = Domain.from_schema(table.schema, bins=ready.bins)
        counter = ContingencyCounter.of(table, domain)
        draw = partial(noisy_marginal, kind=self.noise, noise=noise)
        scale = self._scale(ready, ready.one_way)
        arrays = {
            f"one_way_{j}": draw(counts, scale=scale) for j, counts in enumerate(counter.one_way())
        }
        scale, released = self._scale(ready, ready.joint), domain.schema.released
        shares = [whole_shares(distribution(arrays[f"one_way_{j}"])) for j in range(len(released))]
        families = choose_network(
            counter,
            sizes=domain.sizes,
            shares=shares,
            root=next((j for j, c in enumerate(released) if c.role is ColumnRole.TARGET), 0),
            degree=self.degree,
            max_cells=self.cell_cap(),
            # Half the expected L1 error of the noisy table, in the score's own unit: rows.
            cell_penalty=0.5 * self.noise_penalty * noise_size(self.noise, scale),
            select=partial(
                mechanisms.select,
                epsilon=ready.selection,
                sensitivity=score_sensitivity(ready.unit),
                noise=noise,
            ),
        )
        # A column without parents has its one-way marginal measured once more: the number of
        # mechanisms is the declared one whatever was selected, and nothing paid for is wasted.
        tables = counter.each(family.members for family in families[1:])
        for family, counts in zip(families[1:], tables, strict=True):
            arrays[f"family_{family.child}"] = draw(counts, scale=scale)
        facts = {
            "degree": self.degree,
            "network": [[family.child, list(family.parents)] for family in families],
            "noise": self.noise.value,
            "one_way_scale": self._scale(ready, ready.one_way),
            "family_scale": scale,
        }
        return self.measurement(arrays, facts, domain=domain, noise=noise)

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> NetworkModel:
        """Make the marginals consistent and turn them into conditional tables."""
        domain = measured_domain(measurement, kind=self.method, schema=schema)
        facts = measurement.facts
        families = [
            Family(child=int(child), parents=tuple(parents)) for child, parents in facts["network"]
        ]
        kind, arrays = NoiseKind(facts["noise"]), measurement.arrays
        tables = [arrays[f"family_{family.child}"] for family in families[1:]]
        narrow = noise_variance(kind, facts["one_way_scale"])
        wide = noise_variance(kind, facts["family_scale"])
        measured = [
            *one_way_tables(arrays, len(domain.sizes), variance=narrow),
            *(
                NoisyMarginal(columns=family.members, values=table, variance=wide)
                for family, table in zip(families[1:], tables, strict=True)
            ),
        ]
        one_way_marginals, marginals = known_one_way(domain, measured, bins=int(facts["bins"]))
        return NetworkModel(
            domain=domain,
            conditionals=conditionals(marginals, families, tables),
            one_way=one_way_marginals,
        )
