"""Checkpoints and resumes in the ledger: what may follow what, on both stores and in the audit."""

from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.errors import BudgetExceededError, GrantSpentError, LedgerConflictError, SpecError
from dpiw.ledger import EntryKind, Grant, Ledger, StageState
from dpiw.ledger.entries import chained
from dpiw.privacy.resumption import Resumption, interval
from tests.support.ledger import RUN, adult, ask, cost, digest, refused
from tests.support.stores import both_stores

pytestmark = pytest.mark.usefixtures("in_memory")

TERMS = Resumption(steps=100, every=5, resumes=2)
DRAWS = [{"type": "poisson_sampled_gaussian", "noise_multiplier": 1.5, "count": 110}]
OTHER = [{"type": "laplace", "noise_multiplier": 4.0, "count": 1}]


def asked(**changes: Any) -> dict[str, Any]:
    stages = {"generator": DRAWS, "weights": OTHER}
    return ask(**{"stages": stages, "resumptions": {"generator": TERMS}} | changes)


@pytest.fixture
def ledger(store_url):
    made = Ledger.create(store_url)
    made.register(adult())
    made.reserve(**asked())
    return made


def trained_to(ledger: Ledger, step: int) -> Grant:
    grant = ledger.arm(RUN, 1, "generator")
    for at in range(0, step + 1, 5):
        ledger.checkpoint(grant, step=at, digest=digest(1000 + at))
    return grant


@both_stores
def test_a_training_is_resumed_as_often_as_was_reserved_and_costs_no_more(ledger):
    before = ledger.spent("adult")
    grants = [trained_to(ledger, 20)]
    for _ in range(TERMS.resumes):
        grants.append(ledger.resume(RUN, 1, "generator", step=20))
    stage = ledger.run(RUN).stages["generator"]
    assert stage.state is StageState.ARMED
    assert stage.tokens == tuple(grant.digest for grant in grants)
    assert stage.resumes_left == 0
    refused(ledger, GrantSpentError, lambda: ledger.resume(RUN, 1, "generator", step=20))
    for old in grants[:-1]:
        refused(ledger, GrantSpentError, lambda g=old: ledger.confirm(g))
        refused(ledger, GrantSpentError, lambda g=old: ledger.commit(g, digest(9)))
        late = {"step": 25, "digest": digest(8)}
        refused(ledger, GrantSpentError, lambda g=old, late=late: ledger.checkpoint(g, **late))
    ledger.confirm(grants[-1])
    ledger.commit(grants[-1], digest(9))
    assert ledger.spent("adult") == before
    assert ledger.verify().ok
    counted = tally(ledger.export())
    assert counted.findings == []
    assert counted.runs[RUN].attempts[0].stages["generator"].resumes == 2


def test_checkpoints_follow_each_other_no_further_apart_than_was_reserved(ledger):
    grant = ledger.arm(RUN, 1, "generator")
    refused(ledger, GrantSpentError, lambda: ledger.resume(RUN, 1, "generator", step=0))

    def at(step):
        return lambda: ledger.checkpoint(grant, step=step, digest=digest(7))

    for step in (1, 5, -1, True):
        refused(ledger, LedgerConflictError, at(step))
    at(0)()
    for step in (0, 6, 100):
        refused(ledger, LedgerConflictError, at(step))
    for step in range(4, 97, 4):  # closer together is admissible: a resume repeats less
        at(step)()
    refused(ledger, LedgerConflictError, at(101))
    at(100)()
    refused(ledger, LedgerConflictError, at(100))
    refused(ledger, LedgerConflictError, lambda: ledger.resume(RUN, 1, "generator", step=96))
    assert tally(ledger.export()).findings == []


def test_only_what_was_reserved_so_and_is_armed_has_checkpoints(ledger):
    weights = ledger.arm(RUN, 1, "weights")
    first = {"step": 0, "digest": digest(7)}
    refused(ledger, LedgerConflictError, lambda: ledger.checkpoint(weights, **first))
    refused(ledger, GrantSpentError, lambda: ledger.resume(RUN, 1, "weights", step=0))
    refused(ledger, GrantSpentError, lambda: ledger.resume(RUN, 1, "generator", step=0))
    grant = trained_to(ledger, 5)
    ledger.lose(RUN, 1, "generator")
    refused(ledger, GrantSpentError, lambda: ledger.checkpoint(grant, step=10, digest=digest(7)))
    refused(ledger, GrantSpentError, lambda: ledger.resume(RUN, 1, "generator", step=5))


@pytest.mark.parametrize(
    "resumptions",
    [
        {"generator": Resumption(steps=100, every=5, resumes=3)},
        {"weights": TERMS},
        {"nothing": TERMS},
    ],
)
def test_what_a_resume_may_repeat_must_be_among_the_draws(ledger, resumptions):
    terms = asked(run_key=digest(5), resumptions=resumptions)
    refused(ledger, SpecError, lambda: ledger.reserve(**terms))


def test_the_terms_are_part_of_the_reservation(ledger):
    before = ledger.head()
    ledger.reserve(**asked())
    assert ledger.head() == before
    other = {"generator": Resumption(steps=108, every=1, resumes=2)}
    for terms in (None, other):
        refused(ledger, LedgerConflictError, lambda t=terms: ledger.reserve(**asked(resumptions=t)))
    trained_to(ledger, 5)
    ledger.lose(RUN, 1, "generator")
    again = asked(attempt=2, stages={"generator": DRAWS})
    for terms in (None, other):
        wrong = again | {"resumptions": terms}
        refused(ledger, LedgerConflictError, lambda w=wrong: ledger.reserve(**w))
    ledger.reserve(**again)
    assert ledger.run(RUN).stages["generator"].checkpoint is None


def test_nothing_is_resumed_on_an_overdrawn_account(ledger):
    trained_to(ledger, 10)
    ledger.recover("adult", [], loss=cost("3"))
    refused(ledger, BudgetExceededError, lambda: ledger.resume(RUN, 1, "generator", step=10))


def appended(ledger: Ledger, kind: EntryKind, payload: dict[str, Any]) -> None:
    """An entry of stage `generator` that no rule in Python has seen."""
    entry = chained(
        ledger.head(), kind=kind, payload=payload, at="2027-01-01T00:00:00Z", population="adult",
        run_key=RUN, attempt=1, stage="generator",
    )  # fmt: skip
    with ledger._store.transaction(write=True) as connection:
        ledger._store.append(connection, entry)


RESUMES = [{"step": 20, "token_digest": digest(60 + number)} for number in range(3)]


@pytest.mark.parametrize(
    ("kind", "payloads"),
    [
        (EntryKind.CHECKPOINT, [{"step": 30, "digest": digest(7)}]),
        (EntryKind.CHECKPOINT, [{"step": 20, "digest": digest(7)}]),
        (EntryKind.CHECKPOINT, [{"step": "25", "digest": digest(7)}]),
        (EntryKind.RESUME, [{"step": 15, "token_digest": digest(6)}]),
        (EntryKind.RESUME, [{"step": 20, "token_digest": "none"}]),
        (EntryKind.RESUME, RESUMES),  # one too many
    ],
)
def test_the_replay_and_the_audit_refuse_what_may_not_follow(ledger, kind, payloads):
    trained_to(ledger, 20)
    for payload in payloads:
        appended(ledger, kind, payload)
    assert not ledger.verify().ok
    if payloads[0].get("token_digest") != "none":  # the audit counts resumes, not tokens
        assert [f.code for f in tally(ledger.export()).findings] == ["illegal_step"]


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (19, 1), (20, 1), (21, 2), (500, 25)])
def test_a_twentieth_of_the_steps_lies_between_checkpoints(steps, every):
    assert interval(steps) == every
    terms = Resumption.of(steps=steps, resumes=3)
    assert terms is not None
    assert (terms.every, terms.reserve) == (every, 3 * every)
    assert Resumption.from_json(terms.to_json()) == terms
    assert Resumption.of(steps=steps, resumes=0) is None


@pytest.mark.parametrize("facts", [{"steps": 1, "every": 1}, {"steps": 0, "every": 1, "resumes": 1},
                                   {"steps": 1, "every": True, "resumes": 1}])  # fmt: skip
def test_terms_that_are_none_are_refused(facts):
    with pytest.raises(SpecError):
        Resumption.from_json(facts)
