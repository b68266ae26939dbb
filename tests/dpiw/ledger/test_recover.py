"""Taking a ledger up again that lost entries: what is charged, refused, and drawn no more."""

from decimal import Decimal
from typing import Any

import pytest

from dpiw import errors
from dpiw.audit.tally import tally
from dpiw.ledger import (
    CompositionRule,
    EntryKind,
    FaultKind,
    Ledger,
    PublishedHead,
    RecoveredRelease,
    RunState,
    StageState,
)
from dpiw.ledger.book import Book
from dpiw.ledger.entries import chained
from dpiw.ledger.reading import replay
from dpiw.ledger.values import Charge
from dpiw.privacy.accounting import renyi_vector
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.renyi import BEYOND, RenyiVector, loss_vector
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost
from tests.support.ledger import NONE, chain, cost, digest, key, refused, stored, terms
from tests.support.ledger import ask as a_request
from tests.support.stores import both_stores

pytestmark = pytest.mark.usefixtures("in_memory")


def ask(run: int, **changes: Any) -> dict[str, Any]:
    stages = {"s": [{"type": "gaussian", "noise_multiplier": 3.0, "count": 1}]}
    return a_request(
        **{"population": "town", "run_key": key(run), "stages": stages, "plan_digest": digest(run)}
        | changes
    )


def lost(number: int, **changes: Any) -> RecoveredRelease:
    """A release of run `number` at a head this ledger does not have."""
    facts: dict[str, Any] = {
        "hash": digest(700 + number),
        "manifest_digest": digest(800 + number),
        "previous": None, "after": None,
        "run": key(number)[:8], "plan_digest": digest(number), "period": "2027-q1",
        "charge": Charge(cost=cost()), "held": Charge(cost=cost()), "drawn": Charge(cost=cost()),
    }  # fmt: skip
    return RecoveredRelease(**{**facts, **changes})


def stated(epsilon: str, delta: str = "1e-6") -> Charge:
    return Charge(cost=cost(epsilon, delta))


def published(release: RecoveredRelease) -> PublishedHead:
    return PublishedHead(hash=release.hash, manifest_digest=release.manifest_digest)


@pytest.fixture
def ledger(store_url):
    created = Ledger.create(store_url)
    created.register(terms())
    return created


def spent(ledger: Ledger) -> str:
    assert ledger.verify().ok
    assert Ledger.open(ledger.location).spent("town") == ledger.spent("town")
    return str(ledger.spent("town"))


def test_an_unknown_run_is_charged_in_full_and_is_spent(ledger):
    head = PublishedHead(hash=lost(1).hash)
    with pytest.raises(errors.LedgerTamperedError):
        ledger.check_heads([head])
    recovery = ledger.recover("town", [lost(1)], loss=NONE)
    assert str(recovery.charged.cost) == spent(ledger) == "epsilon=0.5, delta=1E-6"
    ledger.check_heads([published(lost(1))])
    assert not ledger.contains(head.hash)
    for unknown in (head, PublishedHead(hash=head.hash, manifest_digest=digest(5))):
        with pytest.raises(errors.LedgerTamperedError):
            ledger.check_heads([unknown])  # another release may have been built on the same entry
    with pytest.raises(errors.GrantSpentError):
        ledger.reserve(**ask(1))
    ledger.reserve(**ask(1, plan_digest=digest(2)))  # another plan under that key's digits


def test_two_releases_of_one_head_are_two(ledger):
    """Two certificates may be written at one entry, of one population or of two."""
    ledger.register(terms(name="city"))
    first, second = lost(1), lost(2, hash=lost(1).hash)
    ledger.recover("town", [first], loss=NONE)
    assert not ledger.knows(published(second))
    ledger.recover("city", [second], loss=NONE)
    assert ledger.knows(published(second))
    assert ledger.spent("town") == ledger.spent("city") == cost()
    assert ledger.verify().ok


def histories() -> dict[str, list[tuple[list[RecoveredRelease], str]]]:
    """Releases that are taken up, and the epsilon that is spent after each time."""
    one, two, three = (
        lost(number, previous=None if number == 1 else digest(799 + number), held=stated(total))
        for number, total in ((1, "0.5"), (2, "1"), (3, "1.7"))
    )
    first = lost(1, held=stated("1"))
    copies = [lost(n, previous=digest(801), held=stated("1.2")) for n in (2, 3)]
    return {
        # A lost draw without a release shows in the next certificate's cumulative spending.
        "a certificate says more": [([lost(1, held=stated("1.4"))], "1.4")],
        # Each continues the one before; draws between them that were not published count, too.
        "one lost history": [([one, two], "1"), ([three], "1.7")],
        # Two copies went on by themselves: neither knew what the other spent.
        "two": [([lost(1, held=stated("0.9"))], "0.9"), ([lost(2, held=stated("0.8"))], "1.7")],
        # Of the 1 that the first held, 0.5 was drawn; each copy may have drawn the rest, and the
        # second run held at least 0.5.
        "two that continue one": [([first, copies[0]], "1.5"), (copies[1:], "2.2")],
    }


@pytest.mark.parametrize("name", list(histories()))
def test_what_is_spent_after_lost_histories(ledger, name):
    for releases, epsilon in histories()[name]:
        ledger.recover("town", releases, loss=NONE)
        assert spent(ledger).startswith(f"epsilon={epsilon},")


def test_a_release_of_another_population_is_no_release_before_it(ledger):
    ledger.register(terms(name="city", composition=CompositionRule.RENYI))
    vector = Charge(cost=cost(), renyi=RenyiVector(units=(9,) * 16))
    ledger.recover("city", [lost(1, charge=vector, held=vector, drawn=vector)], loss=NONE)
    ledger.recover("town", [lost(2, previous=digest(801), held=stated("1.2"))], loss=NONE)
    assert spent(ledger).startswith("epsilon=1.2,")


def test_the_release_before_must_be_in_the_chain(ledger):
    for wrong in (
        lost(9, previous=digest(5), after=digest(77)),
        lost(9, previous=None, after=ledger.head().hash),
    ):
        with pytest.raises(errors.LedgerConflictError):
            ledger.recover("town", [wrong], loss=NONE)


@pytest.mark.parametrize("together", [False, True])
def test_a_reservation_pays_for_its_own_release_once(ledger, together):
    """Another release of the same run is another draw: two copies of one ledger."""
    ledger.reserve(**ask(1, cost=cost("0.4")))
    other = lost(1, hash=digest(91), manifest_digest=digest(9))
    if together:
        ledger.recover("town", [lost(1), other], loss=NONE)
        assert spent(ledger) == "epsilon=1, delta=2E-6"
        return
    ledger.recover("town", [lost(1)], loss=NONE)
    assert spent(ledger) == "epsilon=0.5, delta=1E-6"
    for act in (lambda: ledger.arm(key(1), 1, "s"), lambda: ledger.void(key(1), 1)):
        with pytest.raises(errors.GrantSpentError):
            act()
    ledger.recover("town", [other], loss=NONE)
    assert spent(ledger) == "epsilon=1, delta=2E-6"


@pytest.mark.parametrize("state", [RunState.ARMED, RunState.LOST, RunState.COMMITTED])
def test_a_draw_this_ledger_knows_may_be_another_one(ledger, state):
    ledger.reserve(**ask(1))
    grant = ledger.arm(key(1), 1, "s")
    if state is RunState.LOST:
        ledger.lose(key(1), 1, "s")
    if state is RunState.COMMITTED:
        ledger.commit(grant, digest(3))
    ledger.recover("town", [lost(1)], loss=NONE)
    assert ledger.run(key(1)).state is state
    assert spent(ledger) == "epsilon=1, delta=2E-6"
    if state is RunState.ARMED:
        ledger.commit(grant, digest(3))
    if state is RunState.LOST:
        with pytest.raises(errors.GrantSpentError):
            ledger.reserve(**ask(1, attempt=2))
        return
    ledger.publish(key(1), digest(801))


@both_stores
def test_recovery_is_never_refused_for_want_of_budget(ledger):
    ledger.recover("town", [lost(1, charge=Charge(cost=cost("3")))], loss=NONE)
    assert spent(ledger) == "epsilon=3, delta=1E-6"
    assert str(ledger.remaining("town")).startswith("epsilon=0,")
    with pytest.raises(errors.BudgetExceededError):
        ledger.reserve(**ask(2))


def test_only_what_is_missing_is_recovered_and_once(ledger):
    there = ledger.head()
    for releases in ([], [lost(1, hash=there.hash)], [lost(1), lost(1)]):
        with pytest.raises(errors.LedgerConflictError):
            ledger.recover("town", releases, loss=NONE)
    assert ledger.head() == there
    ledger.recover("town", [lost(1)], loss=NONE)
    for again in (lost(1), lost(1, hash=digest(1))):
        with pytest.raises(errors.LedgerConflictError):
            ledger.recover("town", [again], loss=NONE)
    with pytest.raises(errors.LedgerConflictError):
        ledger.recover("town", [], loss=NONE)
    ledger.recover("town", [], loss=cost("0.1"))  # a loss may be stated at any time
    assert spent(ledger) == "epsilon=0.6, delta=2E-6"
    assert [len(recovery.releases) for recovery in ledger.recoveries("town")] == [1, 0]


def test_malformed_recoveries_are_refused(ledger):
    relation = NeighbouringRelation.REPLACE_ONE
    head = ledger.head()
    vector = Charge(cost=cost(), renyi=RenyiVector.nothing())
    for change in ({"run": ""}, {"run": "ABCDEFGH"}, {"period": "a b"}, {"charge": vector}):
        with pytest.raises(errors.SpecError):
            ledger.recover("town", [lost(1, **change)], loss=NONE)
    with pytest.raises(errors.UnknownPopulationError):
        ledger.recover("ghost", [lost(1)], loss=NONE)
    with pytest.raises(errors.UnsupportedRelationError):
        ledger.recover("town", [lost(1)], loss=PrivacyCost.of(Decimal(1), Decimal(0), relation))
    assert ledger.head() == head


@both_stores
def test_a_renyi_population_is_charged_vectors(store_url):
    ledger = Ledger.create(store_url)
    ledger.register(terms(composition=CompositionRule.RENYI))
    vector = RenyiVector(units=tuple(range(10**9, 10**9 + 16)))
    nothing = Charge(cost=NONE, renyi=RenyiVector.nothing())
    release = lost(1, charge=Charge(cost=cost(), renyi=vector), held=nothing, drawn=nothing)
    ledger.recover("town", [release], loss=cost("0.1", "4e-6"))
    loss = loss_vector(10**11, 4 * 10**12, delta_left_units=10**13)
    assert ledger.account("town").held.renyi == vector.plus(loss)
    ledger.recover("town", [], loss=cost("0", "4e-6"))
    second_loss = loss_vector(0, 4 * 10**12, delta_left_units=6 * 10**12)
    assert ledger.account("town").held.renyi == vector.plus(loss).plus(second_loss)
    ledger.recover("town", [], loss=cost("0", "4e-6"))  # beyond the lifetime delta: nothing is left
    assert min(ledger.account("town").held.renyi.units) > BEYOND  # type: ignore[union-attr]
    assert str(ledger.remaining("town")).startswith("epsilon=0,")
    assert ledger.verify().ok


def test_a_renyi_account_is_lifted_at_every_order(store_url):
    """By the vector its certificate states: the epsilon it is worth is less than the whole."""
    ledger = Ledger.create(store_url)
    ledger.register(terms(composition=CompositionRule.RENYI))
    vector = RenyiVector(units=tuple(range(10**9, 10**9 + 16)))
    whole = RenyiVector(units=tuple(3 * 10**9 - 10**8 * n for n in range(16)), lost_delta=10**12)
    held = Charge(cost=cost("1.1"), renyi=whole)
    drawn = Charge(cost=NONE, renyi=RenyiVector.nothing())
    release = lost(1, charge=Charge(cost=cost(), renyi=vector), held=held, drawn=drawn)
    recovery = ledger.recover("town", [release], loss=cost("0", "2e-6"))
    lifted = RenyiVector(
        units=tuple(map(max, vector.units, whole.units)), lost_delta=whole.lost_delta
    )
    # what earlier losses took from the lifetime delta is not forgotten, either
    loss = loss_vector(0, 2 * 10**12, delta_left_units=10**13 - 10**12)
    assert ledger.account("town").held.renyi == lifted.plus(loss)
    assert recovery.loss.renyi == loss
    assert ledger.verify().ok


def test_a_ledger_of_another_format_is_named_as_one():
    payload = {"format": 1, "nonce": "0" * 64}
    entry = chained(None, kind=EntryKind.GENESIS, payload=payload, at="2026-11-22T12:00:00Z")
    with pytest.raises(errors.LedgerConflictError, match="format 1"):
        Book().apply(entry)


COST = cost("1.5")
LOSS = cost("2")


@pytest.fixture(params=list(CompositionRule))
def composition(request):
    return request.param


@pytest.fixture
def halved(store_url, composition):
    """A budget of 4 of which two runs of two stages each hold a part."""
    created = Ledger.create(store_url)
    created.register(terms(epsilon=Decimal(4), composition=composition))
    for run in (1, 2):
        created.reserve(**halves(run, composition))
    return created


def halves(run: int, composition: CompositionRule) -> dict[str, Any]:
    vector = RenyiVector(units=renyi_vector([GaussianEvent(noise_multiplier=2.8)]))
    return a_request(
        population="town", run_key=digest(run), cost=COST, plan_digest=digest(run),
        stages={"one": [{"type": "gaussian"}], "two": [{"type": "gaussian"}]},
        renyi=vector if composition is CompositionRule.RENYI else None,
    )  # fmt: skip


def conflict(halved: Ledger) -> None:
    for output in (1, 2, 3, 4):
        with pytest.raises(errors.LedgerConflictError):
            halved.commit_found(digest(1), 1, "one", digest(10 + output))


def loss(halved: Ledger) -> None:
    halved.recover("town", [], loss=LOSS)


@pytest.mark.parametrize("overdraw", [loss, conflict])
def test_nothing_is_armed_on_an_overdrawn_account(halved, composition, overdraw):
    halved.commit(halved.arm(digest(1), 1, "one"), digest(10))
    assert not halved.account("town").overdrawn
    overdraw(halved)
    assert halved.account("town").overdrawn
    for run, stage in ((1, "two"), (2, "one")):
        place = (digest(run), 1, stage)
        error = refused(halved, errors.BudgetExceededError, lambda place=place: halved.arm(*place))
        assert error.requested == str(COST)
    halved.void(digest(2), 1)  # what was not drawn may still be given back
    still = halved.account("town").overdrawn
    assert still == (overdraw is conflict)
    if not still:  # and then the rest fits again
        halved.arm(digest(1), 1, "two")
        halved.commit_found(digest(1), 1, "two", digest(20))
        halved.publish(digest(1), digest(30))
    assert halved.verify().ok
    # the second implementation sees who overdrew it, and no arm that should not be
    (code,) = {finding.code for finding in tally(halved.snapshot().export()).findings}
    assert code == "overspent"
    assert not any("arm" in finding.text for finding in tally(halved.snapshot().export()).findings)


def test_what_was_drawn_before_is_committed_and_published(halved, composition):
    grants = [halved.arm(digest(1), 1, stage) for stage in ("one", "two")]
    loss(halved)
    for grant in grants:
        halved.confirm(grant)
        halved.commit(grant, digest(7))
    halved.publish(digest(1), digest(30))
    assert halved.verify().ok


@both_stores
def test_the_database_itself_refuses_the_arm(halved, monkeypatch):
    """With the rules in Python switched off, the sums in SQL still hold."""
    monkeypatch.setattr("dpiw.ledger.accounts.Account.check_drawable", lambda *_: None)
    halved.arm(digest(1), 1, "one")
    loss(halved)
    refused(halved, errors.LedgerError, lambda: halved.arm(digest(1), 1, "two"))
    halved.void(digest(2), 1)
    halved.arm(digest(1), 1, "two")


def test_both_replays_find_an_arm_on_an_overdrawn_account(halved):
    """In a perfect chain: the arm is moved behind the loss."""
    halved.arm(digest(1), 1, "one")
    loss(halved)
    exported = halved.snapshot().export()
    assert [entry["kind"] for entry in exported[-2:]] == ["arm", "recover"]
    exported[-2:] = reversed(exported[-2:])
    rows = stored(chain(exported))
    book = Book()
    _, fault = replay(rows, book=book, head=None)
    assert (fault.kind, fault.seq) == (FaultKind.OVERSPENT, len(rows))
    assert book.runs[digest(1)].stages["one"].state is StageState.RESERVED
    texts = [finding.text for finding in tally(exported).findings if finding.code == "overspent"]
    assert any(f"entry {len(rows)} ({EntryKind.ARM.value})" in text for text in texts)
