"""Perturbed one-way histograms, sampled independently: the baseline, without dependence.

Source: Wasserman & Zhou (2010), section 4.3, applied to each column.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.methods.base import Running, check_effort
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.bayesian_network import NetworkModel
from dpiw.methods.generators.counted import CountedMarginals, OneWayNoise, counting_seconds
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import (
    estimate_total,
    measured_domain,
    project_to_total,
    total_variance,
)
from dpiw.methods.generators.marginal_noise import (
    marginal_multiplier,
    noise_scale,
    noise_variance,
    useful_bins,
)
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class Histogram(CountedMarginals):
    """Independent perturbed histograms."""

    bins: int = 32

    method: ClassVar[str] = "histogram"
    singles: ClassVar[str] = method
    shown: ClassVar[dict[str, str]] = {"one_way": "multiplier"}

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort evenly over the columns; `nominal_rows` limits the bins."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        noise = OneWayNoise(
            one_way=marginal_multiplier(self.noise, rho=rho, share=1.0, count=len(schema.released)),
            bins=useful_bins(self.bins, nominal_rows),
            schema=schema,
            unit=unit,
        )
        return replace(self, calibrated=noise)

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Every column is counted."""
        seconds = counting_seconds(len(schema.released), nominal_rows)
        return Running(seconds=seconds, held_bytes=32 * self.bins * len(schema.released))

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Draw one noisy marginal per released column.

        Privacy:
            Unit: `calibrated.unit`. Add/remove: L1 = L2 = k. Replace-one: L1 = 2 k, L2 = sqrt(2) k;
            k = max_rows.
            Event: `events`, one marginal per column.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        domain = Domain.from_schema(table.schema, bins=ready.bins)
        counter = ContingencyCounter.of(table, domain)
        scale = noise_scale(self.noise, multiplier=ready.one_way, unit=ready.unit)
        arrays = {
            f"one_way_{j}": noisy_marginal(counts, kind=self.noise, scale=scale, noise=noise)
            for j, counts in enumerate(counter.one_way())
        }
        facts = {"noise": self.noise.value, "scale": scale}
        return self.measurement(arrays, facts, domain=domain, noise=noise)

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> NetworkModel:
        """Non-negative histograms of one total, sampled independently."""
        return NetworkModel.independent(*known_laws(measurement, schema=schema))


def known_laws(
    measurement: Measurement, *, schema: PublicSchema
) -> tuple[Domain, tuple[NDArray[np.float64], ...], OneWayMarginals]:
    """Return a histogram's domain, the columns' counts (>= 0, of one total), and their noise.

    Post-processes a measurement of `Histogram`; SpecError for another method or schema.
    """
    domain = measured_domain(measurement, kind=Histogram.method, schema=schema)
    facts = measurement.facts
    tables = [measurement.arrays[f"one_way_{j}"] for j in range(len(domain.sizes))]
    variances = [noise_variance(NoiseKind(facts["noise"]), facts["scale"])] * len(tables)
    total = estimate_total(tables, variances)
    laws = tuple(project_to_total(table, total) for table in tables)
    one_way = OneWayMarginals.of(
        domain,
        bins=int(facts["bins"]),
        marginals=laws,
        variances=variances,
        total_variance=total_variance(tables, variances),
    )
    return domain, laws, one_way
