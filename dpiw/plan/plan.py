"""From a spec to a plan: every noise scale, the cost and the feasibility, before data is read.

The plan finds the largest effort (zCDP-equivalent rho) whose composed PLD stays within the total
(epsilon, delta), and splits it by the spec's shares. Splitting epsilon itself would waste most of
it (docs/method.md section 10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.data.schema.levels import level_warning
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source.public_rows import FIELD, check_digest
from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.methods.base import Method, Running
from dpiw.methods.generators.base import MadeElsewhere, Synthesizer
from dpiw.methods.generators.registry import AUTO, facts_text, preferred
from dpiw.methods.recipe import Recipe
from dpiw.methods.weights.base import WeightEstimator
from dpiw.plan.spec import ReleaseSpec
from dpiw.plan.stages import (
    GENERATOR_STAGE,
    WEIGHTS_STAGE,
    PrivateMethods,
    StagePlan,
    check_rows,
    weighing_of,
)
from dpiw.privacy import accounting
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.units import PrivacyCost, float_below

if TYPE_CHECKING:
    from dpiw.plan.forecast import Forecast
    from dpiw.plan.rehearsal.populations import WeightedRows

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
        hundredths = self.resolution * 100
        return f"{round(hundredths) if self.feasible else math.floor(hundredths)}%"


def forecast_of(
    spec: ReleaseSpec, schema: PublicSchema, weights: WeightEstimator | None
) -> WeightsForecast | None:
    """Return what calibrated weights can show; None without weights or a public resolution."""
    if weights is None:
        return None
    known = weights.forecast(schema=schema, nominal_rows=spec.nominal_rows)
    if known is None:
        return None
    tau, resolution = known
    return WeightsForecast(
        method=spec.weights.method,
        tau=tau,
        resolution=resolution,
        feasible=resolution >= RESOLUTION_FLOOR,
    )


LONGEST = 12 * 3600
"""Seconds beyond which a plan is refused."""

TOLD = 60
"""Seconds from which a plan states how long its methods take."""


def check_running(method: Method, schema: PublicSchema, spec: ReleaseSpec) -> Running | None:
    """Return seconds and memory of a calibrated method, if known; SpecError beyond their limits."""
    running = method.running(
        schema=schema, nominal_rows=spec.nominal_rows, published=spec.synthetic_rows
    )
    if running is None:
        return None
    columns = len(schema.released)
    fewer = "declare fewer columns or levels, or choose another method, such as histogram"
    if running.seconds > LONGEST:
        raise SpecError(
            f"would run about {running.seconds / 3600:.0f} hours on {columns} columns and "
            f"{spec.nominal_rows} rows",
            field=f"method {method.method}",
            allowed=f"at most {LONGEST // 3600} hours; {fewer}",
        )
    limit = spec.source.max_memory_bytes
    if running.held_bytes > limit:
        raise SpecError(
            f"would hold about {running.held_bytes >> 20} MiB besides the table;"
            f" source.max_memory_bytes allows {limit >> 20} MiB; raise it, or {fewer}",
            field=f"method {method.method}",
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


def infeasible(forecast: WeightsForecast) -> str:
    """Say why weights are not worth their budget."""
    return (
        f"weights: at this epsilon, nominal_rows and schema they could show"
        f" {forecast.shown} of the log ratio's variance (expected at least {RESOLUTION_FLOOR:.0%})"
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled spec, made without reading data.

    Attributes:
        effort: the zCDP-equivalent rho that the search found, split by the spec's shares.
        weights: the calibrated estimator; None when rows are published unweighted.
        forecast: what the asked-for weights would show; None when the spec asks for none.
        chosen: by which public facts `auto` is the generator; empty if the spec names it.
    """

    spec: ReleaseSpec
    schema: PublicSchema
    effort: float
    generator: Synthesizer
    weights: WeightEstimator | None
    stages: tuple[StagePlan, ...]
    forecast: WeightsForecast | None
    warnings: tuple[str, ...]
    chosen: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of every public decision; equal for specs that promise the same."""
        return self.spec.digest(self.schema)

    @property
    def told(self) -> tuple[str, ...]:
        """`warnings`, which a run keeps, and the generator's, which no release repeats."""
        rows = self.spec.nominal_rows
        return *self.warnings, *self.generator.warnings(schema=self.schema, nominal_rows=rows)

    @property
    def recipe(self) -> Recipe:
        """Return the release's recipe, for `dpiw.methods.recipe`."""
        return Recipe(
            schema=self.schema,
            generator=self.generator,
            weights=self.weights,
            weighing=weighing_of(self.spec),
        )

    def forecasts(self, like: WeightedRows | None = None) -> tuple[Forecast, ...]:
        """What each declared question will get, for people `like` public rows. Reads no data."""
        from dpiw.plan.forecast import forecasts

        if self.weights is None:
            return ()
        return tuple(
            forecasts(self.weights, self.schema, published=self.spec.synthetic_rows, like=like)
        )

    @cached_property
    def composed(self) -> dict[str, float]:
        """Epsilon at the spec's delta by `pld`, and by the looser `rdp` unless delta is 0.

        Raises PrivacyError as `promised_epsilon`.
        """
        pld = {"pld": promised_epsilon(self.spec, self.stages)}
        events = [event for stage in self.stages for event in stage.events]
        if self.spec.delta == 0:
            return pld
        return pld | {"rdp": accounting.epsilon_rdp(events, delta=float_below(self.spec.delta))}

    def run_key(self, period: str) -> str:
        """Return the idempotency key of the run of one period."""
        return self.spec.run_key(self.schema, period)

    def _method(self, stage: str) -> Synthesizer | WeightEstimator | None:
        return {GENERATOR_STAGE: self.generator, WEIGHTS_STAGE: self.weights}.get(stage)

    def device(self, stage: str) -> str:
        """Return the device of a stage's method: `cpu`, `cuda` or `auto`."""
        method = self._method(stage)
        return "cpu" if method is None else method.device

    def held_rows(self, stage: str) -> str:
        """State the memory of a stage that does not read in batches; else empty.

        Privacy: the same for every table, so it reveals nothing of a failed draw.
        """
        method = self._method(stage)
        if method is None or method.in_batches:
            return ""
        # Read once, and put together once: scaled numbers have 8 bytes, levels 4.
        least = 2 * sum(8 if column.is_numeric else 4 for column in self.schema.released)
        limit = self.spec.source.max_memory_bytes
        return (
            f"{method.method} holds all rows at once, at least {least} bytes each:"
            f" source.max_memory_bytes={limit} admits {limit // least:,} rows at most, and fewer"
            " with what it computes of them"
        )

    def stage_cost(self, names: frozenset[str]) -> PrivacyCost:
        """Return the cost of repeating these stages alone, after a lost draw."""
        events = [event for stage in self.stages if stage.name in names for event in stage.events]
        delta = float_below(self.spec.delta)
        epsilon = accounting.epsilon(events, delta=delta)
        return PrivacyCost.of(epsilon, self.spec.delta, self.spec.privacy_unit.relation)

    def stage_renyi(self, names: frozenset[str]) -> RenyiVector:
        """Return the Renyi vector of drawing these stages once, for `composition: renyi`."""
        events = [event for stage in self.stages if stage.name in names for event in stage.events]
        return RenyiVector(units=accounting.renyi_vector(events))

    def to_json(self) -> dict[str, Any]:
        """Return public facts of the plan for people, programs and the certificate."""
        return {
            "name": self.spec.name,
            "population": self.spec.population,
            "relation": self.spec.relation,
            "unit": self.spec.unit.model_dump(),
            "epsilon": str(self.spec.epsilon),
            "delta": str(self.spec.delta),
            "epsilon_pld": self.composed["pld"],
            "epsilon_rdp": self.composed.get("rdp"),
            "nominal_rows": self.spec.nominal_rows,
            "synthetic_rows": self.spec.synthetic_rows,
            "plan_digest": self.digest,
            "stages": [
                {
                    "name": stage.name,
                    "method": stage.method,
                    "parameters": dict(stage.parameters),
                    "events": [accounting.event_to_json(event) for event in stage.events],
                }
                for stage in self.stages
            ],
            "weights_forecast": None if self.forecast is None else vars(self.forecast),
            "publishes_weights": self.weights is not None,
            "warnings": list(self.told),
        }


def _solve(
    spec: ReleaseSpec, schema: PublicSchema, methods: PrivateMethods
) -> tuple[float, PrivateMethods]:
    if not methods.noisy:
        return 1.0, methods.calibrate(spec, schema, 1.0)
    try:
        rho = accounting.calibrate(
            lambda rho: methods.calibrate(spec, schema, rho).events(spec, schema),
            epsilon=float_below(spec.epsilon),
            delta=float_below(spec.delta),
        )
    except UncalibratedError:
        raise SpecError(
            "need more noise than dpiw can draw exactly",
            field=f"epsilon={spec.epsilon}, delta={spec.delta}",
            allowed="a larger epsilon or delta",
        ) from None
    return rho, methods.calibrate(spec, schema, rho)


def compile_plan(spec: ReleaseSpec, schema: PublicSchema) -> Plan:
    """Calibrate every noise scale to the spec's total and judge feasibility. Reads no data.

    Generator `auto` becomes the first of `registry.preferred` that can be planned.

    Raises:
        SpecError: bad settings, a promise that cannot be met, or weights to refuse as infeasible.
        NotPublishableError: the spec names a method that is not private.
    """
    if spec.generator.method != AUTO:
        return _compiled(spec, schema)
    faults: list[SpecError | PrivacyError] = []
    for method in preferred(schema, nominal_rows=spec.nominal_rows):
        try:
            plan = _compiled(spec.with_generator(method), schema)
        except (SpecError, PrivacyError) as fault:
            faults.append(fault)
        else:
            return replace(plan, chosen=facts_text(schema, nominal_rows=spec.nominal_rows))
    raise faults[-1]


def settled(spec: ReleaseSpec, schema: PublicSchema) -> ReleaseSpec:
    """Return the spec with the generator that `auto` stands for; unchanged without it."""
    return compile_plan(spec, schema).spec if spec.generator.method == AUTO else spec


def _compiled(spec: ReleaseSpec, schema: PublicSchema) -> Plan:
    methods = PrivateMethods.of_spec(spec, schema)
    if isinstance(methods.generator, MadeElsewhere):
        methods.generator.check_file(Path(spec.source.path))
    step = weighing_of(spec).post_processing.calibrate
    if step is not None:
        check_digest(Path(step.rows), str(step.sha256), field=FIELD)
    rho, ready = _solve(spec, schema, methods)
    warned = (level_warning(c, nominal_rows=spec.nominal_rows) for c in schema.released)
    warnings = [text for text in warned if text is not None]
    forecast = forecast_of(spec, schema, ready.weights)
    if forecast is not None and not forecast.feasible:
        elsewhere = isinstance(ready.generator, MadeElsewhere)  # it has no use for the budget
        if spec.weights.when_infeasible == "refuse" or (
            elsewhere and spec.weights.when_infeasible == "none"
        ):
            raise SpecError(
                f"{infeasible(forecast)}; raise epsilon, release fewer columns, or set"
                " weights.method to none"
            )
        if spec.weights.when_infeasible == "none":
            warnings.append(
                f"{infeasible(forecast)}: none are published, and the whole budget goes to the"
                " generator"
            )
            if spec.questions:
                warnings.append("without weights no declared question is measured")
            rho, ready = _solve(spec, schema, ready.generator_alone())
        else:
            warnings.append(f"{infeasible(forecast)}: kept because the spec says so")
    if ready.weights is not None:
        warnings += ready.weights.warnings(schema=schema, nominal_rows=spec.nominal_rows)
    for method in ready.by_stage.values():
        check_running(method, schema, spec)
    if isinstance(ready.generator, MadeElsewhere):
        warnings += check_rows(spec, schema, ready.generator, ready.weights)
    plan = _assemble(spec, schema, rho, ready, forecast, tuple(warnings))
    promised_epsilon(spec, plan.stages)
    return plan


def promised_epsilon(spec: ReleaseSpec, stages: tuple[StagePlan, ...]) -> float:
    """Compose epsilon at the spec's delta by PLDs; PrivacyError if the spec promises less."""
    events, delta = [event for stage in stages for event in stage.events], float_below(spec.delta)
    pld = accounting.epsilon(events, delta=delta)
    if Decimal(repr(pld)) > spec.epsilon:  # floats as they are written
        raise PrivacyError(
            f"the plan's noise costs epsilon={pld:.6g}, and the spec promises {spec.epsilon}: go on"
            " with the version of dpiw that planned the run, or ask who maintains the method"
        )
    return pld


def _assemble(
    spec: ReleaseSpec,
    schema: PublicSchema,
    rho: float,
    methods: PrivateMethods,
    forecast: WeightsForecast | None,
    warnings: tuple[str, ...],
) -> Plan:
    return Plan(
        spec=spec,
        schema=schema,
        effort=rho,
        generator=methods.generator,
        weights=methods.weights,
        stages=methods.stages(spec, schema),
        forecast=forecast,
        warnings=warnings,
    )


def restore_plan(spec: ReleaseSpec, schema: PublicSchema, record: Mapping[str, Any]) -> Plan:
    """Rebuild a run's plan from the facts that it keeps (`run.json`), without a new search."""
    methods = PrivateMethods.of_spec(spec, schema)
    if not record["publishes_weights"]:
        methods = methods.generator_alone()
    effort, stored = float(record["effort"]), record["forecast"]
    return _assemble(
        spec,
        schema,
        effort,
        methods.calibrate(spec, schema, effort),
        None if stored is None else WeightsForecast(**stored),
        tuple(record["warnings"]),
    )
