"""The assumptions under which a release's guarantee holds, as sentences for the certificate."""

from __future__ import annotations

from dpiw.data.levels import level_caveat
from dpiw.methods.generators.base import FindsLevels, MadeElsewhere
from dpiw.methods.neural.dp_sgd import ASSUMPTION
from dpiw.methods.weights.paper.steps import BetaCalibrate, parse_post_processing
from dpiw.plan import found_levels, made_elsewhere
from dpiw.plan.plan import Plan
from dpiw.privacy.events import PoissonSampledGaussianEvent
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, rows_caveat

_READ_BEFORE = (
    " The table was read before under another plan, and no draw followed that read. Its custodian"
    " could see exact counts of its cells before these settings were declared. No epsilon covers a"
    " setting that follows them."
)


def assumptions(plan: Plan, *, max_unpaid_reads: int, read_before: bool = False) -> tuple[str, ...]:
    """Sentences a reader must accept for the certificate's epsilon and delta to hold.

    Args:
        plan: the release's.
        max_unpaid_reads: the population's, by its registration.
        read_before: whether the table was read without a draw, under another plan, before the
            release's run was reserved.
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
        sentences.append(made_elsewhere.assumption(plan.generator, unit))
    if late:
        sentences.append(found_levels.ASSUMPTION)
    step = _calibrate(plan)
    if step is not None and plan.weights is not None:
        sentences.append(
            "The rows on which the weights were beta calibrated (SHA-256"
            f" {step.sha256}) are public: {step.declared}."
        )
    if plan.spec.public_truth is not None:
        sentences.append("The truth shown in the report is of a simulated population, and public.")
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
    """Sentences about the use of the rows and weights."""
    sentences = ["Synthetic rows are not records of people; single rows carry no information."]
    if isinstance(plan.generator, MadeElsewhere):
        sentences = [*made_elsewhere.caveats(plan.generator)]
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
        sentences += plan.weights.caveats(calibrated=_calibrate(plan) is not None)
    return tuple(sentences)


def _calibrate(plan: Plan) -> BetaCalibrate | None:
    return parse_post_processing(plan.spec.weights.post_processing).calibrate
