"""Perturbed one-way histograms, sampled independently: the baseline, without dependence.

Source: Wasserman & Zhou (2010), section 4.3, applied to each column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.methods.base import TABLE_ROW_SECONDS, TABLE_SECONDS, Running, check_effort
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.bayesian_network import NetworkModel
from dpiw.methods.generators.counted import CountedMarginals, CountedNoise
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import (
    estimate_total,
    measured_domain,
    project_to_total,
    total_variance,
)
from dpiw.methods.generators.marginal_noise import (
    marginal_multiplier,
    marginals_event,
    noise_scale,
    noise_variance,
    released_counts,
    stated,
    useful_bins,
)
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class HistogramNoise(CountedNoise):
    """Calibrated multiplier: scale / sensitivity."""

    multiplier: float


@dataclass(frozen=True, kw_only=True)
class Histogram(CountedMarginals):
    """Independent perturbed histograms."""

    bins: int = 32
    calibrated: HistogramNoise | None = None

    method: ClassVar[str] = "histogram"

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise, JSON values, for the plan and the certificate."""
        return stated(self, multiplier="multiplier")

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort evenly over the columns; `nominal_rows` limits the bins."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        columns = len(schema.released)
        multiplier = marginal_multiplier(self.noise, rho=rho, share=1.0, count=columns)
        return replace(
            self,
            calibrated=HistogramNoise(
                multiplier=multiplier,
                bins=useful_bins(self.bins, nominal_rows),
                schema=schema,
                unit=unit,
            ),
        )

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One noisy marginal per released column."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        return (marginals_event(self.noise, ready.multiplier, count=len(schema.released)),)

    def released_noise(
        self, *, schema: PublicSchema, unit: PrivacyUnit
    ) -> tuple[ReleasedNoise, ...]:
        """Noise of every column's marginal."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        multiplier = ready.multiplier
        return (
            released_counts(self.method, self.noise, multiplier=multiplier, unit=unit, event=0),
        )

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Every column is counted."""
        seconds = len(schema.released) * (TABLE_SECONDS + TABLE_ROW_SECONDS * nominal_rows)
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
        scale = noise_scale(self.noise, multiplier=ready.multiplier, unit=ready.unit)
        arrays = {
            f"one_way_{j}": noisy_marginal(counts, kind=self.noise, scale=scale, noise=noise)
            for j, counts in enumerate(counter.one_way())
        }
        facts = {"noise": self.noise.value, "scale": scale}
        return self.measurement(arrays, facts, domain=domain, ready=ready, noise=noise)

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> NetworkModel:
        """Non-negative histograms of one total, sampled independently."""
        known = known_laws(measurement, schema=schema)
        return NetworkModel.independent(known.domain, known.laws, known.one_way)


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownLaws:
    """Laws of released columns from a measured histogram: counts >= 0, all with one total."""

    domain: Domain
    laws: tuple[NDArray[np.float64], ...]
    one_way: OneWayMarginals


def known_laws(measurement: Measurement, *, schema: PublicSchema) -> KnownLaws:
    """Post-process a measurement of `Histogram`; SpecError for another method or schema."""
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
    return KnownLaws(domain=domain, laws=laws, one_way=one_way)
