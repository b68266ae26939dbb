"""Copies of one ledger that went on by themselves: whatever is lost, recovery charges all of it.

Histories in memory, under the ledger's own rules: ledgers are copied at random moments, draw, lose,
void and publish; some are lost, and one takes up what they published. The truth is counted beside
it: every arm and every conflict, in any copy, known by the hash of its entry.
"""

import dataclasses
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.errors import DPIWError
from dpiw.ledger import (
    CompositionRule,
    EntryKind,
    LedgerHead,
    PublishedHead,
    RecoveredRelease,
    StageState,
)
from dpiw.ledger.book import Book
from dpiw.ledger.entries import FORMAT, Entry, chained
from dpiw.ledger.recovery import asked_for, payload_of, stated_loss
from dpiw.ledger.values import Charge
from dpiw.privacy.renyi import ORDERS, RenyiVector
from dpiw.privacy.units import PrivacyCost
from tests.support.ledger import ADD, NONE, terms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """A published certificate, and what its ledger had truly drawn when it was written."""

    head: str
    digest: str
    previous: str | None
    run_key: str
    charge: Charge
    held: Charge
    drawn: Charge
    truth: dict[str, Charge]


class Copy:
    """One ledger: entries, the book of them, and what it published or recovered."""

    def __init__(self, composition: CompositionRule, entries: tuple[Entry, ...] = ()) -> None:
        self.composition, self.entries, self.book = composition, list(entries), Book()
        self.head: LedgerHead | None = None
        self.previous: str | None = None
        self.releases: list[Release] = []
        self.foreign: dict[str, Charge] = {}
        for entry in entries:
            self.book.apply(entry)
            self.head = entry.head

    def fork(self) -> "Copy":
        twin = Copy(self.composition, tuple(self.entries))
        twin.previous, twin.foreign = self.previous, dict(self.foreign)
        return twin

    def append(self, kind: EntryKind, payload: dict[str, Any], **fields: Any) -> Entry:
        entry = chained(self.head, kind=kind, payload=payload, at="2027-01-01T00:00:00Z", **fields)
        self.book.apply(entry)
        self.entries.append(entry)
        self.head = entry.head
        return entry

    def start(self, nonce: int) -> "Copy":
        rule = self.composition
        population = terms(epsilon=Decimal(10**3), delta=Decimal("0.1"), composition=rule)
        self.append(EntryKind.GENESIS, {"format": FORMAT, "nonce": f"{nonce:064x}"})
        self.append(EntryKind.REGISTER, population.to_payload(), population="town")
        return self

    def about(self, run: int) -> dict[str, Any]:
        return {"population": "town", "run_key": key(run)}

    def reserve(self, run: int, charge: Charge) -> None:
        known = self.book.runs.get(key(run))
        self.append(
            EntryKind.RESERVE,
            {
                "relation": ADD.value, **charge.to_payload(), "stages": {"s": [{"type": "x"}]},
                "plan_digest": f"{run:064x}", "period": "p", "max_attempts": 9,
            },
            attempt=1 if known is None else len(known.attempts) + 1, **self.about(run),
        )  # fmt: skip

    def step(self, kind: EntryKind, run: int, payload: dict[str, Any]) -> Entry:
        attempt = len(self.book.runs[key(run)].attempts)
        return self.append(kind, payload, attempt=attempt, stage="s", **self.about(run))

    def read(self, run: int) -> None:
        attempt = len(self.book.runs[key(run)].attempts)
        self.append(EntryKind.READ, {}, attempt=attempt, **self.about(run))

    def conflict(self, run: int, output: dict[str, Any]) -> None:
        again = self.book.runs[key(run)].attempts[-1].charge.to_payload()
        self.step(EntryKind.CONFLICT, run, {**output, **again})

    def void(self, run: int) -> None:
        attempts = self.book.runs[key(run)].attempts
        self.append(
            EntryKind.VOID, attempts[-1].charge.to_payload(), attempt=len(attempts),
            **self.about(run),
        )  # fmt: skip

    def truth(self) -> dict[str, Charge]:
        """Every draw: an arm, a conflict; and those of ledgers whose releases were taken up."""
        charges = dict(self.foreign)
        for entry in self.entries:
            if entry.kind in (EntryKind.ARM, EntryKind.CONFLICT):
                run = self.book.runs[entry.run_key or ""]
                charges[entry.hash] = run.attempts[(entry.attempt or 0) - 1].charge
        return charges

    def publish(self, run: int, number: int) -> None:
        record = self.book.runs[key(run)]
        if record.stages["s"].state is not StageState.COMMITTED or record.manifest_digest:
            raise DPIWError
        nonce = {"nonce": f"{number:064x}"}
        head = self.append(EntryKind.CERTIFY, nonce, **self.about(run)).hash
        account = self.book.account("town")
        release = Release(
            head=head, digest=f"{10**6 + number:064x}", previous=self.previous,
            run_key=key(run), charge=record.held, truth=self.truth(),
            held=account.held, drawn=account.drawn,
        )  # fmt: skip
        self.append(EntryKind.PUBLISH, {"manifest_digest": release.digest}, **self.about(run))
        self.previous = release.digest
        self.releases.append(release)

    def recover(self, missing: list[Release], given: dict[str, Release]) -> None:
        """What `dpiw ledger recover` does with folders that verified."""
        wanted = [r for r in missing if not self.book.knows(published(r))]
        if not wanted:
            return
        taken = [self.recovered(release, given) for release in wanted]
        account = self.book.account("town")
        requested = asked_for(self.book, account, taken)
        loss = stated_loss(account.plus(requested), NONE)
        self.append(
            EntryKind.RECOVER, payload_of(taken, loss=loss, reads=0, charged=requested.plus(loss)),
            population="town",
        )  # fmt: skip
        self.previous = taken[-1].manifest_digest
        for release in wanted:
            self.foreign |= release.truth

    def recovered(self, release: Release, given: dict[str, Release]) -> RecoveredRelease:
        before = given.get(release.previous or "")
        after = before.head if before and self.book.in_chain(before.head) else None
        return RecoveredRelease(
            hash=release.head, manifest_digest=release.digest, previous=release.previous,
            after=after, run=release.run_key[:8], plan_digest=f"{int(release.run_key[:8]):064x}",
            period="p", charge=release.charge, held=release.held, drawn=release.drawn,
        )  # fmt: skip


def published(release: Release) -> PublishedHead:
    return PublishedHead(hash=release.head, manifest_digest=release.digest)


def key(run: int) -> str:
    return f"{run:08d}" * 8


def charge(rng: random.Random, composition: CompositionRule) -> Charge:
    """No two are equal, so that no sum is right by accident."""
    cost = PrivacyCost(
        epsilon_units=rng.randrange(1, 10**12), delta_units=rng.randrange(1, 10**12), relation=ADD
    )
    units = tuple(rng.randrange(1, 10**10) for _ in ORDERS)
    renyi = composition is CompositionRule.RENYI
    return Charge(cost=cost, renyi=RenyiVector(units=units) if renyi else None)


def act(rng: random.Random, copy: Copy, numbers: list[int]) -> None:
    """One random step; one that is not legal (the run was recovered) is no step."""
    run = rng.randrange(1, 8)
    numbers[0] += 1
    output = {"output_digest": f"{numbers[0]:064x}"}
    reserve: Callable[[], Any] = lambda: copy.reserve(run, charge(rng, copy.composition))  # noqa: E731
    arm = lambda: copy.step(EntryKind.ARM, run, {"token_digest": f"{numbers[0]:064x}"})  # noqa: E731
    commit = lambda: copy.step(EntryKind.COMMIT, run, output)  # noqa: E731
    lose = lambda: copy.step(EntryKind.LOSE, run, {})  # noqa: E731
    publish = lambda: copy.publish(run, numbers[0])  # noqa: E731
    read, void = lambda: copy.read(run), lambda: copy.void(run)
    steps: dict[StageState | None, list[Callable[[], Any]]] = {
        None: [reserve],
        StageState.VOIDED: [reserve],
        StageState.LOST: [reserve],
        StageState.RESERVED: [read, arm, arm, void],
        StageState.ARMED: [commit, commit, lose],
        StageState.COMMITTED: [publish, publish, lambda: copy.conflict(run, output)],
    }
    record = copy.book.runs.get(key(run))
    try:
        rng.choice(steps[None if record is None else record.stages["s"].state])()
    except DPIWError:
        return


def covers(held: Charge, truth: dict[str, Charge]) -> bool:
    total = Charge.nothing(ADD, renyi=held.renyi is not None)
    for drawn in truth.values():
        total = total.plus(drawn)
    if held.renyi is not None:  # only the vectors are compared there
        assert total.renyi is not None
        pairs = zip(total.renyi.units, held.renyi.units, strict=True)
        return all(needed <= ours for needed, ours in pairs)
    return total.beyond(held).free


def live(rng: random.Random, composition: CompositionRule) -> Copy:
    """One history: up to three copies, and the one that is left takes up what was published."""
    numbers = [0]
    ledgers = [Copy(composition).start(rng.randrange(10**6))]
    for _ in range(rng.randrange(20, 80)):
        if len(ledgers) < 3 and rng.random() < 0.05:
            made_anew = Copy(composition).start(rng.randrange(10**6))
            ledgers.append(made_anew if rng.random() < 0.2 else rng.choice(ledgers).fork())
        if rng.random() < 0.02:  # a copy takes up what another published, and goes on
            ledger, source = rng.choice(ledgers), rng.choice(ledgers)
            ledger.recover(source.releases, {r.digest: r for r in source.releases})
        act(rng, rng.choice(ledgers), numbers)
    left = rng.choice(ledgers)
    lost = [release for ledger in ledgers if ledger is not left for release in ledger.releases]
    unique = {release.digest: release for release in lost}
    given = {r.digest: r for ledger in ledgers for r in ledger.releases}
    releases = sorted(unique.values(), key=lambda r: r.digest)
    half = rng.randrange(len(releases) + 1)
    for part in (releases[:half], releases[half:]):  # at once, or with work going on between
        left.recover(part, given)
        for _ in range(rng.randrange(6)):
            act(rng, left, numbers)
    assert all(left.book.knows(published(release)) for release in releases)
    return left


def judge(composition: CompositionRule, histories: int, seed: int) -> int:
    """The second count, with other code, must find every history legal; how many recovered."""
    rng = random.Random(seed)
    recovered = 0
    for _ in range(histories):
        left = live(rng, composition)
        assert covers(left.book.account("town").held, left.truth())
        recovered += any(entry.kind is EntryKind.RECOVER for entry in left.entries)
        counted = tally([entry.to_json() for entry in left.entries])
        assert counted.findings == []
        spent, held = counted.populations["town"].spent, left.book.account("town").held
        assert (spent.epsilon, spent.delta) == (held.cost.epsilon_units, held.cost.delta_units)
        unpaid = left.book.account("town").unpaid_reads
        assert counted.unpaid_reads("town") == unpaid
        assert spent.renyi == (held.renyi.units if held.renyi else ()) or not any(spent.renyi)
    return recovered


SHORT = {CompositionRule.BASIC: 80, CompositionRule.RENYI: 20}


@pytest.mark.parametrize("composition", list(CompositionRule))
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_recovery_never_forgets_a_draw(composition, long, figures):
    """A fault in one history of 100 is missed by 1,000 with chance 0.99^1000 = 4e-5."""
    histories = 1_000 if long else SHORT[composition]
    recovered = judge(composition, histories, seed=20270101 + long)
    rule = composition.value
    if long:
        figures("copied ledgers", composition=rule, histories=histories, recovered=recovered)
    assert recovered > histories / 2


@pytest.mark.slow
def test_the_truth_sees_a_baseline_that_is_too_large(monkeypatch):
    """The control: counting all that is held here as known to the lost ledger forgets draws."""
    monkeypatch.setattr("dpiw.ledger.recovery._baseline", lambda book, account, *_: account.held)
    rng = random.Random(20270101)
    histories = [live(rng, CompositionRule.BASIC) for _ in range(40)]
    forgot = [h for h in histories if not covers(h.book.account("town").held, h.truth())]
    assert forgot
    found = {
        finding.code for h in forgot for finding in tally([e.to_json() for e in h.entries]).findings
    }
    assert found == {"illegal_step"}
