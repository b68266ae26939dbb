"""Recovery: charging published releases that a restored or cut ledger lacks.

* A release is listed once, and only while its head is missing.
* Its charge is what its certificate states its run held, or, if more, what the account held by
  then (part by part, under `renyi` at every order) beyond a *baseline*: what is surely counted here
  of the same spending. If the release before it was recovered, the baseline is what *its*
  certificate states as held; for a second release that continues the same one, as drawn, because
  two copies may each have drawn what was only reserved. If the head of the release before it
  (`after`) is in this chain, the baseline is what had been drawn here by that entry, because the
  ledger that published that release had counted as much. Else it is zero. The baseline never has
  later charges, or charges that may still be voided or drawn here: the lost ledger may lack them.
* If its run is reserved here with nothing armed, that reservation pays for it, once. The run can
  then not be drawn, reserved or voided. (An armed stage may be another draw than the published.)
* The custodian may add a loss, also alone: epsilon, delta, and reads without a draw.

So the account never ends below what was truly drawn, in whatever order copies continued and were
lost (`tests/dpiw/ledger/test_forks.py`). Draws of both ledgers between the previous release and the
copy may be charged twice. Recovery ignores the budget: what was spent was spent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dpiw.errors import LedgerConflictError, SpecError
from dpiw.ledger.accounts import Account, Population, check_kind
from dpiw.ledger.entries import Entry, LedgerHead, check_digest, check_label
from dpiw.ledger.values import Charge, RunRecord
from dpiw.privacy.renyi import loss_vector
from dpiw.privacy.units import PrivacyCost

MOST_READS = 10**6
"""Most reads that one recovery may state; a registered limit on them is far below."""


@dataclass(frozen=True, kw_only=True)
class RecoveredRelease:
    """A published release that a restored ledger does not know.

    Attributes:
        hash: of the entry its certificate names and the ledger lacks.
        previous: SHA-256 of the manifest of the release before it; None for a population's first.
        after: the hash that the release before it names, if this chain has it.
        run: the first eight digits of its run's key.
        charge: what its certificate states the run held.
        held: what its certificate states the population's account held by then, in plain sums.
        drawn: the part of it that could no longer be given back.
    """

    hash: str
    manifest_digest: str
    previous: str | None
    after: str | None
    run: str
    plan_digest: str
    period: str
    charge: Charge
    held: Charge
    drawn: Charge

    def is_of(self, run_key: str, plan_digest: str, period: str) -> bool:
        """Whether it is the release of this run."""
        same_plan = (self.plan_digest, self.period) == (plan_digest, period)
        return run_key.startswith(self.run) and same_plan


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One population recovered after the ledger lost entries; `head` is its entry.

    Attributes:
        loss, reads: what the custodian states, beyond the releases and other entries.
        charged: what was added to the population's account in all.
    """

    population: str
    releases: tuple[RecoveredRelease, ...]
    loss: Charge
    reads: int
    charged: Charge
    head: LedgerHead
    at: str


class _Book(Protocol):
    recoveries: list[Recovery]

    def account(self, name: str) -> Account: ...
    def runs_of(self, name: str) -> tuple[RunRecord, ...]: ...
    def in_chain(self, hash: str) -> bool: ...
    def drawn_by(self, name: str, hash: str) -> Charge: ...


_NAMED = ("hash", "manifest_digest", "previous", "after", "run", "plan_digest", "period")


def payload_of(
    releases: Sequence[RecoveredRelease], *, loss: Charge, reads: int, charged: Charge
) -> dict[str, Any]:
    """What a `recover` entry states."""
    return {
        "releases": [
            {
                **{name: getattr(release, name) for name in _NAMED},
                "held": release.held.to_payload(),
                "drawn": release.drawn.to_payload(),
                **release.charge.to_payload(),
            }
            for release in releases
        ],
        "loss": loss.to_payload(),
        "reads": reads,
        **charged.to_payload(),
    }


def recovery_of(book: _Book, entry: Entry) -> Recovery:
    """The recovery an entry states; LedgerConflictError unless the rules give the same."""
    account = book.account(entry.population or "")
    relation = account.population.relation
    releases = tuple(_release(item, account) for item in entry.payload["releases"])
    loss = Charge.from_payload(entry.payload["loss"], relation)
    reads = entry.payload["reads"]
    check_releases(book, releases, loss, reads=reads)
    releases_charge = asked_for(book, account, releases)
    if loss != stated_loss(account.plus(releases_charge), loss.cost):
        raise SpecError("it charges another amount than this loss costs", field="recover.loss")
    charged = Charge.from_payload(entry.payload, relation)
    if charged != releases_charge.plus(loss):
        raise _conflict("it charges another amount than its releases and its loss cost")
    return Recovery(
        population=account.population.name,
        releases=releases,
        loss=loss,
        reads=reads,
        charged=charged,
        head=entry.head,
        at=entry.at,
    )


def check_releases(
    book: _Book, releases: Sequence[RecoveredRelease], loss: Charge, *, reads: int
) -> None:
    """Raise LedgerConflictError unless exactly what is missing is recovered."""
    if type(reads) is not int or not 0 <= reads <= MOST_READS:
        raise SpecError(field="recover.reads", allowed=f"a whole number from 0 to {MOST_READS}")
    for release in releases:
        if book.in_chain(release.hash):
            raise _conflict(f"head {release.hash[:12]} is not missing; leave its release out")
        if release.after is not None and not (release.previous and book.in_chain(release.after)):
            head = f"head {release.after[:12]}, of the release before it,"
            raise _conflict(f"{head} is not in this ledger")
    digests = [release.manifest_digest for release in (*recovered(book.recoveries), *releases)]
    if len(set(digests)) != len(digests):
        raise _conflict("a release is listed twice, or was recovered before; leave it out")
    if not releases and loss.free and not reads:
        raise _conflict("nothing to recover: no release, no loss and no read was given")


def _conflict(found: str) -> LedgerConflictError:
    return LedgerConflictError(found, field="recover")


def recovered(recoveries: Iterable[Recovery]) -> list[RecoveredRelease]:
    """All releases of some recoveries."""
    return [release for recovery in recoveries for release in recovery.releases]


def stated_loss(account: Account, cost: PrivacyCost) -> Charge:
    """The charge of a loss stated as (epsilon, delta), on top of all that `account` holds."""
    if not account.population.renyi:
        return Charge(cost=cost)
    assert account.held.renyi is not None
    delta_left = max(0, account.population.budget.delta_units - account.held.renyi.lost_delta)
    vector = loss_vector(cost.epsilon_units, cost.delta_units, delta_left_units=delta_left)
    return Charge(cost=cost, renyi=vector)


def asked_for(book: _Book, account: Account, releases: Sequence[RecoveredRelease]) -> Charge:
    """What the releases of a recovery add to the account, by the rules of this module."""
    name = account.population.name
    total = Account.opened(account.population).held
    runs, known = book.runs_of(name), recovered(book.recoveries)
    paid = {run.run_key for run in runs if any(covers(release, run) for release in known)}
    before = recovered(recovery for recovery in book.recoveries if recovery.population == name)
    for release in releases:
        lost = release.held.beyond(_baseline(book, account, release, before))
        charge = release.charge.plus(lost.beyond(release.charge))  # the larger of both
        before.append(release)
        for run in runs:
            if run.run_key not in paid and not run.drawn and covers(release, run):
                charge = charge.beyond(run.held)
                paid.add(run.run_key)
                break
        total = total.plus(charge)
    return total


def _baseline(
    book: _Book, account: Account, release: RecoveredRelease, before: Sequence[RecoveredRelease]
) -> Charge:
    for earlier in before:
        if earlier.manifest_digest == release.previous:
            continued = any(sibling.previous == release.previous for sibling in before)
            return earlier.drawn if continued else earlier.held
    if release.after is not None:
        return book.drawn_by(account.population.name, release.after)
    return Account.opened(account.population).held


def covers(release: RecoveredRelease, run: RunRecord) -> bool:
    """Whether the release is of this run."""
    return release.is_of(run.run_key, run.plan_digest, run.period)


def _release(item: Mapping[str, Any], account: Account) -> RecoveredRelease:
    relation = account.population.relation
    previous, after = item["previous"], item["after"]
    release = RecoveredRelease(
        hash=check_digest("recover.hash", item["hash"]),
        manifest_digest=check_digest("recover.manifest_digest", item["manifest_digest"]),
        previous=None if previous is None else check_digest("recover.previous", previous),
        after=None if after is None else check_digest("recover.after", after),
        run=check_run(item["run"]),
        plan_digest=check_digest("recover.plan_digest", item["plan_digest"]),
        period=check_label("recover.period", item["period"]),
        charge=Charge.from_payload(item, relation),
        held=Charge.from_payload(item["held"], relation),
        drawn=Charge.from_payload(item["drawn"], relation),
    )
    check_charges(account.population, [release])
    return release


def check_charges(population: Population, releases: Iterable[RecoveredRelease]) -> None:
    """Raise unless everything these releases state is of the population's relation and rule."""
    for release in releases:
        for charge in (release.charge, release.held, release.drawn):
            check_kind(population, charge)
        if not release.drawn.beyond(release.held).free:
            raise SpecError(field="recover.drawn", allowed="no more than recover.held")


def check_run(text: str) -> str:
    """`text`, if it is the first eight hexadecimal digits of a run's key; else SpecError."""
    if isinstance(text, str) and len(text) == 8:
        check_digest("recover.run", text * 8)
        return text
    raise SpecError(field="recover.run", allowed="eight hexadecimal digits")
