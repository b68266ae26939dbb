"""Forecasts from public facts: what weights can show, how long methods take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.base import Forecasts, Method, Running
from dpiw.methods.weights.base import WeightEstimator
from dpiw.plan.spec import ReleaseSpec

RESOLUTION_FLOOR = 0.25
"""Least variance share after shrinkage that makes weights worthwhile (docs/method.md section 6)."""


@dataclass(frozen=True, kw_only=True)
class WeightsForecast:
    """What the weights can show.

    Attributes:
        tau: predicted standard deviation of the log-weight noise at a reference row.
        resolution: share of the log ratio's variance that survives shrinkage, in [0, 1].
    """

    method: str
    tau: float
    resolution: float
    feasible: bool

    @property
    def shown(self) -> str:
        """The resolution for people; a value below the floor never rounds up to it."""
        if self.feasible:
            return f"{self.resolution:.0%}"
        return percent_below(self.resolution, RESOLUTION_FLOOR)


def forecast_of(
    spec: ReleaseSpec, schema: PublicSchema, weights: WeightEstimator | None
) -> WeightsForecast | None:
    """Return what calibrated weights can show; None without weights or a public resolution."""
    if weights is None:
        return None
    resolution = weights.resolution(schema=schema, nominal_rows=spec.nominal_rows)
    if resolution is None:
        return None
    return WeightsForecast(
        method=spec.weights.method,
        tau=weights.predicted_log_weight_noise(schema=schema),
        resolution=resolution,
        feasible=resolution >= RESOLUTION_FLOOR,
    )


LONGEST = 12 * 3600
"""Seconds beyond which a plan is refused."""

TOLD = 60
"""Seconds from which a plan states how long its methods take."""


def check_running(method: Method, schema: PublicSchema, spec: ReleaseSpec) -> Running | None:
    """Return seconds and memory of a calibrated method, if known; SpecError beyond their limits."""
    if not isinstance(method, Forecasts):
        return None
    running = method.running(
        schema=schema, nominal_rows=spec.nominal_rows, published=spec.synthetic_rows
    )
    if running is None:
        return None
    columns = len(schema.released)
    fewer = "expected fewer columns or levels, or another method, such as histogram"
    if running.seconds > LONGEST:
        raise SpecError(
            f"method {method.method}: about {running.seconds / 3600:.0f} hours on {columns} columns"
            f" of {spec.nominal_rows} rows (expected at most {LONGEST // 3600}); {fewer}"
        )
    limit = spec.source.max_memory_bytes
    if running.held_bytes > limit:
        raise SpecError(
            f"method {method.method}: about {running.held_bytes >> 20} MiB besides the table;"
            f" source.max_memory_bytes admits {limit >> 20}; {fewer}"
        )
    return running


def running_text(method: Method, schema: PublicSchema, spec: ReleaseSpec) -> str:
    """Seconds and memory of a method, for people; empty below `TOLD` seconds."""
    running = check_running(method, schema, spec)
    if running is None:
        return f"{method.method} is not forecast"
    if running.seconds < TOLD:
        return ""
    return (
        f"about {math.ceil(running.seconds / 60)} minutes and {running.held_bytes >> 20} MiB"
        f" besides the table for {method.method}, roughly"
    )


def percent_below(share: float, floor: float) -> str:
    """Format a share below `floor`, with enough digits to show that it is below."""
    texts = (f"{share:.{digits}%}" for digits in range(16))
    return next((text for text in texts if float(text[:-1]) < floor * 100), f"{share!r}")


def infeasible(forecast: WeightsForecast) -> str:
    """Say why weights are not worth their budget."""
    return (
        f"weights: at this epsilon, nominal_rows and schema they could show"
        f" {forecast.shown} of the log ratio's variance (expected at least {RESOLUTION_FLOOR:.0%})"
    )
