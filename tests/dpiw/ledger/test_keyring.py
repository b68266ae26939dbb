"""Who may sign, add, revoke and approve: against a model of days, and the audit's own rules."""

import contextlib
import datetime
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.audit.findings import Severity
from dpiw.audit.tally import tally
from dpiw.data.documents import plain
from dpiw.errors import (
    DPIWError,
    LedgerConflictError,
    LedgerTamperedError,
    NotApprovedError,
    SpecError,
    UnknownPopulationError,
)
from dpiw.ledger import Entry, EntryKind, FaultKind, Ledger, RecoveredRelease
from dpiw.ledger.book import Book
from dpiw.ledger.keyring import Keyring, RingKey, Role
from dpiw.ledger.values import Charge
from dpiw.release.signing import PrivateKey
from tests.support.ledger import BOTH, RUN, adult, ask, cost, digest, insert, refused, withdrawal
from tests.support.rings import (
    APPROVER,
    CURATOR,
    KEYS,
    SECOND,
    STRANGER,
    TERMS,
    THIRD,
    Chain,
    day,
    public,
)
from tests.support.stores import both_stores

pytestmark = pytest.mark.usefixtures("in_memory")

END, FOR_EVER = 28, 99
WHO = st.sampled_from([None, 4, *[0, 1, 2, 3] * 3])
NAMED = st.integers(0, len(KEYS) - 1)
RUNS = st.sampled_from([1, 1, 2])


class Model:
    """Every key is a set of days; nothing is computed that can be listed."""

    def __init__(self) -> None:
        self.roles: dict[int, str] = {}
        self.days: dict[int, set[int]] = {}
        self.cut: dict[int, int] = {}
        self.approved: list[tuple[int, int, int]] = []
        self.reserved: set[int] = set()
        self.published: set[int] = set()
        self.withdrawn: set[int] = set()
        self.today = 0

    def may(self, who: int | None, today: int, *roles: str) -> bool:
        return who is not None and self.roles.get(who) in roles and today in self.days[who]

    def key(self, today: int, who: int | None, key: int, role: str) -> bool:
        known = set(self.roles.values())
        signers = {role} if role in known else {"curator"}
        may = self.may(who, today, *signers) if known else role == "curator"
        if key in self.roles or not may:
            return False
        self.roles[key], self.days[key] = role, set(range(today, FOR_EVER))
        return True

    def revoke(self, today: int, who: int | None, key: int, since: int) -> bool:
        if key not in self.roles or not self.may(who, today, "curator", "approver"):
            return False
        if since >= self.cut.get(key, FOR_EVER):
            return False
        others = {k for k, role in self.roles.items() if role == self.roles[key]} - {key}
        if not any(FOR_EVER - 1 in self.days[k] for k in others):
            return False
        self.days[key], self.cut[key] = self.days[key] - set(range(since, FOR_EVER)), since
        return True

    def approve(self, today: int, who: int | None, run: int) -> bool:
        legal = self.may(who, today, "approver")
        self.approved += [(run, who, today)] if legal and who is not None else []
        return legal

    def by_curator(self, today: int, who: int | None) -> bool:
        return not self.roles or self.may(who, today, "curator")

    def reserve(self, today: int, who: int | None, run: int) -> bool:
        counts = any(r == run and then in self.days[key] for r, key, then in self.approved)
        legal = self.by_curator(today, who) and (counts or "approver" not in self.roles.values())
        self.reserved |= {run} if legal else set()
        return legal

    def publish(self, today: int, who: int | None, run: int) -> bool:
        """By anybody: what was reserved goes on. The audit reports who was no valid curator."""
        self.published.add(run)
        return True

    def withdraw(self, today: int, who: int | None, run: int) -> bool:
        legal = self.by_curator(today, who) and run in self.published - self.withdrawn
        self.withdrawn |= {run} if legal else set()
        return legal


STEPS = st.one_of(
    st.tuples(st.just("key"), WHO, NAMED, st.sampled_from(["curator", "approver"])),
    st.tuples(st.just("revoke"), WHO, NAMED, st.integers(-4, 4)),
    *(
        st.tuples(st.just(what), WHO, RUNS)
        for what in ("approve", "approve", "reserve", "publish", "publish", "withdraw", "withdraw")
    ),
)
FIRST = [
    ("key", None, 0, "curator"), ("key", 0, 1, "approver"), ("key", 0, 2, "curator"),
    ("key", 1, 3, "approver"), ("approve", 1, 1), ("reserve", 0, 1),
    ("publish", 0, 1),
]  # fmt: skip


def errors(entries: Sequence[Entry]) -> set[str]:
    """Codes of the audit's errors on these entries."""
    found = tally([entry.to_json() for entry in entries]).findings
    return {f.code for f in found if f.severity is Severity.ERROR}


def faults(entries: Sequence[Entry]) -> bool:
    """Whether the audit finds an error in the last of these entries."""
    found = tally([entry.to_json() for entry in entries]).findings
    return any(
        f.severity is Severity.ERROR and f.subject == f"entry {entries[-1].seq}" for f in found
    )


def drawn(chain: Chain, run: int, on: int) -> list[Entry]:
    """Entries that arm and commit the stages of a run."""
    before = len(chain.entries)
    for name in sorted(BOTH):
        place = {"run_key": digest(run), "attempt": 1, "stage": name, "on": on}
        chain.add(EntryKind.ARM, {"token_digest": digest(5)}, **place)
        chain.add(EntryKind.COMMIT, {"output_digest": digest(6)}, **place)
    return chain.entries[before:]


def written(chain: Chain, step: tuple[Any, ...], on: int) -> Entry:
    what, who, *rest = step
    by = None if who is None else KEYS[who]
    if what == "key":
        return chain.key(KEYS[rest[0]], rest[1], by=by, on=on)
    if what == "revoke":
        return chain.revoke(KEYS[rest[0]], rest[1], by=by, on=on)
    run = digest(rest[0])
    if what == "publish":
        stated = {"manifest_digest": digest(100 + rest[0])}
        return chain.made(EntryKind.PUBLISH, stated, run_key=run, by=by, on=on)
    if what == "withdraw":
        stated = plain(withdrawal(manifest=digest(100 + rest[0])))
        return chain.made(EntryKind.WITHDRAW, stated, by=by, on=on)
    made: Entry = getattr(chain, what)(run, by=by, on=on)
    return made


@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@given(
    ready=st.sampled_from([0, 2, 4, 6, 6, 7, 7]),
    steps=st.lists(st.tuples(STEPS, st.integers(-2, 3)), min_size=6, max_size=20),
)
@pytest.mark.slow
def test_book_and_audit_agree_with_a_model_of_days(ready, steps):
    """Each step is legal by all three, or by none; what is refused leaves no trace."""
    chain, book, model, day = Chain(), Book(), Model(), 0
    for entry in chain.entries:
        book.apply(entry)
    for step, later in [*((one, 1) for one in FIRST[:ready]), *steps]:
        day = min(END, max(0, day + later))  # clocks of two hosts may go back
        if step[0] == "revoke":
            step = (*step[:3], min(END, max(0, day + step[3])))
        what, who, run = step[:3]
        if what == "reserve" and run in model.reserved:
            continue
        if what == "publish":
            if run in model.published or run not in model.reserved:
                continue
            for entry in drawn(chain, run, day):
                book.apply(entry)
        today = max(day, model.today)
        legal = getattr(model, what)(today, *step[1:])
        entry = written(chain, step, day)
        try:
            book.apply(entry)
            allowed = True
        except DPIWError:
            allowed = False
        assert allowed == legal, (step, today)
        is_sound = legal and (what != "publish" or model.by_curator(today, who))
        assert faults([*chain.entries, entry]) is not is_sound, (step, today)
        if legal:
            chain.entries.append(entry)
            model.today = today if model.roles else 0


def ledger_of(url: str, key: PrivateKey | None, on: int) -> Ledger:
    """The ledger as a holder of this key opens it on a day."""
    moment = datetime.datetime.fromisoformat(day(on))
    return Ledger.open(url, key=key, clock=lambda: moment, actor=lambda: "ci@host")


ASKED = {"release": "town", "cost": cost()}


@pytest.fixture
def ringed(store_url):
    """A ledger whose population has a curator's and an approver's key, since New Year."""
    Ledger.create(store_url).register(adult())
    ledger_of(store_url, None, 0).add_key("adult", CURATOR.public, Role.CURATOR)
    ledger_of(store_url, CURATOR, 0).add_key("adult", APPROVER.public, Role.APPROVER)
    return store_url


@both_stores
def test_two_keys_reserve_and_one_does_not(ringed):
    """Also a further attempt; and what is approved once is approved for it, on another day too."""
    own = ledger_of(ringed, CURATOR, 1)
    error = refused(own, NotApprovedError, lambda: own.reserve(**ask(**ASKED)))
    assert "dpiw approve" in str(error)
    refused(own, NotApprovedError, lambda: own.approve("adult", RUN, TERMS))
    approval = ledger_of(ringed, APPROVER, 2).approve("adult", RUN, TERMS)
    head = own.head()
    assert ledger_of(ringed, APPROVER, 3).approve("adult", RUN, TERMS) == approval
    assert (own.head(), approval.by.key_id) == (head, APPROVER.public.key_id)
    for key in (None, APPROVER, STRANGER):
        ledger = ledger_of(ringed, key, 3)
        refused(ledger, NotApprovedError, lambda one=ledger: one.reserve(**ask(**ASKED)))
    for name, other in OTHERWISE.items():
        refused(own, NotApprovedError, lambda o={name: other}: own.reserve(**ask(**ASKED) | o))
    own.reserve(**ask(**ASKED))
    own.lose(RUN, 1, own.arm(RUN, 1, "weights").stage)
    again = ask(**ASKED, attempt=2, stages={"weights": BOTH["weights"]})
    refused(ledger_of(ringed, APPROVER, 3), NotApprovedError,
            lambda: ledger_of(ringed, APPROVER, 3).reserve(**again))  # fmt: skip
    own.reserve(**again)
    assert own.verify().ok
    assert errors(own.entries()) == set()


@both_stores
def test_a_recovery_needs_a_curator_s_key(ringed):
    """It makes a release count as published: else anybody could, for a folder of a stolen key."""
    none, one = ledger_of(ringed, None, 1), Charge(cost=cost("0.1"))
    lost = RecoveredRelease(
        hash=digest(3), manifest_digest=digest(104), previous=None, after=None, run="ab" * 4,
        plan_digest=digest(6), period="p", charge=one, held=one, drawn=one,
    )  # fmt: skip
    for key in (None, APPROVER, STRANGER):
        ledger = ledger_of(ringed, key, 1)
        for releases, loss in (([lost], "0"), ([], "0.1")):
            refused(
                ledger, NotApprovedError,
                lambda a=ledger, b=releases, c=loss: a.recover("adult", b, loss=cost(c, "0")),
            )  # fmt: skip
    ledger_of(ringed, CURATOR, 1).recover("adult", [lost], loss=cost("0", "0"))
    assert none.verify().ok
    assert errors(none.entries()) == set()
    chain = Chain()
    chain.entries = list(none.entries())[:-1]
    stated = dict(none.entries()[-1].payload)
    for key, codes in ((CURATOR, set()), (APPROVER, {"key_not_valid"}), (None, {"key_not_valid"})):
        entry = chain.made(EntryKind.RECOVER, stated, by=key, on=1)
        assert errors([*chain.entries, entry]) == codes


OTHERWISE: dict[str, Any] = {
    "cost": cost("0.6"), "plan_digest": digest(9), "period": "2027-q2", "release": "village",
    "max_attempts": 4, "run_key": digest(9),
}  # fmt: skip
"""What else than the approved run a curator could reserve."""


def test_populations_without_keys_know_nothing_of_them(ledger):
    ledger.reserve(**ask())
    assert (ledger.keyring("adult").keys, ledger.keyring("adult").needs_approval) == ({}, False)
    refused(ledger, NotApprovedError, lambda: ledger.approve("adult", RUN, TERMS))
    refused(ledger, UnknownPopulationError, lambda: ledger.keyring("nobody"))
    for ends in ("tomorrow", "2027"):
        refused(ledger, SpecError,
                lambda e=ends: ledger.revoke_key("adult", CURATOR.public, ends=e))  # fmt: skip


def test_revoking_back_undoes_an_approval_and_later_does_not(ringed):
    """A planned end leaves what was agreed; a stolen key's agreement since the theft is void."""
    approver = ledger_of(ringed, APPROVER, 1)
    approver.add_key("adult", SECOND.public, Role.APPROVER)
    approver.approve("adult", RUN, TERMS)
    second = ledger_of(ringed, SECOND, 5)
    second.revoke_key("adult", APPROVER.public, ends=day(4))
    ring = second.keyring("adult")
    assert ring.approval(RUN, {**TERMS}) is not None
    refused(second, LedgerConflictError, lambda: second.revoke_key("adult", APPROVER.public))
    second.revoke_key("adult", APPROVER.public, ends=day(1))
    curator = ledger_of(ringed, CURATOR, 5)
    refused(curator, NotApprovedError, lambda: curator.reserve(**ask(**ASKED)))
    second.approve("adult", RUN, TERMS)
    curator.reserve(**ask(**ASKED))
    found = tally([entry.to_json() for entry in curator.entries()]).findings
    assert [(f.code, f.subject) for f in found] == [
        ("key_revoked_since", "entry 5"), ("key_revoked_since", "entry 6")
    ]  # fmt: skip


def test_nobody_locks_a_population_out_by_a_revocation(ringed):
    """The last key of a role goes only after its successor is there."""
    curator = ledger_of(ringed, CURATOR, 1)
    for key in (APPROVER, CURATOR):
        error = refused(
            curator, LedgerConflictError, lambda k=key: curator.revoke_key("adult", k.public)
        )
        assert "successor" in str(error)
    refused(curator, NotApprovedError,
            lambda: curator.add_key("adult", SECOND.public, Role.APPROVER))  # fmt: skip
    curator.add_key("adult", SECOND.public, Role.CURATOR)
    curator.revoke_key("adult", CURATOR.public)
    refused(curator, NotApprovedError, lambda: curator.revoke_key("adult", SECOND.public))


def test_a_key_ends_when_it_was_said_to_and_one_never_does(ringed):
    """A revocation for later is an expiry; a ring whose keys all end would freeze its budget."""
    curator = ledger_of(ringed, CURATOR, 1)
    curator.add_key("adult", SECOND.public, Role.CURATOR)
    curator.revoke_key("adult", SECOND.public, ends=day(3))
    refused(curator, LedgerConflictError,
            lambda: curator.revoke_key("adult", CURATOR.public, ends=day(20)))  # fmt: skip
    late, spent = ledger_of(ringed, SECOND, 3), curator.spent("adult")
    for act in (
        lambda: late.add_key("adult", THIRD.public, Role.CURATOR),
        lambda: late.reserve(**ask(**ASKED)),
    ):
        refused(late, NotApprovedError, act)
    assert late.spent("adult") == spent
    early = ledger_of(ringed, SECOND, 2)
    early.add_key("adult", THIRD.public, Role.CURATOR)
    assert early.verify().ok


@both_stores
def test_a_self_approval_behind_the_api_is_seen_by_both(ringed, run_raw):
    """The database's guards know budgets, not keys: replay and audit refuse the entry."""
    chain = Chain()
    ledger = ledger_of(ringed, CURATOR, 1)
    chain.entries = list(ledger.entries())
    forged = [chain.approve(by=CURATOR, on=1)]
    chain.entries += forged
    forged.append(chain.reserve(by=CURATOR, on=1))
    run_raw(ledger.location, *(insert(entry.to_json()) for entry in forged))
    report = Ledger.open(ringed).verify()
    assert (report.fault.kind, report.fault.seq) == (FaultKind.ILLEGAL_TRANSITION, 5)
    found = tally([entry.to_json() for entry in [*ledger.entries()]]).findings
    assert [(f.code, f.subject) for f in found] == [
        ("key_not_valid", "entry 5"), ("not_approved", "entry 6")
    ]  # fmt: skip
    with pytest.raises(LedgerTamperedError):
        Ledger.open(ringed).keyring("adult")


BUGS: dict[str, tuple[type, str, Any]] = {
    "a key never ends": (RingKey, "valid", lambda _, __: True),
    "any approval covers": (Keyring, "approval", lambda ring, *_: ring.uses[-1].entry),
    "who signs is not asked": (Keyring, "check_signer", lambda *_: None),
    "nothing needs approval": (Keyring, "needs_approval", False),
}
"""Planted in the book; its chain of these must be one that the audit refuses."""


@pytest.mark.parametrize("bug", BUGS)
def test_the_audit_finds_what_a_wrong_book_lets_pass(bug, monkeypatch):
    steps: list[tuple[str, dict[str, Any]]] = [
        ("key", {"key": CURATOR, "role": "curator"}),
        ("key", {"key": SECOND, "role": "curator", "by": CURATOR}),
        ("revoke", {"key": SECOND, "since": 2, "by": CURATOR}),
        ("key", {"key": APPROVER, "role": "approver", "by": CURATOR}),
        ("approve", {"by": CURATOR if "signs" in bug else APPROVER, "on": 1}),
        ("reserve", {"by": SECOND if "ends" in bug else CURATOR, "on": 3}),
    ]  # fmt: skip
    if "covers" in bug:
        steps[-1][1]["stated"] = {"period": "2027-q2"}
    if "nothing" in bug:
        del steps[4]
    monkeypatch.setattr(*BUGS[bug])
    chain, book = Chain(), Book()
    for entry in chain.entries:
        book.apply(entry)
    for name, given_ in steps:
        chain.entries.append(getattr(chain, name)(**given_))
        book.apply(chain.entries[-1])
    assert errors(chain.entries) & {"not_approved", "key_not_valid"}
    monkeypatch.undo()
    sound = Book()
    for entry in chain.entries[:-1]:
        with contextlib.suppress(NotApprovedError):
            sound.apply(entry)
    with pytest.raises(NotApprovedError):
        sound.apply(chain.entries[-1])


def test_a_stolen_key_that_dates_back_is_not_stated_as_the_signer(ringed):
    """What it published after its revocation, under an earlier label: readers refuse it."""
    ledger_of(ringed, CURATOR, 1).add_key("adult", SECOND.public, Role.CURATOR)
    ledger_of(ringed, APPROVER, 1).approve("adult", RUN, TERMS)
    own = ledger_of(ringed, CURATOR, 1)
    own.reserve(**ask(**ASKED))
    for stage in BOTH:
        own.commit(own.arm(RUN, 1, stage), digest(5))
    ledger_of(ringed, SECOND, 4).revoke_key("adult", CURATOR.public, ends=day(2))
    ledger_of(ringed, CURATOR, 1).publish(RUN, digest(9))
    ring = ledger_of(ringed, SECOND, 5).keyring("adult")
    stated = ring.statement(SECOND.public)
    assert {one.public_key: one.signed for one in stated.keys} == {
        public(CURATOR): (), public(SECOND): (),
    }  # fmt: skip


def test_what_a_key_published_before_it_was_added_stays_its_own(store_url):
    """A population that takes up keys has releases already: readers keep them when a key ends."""
    Ledger.create(store_url).register(adult())
    own = ledger_of(store_url, CURATOR, 1)
    for run, signer in ((RUN, own), (digest(7), ledger_of(store_url, None, 1))):
        own.reserve(**ask(run_key=run))
        for stage in BOTH:
            own.commit(own.arm(run, 1, stage), digest(5))
        signer.publish(run, digest(9) if run == RUN else digest(8))
    own.add_key("adult", CURATOR.public, Role.CURATOR)
    own.add_key("adult", SECOND.public, Role.CURATOR)
    for ends, signed in ((2, (digest(9),)), (1, ())):  # the second is back to the publication
        ledger_of(store_url, SECOND, 4).revoke_key("adult", CURATOR.public, ends=day(ends))
        stated = own.keyring("adult").at(day(4)).statement(SECOND.public).key(CURATOR.public)
        assert (stated.ended, stated.signed) == (day(ends), signed)
    assert errors(own.entries()) == set()
