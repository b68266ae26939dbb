"""Releases whose rows another tool made: what a plan refuses, and what a certificate says."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.base import MadeElsewhere
from dpiw.methods.weights.base import WeightEstimator
from dpiw.privacy import accounting
from dpiw.privacy.events import DeclaredEvent, PrivacyEvent
from dpiw.privacy.units import PrivacyUnit, float_below

if TYPE_CHECKING:
    from dpiw.plan.plan import Plan
    from dpiw.plan.spec import ReleaseSpec
    from dpiw.plan.stages import StagePlan

_LEAST_BASE = 100
"""As a spec may state at least."""


def check_generator(
    spec: ReleaseSpec, generator: MadeElsewhere, weights: WeightEstimator | None
) -> None:
    """Refuse what rows of a file cannot do, or what their declared cost leaves no room for.

    Raises:
        NotPublishableError: no epsilon is declared.
        SpecError: weights that need fresh rows of the generator, a total that the declared cost
            uses up, or a release that draws nothing.
    """
    declared = generator.declared(spec.privacy_unit)
    draws = weights is not None and weights.draws
    if weights is not None and weights.sampled(spec.synthetic_rows)[1]:
        raise SpecError(
            f"weights.method={spec.weights.method}: is fitted on further rows of the generator, and"
            " a file has no fresh ones; expected measured or none"
        )
    if generator.counted_by is not None:
        if not draws:
            raise SpecError(
                "generator.settings.counted_by: another run paid for the rows, and nothing else is"
                " drawn; expected weights that measure, such as measured"
            )
        return
    remaining = spec.epsilon - written(declared.epsilon), spec.delta - written(declared.delta)
    fits, spends_all = min(remaining) >= 0, min(remaining) == 0
    if not fits or (draws and spends_all):
        raise SpecError(
            f"epsilon={spec.epsilon}, delta={spec.delta}: are the totals, with what the rows are"
            f" declared to cost under this unit and relation, epsilon={declared.epsilon:.6g} and"
            f" delta={declared.delta:.6g}; expected {'more' if draws else 'at least as much'}"
        )


def written(value: float) -> Decimal:
    """The decimal that a float's shortest text says, as specs, ledgers and certificates do."""
    return Decimal(repr(value))


def check_rows(
    spec: ReleaseSpec,
    schema: PublicSchema,
    generator: MadeElsewhere,
    weights: WeightEstimator | None,
) -> list[str]:
    """Read the file and refuse it if a cell is not as declared, or if it has too few rows.

    Where nobody states how many rows are weighted, they are all of a file that has fewer than is
    usual (`dpiw.methods.recipe.Recipe.draw`).

    Args:
        spec: of the release.
        schema: public.
        generator: of the file.
        weights: that the rows get.

    Returns:
        What the plan says of a base that is smaller than usual.

    Raises:
        SpecError: names the column, or the settings that ask for more rows.
    """
    rows, published = generator.kept(schema)["rows"], spec.synthetic_rows
    usual = published if weights is None else weights.sampled(published)[0]
    is_set = "base_rows" in spec.weights.settings
    least = usual if is_set else published if usual == published else max(published, _LEAST_BASE)
    if least > rows:
        cause = (
            f"synthetic_rows={published}"
            if least == published
            else f"weights.settings.base_rows={usual}"
            if is_set
            else f"weights.method={spec.weights.method}: takes at least {least} rows"
        )
        raise SpecError(
            f"{cause}: more than the {rows} rows of generator.settings.rows, of which each is taken"
            f" at most once; expected base_rows or synthetic_rows of at most {rows}, or more rows"
            " of the tool"
        )
    if usual <= rows:
        return []
    return [
        f"weights.settings.base_rows is not stated: all {rows} rows of generator.settings.rows are"
        f" weighted, each once, where {usual} are usual; with more rows of the tool there is more"
        f" to choose the {published} published ones from"
    ]


def certified_facts(plan: Plan, generator: MadeElsewhere) -> dict[str, Any]:
    """What a certificate says of the rows: what was declared, and what is promised beside it.

    Reads the file: `rows`, `distinct_rows`; `epsilon`, `delta`: declared, for the release's unit;
    `charged`: whether in this release; `promised_epsilon`, `promised_delta`: of our own events
    alone, 0 if there are none.
    """
    declared = generator.declared(plan.spec.privacy_unit)
    events = [event for stage in plan.stages for event in stage.events]
    return {
        **generator.kept(plan.schema),
        "epsilon": declared.epsilon,
        "delta": declared.delta,
        "charged": generator.counted_by is None,
        **_promised(plan.spec, events),
    }


def _promised(spec: ReleaseSpec, events: Sequence[PrivacyEvent]) -> dict[str, float]:
    own_events = [event for event in events if not isinstance(event, DeclaredEvent)]
    declared_delta = sum(
        written(event.delta) for event in events if isinstance(event, DeclaredEvent)
    )
    delta = float_below(spec.delta - declared_delta) if own_events else 0.0
    epsilon = accounting.epsilon(own_events, delta=delta) if own_events else 0.0
    return {"promised_epsilon": epsilon, "promised_delta": delta}


def told_alone(plan: Plan, stage: StagePlan) -> str:
    """Why what our stage costs alone is not what a release promises of it; empty where it is."""
    events = [event for stage_plan in plan.stages for event in stage_plan.events]
    declared = [event for event in events if isinstance(event, DeclaredEvent)]
    if not any(event.delta for event in declared) or set(declared) & set(stage.events):
        return ""
    promised = _promised(plan.spec, events)
    return (
        f" at the whole delta; the release promises epsilon={promised['promised_epsilon']:.6g}, at"
        f" the delta={promised['promised_delta']:.6g} that the declared part leaves"
    )


def told(generator: MadeElsewhere) -> str:
    """Whose rows they are, and who pays, in a line of the plan."""
    declaration = generator.declaration()
    paid = "charged here" if generator.counted_by is None else f"paid by run {generator.counted_by}"
    return (
        f"made by {declaration['tool']} {declaration['version']} at a cost declared by"
        f" {declaration['declared_by']}, {paid}"
    )


def assumption(generator: MadeElsewhere, unit: PrivacyUnit) -> str:
    """The sentence that the total rests on.

    Args:
        generator: whose rows they are.
        unit: that the release protects.
    """
    declaration = generator.declaration()
    return (
        f"The rows (SHA-256 {declaration['sha256']}) were made by {declaration['tool']}"
        f" {declaration['version']} at epsilon={declaration['epsilon']},"
        f" delta={declaration['delta']} under {declaration['relation']}: this is the word of"
        f" {declaration['declared_by']}, on this evidence: {declaration['evidence']}. Nothing"
        f" here checked it.{_for_unit(generator, unit)}"
    )


def _for_unit(generator: MadeElsewhere, unit: PrivacyUnit) -> str:
    """Of whom that holds, and what it comes to for whom the release protects."""
    declaration, cost = generator.declaration(), generator.declared(unit)
    of = "person" if unit.id_column is None else f"value of {unit.id_column}"
    group = declaration["rows_per_unit"]
    if group is None:
        text = ""
    elif group == 1:
        text = f" It is stated for all rows of one {of} together."
    else:
        text = (
            f" It is stated for single rows, of which at most {group} were one {of}: a public"
            f" bound, kept before {declaration['tool']} read its table."
        )
    if (cost.epsilon, cost.delta) != (float(declaration["epsilon"]), float(declaration["delta"])):
        text += (
            f" For one {of}, under {unit.relation.value}, that is epsilon={cost.epsilon},"
            f" delta={cost.delta}."
        )
    return text


def caveats(generator: MadeElsewhere) -> tuple[str, ...]:
    """Sentences about the use of such rows."""
    paid = (
        "The total holds only if the declared cost of the rows is true; what this pipeline promises"
        " by itself is the cost of its own measurement."
        if generator.counted_by is None
        else "The cost stated here is of this pipeline's own measurement; the rows cost what run"
        f" {generator.counted_by} of the same ledger was charged, if they are its rows and their"
        " declared cost is true."
    )
    return (
        paid,
        "Whether rows repeat rows of the confidential table was not checked: the check would itself"
        " need a paid look.",
        "Rows of a file may repeat each other or depend on each other; effective sizes count each"
        " as an independent draw.",
    )
