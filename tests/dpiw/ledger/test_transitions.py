"""What may follow what: every transition, legal and illegal, attempts, checkpoints, resumes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.errors import BudgetExceededError, GrantSpentError, LedgerConflictError, SpecError
from dpiw.ledger import EntryKind, Grant, Ledger, RunState, StageState
from dpiw.ledger.entries import chained
from dpiw.privacy.resumption import Resumption, interval
from tests.support.ledger import (
    BOTH,
    FORGED,
    MANIFEST,
    OUT,
    RUN,
    adult,
    ask,
    chain,
    cost,
    digest,
    finish,
    refused,
)
from tests.support.stores import both_stores

pytestmark = pytest.mark.usefixtures("in_memory")


@both_stores
def test_the_whole_way(ledger):
    ledger.reserve(**ask())
    grant = ledger.arm(RUN, 1, "generator")
    ledger.confirm(grant)
    assert ledger.run(RUN).state is RunState.ARMED
    ledger.confirm_reserved(RUN, 1, "generator")
    ledger.commit(grant, OUT)
    head = ledger.head()
    ledger.commit(grant, OUT)
    ledger.commit_found(RUN, 1, "generator", OUT)
    assert ledger.head() == head
    ledger.commit(ledger.arm(RUN, 1, "weights"), OUT)
    assert ledger.run(RUN).state is RunState.COMMITTED
    published = ledger.publish(RUN, MANIFEST)
    assert published == ledger.head()
    assert ledger.publish(RUN, MANIFEST) == published == ledger.head()
    refused(ledger, LedgerConflictError, lambda: ledger.publish(RUN, digest(5)))
    run = ledger.run(RUN)
    assert run.state is RunState.PUBLISHED
    assert run.manifest_digest == MANIFEST
    assert run.stages["generator"].output_digest == OUT
    assert ledger.find_run(RUN) == run
    assert ledger.find_run(digest(99)) is None
    assert ledger.runs("adult") == (run,)
    assert ledger.verify().ok


def test_more_rows_of_a_published_run(ledger):
    """Further manifests, each once, at no cost; and every illegal neighbour of that."""
    unknown = lambda: ledger.publish_rows(RUN, digest(5))  # noqa: E731
    for act in (lambda: ledger.reserve(**ask()), lambda: finish(ledger)):
        refused(ledger, LedgerConflictError, unknown)
        act()
    refused(ledger, LedgerConflictError, unknown)
    ledger.publish(RUN, MANIFEST)
    spent, account = ledger.spent("adult"), ledger.account("adult")
    first = lambda: ledger.publish_rows(RUN, MANIFEST)  # noqa: E731
    refused(ledger, LedgerConflictError, first)
    for number in (5, 6, 5):
        ledger.publish_rows(RUN, digest(number))
    run = ledger.run(RUN)
    assert (run.further, run.manifest_digest) == ((digest(5), digest(6)), MANIFEST)
    assert (run.state, ledger.spent("adult")) == (RunState.PUBLISHED, spent)
    assert ledger.account("adult") == account
    assert ledger.publish(RUN, MANIFEST) == run.published
    refused(ledger, SpecError, lambda: ledger.publish_rows(RUN, "x"))
    assert ledger.verify().ok
    counted = tally(list(ledger.snapshot().export()))
    assert (counted.findings, counted.runs[RUN].further) == ([], [digest(5), digest(6)])
    for field, value in (("rows_of", digest(8)), ("manifest_digest", MANIFEST), ("rows_of", None)):
        entries = [dict(entry) for entry in ledger.snapshot().export()]
        entries[-1]["payload"] = {**entries[-1]["payload"], field: value}
        codes = [finding.code for finding in tally(chain(entries)).findings]
        assert codes == ["illegal_step"]


def bring(ledger: Ledger, state: StageState) -> Grant | None:
    """Reserve, and take stage `generator` of attempt 1 to `state`."""
    ledger.reserve(**ask())
    if state is StageState.VOIDED:
        ledger.void(RUN, 1)
    if state in (StageState.RESERVED, StageState.VOIDED):
        return None
    grant = ledger.arm(RUN, 1, "generator")
    if state is StageState.COMMITTED:
        ledger.commit(grant, OUT)
    if state is StageState.LOST:
        ledger.lose(RUN, 1, "generator")
    return grant


VERBS: dict[str, Callable[[Ledger, Grant | None], Any]] = {
    "arm": lambda one, _: one.arm(RUN, 1, "generator"),
    "confirm": lambda one, grant: one.confirm(grant or FORGED),
    "confirm_reserved": lambda one, _: one.confirm_reserved(RUN, 1, "generator"),
    "commit": lambda one, grant: one.commit(grant or FORGED, OUT),
    "commit_found": lambda one, _: one.commit_found(RUN, 1, "generator", OUT),
    "lose": lambda one, _: one.lose(RUN, 1, "generator"),
    "void": lambda one, _: one.void(RUN, 1),
    "publish": lambda one, _: one.publish(RUN, MANIFEST),
}
LEGAL = {
    StageState.RESERVED: {"arm", "confirm_reserved", "void"},
    StageState.ARMED: {"confirm", "confirm_reserved", "commit", "commit_found", "lose"},
    StageState.COMMITTED: {"commit", "commit_found"},  # the same digest: no change
    StageState.LOST: {"lose"},  # again: no change
    StageState.VOIDED: {"void"},  # again: no change
}


@pytest.mark.parametrize("state", list(StageState))
@pytest.mark.parametrize("verb", list(VERBS))
def test_every_transition_legal_and_illegal(ledger, state, verb):
    grant = bring(ledger, state)
    assert ledger.run(RUN).stages["generator"].state is state
    if verb in LEGAL[state]:
        VERBS[verb](ledger, grant)
    else:
        error = LedgerConflictError if verb == "publish" else GrantSpentError
        refused(ledger, error, lambda: VERBS[verb](ledger, grant))
    assert ledger.verify().ok


def test_transitions_of_what_was_never_reserved(ledger):
    for verb in VERBS.values():
        refused(ledger, LedgerConflictError, lambda v=verb: v(ledger, None))
    refused(ledger, LedgerConflictError, lambda: ledger.run(RUN))
    ledger.reserve(**ask())
    refused(ledger, LedgerConflictError, lambda: ledger.arm(RUN, 1, "ghost"))
    for attempt in (0, 2, -1):
        refused(ledger, LedgerConflictError, lambda a=attempt: ledger.arm(RUN, a, "weights"))


def test_a_grant_is_known_by_its_token_and_the_ledger_does_not_tell_it(ledger):
    grant = bring(ledger, StageState.ARMED)
    for verb in ("confirm", "commit"):
        refused(ledger, GrantSpentError, lambda v=verb: VERBS[v](ledger, FORGED))
    assert grant.token not in json.dumps(ledger.snapshot().export())
    assert grant.token not in repr(grant)
    refused(ledger, SpecError, lambda: ledger.commit(grant, "x"))
    refused(ledger, SpecError, lambda: ledger.publish(RUN, "x"))


@both_stores
def test_a_second_output_is_put_on_record_and_charged_again(ledger):
    grant = bring(ledger, StageState.COMMITTED)
    for digest_two, times in ((digest(6), 2), (digest(6), 2), (digest(8), 3)):
        with pytest.raises(LedgerConflictError):
            ledger.commit(grant, digest_two)
        assert ledger.spent("adult").epsilon_units == times * cost("0.5").epsilon_units
    with pytest.raises(LedgerConflictError):
        ledger.commit_found(RUN, 1, "generator", digest(8))
    record = ledger.run(RUN).stages["generator"]
    assert record.output_digest == OUT
    assert record.conflicts == (digest(6), digest(8))
    assert [e.kind for e in ledger.entries()].count(EntryKind.CONFLICT) == 2
    ledger.commit(ledger.arm(RUN, 1, "weights"), OUT)
    ledger.publish(RUN, MANIFEST)
    assert ledger.verify().ok


def test_a_lost_stage_is_drawn_again_in_a_new_attempt_at_a_new_cost(ledger):
    bring(ledger, StageState.LOST)
    assert ledger.run(RUN).state is RunState.LOST
    again = ask(attempt=2, stages={"generator": BOTH["generator"]}, cost=cost("0.3"))
    ledger.reserve(**again)
    assert ledger.spent("adult") == cost("0.8", "2e-6")
    assert ledger.run(RUN).stages["generator"].attempt == 2
    refused(ledger, GrantSpentError, lambda: ledger.arm(RUN, 1, "generator"))
    ledger.commit(ledger.arm(RUN, 2, "generator"), OUT)
    ledger.commit(ledger.arm(RUN, 1, "weights"), OUT)  # the first attempt's own stage goes on
    ledger.publish(RUN, MANIFEST)
    assert ledger.verify().ok


def test_attempts_have_no_gaps_and_keep_the_plan(ledger):
    refused(ledger, LedgerConflictError, lambda: ledger.reserve(**ask(attempt=2)))
    bring(ledger, StageState.LOST)
    stages = {"generator": BOTH["generator"]}
    second = ask(attempt=2, stages=stages)
    wrong: list[dict[str, Any]] = [
        {"attempt": 3}, {"plan_digest": digest(9)}, {"period": "later"}, {"max_attempts": 9},
        {"stages": {"generator": BOTH["weights"]}}, {"stages": {"other": BOTH["weights"]}},
    ]  # fmt: skip
    for change in wrong:
        refused(ledger, LedgerConflictError, lambda c=change: ledger.reserve(**second | c))
    ledger.reserve(**second)


@both_stores
def test_a_void_gives_back_once_and_burns_the_number_but_no_attempt(ledger):
    most = cost("1.5", "9e-6")
    ledger.reserve(**ask(max_attempts=1, cost=most))
    ledger.void(RUN, 1)
    head = ledger.head()
    ledger.void(RUN, 1)
    assert ledger.head() == head
    assert ledger.spent("adult") == cost("0", "0")
    assert ledger.run(RUN).state is RunState.VOIDED
    refused(ledger, LedgerConflictError, lambda: ledger.reserve(**ask(max_attempts=1, cost=most)))
    ledger.reserve(**ask(attempt=2, max_attempts=1, cost=most))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    assert ledger.verify().ok


TERMS = Resumption(steps=100, every=5, resumes=2)
DRAWS = [{"type": "poisson_sampled_gaussian", "noise_multiplier": 1.5, "count": 110}]
OTHER = [{"type": "laplace", "noise_multiplier": 4.0, "count": 1}]


def asked(**changes: Any) -> dict[str, Any]:
    stages = {"generator": DRAWS, "weights": OTHER}
    return ask(**{"stages": stages, "resumptions": {"generator": TERMS}} | changes)


@pytest.fixture
def training(store_url):
    made = Ledger.create(store_url)
    made.register(adult())
    made.reserve(**asked())
    return made


def trained_to(training: Ledger, step: int) -> Grant:
    grant = training.arm(RUN, 1, "generator")
    for at in range(0, step + 1, 5):
        training.checkpoint(grant, step=at, digest=digest(1000 + at))
    return grant


@both_stores
def test_a_training_is_resumed_as_often_as_was_reserved_and_costs_no_more(training):
    before = training.spent("adult")
    grants = [trained_to(training, 20)]
    for _ in range(TERMS.resumes):
        grants.append(training.resume(RUN, 1, "generator", step=20))
    stage = training.run(RUN).stages["generator"]
    assert stage.state is StageState.ARMED
    assert stage.tokens == tuple(grant.digest for grant in grants)
    assert stage.resumes_left == 0
    refused(training, GrantSpentError, lambda: training.resume(RUN, 1, "generator", step=20))
    for old in grants[:-1]:
        refused(training, GrantSpentError, lambda g=old: training.confirm(g))
        refused(training, GrantSpentError, lambda g=old: training.commit(g, digest(9)))
        late = {"step": 25, "digest": digest(8)}
        refused(training, GrantSpentError, lambda g=old, late=late: training.checkpoint(g, **late))
    training.confirm(grants[-1])
    training.commit(grants[-1], digest(9))
    assert training.spent("adult") == before
    assert training.verify().ok
    counted = tally(training.snapshot().export())
    assert counted.findings == []
    assert counted.runs[RUN].attempts[0].stages["generator"].resumes == 2


def test_checkpoints_follow_each_other_no_further_apart_than_was_reserved(training):
    grant = training.arm(RUN, 1, "generator")
    refused(training, GrantSpentError, lambda: training.resume(RUN, 1, "generator", step=0))

    def at(step):
        return lambda: training.checkpoint(grant, step=step, digest=digest(7))

    for step in (1, 5, -1, True):
        refused(training, LedgerConflictError, at(step))
    at(0)()
    for step in (0, 6, 100):
        refused(training, LedgerConflictError, at(step))
    for step in range(4, 97, 4):  # closer together is admissible: a resume repeats less
        at(step)()
    refused(training, LedgerConflictError, at(101))
    at(100)()
    refused(training, LedgerConflictError, at(100))
    refused(training, LedgerConflictError, lambda: training.resume(RUN, 1, "generator", step=96))
    assert tally(training.snapshot().export()).findings == []


def test_only_what_was_reserved_so_and_is_armed_has_checkpoints(training):
    weights = training.arm(RUN, 1, "weights")
    first = {"step": 0, "digest": digest(7)}
    refused(training, LedgerConflictError, lambda: training.checkpoint(weights, **first))
    refused(training, GrantSpentError, lambda: training.resume(RUN, 1, "weights", step=0))
    refused(training, GrantSpentError, lambda: training.resume(RUN, 1, "generator", step=0))
    grant = trained_to(training, 5)
    training.lose(RUN, 1, "generator")
    refused(
        training, GrantSpentError, lambda: training.checkpoint(grant, step=10, digest=digest(7))
    )
    refused(training, GrantSpentError, lambda: training.resume(RUN, 1, "generator", step=5))


@pytest.mark.parametrize(
    "resumptions",
    [
        {"generator": Resumption(steps=100, every=5, resumes=3)},
        {"weights": TERMS},
        {"nothing": TERMS},
    ],
)
def test_what_a_resume_may_repeat_must_be_among_the_draws(training, resumptions):
    terms = asked(run_key=digest(5), resumptions=resumptions)
    refused(training, SpecError, lambda: training.reserve(**terms))


def test_the_terms_are_part_of_the_reservation(training):
    before = training.head()
    training.reserve(**asked())
    assert training.head() == before
    other = {"generator": Resumption(steps=108, every=1, resumes=2)}
    for terms in (None, other):
        refused(
            training, LedgerConflictError, lambda t=terms: training.reserve(**asked(resumptions=t))
        )
    trained_to(training, 5)
    training.lose(RUN, 1, "generator")
    again = asked(attempt=2, stages={"generator": DRAWS})
    for terms in (None, other):
        wrong = again | {"resumptions": terms}
        refused(training, LedgerConflictError, lambda w=wrong: training.reserve(**w))
    training.reserve(**again)
    assert training.run(RUN).stages["generator"].checkpoint is None


def test_nothing_is_resumed_on_an_overdrawn_account(training):
    trained_to(training, 10)
    training.recover("adult", [], loss=cost("3"))
    refused(training, BudgetExceededError, lambda: training.resume(RUN, 1, "generator", step=10))


def appended(training: Ledger, kind: EntryKind, payload: dict[str, Any]) -> None:
    """An entry of stage `generator` that no rule in Python has seen."""
    entry = chained(
        training.head(), kind=kind, payload=payload, at="2027-01-01T00:00:00Z", population="adult",
        run_key=RUN, attempt=1, stage="generator",
    )  # fmt: skip
    with training._store.transaction(write=True) as connection:
        training._store.append(connection, entry)


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
def test_the_replay_and_the_audit_refuse_what_may_not_follow(training, kind, payloads):
    trained_to(training, 20)
    for payload in payloads:
        appended(training, kind, payload)
    assert not training.verify().ok
    if payloads[0].get("token_digest") != "none":  # the audit counts resumes, not tokens
        assert [f.code for f in tally(training.snapshot().export()).findings] == ["illegal_step"]


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (19, 1), (20, 1), (21, 2), (500, 25)])
def test_a_twentieth_of_the_steps_lies_between_checkpoints(steps, every):
    assert interval(steps) == every
    terms = Resumption.of(steps=steps, resumes=3)
    assert (terms.every, terms.reserve) == (every, 3 * every)
    assert Resumption.from_json(terms.to_json()) == terms
    assert Resumption.of(steps=steps, resumes=0) is None


@pytest.mark.parametrize("facts", [{"steps": 1, "every": 1}, {"steps": 0, "every": 1, "resumes": 1},
                                   {"steps": 1, "every": True, "resumes": 1}])  # fmt: skip
def test_terms_that_are_none_are_refused(facts):
    with pytest.raises(SpecError):
        Resumption.from_json(facts)
