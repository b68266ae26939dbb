"""PrivBayes on mixed types: a Bayesian network from noisy low-dimensional marginals.

Differences: measures one-way marginals first and scores by them; penalises a score by its noise
(AIM, McKenna et al. 2022); discrete Gaussian noise by default; makes tables consistent. Bins,
levels and sizes are public. Source: Zhang et al. (2017), PrivBayes, TODS 42(4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.schema import ColumnRole, PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.base import (
    TABLE_ROW_SECONDS,
    TABLE_SECONDS,
    CriticKind,
    Running,
    check_effort,
)
from dpiw.methods.generators.base import Synthesizer, ready_for
from dpiw.methods.generators.bayesian_network import (
    MOST_CELLS,
    Family,
    NetworkModel,
    candidate_count,
    choose_network,
    score_sensitivity,
    whole_shares,
)
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.estimation import (
    NoisyMarginal,
    conditionals,
    distribution,
    known_one_way,
    measured_domain,
)
from dpiw.methods.generators.marginal_noise import (
    marginal_multiplier,
    noise_scale,
    noise_size,
    noise_variance,
    released_counts,
    selection_epsilon,
    stated,
    typed,
    useful_bins,
    with_noise,
)
from dpiw.privacy import mechanisms
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent, LaplaceEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit

MOST_CANDIDATES = 200_000
"""Most families scored: the plan refuses more, which take minutes."""


@dataclass(frozen=True, kw_only=True)
class PrivBayesNoise:
    """Calibrated multipliers (scale / sensitivity) and epsilon of each selection; all public."""

    one_way: float
    selection: float
    family: float
    schema: PublicSchema
    unit: PrivacyUnit
    nominal_rows: int


@dataclass(frozen=True, kw_only=True)
class PrivBayes(Synthesizer):
    """PrivBayes before it has seen data.

    Attributes:
        degree: most parents of a column.
        bins: most bins of a numeric column without `bins` or `cuts` (see `useful_bins`).
        noise: `gaussian`, or `laplace` if delta is 0.
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
    bins: int = 16
    noise: NoiseKind = NoiseKind.GAUSSIAN
    max_cells: int = 4096
    usefulness: float = 2.0
    noise_penalty: float = 0.25
    one_way_share: float = 0.15
    selection_share: float = 0.1
    calibrated: PrivBayesNoise | None = None

    method: ClassVar[str] = "privbayes"
    private: ClassVar[bool] = True
    in_batches: ClassVar[bool] = True
    critic: ClassVar[CriticKind] = CriticKind.NONE

    def __post_init__(self) -> None:
        if self.degree not in (1, 2, 3, 4):
            raise SpecError(f"generator.settings.degree={self.degree}: expected 1 to 4")
        if self.bins < 2:
            raise SpecError(f"generator.settings.bins={self.bins}: expected a whole number >= 2")
        if self.noise not in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE):
            raise SpecError("generator.settings.noise: expected gaussian or laplace")
        if not 4 <= self.max_cells <= MOST_CELLS:
            raise SpecError(f"generator.settings.max_cells: expected 4 to {MOST_CELLS}")
        if not (isfinite(self.usefulness) and self.usefulness > 0):
            raise SpecError("generator.settings.usefulness: expected a number > 0")
        if not (isfinite(self.noise_penalty) and self.noise_penalty >= 0):
            raise SpecError("generator.settings.noise_penalty: expected a number >= 0")
        shares = (self.one_way_share, self.selection_share)
        if not (min(shares) > 0 and sum(shares) < 1):
            raise SpecError(
                "generator.settings.one_way_share, selection_share: numbers > 0, sum below 1"
            )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; noise is Laplace where delta is 0."""
        return cls(**typed(cls, with_noise(settings, pure=pure)))

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and noise, JSON values, for the plan and the certificate."""
        return stated(
            self, one_way="one_way_multiplier", selection="selection_epsilon",
            family="family_multiplier", nominal_rows="nominal_rows",
        )  # fmt: skip

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort `rho` over marginals and selections (`marginal_noise`)."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        columns = len(schema.released)
        if candidate_count(columns, self.degree) > MOST_CANDIDATES:
            raise SpecError(
                f"generator.settings.degree={self.degree}: {columns} columns give more than"
                f" {MOST_CANDIDATES} candidate families; expected a smaller degree"
            )
        families = columns - 1
        one_way = self.one_way_share if families else 1.0
        rest = 1.0 - self.one_way_share - self.selection_share
        noise = PrivBayesNoise(
            one_way=marginal_multiplier(self.noise, rho=rho, share=one_way, count=columns),
            selection=selection_epsilon(
                self.noise, rho=rho, share=self.selection_share, count=max(1, families)
            ),
            family=marginal_multiplier(self.noise, rho=rho, share=rest, count=max(1, families)),
            schema=schema,
            unit=unit,
            nominal_rows=nominal_rows,
        )
        return replace(self, calibrated=noise)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One-way marginals, selections, families; their number does not depend on selections."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        columns = len(schema.released)
        law = LaplaceEvent if self.noise is NoiseKind.LAPLACE else GaussianEvent
        events: list[PrivacyEvent] = [law(noise_multiplier=ready.one_way, count=columns)]
        if columns > 1:
            events.append(ExponentialMechanismEvent(epsilon=ready.selection, count=columns - 1))
            events.append(law(noise_multiplier=ready.family, count=columns - 1))
        return tuple(events)

    def released_noise(
        self, *, schema: PublicSchema, unit: PrivacyUnit
    ) -> tuple[ReleasedNoise, ...]:
        """Noise of one-way and of families' marginals; selections have no scale."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        stated = partial(released_counts, kind=self.noise, unit=unit)
        one_way = stated("one_way", multiplier=ready.one_way, event=0)
        if len(schema.released) == 1:
            return (one_way,)
        return (one_way, stated("family", multiplier=ready.family, event=2))

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Every candidate is counted; 40 columns of 100,000 rows took 9 s."""
        candidates = candidate_count(len(schema.released), self.degree)
        seconds = candidates * (TABLE_SECONDS / 10 + TABLE_ROW_SECONDS * nominal_rows)
        return Running(seconds=seconds, held_bytes=32 * self.max_cells * len(schema.released))

    def cell_cap(self) -> int:
        """Most cells of a family: `max_cells` or theta-usefulness (PrivBayes, def. 4.7); public."""
        if self.calibrated is None:
            raise UncalibratedError("privbayes: the cap on cells follows from the noise")
        noise = noise_size(self.noise, self._scale(self.calibrated, self.calibrated.family))
        return int(min(self.max_cells, self.calibrated.nominal_rows / (self.usefulness * noise)))

    def _scale(self, ready: PrivBayesNoise, multiplier: float) -> float:
        return noise_scale(self.noise, multiplier=multiplier, unit=ready.unit)

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """Draw noisy one-way marginals, the network, and the families' noisy marginals.

        Privacy:
            Unit: `calibrated.unit`. Marginals: L1 = L2 = k add/remove; 2 k and sqrt(2) k
                replace-one; k = max_rows. Selections: score sensitivity k or 2 k.
            Event: `events`, in that order, each adaptive only on earlier noisy output.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        bins = useful_bins(self.bins, ready.nominal_rows)
        domain = Domain.from_schema(table.schema, bins=bins)
        counter = ContingencyCounter.of(table, domain)
        draw = partial(noisy_marginal, kind=self.noise, noise=noise)
        scale = self._scale(ready, ready.one_way)
        arrays = {
            f"one_way_{j}": draw(counts, scale=scale) for j, counts in enumerate(counter.one_way())
        }
        families = self._network(counter, domain, arrays, ready, noise)
        # A column without parents has its one-way marginal measured once more: the number of
        # mechanisms is the declared one whatever was selected, and nothing paid for is wasted.
        tables = counter.each(family.members for family in families[1:])
        for family, counts in zip(families[1:], tables, strict=True):
            scale = self._scale(ready, ready.family)
            arrays[f"family_{family.child}"] = draw(counts, scale=scale)
        return Measurement(
            kind=self.method,
            arrays=arrays,
            facts={
                "bins": bins,
                "degree": self.degree,
                "columns": [column.name for column in table.schema.released],
                "sizes": list(domain.sizes),
                "network": [[family.child, list(family.parents)] for family in families],
                "noise": self.noise.value,
                "one_way_scale": self._scale(ready, ready.one_way),
                "family_scale": self._scale(ready, ready.family),
            },
            publishable=noise.publishable,
            noise=self.released_noise(schema=table.schema, unit=ready.unit),
        )

    def _network(
        self,
        counter: ContingencyCounter,
        domain: Domain,
        one_way: Mapping[str, NDArray[np.float64]],
        ready: PrivBayesNoise,
        noise: NoiseSource,
    ) -> tuple[Family, ...]:
        scale = self._scale(ready, ready.family)
        released = domain.schema.released
        root = next((j for j, c in enumerate(released) if c.role is ColumnRole.TARGET), 0)
        return choose_network(
            counter,
            sizes=domain.sizes,
            shares=[
                whole_shares(distribution(one_way[f"one_way_{j}"])) for j in range(len(released))
            ],
            root=root,
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

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> NetworkModel:
        """Make the marginals consistent and turn them into conditional tables."""
        domain = measured_domain(measurement, kind=self.method, schema=schema)
        facts = measurement.facts
        families = [
            Family(child=int(child), parents=tuple(parents)) for child, parents in facts["network"]
        ]
        kind, arrays = NoiseKind(facts["noise"]), measurement.arrays
        one_way = [arrays[f"one_way_{j}"] for j in range(len(domain.sizes))]
        tables = [arrays[f"family_{family.child}"] for family in families[1:]]
        narrow = noise_variance(kind, facts["one_way_scale"])
        wide = noise_variance(kind, facts["family_scale"])
        measured = [
            *(
                NoisyMarginal(columns=(j,), values=table, variance=narrow)
                for j, table in enumerate(one_way)
            ),
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
