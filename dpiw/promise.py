"""The assumptions under which a release's guarantee holds, as sentences for the certificate."""

from __future__ import annotations

from dpiw.plan import Plan
from dpiw.privacy import NeighbouringRelation, NoiseKind


def assumptions(plan: Plan) -> tuple[str, ...]:
    """Sentences a reader must accept for the certificate's epsilon and delta to hold."""
    unit = plan.spec.privacy_unit
    found = [
        "The schema, its bounds and levels, nominal_rows and every setting were declared without"
        " looking at the confidential table.",
        "The operating system's random generator is secure; the guarantee is computational in"
        " that sense.",
        "The confidential workspace and its host are seen by custodians alone; run time and memory"
        " use are not protected.",
        "All releases about these people are charged to this population in this ledger.",
    ]
    if unit.id_column is None:
        found.append("One person has at most one row; nothing in the table enforces it.")
    else:
        found.append(
            f"One value of {unit.id_column} is one person; at most {unit.max_rows} of their rows"
            " was used."
        )
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        found.append("The number of rows is public.")
    if plan.spec.delta > 0:
        found.append(
            "Lattice noise is accounted as continuous noise of 1e-4 less scale; the lattice is"
            " finer than 2^-20 of the scale."
        )
    if any(stage.parameters.get("noise") == NoiseKind.SPHERICAL.value for stage in plan.stages):
        found.append(
            "Spherical noise is drawn in 110-digit arithmetic and rounded to a lattice; its law"
            " differs from the ideal one by less than 2^-150 in total variation."
        )
    if plan.spec.public_truth is not None:
        found.append("The truth shown in the report is of a simulated population, and public.")
    found.append(
        "A structural failure (a missing column, a wrong type, a ragged line, a missing identifier,"
        " a file, cell or number of rows over its declared limit) ends a run and may be seen by"
        " operators, one bit each time; other values never decide whether a run ends."
    )
    return tuple(found)


def caveats(plan: Plan, *, weighted: bool) -> tuple[str, ...]:
    """Sentences about the use of the rows and weights."""
    found = ["Synthetic rows are not records of people; single rows carry no information."]
    if not weighted:
        return (*found, "Weights are all one: estimates keep whatever bias the generator has.")
    if plan.spec.weights.normalisation == "self":
        found.append("Self-normalised weights have a bias of second order in the noise.")
    return (
        *found,
        "Weights correct towards the regularised regression fit, not all the way to the truth.",
        "Ordinary standard errors of weighted analyses leave out the privacy noise of the weights;"
        " dpiw.analysis.confidence_interval includes it.",
    )
