"""An account that a recovery or a conflict took beyond its budget: nothing more is drawn on it."""

from decimal import Decimal
from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.errors import BudgetExceededError, LedgerConflictError, LedgerError
from dpiw.ledger import CompositionRule, FaultKind, Ledger, StageState
from dpiw.ledger.book import Book
from dpiw.ledger.entries import EntryKind
from dpiw.ledger.reading import replay
from dpiw.privacy.accounting import renyi_vector
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.renyi import RenyiVector
from tests.support.ledger import ask as a_request
from tests.support.ledger import chain, cost, digest, refused, stored, terms
from tests.support.stores import both_stores

COST = cost("1.5")
LOSS = cost("2")


@pytest.fixture(params=list(CompositionRule))
def composition(request):
    return request.param


@pytest.fixture
def ledger(store_url, composition):
    """A budget of 4 of which two runs of two stages each hold a part."""
    created = Ledger.create(store_url)
    created.register(terms(epsilon=Decimal(4), composition=composition))
    for run in (1, 2):
        created.reserve(**ask(run, composition))
    return created


def ask(run: int, composition: CompositionRule) -> dict[str, Any]:
    vector = RenyiVector(units=renyi_vector([GaussianEvent(noise_multiplier=2.8)]))
    return a_request(
        population="town", run_key=digest(run), cost=COST, plan_digest=digest(run),
        stages={"one": [{"type": "gaussian"}], "two": [{"type": "gaussian"}]},
        renyi=vector if composition is CompositionRule.RENYI else None,
    )  # fmt: skip


def conflict(ledger: Ledger) -> None:
    for output in (1, 2, 3, 4):
        with pytest.raises(LedgerConflictError):
            ledger.commit_found(digest(1), 1, "one", digest(10 + output))


def loss(ledger: Ledger) -> None:
    ledger.recover("town", [], loss=LOSS)


@pytest.mark.parametrize("overdraw", [loss, conflict])
def test_nothing_is_armed_on_an_overdrawn_account(ledger, composition, overdraw):
    ledger.commit(ledger.arm(digest(1), 1, "one"), digest(10))
    assert not ledger.account("town").overdrawn
    overdraw(ledger)
    assert ledger.account("town").overdrawn
    for run, stage in ((1, "two"), (2, "one")):
        place = (digest(run), 1, stage)
        error = refused(ledger, BudgetExceededError, lambda place=place: ledger.arm(*place))
        assert error.requested == str(COST)
    ledger.void(digest(2), 1)  # what was not drawn may still be given back
    still = ledger.account("town").overdrawn
    assert still == (overdraw is conflict)
    if not still:  # and then the rest fits again
        ledger.arm(digest(1), 1, "two")
        ledger.commit_found(digest(1), 1, "two", digest(20))
        ledger.publish(digest(1), digest(30))
    assert ledger.verify().ok
    # the second implementation sees who overdrew it, and no arm that should not be
    (code,) = {finding.code for finding in tally(ledger.export()).findings}
    assert code == "overspent"
    assert not any("arm" in finding.text for finding in tally(ledger.export()).findings)


def test_what_was_drawn_before_is_committed_and_published(ledger, composition):
    grants = [ledger.arm(digest(1), 1, stage) for stage in ("one", "two")]
    loss(ledger)
    for grant in grants:
        ledger.confirm(grant)
        ledger.commit(grant, digest(7))
    ledger.publish(digest(1), digest(30))
    assert ledger.verify().ok


@both_stores
def test_the_database_itself_refuses_the_arm(ledger, monkeypatch):
    """With the rules in Python switched off, the sums in SQL still hold."""
    monkeypatch.setattr("dpiw.ledger.accounts.Account.check_drawable", lambda *_: None)
    ledger.arm(digest(1), 1, "one")
    loss(ledger)
    refused(ledger, LedgerError, lambda: ledger.arm(digest(1), 1, "two"))
    ledger.void(digest(2), 1)
    ledger.arm(digest(1), 1, "two")


def test_both_replays_find_an_arm_on_an_overdrawn_account(ledger):
    """In a perfect chain: the arm is moved behind the loss."""
    ledger.arm(digest(1), 1, "one")
    loss(ledger)
    exported = ledger.export()
    assert [entry["kind"] for entry in exported[-2:]] == ["arm", "recover"]
    exported[-2:] = reversed(exported[-2:])
    rows = stored(chain(exported))
    book = Book()
    _, fault = replay(rows, book=book, head=None)
    assert fault is not None
    assert (fault.kind, fault.seq) == (FaultKind.OVERSPENT, len(rows))
    assert book.runs[digest(1)].stages["one"].state is StageState.RESERVED
    texts = [finding.text for finding in tally(exported).findings if finding.code == "overspent"]
    assert any(f"entry {len(rows)} ({EntryKind.ARM.value})" in text for text in texts)
