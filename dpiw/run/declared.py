"""Before a run reserves: does the population hold its terms and cost, or has another run paid?"""

import contextlib
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpiw.errors import Command, Next, ReleaseError, SpecError, UnsupportedRelationError
from dpiw.ledger import Ledger, Population, StageState
from dpiw.ledger.accounts import told_column
from dpiw.ledger.from_releases import budget_options, certified_terms, terms_text
from dpiw.methods.generators.base import FindsLevels, MadeElsewhere
from dpiw.plan.spec import ReleaseSpec
from dpiw.plan.stages import GENERATOR_STAGE, PRIVATE_STAGES
from dpiw.privacy import accounting
from dpiw.privacy.measurement import Measurement
from dpiw.release.certificate import Certificate
from dpiw.release.withdrawn import verify_charged
from dpiw.run.commands import loss_command, recover_command
from dpiw.run.restored import manifests_in_sight
from dpiw.run.run import ReleaseRun, measurement_file, run_folder, workspace_folder

_SHOWN = 3
"""Names of releases that a message lists."""


def certificates_of(spec: ReleaseSpec) -> tuple[Certificate, ...]:
    """Return the certificates of all releases in sight of the population; raises ReleaseError."""
    by_name = {}
    for folder, manifest in manifests_in_sight(spec):
        if manifest.facts.population == spec.population:
            try:
                by_name[manifest.digest] = verify_charged(folder, then="")[0].certificate
            except ReleaseError as error:
                raise type(error)(f"{folder.parent.name}/{folder.name}: {error}") from error
    return tuple(by_name.values())


def check_registrable(spec: ReleaseSpec, population: Population, path: Path) -> list[str]:
    """Return what to do about the population's releases; SpecError if their terms may differ."""
    place = os.path.relpath(spec.publish_to)
    try:
        certificates = certificates_of(spec)
        terms = [certified_terms(certificate) for certificate in certificates]
    except ReleaseError as error:
        raise SpecError(
            f"{error}. Until that folder can be read, dpiw cannot know whether {place} holds"
            f" releases of population {spec.population}, and with which terms. Nothing was"
            " registered",
            field="publish_to",
        ) from None
    for certificate, certified in zip(certificates, terms, strict=True):
        if differing := certified.differing(population):
            raise SpecError(
                f"{_published_text(certificates, spec)}, and the certificate of"
                f" {certificate.release_id} names other terms ({differing}):"
                f" {terms_text(certificate)}. A population keeps its terms for life, and a ledger"
                " with other terms cannot recover these releases. If the ledger was lost:"
                f" {_again(certificate, path)}; then: {recover_command(spec)}. If these are other"
                " people, name another population in the spec. Nothing was registered"
            )
    lines = _drawn_text(spec)
    if not certificates:
        return lines
    return [
        *lines,
        f"{_published_text(certificates, spec)}, which this ledger does not know: recover them"
        f" first, for a release is refused until then: {recover_command(spec)} (--key once"
        " for each key that signed, older ones too; state as loss what was drawn"
        " and not published; 0 must be typed)",
    ]


def drawn_unreleased(spec: ReleaseSpec) -> list[str]:
    """Return the population's runs in the workspace that have draws and no release."""
    runs = workspace_folder(Path(spec.state)) / spec.population
    return sorted(
        folder.name
        for folder in runs.glob("*/")
        if not os.path.exists(folder / "built")
        and (
            any(os.path.exists(measurement_file(folder, stage)) for stage in PRIVATE_STAGES)
            or any(folder.glob("*.checkpoint"))
        )
    )


def _drawn_text(spec: ReleaseSpec) -> list[str]:
    drawn = [name[:12] for name in drawn_unreleased(spec)]
    if not drawn:
        return []
    told = ", ".join(drawn[:_SHOWN]) + ", ..." * bool(drawn[_SHOWN:])
    return [
        f"state: its workspace holds draws of this population ({told}), which this ledger does not"
        " know. Put the ledger back that paid for them; if it is lost, state before any release"
        f" what they cost, with their table's reads: {loss_command(spec)}"
    ]


def _again(certificate: Certificate, path: Path) -> str:
    options = f"--spec {shlex.quote(str(path))} {budget_options(certificate)}"
    return f"dpiw ledger register {options} --create"


def _published_text(certificates: Sequence[Certificate], spec: ReleaseSpec) -> str:
    names = [certificate.release_id for certificate in certificates]
    told = ", ".join(names[:_SHOWN]) + ", ..." * bool(names[_SHOWN:])
    count = f"{len(names)} release{'s' * (len(names) > 1)}"
    return (
        f"publish_to: {count} of population {spec.population}"
        f" {'are' if names[1:] else 'is'} published ({told})"
    )


def check_registered(spec: ReleaseSpec, ledger: Ledger) -> None:
    """Refuse a spec whose terms differ from the population's registration.

    Another name for the same people is another budget, so the message offers one only while nothing
    was ever reserved (docs/sharp-edges.md). Raises UnsupportedRelationError, SpecError or
    UnknownPopulationError.
    """
    unit, population = spec.privacy_unit, ledger.population(spec.population)
    name = f"population {population.name} is registered"
    if population.relation is not unit.relation:
        fault = f"relation={unit.relation.value}: {name} under {population.relation.value}"
        raise _other_terms(UnsupportedRelationError, fault, spec, ledger)
    if population.max_rows != unit.max_rows:
        fault = f"unit.max_rows={unit.max_rows}: {name} with {population.max_rows}"
        raise _other_terms(SpecError, fault, spec, ledger)
    if not population.protects(unit):
        column = told_column(population.id_column or "no id_column")
        fault = f"unit.id_column={unit.id_column or 'none'}: {name} with {column}"
        raise _other_terms(SpecError, fault, spec, ledger)


def _other_terms(
    kind: type[SpecError | UnsupportedRelationError], fault: str, spec: ReleaseSpec, ledger: Ledger
) -> SpecError | UnsupportedRelationError:
    why = _why_for_life(spec, ledger)
    text = f"{fault}, for life; write these terms in the spec if they hold for these people"
    if why:
        return kind(text + why)
    instead = "if the registration is wrong, leave it unused, and register another population"
    return kind(text, next=[Next(instead, Command.REGISTER_OTHER)])


def _why_for_life(spec: ReleaseSpec, ledger: Ledger) -> str:
    """Why another name would not do; empty if it would."""
    if ledger.runs(spec.population) or ledger.recoveries(spec.population):
        return (
            ". Runs were reserved from it, so another name would be a second"
            " budget for the same people (docs/sharp-edges.md: a wrong registration)"
        )
    with contextlib.suppress(ReleaseError):  # a folder that may be a release
        if not certificates_of(spec) and not drawn_unreleased(spec):
            return ""
    return (
        ". The releases folder or the workspace holds draws of these people that this ledger does"
        " not know: it is a new or another ledger (docs/operations.md: a ledger that lost entries)"
    )


def check_paid(run: ReleaseRun, ledger: Ledger) -> None:
    """Raise SpecError for a delta that the population cannot hold, or an unpaid declared cost.

    Renyi vectors hold no delta, declared or of thresholds. A payment is a committed `fit_generator`
    stage of the run `counted_by`, charged with exactly this declared event. The committed digest
    covers the whole declaration with the rows' SHA-256: a charge pays for one file, on one
    declarer's word and evidence.
    """
    generator, spec = run.plan.generator, run.spec
    if isinstance(generator, FindsLevels) and ledger.population(spec.population).renyi:
        raise SpecError(
            f"population {spec.population} is registered with composition renyi, which cannot count"
            " the delta that this method's threshold costs",
            field="generator.method",
            allowed="a population of composition basic, or a method without a threshold",
        )
    if not isinstance(generator, MadeElsewhere):
        return
    event = generator.declared(spec.privacy_unit)
    if generator.counted_by is None:
        if event.delta and ledger.population(spec.population).renyi:
            raise SpecError(
                f"population {spec.population} is registered with composition renyi, which cannot"
                " count a declared delta",
                field="generator.settings.delta",
                allowed="0, or a population of composition basic",
            )
        return
    paid = ledger.find_run(generator.counted_by)
    stage = None if paid is None else paid.stages.get(GENERATOR_STAGE)
    if (
        paid is None
        or stage is None
        or paid.population != spec.population
        or stage.state is not StageState.COMMITTED
        or not stage.declares([accounting.event_to_json(event)])
        or _declared_by(run, paid.run_key, stage.output_digest) != _words(generator.declaration())
    ):
        raise SpecError(
            field="generator.settings.counted_by",
            allowed="the key of a run that already paid for these rows: of population "
            f"{spec.population}, in this state folder, with a committed {GENERATOR_STAGE} that was"
            f" charged epsilon={event.epsilon}, delta={event.delta} for the same sha256 and the"
            " same declaration. Leave counted_by out if this release pays",
        )


def _words(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """The whole declaration, except who paid."""
    return {name: value for name, value in declaration.items() if name != "counted_by"}


def _declared_by(run: ReleaseRun, payer: str, committed: str | None) -> dict[str, Any] | None:
    """The payer's declaration, with the rows' SHA-256, from its committed output; else None."""
    folder = run_folder(Path(run.spec.state), run.spec.population, payer)
    with contextlib.suppress(OSError):
        data = measurement_file(folder, GENERATOR_STAGE).read_bytes()
        if hashlib.sha256(data).hexdigest() == committed:
            declaration = Measurement.from_bytes(data).facts.get("declaration")
            return _words(declaration) if isinstance(declaration, Mapping) else None
    return None
