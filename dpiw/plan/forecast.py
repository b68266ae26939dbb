"""What weights will be able to show, told from public facts before any budget is spent."""

from __future__ import annotations

from dataclasses import dataclass

from dpiw.data.schema import PublicSchema
from dpiw.methods.weights.base import WeightEstimator
from dpiw.plan.spec import ReleaseSpec

RESOLUTION_FLOOR = 0.25
"""Weights that can show less than this share of the log ratio's variance are not worth budget.

`resolution` is computed from public facts alone: how much of the log ratio's variance survives
the shrinkage that the noise forces on the regression (docs/method.md section 6).
"""


@dataclass(frozen=True, kw_only=True)
class WeightsForecast:
    """What the weights will be able to show, from public facts only.

    Attributes:
        method: the estimator the spec asks for.
        tau: predicted standard deviation of the log-weight noise at a reference row.
        resolution: share of the log ratio's variance that survives shrinkage, in [0, 1].
        feasible: whether `resolution` reaches `RESOLUTION_FLOOR`.
    """

    method: str
    tau: float
    resolution: float
    feasible: bool

    @property
    def shown(self) -> str:
        """The resolution for people; one below the floor is seen to be below."""
        if self.feasible:
            return f"{self.resolution:.0%}"
        return percent_below(self.resolution, RESOLUTION_FLOOR)


def forecast_of(
    spec: ReleaseSpec, schema: PublicSchema, weights: WeightEstimator | None
) -> WeightsForecast | None:
    """What calibrated weights will show; None without weights, or where nothing public tells."""
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


def percent_below(share: float, floor: float) -> str:
    """A share below `floor`, with as many digits as it takes to see that it is below."""
    texts = (f"{share:.{digits}%}" for digits in range(16))
    return next((text for text in texts if float(text[:-1]) < floor * 100), f"{share!r}")


def infeasible(forecast: WeightsForecast) -> str:
    """Why weights are not worth their budget, for people."""
    return (
        f"weights: at this epsilon, nominal_rows and schema they could show"
        f" {forecast.shown} of the log ratio's variance (expected at least {RESOLUTION_FLOOR:.0%})"
    )
