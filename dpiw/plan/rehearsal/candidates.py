"""Candidates of a rehearsal: whole plans at the spec's total (epsilon, delta); nothing is read."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.yaml import flow_text
from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.weights.registry import NONE, WEIGHTS
from dpiw.plan.plan import Plan, check_running, compile_plan, settled
from dpiw.plan.sections import SharesSpec
from dpiw.plan.spec import ReleaseSpec
from dpiw.plan.stages import StagePlan, rehearsable

OWN = "spec"

_LINEAR = {"features": {"linear": 1.0, "target": 1.0}}
_FOURIER = {"omega_seed": 1}

MEASURED: Mapping[str, tuple[Mapping[str, Any], SharesSpec | None]] = {
    "linear": (_LINEAR, None),
    "fourier": (_FOURIER, None),
    "fourier 50:50": (_FOURIER, SharesSpec(generator=0.5, weights=0.5)),
    "fourier 30:70": (_FOURIER, SharesSpec(generator=0.3, weights=0.7)),
}
"""Settings of `measured` (public seed), and the split of effort; None: the spec's or usual one."""

GENERATORS = ("privbayes", "mst", "aim")
"""Generators that are compared, each with the spec's own weights, where a plan admits them."""

LONGEST_PLAY = 40
"""Seconds that a further fit of a generator may be forecast to take, if it is to be played.

Weights at the spec's or the usual split share one fit. Other splits and generators need their own.
"""

_FILES = "replicates"
"""The setting of extra files, which other maps and splits keep."""

_NO_LAW = ("omega_seed", _FILES)
"""Settings that a rehearsal cannot distinguish: the frequencies' seed, and extra files."""

MOST_STAND_IN_ROWS = 100_000
"""Most rows of a stand-in table; replaces a larger `nominal_rows`."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to spend the budget; `plan` is None where it cannot be compiled for `reason`.

    `name` is that of the weights, or the generator's where it is not the spec's (`is_generator`).
    """

    name: str
    plan: Plan | None
    reason: str = ""
    is_generator: bool = False

    def spec_lines(self) -> list[str]:
        """Return the spec's lines for this candidate, in YAML; empty without a plan."""
        if self.plan is None:
            return []
        spec, forecast = self.plan.spec, self.plan.forecast
        weights = spec.weights.model_dump(exclude_defaults=True, exclude={"when_infeasible"})
        if forecast is not None and not forecast.feasible:
            weights["when_infeasible"] = spec.weights.when_infeasible
        lines = [f"generator: {flow_text({'method': self.name})}"] * self.is_generator
        lines += [f"weights: {flow_text(weights)}"]
        return lines + [f"shares: {flow_text(spec.shares.model_dump())}"] * spec.weights.wanted


def played_spec(spec: ReleaseSpec, schema: PublicSchema, *, rows: int) -> ReleaseSpec:
    """Return the spec with at most `rows` synthetic rows, and the generator that `auto` stands for.

    Noise that depends on rows is kept.
    """
    kept = spec.weights.model_copy(update={"when_infeasible": "keep"})
    chosen = settled(spec.model_copy(update={"weights": kept}), schema)
    method = spec.weights.method
    bound = method in WEIGHTS and WEIGHTS[method].bound_to_rows
    return chosen.model_copy(
        update={
            "weights": spec.weights,
            "synthetic_rows": spec.synthetic_rows if bound else min(spec.synthetic_rows, rows),
            "nominal_rows": min(spec.nominal_rows, MOST_STAND_IN_ROWS),
        }
    )


def candidates(spec: ReleaseSpec, schema: PublicSchema) -> tuple[Candidate, ...]:
    """Compile every distinct candidate: `none`, the spec's weights, `MEASURED`, `GENERATORS`.

    Raises SpecError for plans that fail, and for rows or levels of the real population: no stand-in
    represents it.
    """
    none = Candidate(name=NONE, plan=compile_plan(_weighted(spec, NONE, {}), schema))
    if none.plan is None or not rehearsable(none.plan.generator):
        raise SpecError(  # of no field: there is nothing to correct
            f"the generator {spec.generator.method} cannot be rehearsed: its rows or levels are of"
            " the real population, and a rehearsal has stand-ins only; see `dpiw plan`",
            field="rehearse",
        )
    compiled = [none]
    weights = spec.weights
    if weights.wanted:
        plan = compile_plan(_weighted(spec, weights.method, weights.settings), schema)
        compiled.append(Candidate(name=OWN, plan=plan))
    for name, (settings, shares) in MEASURED.items():
        candidate = _measured(spec, schema, name, settings, shares)
        if not any(_same(candidate, earlier) for earlier in compiled):
            compiled.append(candidate)
    return *compiled, *_of_generators(spec, schema)


def _of_generators(spec: ReleaseSpec, schema: PublicSchema) -> Iterator[Candidate]:
    """Yield the spec with other generators, which a plan admits and which are fast."""
    for name in GENERATORS:
        if name == spec.generator.method:
            continue
        named = _weighted(spec.with_generator(name), spec.weights.method, spec.weights.settings)
        with contextlib.suppress(SpecError, PrivacyError):
            plan = compile_plan(named, schema)
            if _seconds(plan, schema) <= LONGEST_PLAY:
                yield Candidate(name=name, plan=plan, is_generator=True)


def _seconds(plan: Plan, schema: PublicSchema) -> float:
    """Return the forecast of a fit of the plan's generator; 0 without one."""
    running = check_running(plan.generator, schema, plan.spec)
    return 0.0 if running is None else running.seconds


def _measured(
    spec: ReleaseSpec,
    schema: PublicSchema,
    name: str,
    settings: Mapping[str, Any],
    shares: SharesSpec | None,
) -> Candidate:
    beside = {name: value for name, value in spec.weights.settings.items() if name == _FILES}
    candidate_spec = _weighted(spec, "measured", {**settings, **beside})
    is_split = shares is not None
    if shares is None and "shares" not in spec.model_fields_set:
        shares = SharesSpec.usual("measured")
    if shares is not None:
        candidate_spec = candidate_spec.model_copy(update={"shares": shares})
    try:
        plan = compile_plan(candidate_spec, schema)
    except SpecError as error:
        return Candidate(name=name, plan=None, reason=str(error))
    if is_split and (seconds := _seconds(plan, schema)) > LONGEST_PLAY:
        reason = f"they need a fit of `{spec.generator.method}` of their own, about {seconds:.0f} s"
        return Candidate(name=name, plan=None, reason=reason)
    return Candidate(name=name, plan=plan)


def _weighted(spec: ReleaseSpec, method: str, settings: Mapping[str, Any]) -> ReleaseSpec:
    changes: dict[str, Any] = {
        "method": method,
        "settings": dict(settings),
        "when_infeasible": "keep",
    }
    if method == NONE or method != spec.weights.method:  # other weights take other steps, or none
        changes |= {"post_processing": [], "normalisation": "self"}
    # A spec without weights may give them no share.
    shares = spec.shares if method == NONE or spec.shares.weights > 0 else SharesSpec.usual(method)
    update: dict[str, Any] = {"weights": spec.weights.model_copy(update=changes), "shares": shares}
    if method not in WEIGHTS or not WEIGHTS[method].measures_questions:
        update["questions"] = ()
    return spec.model_copy(update=update)


def _same(candidate: Candidate, earlier: Candidate) -> bool:
    if candidate.plan is None or earlier.plan is None or earlier.plan.weights is None:
        return False
    return [*map(_of_law, candidate.plan.stages)] == [*map(_of_law, earlier.plan.stages)]


def _of_law(stage: StagePlan) -> StagePlan:
    parameters = {k: v for k, v in stage.parameters.items() if k not in _NO_LAW}
    return replace(stage, parameters=parameters)
