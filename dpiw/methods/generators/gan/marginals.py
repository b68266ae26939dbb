"""The histogram of every column that a network gets before training: share, draw and storage.

An event of its own, drawn once; a resumed training reads it from its checkpoint.
"""

import statistics
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.heads import ColumnDistributions
from dpiw.methods.generators.histogram import Histogram, known_laws
from dpiw.methods.generators.marginal_noise import marginal_sensitivity, noise_size, useful_bins
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.units import NoiseKind, PrivacyUnit

BINS = 32
"""Most bins of a number that declares none."""

WANTED = 0.1
"""Target for the total variation of the histogram's noise in a column."""

LEAST, MOST = 0.2, 0.8
"""Bounds of the rule's share of the effort."""


def share_of(rho: float, *, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int) -> float:
    """Share of the effort for a histogram, by public facts only, in [`LEAST`, `MOST`].

    A column of b codes under noise of deviation s is off by b E|noise|/(2 n) in total variation.
    `WANTED` bounds this, at an effort of d k^2/(2 s^2) over d columns (a rule of thumb for Laplace
    noise).
    """
    sizes = Domain.from_schema(schema, bins=useful_bins(BINS, nominal_rows)).sizes
    per_stddev = statistics.fmean(sizes) * noise_size(NoiseKind.GAUSSIAN, 1.0) / 2
    stddev = WANTED * nominal_rows / per_stddev
    reach = marginal_sensitivity(unit, NoiseKind.GAUSSIAN)
    effort = len(sizes) * reach**2 / (2 * stddev**2)
    return min(MOST, max(LEAST, effort / rho))


def plan_marginals(
    share: float | None,
    *,
    noise: NoiseKind,
    rho: float,
    schema: PublicSchema,
    unit: PrivacyUnit,
    nominal_rows: int,
) -> tuple[Histogram | None, float]:
    """Return the calibrated histogram, None if the share is 0, and the remaining share.

    Laplace noise shares the pure epsilon sqrt(2 rho), as `marginal_multiplier` does.
    """
    if share is None:
        share = share_of(rho, schema=schema, unit=unit, nominal_rows=nominal_rows)
    if share == 0:
        return None, 1.0
    histogram_rho = rho * (share**2 if noise is NoiseKind.LAPLACE else share)
    ready = Histogram(bins=BINS, noise=noise).calibrate(
        rho=histogram_rho, schema=schema, unit=unit, nominal_rows=nominal_rows
    )
    return ready, 1.0 - share


def with_distributions(design: Design, measured: Measurement | None) -> Design:
    """A design with the marginals of a measured histogram, if there is one."""
    if measured is None:
        return design
    domain, laws, _ = known_laws(measured, schema=design.schema)
    return replace(design, distributions=ColumnDistributions.of(design.made, domain, laws))


def label_law(design: Design, measured: Measurement) -> NDArray[np.float64]:
    """Shares of the label's levels by a measured histogram, shape (levels,)."""
    _, laws, _ = known_laws(measured, schema=design.schema)
    names = [column.name for column in design.schema.released]
    assert design.label is not None
    law = laws[names.index(design.label.name)]
    return np.asarray(law / law.sum())


def stored_marginals(measurement: Measurement) -> Measurement | None:
    """The histogram in a network's measurement, if it has one."""
    facts = measurement.facts.get("marginals")
    if facts is None:
        return None
    arrays = {k: v for k, v in measurement.arrays.items() if k.startswith("one_way_")}
    return Measurement(
        kind=Histogram.method, arrays=arrays, facts=facts, publishable=measurement.publishable
    )
