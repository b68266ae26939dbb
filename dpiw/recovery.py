"""From published release folders to what a ledger that lost entries must take up again.

Only folders whose signature holds under a key the custodian names count. What they state is put on
record by `Ledger.recover`; here they are read, checked against the population's terms, and turned
into charges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from dpiw import accounting
from dpiw.certificate import Certificate
from dpiw.errors import LedgerConflictError, ReleaseError, SignatureError, SpecError
from dpiw.ledger import Ledger, LedgerHead, Population, RecoveredRelease, Recovery
from dpiw.ledger.charges import Charge
from dpiw.manifest import MANIFEST
from dpiw.privacy import PrivacyBudget, PrivacyCost, PrivacyEvent
from dpiw.renyi import RenyiVector
from dpiw.verification import VerifiedRelease, file_digest, verify


def release_folders(roots: Iterable[Path]) -> list[Path]:
    """Every release folder at or directly below `roots`; hidden ones are being built.

    Raises:
        ReleaseError: a root is no folder, or holds no release.
    """
    found: list[Path] = []
    for root in roots:
        inside = sorted(path.parent for path in root.glob("[!.]*/" + MANIFEST))
        own = [root] if (root / MANIFEST).exists() else []
        if not inside and not own:
            raise ReleaseError(f"{root}: no release folder here")
        found += own + inside
    return found


def verified_releases(roots: Iterable[Path], keys: Sequence[Path]) -> list[VerifiedRelease]:
    """The releases, each of which must verify under one of the public keys.

    Raises:
        ReleaseError: a folder fails. None is passed over: what is left out would not be charged.
    """
    return [_verified(folder, keys) for folder in release_folders(roots)]


def _verified(folder: Path, keys: Sequence[Path]) -> VerifiedRelease:
    refusal: SignatureError | None = None
    for key in keys:
        try:
            return verify(folder, public_key=key)
        except SignatureError as error:
            refusal = error
    raise SignatureError(f"{folder}: {refusal or 'no public key was given'}")


def missing_releases(
    ledger: Ledger, releases: Iterable[VerifiedRelease]
) -> dict[str, tuple[VerifiedRelease, ...]]:
    """By population: the releases whose head the ledger lacks. A folder given twice counts once."""
    found: dict[str, dict[str, VerifiedRelease]] = {}
    for one in releases:
        stated = one.certificate
        if not ledger.contains_head(stated.ledger_sequence, stated.ledger_head):
            digest = file_digest(one.folder / MANIFEST)
            found.setdefault(stated.population, {})[digest] = one
    return {name: tuple(known.values()) for name, known in found.items()}


def recovered_release(release: VerifiedRelease, population: Population) -> RecoveredRelease:
    """What one release asks to be charged.

    Raises:
        LedgerConflictError: its certificate states other terms than the population's, or its cost
            cannot be read for this population.
    """
    stated = release.certificate
    _check_terms(stated, population)
    return RecoveredRelease(
        head=LedgerHead(seq=stated.ledger_sequence, hash=stated.ledger_head),
        manifest_digest=file_digest(release.folder / MANIFEST),
        run=stated.release_id.rpartition("-")[2],
        plan_digest=stated.plan_digest,
        period=stated.period,
        charge=Charge(
            cost=_cost(stated, stated.epsilon, stated.delta),
            renyi=certificate_vector(stated) if population.renyi else None,
        ),
        spent=_cost(stated, stated.spent_epsilon, stated.spent_delta),
    )


def _cost(stated: Certificate, epsilon: str, delta: str) -> PrivacyCost:
    return PrivacyCost.of(Decimal(epsilon), Decimal(delta), stated.relation)


def _check_terms(stated: Certificate, population: Population) -> None:
    budget = PrivacyBudget.of(
        Decimal(stated.budget_epsilon), Decimal(stated.budget_delta), stated.relation
    )
    theirs = (stated.population, budget, stated.unit.max_rows)
    if theirs != (population.name, population.budget, population.max_rows):
        raise LedgerConflictError(
            f"release {stated.release_id}: its certificate states other terms for population"
            f" {population.name} (budget {budget}, {stated.relation.value},"
            f" max_rows={stated.unit.max_rows}) than this ledger's registration"
        )


def certificate_vector(stated: Certificate) -> RenyiVector:
    """The Renyi vector of everything a certificate's run held, from the events it lists.

    Each attempt held its stages once, and once more for every conflicting output; how often is read
    from its epsilon, rounded up where its cost was above what its events need.

    Raises:
        LedgerConflictError: an attempt names a stage whose events the certificate does not list.
    """
    events = {
        record.stage: [accounting.event_from_json(item) for item in record.events]
        for record in stated.stages
    }
    total = RenyiVector.nothing()
    for attempt in stated.attempts:
        epsilon, delta, names = _attempt(attempt, stated)
        if epsilon == 0:  # voided
            continue
        if not names or not names <= set(events):
            raise LedgerConflictError(
                f"release {stated.release_id}: an attempt's stages are not those whose events its"
                " certificate lists; its Renyi cost cannot be recomputed"
            )
        drawn = [event for name in sorted(names) for event in events[name]]
        times = _times(drawn, epsilon, delta)
        total = total.plus(RenyiVector(units=accounting.renyi_vector(drawn)), times=times)
    if not any(total.units):
        raise LedgerConflictError(
            f"release {stated.release_id}: its certificate lists no attempt that held anything"
        )
    return total


def _attempt(attempt: Mapping[str, Any], stated: Certificate) -> tuple[Decimal, Decimal, set[str]]:
    try:
        return Decimal(attempt["epsilon"]), Decimal(attempt["delta"]), set(attempt["stages"])
    except (KeyError, TypeError, ArithmeticError):
        raise LedgerConflictError(
            f"release {stated.release_id}: an attempt in its certificate cannot be read"
        ) from None


def _times(drawn: Sequence[PrivacyEvent], epsilon: Decimal, delta: Decimal) -> int:
    """How often an attempt of these events was charged, never too few.

    Each charge's epsilon is at least what the events need, and its delta at most the attempt's.
    """
    need = accounting.epsilon(drawn, delta=float(delta))
    return max(1, math.floor(float(epsilon) / need + 1e-6))


def recover(
    ledger: Ledger,
    population: str,
    releases: Sequence[VerifiedRelease],
    *,
    loss_epsilon: Decimal,
    loss_delta: Decimal,
) -> Recovery:
    """Charge `releases` and a stated loss to a population; see `Ledger.recover`.

    Raises:
        SpecError: the loss is not a pair of finite decimals >= 0.
        LedgerConflictError: nothing is missing, or a certificate's terms or cost do not fit.
    """
    terms = ledger.population(population)
    for name, value in (("epsilon", loss_epsilon), ("delta", loss_delta)):
        if not value.is_finite() or value < 0:
            raise SpecError(f"loss-{name}: expected a decimal >= 0")
    return ledger.recover(
        population,
        [recovered_release(one, terms) for one in releases],
        loss=PrivacyCost.of(loss_epsilon, loss_delta, terms.relation),
    )
