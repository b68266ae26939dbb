"""Recovery: taking a population up again on the record, after its ledger lost entries.

A restored or cut ledger lacks heads that published certificates carry, and refuses to spend. A
`recover` entry lists those releases and charges for them:

* A release is listed once, and only while its head is missing.
* It is charged in full. If its run is reserved here and nothing of it was ever armed here, what the
  reservation holds pays for it instead, once: the run may then neither be drawn, nor reserved
  again, nor voided. (If something was armed here, that draw may be another one than the published.)
* Under `basic`, the account is lifted to what the certificates say the population had spent.
* The loss a custodian states is added. Alone it may be stated only after an earlier recovery.

Nothing here is refused for want of budget: what was spent was spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dpiw.errors import LedgerConflictError, SpecError
from dpiw.ledger.accounts import Account, check_kind
from dpiw.ledger.charges import Charge
from dpiw.ledger.entries import Entry, LedgerHead, check_count, check_digest, check_label
from dpiw.ledger.values import RunRecord, StageState
from dpiw.privacy import PrivacyCost
from dpiw.renyi import loss_vector


@dataclass(frozen=True, kw_only=True)
class RecoveredRelease:
    """A published release that a restored ledger does not know.

    Attributes:
        head: the entry its certificate names and the ledger lacks.
        manifest_digest: SHA-256 of its manifest.
        run: the first eight digits of its run's key.
        plan_digest, period: of its run, as its certificate states them.
        charge: what its certificate says the run held.
        spent: what its certificate says the population had spent by then.
    """

    head: LedgerHead
    manifest_digest: str
    run: str
    plan_digest: str
    period: str
    charge: Charge
    spent: PrivacyCost

    def is_of(self, run_key: str, plan_digest: str, period: str) -> bool:
        """Whether it is the release of this run."""
        return run_key.startswith(self.run) and (self.plan_digest, self.period) == (
            plan_digest,
            period,
        )


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One population taken up again after the ledger lost entries; `head` is its entry.

    Attributes:
        releases: what was found published and unknown.
        loss: what the custodian states was drawn beyond that.
        charged: what was added to the population's account in all.
    """

    population: str
    releases: tuple[RecoveredRelease, ...]
    loss: Charge
    charged: Charge
    head: LedgerHead
    at: str


class _Book(Protocol):
    """What these rules read of a book."""

    recoveries: list[Recovery]

    def account(self, name: str) -> Account: ...
    def runs_of(self, name: str) -> tuple[RunRecord, ...]: ...
    def holds_head(self, head: LedgerHead) -> bool: ...


def payload_of(
    releases: Sequence[RecoveredRelease], *, loss: Charge, charged: Charge
) -> dict[str, Any]:
    """What a `recover` entry states."""
    return {
        "releases": [
            {
                "seq": one.head.seq,
                "hash": one.head.hash,
                "manifest_digest": one.manifest_digest,
                "run": one.run,
                "plan_digest": one.plan_digest,
                "period": one.period,
                "spent": Charge(cost=one.spent).to_payload(),
                **one.charge.to_payload(),
            }
            for one in releases
        ],
        "loss": loss.to_payload(),
        **charged.to_payload(),
    }


def recovery_of(book: _Book, entry: Entry) -> Recovery:
    """The recovery an entry states, if it is legal now.

    Raises:
        LedgerConflictError: a head is not missing or is listed before; nothing is recovered; or the
            charge is not what the rules give.
        SpecError: malformed.
    """
    account = book.account(entry.population or "")
    relation = account.population.relation
    releases = tuple(_release(item, account) for item in entry.payload["releases"])
    loss = Charge.from_payload(entry.payload["loss"], relation)
    if loss != stated_loss(account, loss.cost):
        raise SpecError("recover.loss: not the charge of this loss")
    check_releases(book, releases, loss)
    charged = Charge.from_payload(entry.payload, relation)
    if charged != charge_for(book, account, releases, loss):
        raise LedgerConflictError("recover: not the charge that the listed releases ask for")
    return Recovery(
        population=account.population.name,
        releases=releases,
        loss=loss,
        charged=charged,
        head=entry.head,
        at=entry.at,
    )


def check_releases(book: _Book, releases: Sequence[RecoveredRelease], loss: Charge) -> None:
    """Raise LedgerConflictError unless exactly what is missing is recovered."""
    for one in releases:
        if book.holds_head(one.head):
            raise LedgerConflictError(f"recover: head {one.head.seq} is not missing")
    digests = [one.manifest_digest for one in (*recovered(book.recoveries), *releases)]
    if len(set(digests)) != len(digests):
        raise LedgerConflictError("recover: a release is recovered once")
    if not releases and (loss.free or not book.recoveries):
        raise LedgerConflictError(
            "recover: nothing to recover; no published head is missing from this ledger"
        )


def recovered(recoveries: Iterable[Recovery]) -> list[RecoveredRelease]:
    """All releases of some recoveries."""
    return [release for one in recoveries for release in one.releases]


def stated_loss(account: Account, cost: PrivacyCost) -> Charge:
    """The charge of a loss stated as (epsilon, delta)."""
    if not account.population.renyi:
        return Charge(cost=cost)
    left = max(0, account.population.budget.delta_units - account.recovered_delta)
    vector = loss_vector(cost.epsilon_units, cost.delta_units, delta_left_units=left)
    return Charge(cost=cost, renyi=vector)


def charge_for(
    book: _Book, account: Account, releases: Sequence[RecoveredRelease], loss: Charge
) -> Charge:
    """What a recovery adds to the account; the rules are this module's."""
    population = account.population
    total = Charge.nothing(population.relation, renyi=population.renyi)
    paid = {id(run) for run in _paid_before(book, population.name)}
    for release in releases:
        held = None
        for run in book.runs_of(population.name):
            if id(run) not in paid and _untouched(run) and covers(release, run):
                held = run.held_charge
                paid.add(id(run))
                break
        total = total.plus(release.charge if held is None else release.charge.beyond(held))
    if not population.renyi:
        total = total.plus(_gap(account, releases, total))
    return total.plus(loss)


def covers(release: RecoveredRelease, run: RunRecord) -> bool:
    """Whether the release is of this run."""
    return release.is_of(run.run_key, run.plan_digest, run.period)


def _paid_before(book: _Book, population: str) -> list[RunRecord]:
    """Runs that were matched with a release in an earlier recovery."""
    before = recovered(book.recoveries)
    return [r for r in book.runs_of(population) if any(covers(one, r) for one in before)]


def _untouched(run: RunRecord) -> bool:
    states = {stage.state for attempt in run.attempts for stage in attempt.stages.values()}
    return states <= {StageState.RESERVED, StageState.VOIDED}


def _gap(account: Account, releases: Sequence[RecoveredRelease], so_far: Charge) -> Charge:
    """What the certificates say was spent beyond this account and the recovered releases."""
    known = account.held.plus(so_far)
    missing = Charge.nothing(account.population.relation, renyi=False)
    for release in releases:
        more = Charge(cost=release.spent).beyond(known.plus(missing))
        missing = missing.plus(more)
    return missing


def _release(item: Mapping[str, Any], account: Account) -> RecoveredRelease:
    relation = account.population.relation
    release = RecoveredRelease(
        head=LedgerHead(
            seq=check_count("recover.seq", item["seq"]),
            hash=check_digest("recover.hash", item["hash"]),
        ),
        manifest_digest=check_digest("recover.manifest_digest", item["manifest_digest"]),
        run=check_run(item["run"]),
        plan_digest=check_digest("recover.plan_digest", item["plan_digest"]),
        period=check_label("recover.period", item["period"]),
        charge=Charge.from_payload(item, relation),
        spent=Charge.from_payload(item["spent"], relation).cost,
    )
    check_kind(account.population, release.charge)
    return release


def check_run(text: str) -> str:
    """`text`, if it is the first eight hexadecimal digits of a run's key; else SpecError."""
    if isinstance(text, str) and len(text) == 8:
        check_digest("recover.run", text * 8)
        return text
    raise SpecError("recover.run: expected eight hexadecimal digits")
