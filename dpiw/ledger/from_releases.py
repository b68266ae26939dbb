"""Reads and checks published release folders, for `Ledger.recover` to charge.

Only folders whose signature holds under a key that the custodian names count.
"""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from dpiw.errors import LedgerConflictError, PrivacyError, ReleaseError, SignatureError, SpecError
from dpiw.ledger import (
    CompositionRule,
    Ledger,
    Population,
    PublishedHead,
    RecoveredRelease,
    Recovery,
)
from dpiw.ledger.accounts import MAX_UNPAID_READS, Account, check_kind
from dpiw.ledger.values import Charge
from dpiw.privacy import accounting
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.units import PrivacyBudget, PrivacyCost, float_above
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import MANIFEST, release_folders
from dpiw.release.verification import VerifiedRelease
from dpiw.release.withdrawn import verify_charged


def certified_terms(certificate: Certificate) -> Population:
    """The registration of a release; LedgerConflictError if its terms are not valid."""
    unit, account = certificate.unit, certificate.account
    try:
        return Population(
            name=certificate.population,
            relation=unit.relation,
            max_rows=unit.max_rows,
            epsilon=Decimal(certificate.budget_epsilon),
            delta=Decimal(certificate.budget_delta),
            composition=CompositionRule(account["composition"]),
            id_column=unit.id_column,
            max_unpaid_reads=account["max_unpaid_reads"],
        )
    except (SpecError, ValueError) as error:
        found = "no population can be registered with the terms in its certificate"
        raise _unfit(certificate, found) from error


def _unfit(certificate: Certificate, found: object) -> LedgerConflictError:
    return LedgerConflictError(found, field=f"release {certificate.release_id}")


def _budget(stated: Certificate) -> PrivacyBudget:
    epsilon, delta = Decimal(stated.budget_epsilon), Decimal(stated.budget_delta)
    return PrivacyBudget.of(epsilon, delta, stated.relation)


def terms_text(certificate: Certificate) -> str:
    """The terms that a certificate states, for people."""
    unit, account = certificate.unit, certificate.account
    reads = account["max_unpaid_reads"]
    return (
        f"budget {_budget(certificate)}, {certificate.relation.value}, max_rows={unit.max_rows},"
        f" id_column={unit.id_column}, composition {account['composition']}"
        + ("" if reads == MAX_UNPAID_READS else f", max_unpaid_reads={reads}")
    )


def budget_options(certificate: Certificate) -> str:
    """Options of `dpiw ledger register` for these terms, beside what a spec states."""
    account: Mapping[str, Any] = certificate.account
    options = {"epsilon": certificate.budget_epsilon, "delta": certificate.budget_delta}
    if account["composition"] != CompositionRule.BASIC.value:
        options["composition"] = account["composition"]
    if account["max_unpaid_reads"] != MAX_UNPAID_READS:
        options["max-unpaid-reads"] = account["max_unpaid_reads"]
    return " ".join(f"--{name} {value}" for name, value in options.items())


def check_terms(certificate: Certificate, population: Population) -> None:
    """Raise LedgerConflictError if name, budget, composition or unit are not the registered."""
    theirs = (certificate.population, _budget(certificate), certificate.account["composition"])
    ours = (population.name, population.budget, population.composition.value)
    if theirs != ours or not population.protects(certificate.unit):
        raise _unfit(
            certificate,
            f"its certificate states other terms for population {population.name} ("
            f"{terms_text(certificate)}) than this ledger's registration",
        )


def way_out(ledger: Ledger, certificate: Certificate) -> str:
    """How to recover a release if the ledger was made again with other terms, for people."""
    if len(ledger.populations()) != 1 or len(ledger.entries()) != 2:
        return (
            "; this ledger holds more than that registration, so it stays as it is: look for the"
            " ledger that paid for this release, and ask an auditor (docs/operations.md: a ledger"
            " that lost entries)"
        )
    unit, location = certificate.unit, shlex.quote(ledger.location.removeprefix("sqlite:///"))
    words = f"dpiw ledger register {certificate.population} --ledger {location}"
    words += f" {budget_options(certificate)} --relation {unit.relation.value}"
    if unit.id_column is not None:
        words += f" --id-column {shlex.quote(unit.id_column)} --max-rows {unit.max_rows}"
    aside = "Move it away, begin it again" if "://" not in location else "Drop it, begin it again"
    return (
        f"; this ledger holds nothing but that registration. {aside} with the"
        f" terms of the certificate: {words} --create, and then give this command again"
    )


@dataclass(frozen=True, kw_only=True)
class MissingRelease:
    """A published release whose head a ledger lacks.

    Attributes:
        release: verified: its folder, or one of more rows of its draws (same head, same charge).
        digest: SHA-256 of the manifest of the release that paid.
        after: the head of the release before it, if that one was given and the ledger has its head.
    """

    release: VerifiedRelease
    digest: str
    after: str | None

    @property
    def stands_in(self) -> bool:
        """Whether its own folder was not given, but one of more rows of its draws."""
        return self.digest != self.release.manifest.digest

    @property
    def previous(self) -> str | None:
        """SHA-256 of the manifest of the release before it; None: none, or unknown."""
        return None if self.stands_in else self.release.manifest.facts.previous


def folders_of(roots: Iterable[Path]) -> list[Path]:
    """Every finished release folder at or directly below `roots`; ReleaseError if one has none."""
    folders: list[Path] = []
    for root in roots:
        at_root = [root] if (root / MANIFEST).exists() else []
        inside = release_folders(root)  # any folder: one without a manifest must not be overlooked
        if not inside and not at_root:
            raise ReleaseError(
                "neither a release nor a folder of releases",
                field=root,
                allowed=f"a folder with a {MANIFEST}, or the folder that holds such folders",
            )
        folders += at_root + inside
    return folders


def verified_releases(roots: Iterable[Path], keys: Sequence[Path]) -> list[VerifiedRelease]:
    """The verified releases; ReleaseError if one fails: a skipped one would not be charged.

    A withdrawn one counts, by what its tombstone keeps: it was drawn, and stays charged.
    """
    changed = "; if the curator changed keys, type --key once for each of them, older ones too"
    verified = []
    for folder in folders_of(roots):
        try:
            verified.append(verify_charged(folder, public_key=keys)[0])
        except ReleaseError as error:
            remedy = changed if isinstance(error, SignatureError) else ""
            raise type(error)(f"{folder}: {error}{remedy}") from error
    return verified


def missing_releases(
    ledger: Ledger, releases: Iterable[VerifiedRelease]
) -> dict[str, tuple[MissingRelease, ...]]:
    """By population: the releases the ledger lacks, in order. A folder given twice counts once.

    A folder of more rows has the head and charge of the release that paid for its draws, and
    replaces that release if it was not given; all folders of the same draws ask for one charge.
    Raises LedgerConflictError if folders of the same draws name different heads.
    """
    by_paid: dict[str, VerifiedRelease] = {}
    for release in releases:
        paid = release.manifest.facts.rows_of or release.manifest.digest
        other = by_paid.setdefault(paid, release)
        if other.certificate.ledger_head != release.certificate.ledger_head:
            raise LedgerConflictError(
                "they are of the same draws and name different ledger heads, so one of them is"
                " wrong: ask the curator which, and recover without it",
                field=f"releases {other.certificate.release_id} and "
                f"{release.certificate.release_id}",
            )
        if release.manifest.digest == paid:
            by_paid[paid] = release
    by_population: dict[str, list[MissingRelease]] = {}
    for paid, release in by_paid.items():
        head = release.certificate.ledger_head
        if ledger.knows(PublishedHead(hash=head, manifest_digest=paid)):
            continue
        missing = MissingRelease(release=release, digest=paid, after=None)
        before = by_paid.get(missing.previous or "")
        if before is not None and ledger.contains(before.certificate.ledger_head):
            missing = replace(missing, after=before.certificate.ledger_head)
        by_population.setdefault(release.certificate.population, []).append(missing)
    return {name: _in_order(group) for name, group in by_population.items()}


def _in_order(missing: Sequence[MissingRelease]) -> tuple[MissingRelease, ...]:
    sorted_releases = sorted(missing, key=lambda m: (m.release.certificate.release_id, m.digest))
    waiting = {item.digest: item for item in sorted_releases}
    ordered: list[MissingRelease] = []

    def take(item: MissingRelease) -> None:  # digests cannot form a circle
        del waiting[item.digest]
        before = waiting.get(item.previous or "")
        if before is not None:
            take(before)
        ordered.append(item)

    while waiting:
        take(next(iter(waiting.values())))
    return tuple(ordered)


def recovered_release(missing: MissingRelease, population: Population) -> RecoveredRelease:
    """What a release asks to be charged; LedgerConflictError if its terms do not fit."""
    certificate = missing.release.certificate
    check_terms(certificate, population)
    return RecoveredRelease(
        hash=certificate.ledger_head,
        manifest_digest=missing.digest,
        previous=missing.previous,
        after=missing.after,
        run=certificate.release_id.rpartition("-")[2],
        plan_digest=certificate.plan_digest,
        period=certificate.period,
        charge=Charge(
            cost=_cost(certificate, certificate.epsilon, certificate.delta),
            renyi=certificate_vector(certificate) if population.renyi else None,
        ),
        held=_account(certificate, "held", population),
        drawn=_account(certificate, "drawn", population),
    )


def _account(certificate: Certificate, part: str, population: Population) -> Charge:
    try:
        charge = Charge.from_payload(certificate.account[part], certificate.relation)
        if charge.to_payload() != certificate.account[part]:
            raise SpecError("not in canonical form")
        check_kind(population, charge)
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        found = f"account.{part} in its certificate is no charge of population {population.name}"
        raise _unfit(certificate, found) from error
    worth = Account(population=population, held=charge, drawn=charge).spent
    spent = _cost(certificate, certificate.spent_epsilon, certificate.spent_delta)
    if part == "held" and worth != spent:
        raise _unfit(certificate, "in its certificate, account.held is not what it says was spent")
    return charge


def _cost(certificate: Certificate, epsilon: str, delta: str) -> PrivacyCost:
    return PrivacyCost.of(Decimal(epsilon), Decimal(delta), certificate.relation)


def _check_previous(ledger: Ledger, releases: Sequence[MissingRelease]) -> None:
    known = {release.manifest_digest for r in ledger.recoveries() for release in r.releases}
    known |= {missing.digest for missing in releases}
    for missing in releases:
        before = missing.previous
        if missing.stands_in:
            other = f"the release whose rows it adds to (manifest {missing.digest[:12]})"
        elif before is not None and missing.after is None and before not in known:
            other = f"the release before it (manifest {before[:12]})"
        else:
            continue
        raise SpecError(
            f"{other} is neither in --releases nor recovered. Add its folder with --releases. If"
            " the folder is lost, add --previous-lost: the ledger then charges all that this"
            " release's certificate says was spent",
            field=f"release {missing.release.certificate.release_id}",
        )


def certificate_vector(stated: Certificate) -> RenyiVector:
    """The Renyi vector of everything a certificate's run held, from the events it lists.

    How often each attempt held its stages is read from its epsilon, rounded up. Raises
    LedgerConflictError if the certificate lacks a stage's events or has an unknown kind.
    """
    try:
        events = {
            record.stage: [accounting.event_from_json(item) for item in record.events]
            for record in stated.stages
        }
    except PrivacyError as reason:
        raise _unfit(stated, reason) from None
    total = RenyiVector.nothing()
    for attempt in stated.attempts:
        epsilon, delta, names = _attempt(attempt, stated)
        if not names or not names <= set(events):
            raise _unfit(
                stated,
                "its certificate lists no events for a stage of one of its attempts, so the Renyi"
                " cost cannot be computed",
            )
        attempt_events = [event for name in sorted(names) for event in events[name]]
        times = _times(attempt_events, epsilon, delta)
        total = total.plus(RenyiVector(units=accounting.renyi_vector(attempt_events)), times=times)
    if not any(total.units):
        raise _unfit(stated, "its certificate lists no attempt that was charged")
    return total


def _attempt(attempt: Mapping[str, Any], stated: Certificate) -> tuple[Decimal, Decimal, set[str]]:
    try:
        return Decimal(attempt["epsilon"]), Decimal(attempt["delta"]), set(attempt["stages"])
    except (KeyError, TypeError, ArithmeticError):
        raise _unfit(stated, "an attempt in its certificate cannot be read") from None


def _times(events: Sequence[PrivacyEvent], epsilon: Decimal, delta: Decimal) -> int:
    """How often an attempt of these events was charged, never too few.

    Each charge's epsilon is at least what the events need, and its delta at most the attempt's.
    Both are rounded up: the need at a larger delta is smaller, and goes into epsilon more often.
    """
    need = accounting.epsilon(events, delta=float_above(delta))
    return max(1, math.floor(float_above(epsilon) / need + 1e-6))


def recover(
    ledger: Ledger,
    population: str,
    releases: Sequence[MissingRelease],
    *,
    loss_epsilon: Decimal,
    loss_delta: Decimal,
    loss_reads: int,
    previous_lost: bool = False,
) -> Recovery:
    """Charge `releases` and a stated loss to a population; see `Ledger.recover`.

    The custodian states the loss: what else was drawn, and reads without a draw that no entry
    records. `previous_lost` allows a release without the one before it, and charges all that its
    certificate states as spent. Raises SpecError if a loss is negative or no decimal, or a previous
    release is unknown; LedgerConflictError if nothing is missing, or terms or cost do not fit.
    """
    terms = ledger.population(population)
    for missing in releases:
        try:
            check_terms(missing.release.certificate, terms)
        except LedgerConflictError as error:
            remedy = way_out(ledger, missing.release.certificate)
            raise LedgerConflictError(f"{error}{remedy}") from None
    if not previous_lost:
        _check_previous(ledger, releases)
    for name, value in (("epsilon", loss_epsilon), ("delta", loss_delta)):
        if not value.is_finite() or value < 0:
            raise SpecError(field=f"loss-{name}", allowed="a decimal >= 0")
    return ledger.recover(
        population,
        [recovered_release(missing, terms) for missing in releases],
        loss=PrivacyCost.of(loss_epsilon, loss_delta, terms.relation),
        reads=loss_reads,
    )
