"""Before a population is registered: do releases show that it was, and with which terms?

With other terms, a new ledger could neither recover those releases nor spend beside them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from dpiw.errors import ReleaseError, SpecError
from dpiw.ledger import Population
from dpiw.ledger.certified_terms import budget_options, certified_terms, terms_text
from dpiw.plan.spec import ReleaseSpec
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.release.certificate import Certificate
from dpiw.release.verification import verify
from dpiw.run.commands import loss_command, recover_command
from dpiw.run.restored import manifests_in_sight
from dpiw.run.run import measurement_file, workspace_folder

_SHOWN = 3
"""Names of releases that a message lists."""


def certificates_of(spec: ReleaseSpec) -> tuple[Certificate, ...]:
    """Return the certificates of all releases in sight of the population; raises ReleaseError."""
    by_name = {}
    for folder, manifest in manifests_in_sight(spec):
        if manifest.facts.population == spec.population:
            try:
                by_name[manifest.digest] = verify(folder, then="").certificate
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
            f"publish_to: {error}. Whether {place} holds releases of population"
            f" {spec.population}, and with which terms it was registered, is not known. Nothing was"
            " registered"
        ) from None
    for certificate, certified in zip(certificates, terms, strict=True):
        if differing := certified.differing(population):
            raise SpecError(
                f"{_published_text(certificates, spec)}, and the certificate of"
                f" {certificate.release_id} names other terms ({differing}):"
                f" {terms_text(certificate)}. They are set once, for life, and a ledger"
                " with others can neither recover these releases nor spend beside them. If the"
                " ledger was lost:"
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
