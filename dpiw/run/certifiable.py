"""What a certificate states of a plan, checked before the run is paid."""

import importlib.metadata
from typing import Any

from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.base import own_libraries
from dpiw.methods.generators.base import FindsLevels, MadeElsewhere, Synthesizer
from dpiw.plan.assumptions import assumptions, caveats, certified_facts
from dpiw.plan.plan import Plan
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE, StagePlan
from dpiw.privacy import accounting
from dpiw.privacy.events import NoiseEvent
from dpiw.privacy.measurement import ReleasedNoise
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, PrivacyBudget, PrivacyCost, decimal_text
from dpiw.release.certificate import ACCOUNT, Certificate, CertifiedStage

_PACKAGES = (
    "dpiw", "dp-accounting", "great-expectations", "numpy", "opendp", "pandas", "prefect",
    "pyarrow", "scipy",
)  # fmt: skip


def decimals(amount: PrivacyCost | PrivacyBudget) -> tuple[str, str]:
    """Return epsilon and delta of an amount as exact decimal text."""
    epsilon = decimal_text(amount.epsilon_units, EPSILON_UNIT)
    return epsilon, decimal_text(amount.delta_units, DELTA_UNIT)


def stage_record(
    stage: StagePlan,
    noise: tuple[ReleasedNoise, ...],
    *,
    threshold: float | None = None,
    alone: float | None = None,
) -> CertifiedStage:
    """Return a certificate's stage; `alone`: the epsilon it would cost by itself."""
    applied = {} if threshold is None else {"threshold": threshold}  # whatever was planned
    return CertifiedStage(
        stage=stage.name,
        method=stage.method,
        events=tuple(accounting.event_to_json(event) for event in stage.events),
        parameters={**stage.parameters, **applied},
        noise=tuple(law.to_json() for law in noise),
        standalone_epsilon=alone,
    )


def check_certifiable(plan: Plan) -> None:
    """Write a trial certificate with made-up measurements; reserves and reads nothing.

    Raises PrivacyError: a method states less than a certificate needs, or less noise than its
    events account for.
    """
    for stage in plan.stages:
        _check_noise(stage)
        if "threshold" in stage.parameters and not isinstance(plan.generator, FindsLevels):
            raise PrivacyError(  # or `verify` would look for a list of levels, for ever
                "its parameters() name one `threshold`, as only a method that finds levels may",
                field=f"stage {stage.name}, method {stage.method}",
                allowed="another name for that parameter",
            )
    epsilon, delta = decimals(plan.spec.cost)
    try:
        facts: dict[str, Any] = planned_facts(plan, plan.generator, max_unpaid_reads=0)
        facts |= dict.fromkeys(("epsilon", "spent_epsilon", "budget_epsilon"), epsilon)
        facts |= dict.fromkeys(("delta", "spent_delta", "budget_delta"), delta)
        written = Certificate(
            release_id=plan.spec.name,
            period="once",
            attempts=(),
            account=dict.fromkeys(ACCOUNT),
            accountants={},
            stages=tuple(stage_record(stage, stage.noise) for stage in plan.stages),
            post_processing=(),
            diagnostics={},
            verdict="none",
            verdict_rule="",
            versions=_versions(own_libraries(plan.generator, plan.weights)),
            ledger_head="0" * 64,
            **facts,
        )
        Certificate.from_json(written.to_json())
    except (PrivacyError, SpecError):
        raise
    except Exception as error:
        names = " and ".join(stage.method for stage in plan.stages)
        raise PrivacyError(
            f"its certificate cannot be written ({type(error).__name__}), so a release of it would"
            " be paid and never published; nothing was reserved. Ask who maintains the method",
            field=f"method {names}",
        ) from error


def _check_noise(stage: StagePlan) -> None:
    """Refuse a stage whose stated noise is not all that its events account for."""
    named = f"stage {stage.name}, method {stage.method}"
    accounted = set()
    for law in stage.noise:
        place = -1 if law.event is None else law.event
        event = stage.events[place] if 0 <= place < len(stage.events) else None
        if not isinstance(event, NoiseEvent) or law.sensitivity is None:
            raise PrivacyError(
                f"released_noise() states noise of {law.values} without its `sensitivity`, or"
                " without the place in events() of a noise event as its `event`",
                field=named,
            )
        if law.law not in event.laws:
            raise PrivacyError(
                f"noise of {law.values} is {law.law.value}; its event accounts for "
                f"{' or '.join(sorted(kind.value for kind in event.laws))}",
                field=named,
            )
        accounted.add(event)
        least = event.noise_multiplier * law.sensitivity
        if law.scale < least * (1 - 1e-9):
            raise PrivacyError(
                f"noise of {law.values} has scale {law.scale:.6g}",
                field=named,
                allowed=f"at least {least:.6g}, the multiplier of its event times the sensitivity",
            )
    if {event for event in stage.events if isinstance(event, NoiseEvent)} - accounted:
        raise PrivacyError(
            "released_noise() lacks the noise of an event with a noise multiplier", field=named
        )


def planned_facts(
    plan: Plan, generator: Synthesizer, *, max_unpaid_reads: int, read_before: bool = False
) -> dict[str, Any]:
    """Return a certificate's facts of the plan, and of reads before it (`assumptions`)."""
    generator_facts = plan.spec.public_generator
    if isinstance(generator, MadeElsewhere):
        generator_facts["made_elsewhere"] = certified_facts(plan, generator)
    return {
        "population": plan.spec.population,
        "unit": plan.spec.privacy_unit,
        "plan_digest": plan.digest,
        "nominal_rows": plan.spec.nominal_rows,
        "generator": generator_facts,
        "weights": _weights_facts(plan),
        "assumptions": assumptions(
            plan, max_unpaid_reads=max_unpaid_reads, read_before=read_before
        ),
        "caveats": caveats(plan, weighted=plan.weights is not None),
    }


def versions_of(plan: Plan) -> dict[str, str]:
    """Return the versions of the software that a run's promise depends on."""
    return _versions((*_PACKAGES, *own_libraries(plan.generator, plan.weights)))


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in names}


def _weights_facts(plan: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = plan.spec.weights.model_dump(mode="json")
    facts["post_processing"] = plan.spec.public_steps
    facts["published"] = plan.weights is not None
    facts["forecast"] = None if plan.forecast is None else vars(plan.forecast)
    has_stage = any(stage.name == WEIGHTS_STAGE for stage in plan.stages)
    free = GENERATOR_STAGE if plan.weights is not None else None
    facts["stage"] = WEIGHTS_STAGE if has_stage else free
    return facts
