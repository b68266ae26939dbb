"""The histogram that a network is given before it is trained: its share, its draw, its storage.

The counts are drawn once, first, as `dpiw.methods.generators.histogram` draws them, and are an
event of their own beside the training's. A resumed training finds them in its checkpoint.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.heads import ColumnDistributions
from dpiw.methods.generators.histogram import Histogram, known_laws
from dpiw.methods.generators.marginal_noise import marginal_sensitivity, noise_size, useful_bins
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.units import NoiseKind, PrivacyUnit

BINS = 32
"""Most bins of a number that declares none, as of `Histogram`."""

WANTED = 0.1
"""Total variation that the histogram's noise shall stay below in a column, about."""

LEAST, MOST = 0.2, 0.8
"""Between which the rule's share of the effort lies."""

_KEY = "one_way_"


def check_share(value: object) -> float | None:
    """The setting `marginals_share`: None is the rule of `share_of`, 0 no histogram; SpecError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 0.95:
        raise SpecError("generator.settings.marginals_share: expected a number from 0 to 0.95")
    return float(value)


def share_of(rho: float, *, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int) -> float:
    """Share of the effort that a histogram is worth, by public facts alone.

    A column of b codes whose counts have noise of standard deviation s is off by about
    b E|noise|/(2 n) in total variation. Noise that keeps this at `WANTED` costs an effort of
    d k^2/(2 s^2) over d columns; less than `LEAST` is not worth saving, and more than `MOST` would
    leave a training nothing.

    Of Gaussian noise. With Laplace noise, where the share is one of a pure epsilon, it is a rule of
    thumb only: `WANTED` is not what it leads to.
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
    """The calibrated histogram, None where the share is 0, and the share that is left.

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


def marginals_events(
    histogram: Histogram | None, *, schema: PublicSchema, unit: PrivacyUnit
) -> tuple[PrivacyEvent, ...]:
    """One event per column, each counting one draw: that is how `Resumption` knows them from steps.

    Raises:
        UncalibratedError: as `Histogram.events`.
    """
    if histogram is None:
        return ()
    (all_columns,) = histogram.events(schema=schema, unit=unit)
    return (replace(all_columns, count=1),) * all_columns.count


def marginals_noise(
    histogram: Histogram | None, *, schema: PublicSchema, unit: PrivacyUnit
) -> tuple[ReleasedNoise, ...]:
    """Noise of the histogram, which its equal events account for; nothing where there is none."""
    if histogram is None:
        return ()
    return tuple(
        replace(law, values="marginals")
        for law in histogram.released_noise(schema=schema, unit=unit)
    )


def with_distributions(design: Design, measured: Measurement | None) -> Design:
    """A design whose marginals are those of a measured histogram, if there is one."""
    if measured is None:
        return design
    known = known_laws(measured, schema=design.schema)
    return replace(
        design, distributions=ColumnDistributions.of(design.made, known.domain, known.laws)
    )


def label_law(design: Design, measured: Measurement) -> NDArray[np.float64]:
    """Shares of the label's levels by a measured histogram, shape (levels,)."""
    known = known_laws(measured, schema=design.schema)
    names = [column.name for column in design.schema.released]
    assert design.label is not None
    law = known.laws[names.index(design.label.name)]
    return np.asarray(law / law.sum())


def stored_arrays(measured: Measurement | None, design: Design) -> Mapping[str, Any]:
    """The counts and what levelling found, for a network's measurement."""
    if measured is None or design.distributions is None:
        return {}
    return {**measured.arrays, **design.distributions.arrays}


def stored_facts(measured: Measurement | None) -> Mapping[str, Any]:
    """The histogram's facts, for a network's measurement; its scale as the certificate's."""
    if measured is None:
        return {}
    return {"marginals": dict(measured.facts), "marginals_scale": measured.facts["scale"]}


def stored_marginals(measurement: Measurement) -> Measurement | None:
    """The histogram in a network's measurement, if it has one."""
    facts = measurement.facts.get("marginals")
    if facts is None:
        return None
    arrays = {k: v for k, v in measurement.arrays.items() if k.startswith(_KEY)}
    return Measurement(
        kind=Histogram.method, arrays=arrays, facts=facts, publishable=measurement.publishable
    )
