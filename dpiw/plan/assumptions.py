"""The assumptions under which a release's guarantee holds, as sentences for the certificate."""

from collections.abc import Sequence
from typing import Any

from dpiw.data.schema.levels import level_caveat
from dpiw.methods.generators.base import FindsLevels, MadeElsewhere
from dpiw.methods.neural.dp_sgd import ASSUMPTION
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.plan.plan import Plan
from dpiw.plan.spec import ReleaseSpec
from dpiw.plan.stages import StagePlan, written
from dpiw.privacy import accounting
from dpiw.privacy.events import DeclaredEvent, PoissonSampledGaussianEvent, PrivacyEvent
from dpiw.privacy.units import (
    NeighbouringRelation,
    NoiseKind,
    PrivacyUnit,
    float_below,
    rows_caveat,
)

_READ_BEFORE = (
    " The table was read before under another plan, and no draw followed that read. Its custodian"
    " could see exact counts of its cells before these settings were declared. No epsilon covers a"
    " setting that follows them."
)


_FOUND_LEVELS = (
    "Levels were shown where their noisy count reached a public threshold; that a level of one"
    " person alone did has the probability that delta pays for. How many different texts occur"
    " shows in run time, which is not protected."
)


def assumptions(plan: Plan, *, max_unpaid_reads: int, read_before: bool = False) -> tuple[str, ...]:
    """Return what a reader must accept for the certificate's epsilon and delta to hold.

    `read_before`: whether the table was read under another plan, without a draw, before this run.
    """
    unit = plan.spec.privacy_unit
    late = isinstance(plan.generator, FindsLevels)
    elsewhere = isinstance(plan.generator, MadeElsewhere)
    levels = "levels (but those of unseen columns, which this release found)" if late else "levels"
    sentences = [
        f"The schema, its bounds and {levels}, nominal_rows and every setting were declared without"
        f" looking at the confidential table.{_READ_BEFORE if read_before else ''}",
        "The operating system's random generator is secure; the guarantee is computational in"
        " that sense.",
        "The confidential workspace and its host are seen by custodians alone; run time and memory"
        " use are not protected.",
        "Counts of attempts that were lost, or resumed after a process died, are side information"
        " like run time: whether it dies may depend on the table. No epsilon covers them.",
        "All releases about these people are charged to this population in this ledger.",
    ]
    if unit.id_column is None:
        sentences.append("One person has at most one row; nothing in the table enforces it.")
    else:
        sentences.append(
            f"One value of {unit.id_column} is one person; at most {unit.max_rows} of their rows"
            f" was used{' by what is drawn here' if elsewhere else ''}."
        )
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        sentences.append("The number of rows is public.")
    if plan.spec.delta > 0:
        sentences.append(
            "Lattice noise is accounted as continuous noise of 1e-4 less scale; the lattice is"
            " finer than 2^-20 of the scale."
        )
    events = [event for stage in plan.stages for event in stage.events]
    if any(isinstance(event, PoissonSampledGaussianEvent) for event in events):
        sentences.append(ASSUMPTION)
    sentences += plan.generator.assumptions
    if any(stage.parameters.get("noise") == NoiseKind.SPHERICAL.value for stage in plan.stages):
        sentences.append(
            "Spherical noise is drawn in 110-digit arithmetic and rounded to a lattice; its law"
            " differs from the ideal one by less than 2^-150 in total variation."
        )
    if isinstance(plan.generator, MadeElsewhere):
        sentences.append(declared_assumption(plan.generator, unit))
    if late:
        sentences.append(_FOUND_LEVELS)
    step = parse_post_processing(plan.spec.weights.post_processing).calibrate
    if step is not None and plan.weights is not None:
        sentences.append(
            "The rows on which the weights were beta calibrated (SHA-256"
            f" {step.sha256}) are public: {step.declared}."
        )
    sentences.append(
        "What is not as declared ends a run: a file that is damaged, packed or changing, its"
        " columns or types, a ragged line or an open quote, a missing identifier, a cell over its"
        " limit, a table beyond the declared memory (so, if it is very large, its number of rows);"
        " under replace-one, another number of rows. Other values never do. Operators may see how"
        " a read of the table ended that no draw followed; at most"
        f" {max_unpaid_reads} of these are admitted in the population's whole life, and"
        " epsilon does not pay for them."
    )
    return tuple(sentences)


def caveats(plan: Plan, *, weighted: bool) -> tuple[str, ...]:
    """Return sentences about the use of the rows and weights."""
    sentences = ["Synthetic rows are not records of people; single rows carry no information."]
    if isinstance(plan.generator, MadeElsewhere):
        sentences = [*_declared_caveats(plan.generator)]
    sentences += filter(None, [rows_caveat(plan.spec.privacy_unit.max_rows)])
    if plan.schema.constraints:
        sentences.append(
            "Every row satisfies the data dictionary's constraints, because it was made to. Whether"
            " the confidential rows do, this release does not say."
        )
    sentences += plan.generator.caveats
    sentences += filter(None, map(level_caveat, plan.schema.released))
    if not weighted:
        return (*sentences, "Weights are all one: estimates keep whatever bias the generator has.")
    if plan.spec.weights.normalisation == "self":
        sentences.append("Self-normalised weights have a bias of second order in the noise.")
    if plan.weights is not None:
        sentences += plan.weights.caveats
    return tuple(sentences)


# --- rows that another tool made ---


def certified_facts(plan: Plan, generator: MadeElsewhere) -> dict[str, Any]:
    """Return a certificate's facts on rows of another tool; reads their file.

    `charged`: whether this release pays the declared cost; `promised_*` are of our own events
    alone.
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
    """State our stage's epsilon at the delta that the declared part leaves."""
    events = [event for stage_plan in plan.stages for event in stage_plan.events]
    declared = [event for event in events if isinstance(event, DeclaredEvent)]
    if not any(event.delta for event in declared) or set(declared) & set(stage.events):
        return ""
    promised = _promised(plan.spec, events)
    return (
        f" at the whole delta; the release promises epsilon={promised['promised_epsilon']:.6g}, at"
        f" the delta={promised['promised_delta']:.6g} that the declared part leaves"
    )


def made_elsewhere_text(generator: MadeElsewhere) -> str:
    """Return a line of the plan: whose rows they are, and who pays."""
    declaration = generator.declaration()
    paid = "charged here" if generator.counted_by is None else f"paid by run {generator.counted_by}"
    return (
        f"made by {declaration['tool']} {declaration['version']} at a cost declared by"
        f" {declaration['declared_by']}, {paid}"
    )


def declared_assumption(generator: MadeElsewhere, unit: PrivacyUnit) -> str:
    """Return the declaration that the total depends on, for the release's unit."""
    declaration = generator.declaration()
    return (
        f"The rows (SHA-256 {declaration['sha256']}) were made by {declaration['tool']}"
        f" {declaration['version']} at epsilon={declaration['epsilon']},"
        f" delta={declaration['delta']} under {declaration['relation']}: this is the word of"
        f" {declaration['declared_by']}, on this evidence: {declaration['evidence']}. Nothing"
        f" here checked it.{_for_unit(generator, unit)}"
    )


def _for_unit(generator: MadeElsewhere, unit: PrivacyUnit) -> str:
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


def _declared_caveats(generator: MadeElsewhere) -> tuple[str, ...]:
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
