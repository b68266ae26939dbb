"""No changed line, name, copy or clock pays a second time unasked, or buys more than is left."""

import contextlib
import dataclasses
import pickle
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from dpiw import errors
from dpiw.ledger import Ledger, RecoveredRelease, RunState
from dpiw.ledger.values import Charge
from dpiw.plan import spec as specs
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import draw, steps
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun
from tasks.stages import reserve as reserve_task
from tests.support.around import around
from tests.support.ledger import NONE, cost, digest, terms
from tests.support.whole_runs import asked, fit, prepared, publish_run, reserved, spent

CHANGED = {
    "synthetic_rows: 300": "synthetic_rows: 301", "nominal_rows: 400": "nominal_rows: 401",
    "epsilon: 2": "epsilon: 1", "delta: 1e-6": "delta: 1e-7",
    "settings: {bins: 4}": "settings: {bins: 5}", "method: histogram": "method: privbayes",
    "when_infeasible: keep": "when_infeasible: none",
    "format: csv}": "format: csv, snapshot: second}",
    "cadence: once": "shares: {generator: 0.4, weights: 0.6}\ncadence: once",
}  # fmt: skip
"""A line of the spec, and what it is changed to."""

NO_NAME = {"release": None}


def brought(run: ReleaseRun, state: RunState) -> None:
    """Bring a run to a state by its ledger alone: nothing is read or drawn."""
    steps.reserve(run)
    ledger, names = run.open_ledger(), [stage.name for stage in run.plan.stages]
    if state is RunState.VOIDED:
        ledger.void(run.key, 1)
    if state in (RunState.RESERVED, RunState.VOIDED):
        return
    grants = [ledger.arm(run.key, 1, name) for name in names]
    if state is RunState.LOST:
        ledger.lose(run.key, 1, names[0])
    if state in (RunState.COMMITTED, RunState.PUBLISHED):
        for place, grant in enumerate(grants):
            ledger.commit(grant, digest(place + 5))
    if state is RunState.PUBLISHED:
        ledger.publish(run.key, digest(9))


@contextlib.contextmanager
def nameless() -> Iterator[None]:
    """Earlier versions reserved without a name."""
    reserve = Ledger.reserve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "reserve", lambda *who, **facts: reserve(*who, **facts | NO_NAME))
        yield


def refused(place: Any, act: Callable[[], object]) -> errors.AlreadyPaidError:
    """`act` is refused, and the ledger and what it holds are as before."""
    ledger = Ledger.open(place.ledger)
    head, spent = ledger.head(), ledger.spent("town")
    with pytest.raises(errors.AlreadyPaidError) as caught:
        act()
    assert (ledger.head(), ledger.spent("town")) == (head, spent)
    return caught.value


@pytest.mark.slow
def test_a_changed_line_is_refused_before_anything_is_reserved(workplace):
    """By hand, before a plan is made; and in the step that a worker runs."""
    first, text = prepared(workplace), workplace.spec.read_text()
    brought(first, RunState.PUBLISHED)
    for old, new in CHANGED.items():
        workplace.spec.write_text(text)
        workplace.rewrite(old, new)
        error = refused(workplace, lambda: check_ahead(asked(workplace.spec)))
        run = prepared(workplace)
        assert run.key != first.key
        again = refused(workplace, lambda run=run: steps.reserve(run))
        worker = refused(workplace, lambda run=run: reserve_task.fn(run.directory))
        for told in (error, again, worker, pickle.loads(pickle.dumps(error))):
            assert (told.run, told.period, told.exit_code) == (first.key, "once", 26)
            assert "--pay-again" in str(told)
            assert f"--rows {run.spec.synthetic_rows}" in str(told)
        refused(workplace, lambda: check_ahead(asked(workplace.spec)))  # now that it is prepared
    steps.reserve(run, pay_again=True)
    steps.reserve(run)  # what a person agreed to goes on, by a worker too
    assert run.open_ledger().run(run.key).state is RunState.RESERVED
    assert fit(run).measurement("fit_generator").exists()  # and draws beside the first


@pytest.mark.parametrize("state", RunState)
def test_whatever_became_of_the_run_that_paid(workplace, state):
    """Refused where something was drawn; what is only held may be given back, as a plan says."""
    first = prepared(workplace)
    brought(first, state)
    workplace.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    run = prepared(workplace)
    if state in (RunState.RESERVED, RunState.VOIDED):
        steps.reserve(run)
        return
    error = refused(workplace, lambda: steps.reserve(run))
    assert ("--rows" in str(error)) is (state is RunState.PUBLISHED)


def test_another_version_of_dpiw_pays_no_second_time(workplace, monkeypatch):
    brought(prepared(workplace), RunState.ARMED)
    monkeypatch.setattr(specs, "__version__", "0.9.9")
    refused(workplace, lambda: steps.reserve(prepared(workplace)))


@pytest.mark.parametrize("what", ["the same spec", "another name", "another period"])
def test_what_is_no_second_payment_is_not_refused(place, what):
    place.rewrite("cadence: once", "cadence: yearly")
    first = prepared(place, period="2026")
    brought(first, RunState.ARMED)
    if what == "another name":
        place.rewrite("name: town", "name: village")
    run = prepared(place, period="2027" if what == "another period" else "2026")
    if what == "the same spec":
        assert run.key == first.key
        run.measurement("fit_generator").write_bytes(b"")
    check_ahead(asked(place.spec, run.period))
    if what != "the same spec":
        steps.reserve(run)


def test_of_two_reservations_the_first_draw_is_the_only_one(workplace):
    """A line is changed while a run waits; then that run goes on, by a worker perhaps."""
    waits = prepared(workplace)
    brought(waits, RunState.RESERVED)
    text = workplace.spec.read_text()
    workplace.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    brought(prepared(workplace), RunState.PUBLISHED)
    workplace.spec.write_text(text)
    for again in (False, True):
        error = refused(workplace, lambda again=again: steps.reserve(waits, pay_again=again))
        assert "ledger void" in str(error)
    waits.open_ledger().void(waits.key, 1)
    refused(workplace, lambda: steps.reserve(waits))
    steps.reserve(waits, pay_again=True)
    steps.reserve(waits)  # it was agreed to after the other had drawn


@pytest.mark.parametrize("before", ["ingest", "fit_generator", "arm"])
def test_of_two_runs_at_once_only_the_first_that_draws_pays(workplace, monkeypatch, before):
    """Both are reserved before either draws; `arm`: after this run has looked for others."""
    this = prepared(workplace)
    brought(this, RunState.RESERVED)
    workplace.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    other = prepared(workplace)
    brought(other, RunState.RESERVED)
    rival = Ledger.open(workplace.ledger)
    if before != "ingest":
        steps.ingest(this)
    if before == "arm":
        arms = lambda *_: rival.arm(other.key, 1, "fit_generator")  # noqa: E731
        around(draw, "check_not_overtaken", after=arms, replace=monkeypatch.setattr)
    else:
        rival.arm(other.key, 1, "fit_generator")
    step = steps.ingest if before == "ingest" else partial(steps.fit_generator, noise=SecureNoise())
    with pytest.raises(errors.AlreadyPaidError) as caught:
        step(this)
    assert caught.value.run == other.key
    record = rival.run(this.key)
    assert (record.state, record.attempts[0].reads) == (RunState.RESERVED, int(before != "ingest"))
    assert not this.measurement("fit_generator").exists()


def recover(run: ReleaseRun) -> None:
    """Put a run's release on record as published in entries that the ledger lost."""
    charge = Charge(cost=cost())
    run.open_ledger().recover("town", [RecoveredRelease(
        hash=digest(11), manifest_digest=digest(12), previous=None, after=None, run=run.key[:8],
        plan_digest=run.plan.digest, period=run.period, charge=charge, held=charge, drawn=charge,
    )], loss=NONE)  # fmt: skip


@pytest.mark.parametrize("name", ["town", "village", None])
@pytest.mark.parametrize("rows", ["", "rows450-"])
def test_a_recovered_release_is_paid_too(workplace, rows, name):
    """Its reservation was lost with the ledger; only a folder, or more rows', says whose it is."""
    first = prepared(workplace)
    recover(first)
    workplace.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    run = prepared(workplace)
    if name:
        folder = workplace.releases / f"{name}-once-{rows}{first.key[:8]}"
        folder.mkdir(parents=True)
    if name == "village":
        check_ahead(asked(workplace.spec))
    else:
        refused(workplace, lambda: check_ahead(asked(workplace.spec)))
    if name:
        folder.rmdir()
    steps.reserve(run, pay_again=True)
    steps.ingest(run)  # it was agreed to after the other was on record


@pytest.mark.parametrize("before", ["reserve", "ingest", "fit_generator"])
def test_a_release_recovered_since_a_reservation_is_paid_too(workplace, before):
    """The old copy of the ledger holds this run's reservation, and not what was drawn."""
    first = prepared(workplace)
    workplace.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    waits = prepared(workplace)
    brought(waits, RunState.RESERVED)
    if before == "fit_generator":
        steps.ingest(waits)
    recover(first)
    step = {
        "reserve": steps.reserve,
        "ingest": steps.ingest,
        "fit_generator": partial(steps.fit_generator, noise=SecureNoise()),
    }[before]
    assert "ledger void" in str(refused(workplace, lambda: step(waits)))


@pytest.mark.parametrize("state", RunState)
def test_a_run_whose_name_nobody_recorded_may_be_of_any_release(workplace, state):
    """The ledger's own look at the draw refuses, too."""
    with nameless():
        first = prepared(workplace)
        brought(first, state)
    ledger = Ledger.open(workplace.ledger)
    assert ledger.run(first.key).release is None
    workplace.rewrite("name: town", "name: village")
    run = prepared(workplace)
    if state in (RunState.RESERVED, RunState.VOIDED):
        steps.reserve(run)
        if state is RunState.RESERVED:
            ledger.arm(first.key, 1, "fit_generator", beside=frozenset())
            with pytest.raises(errors.AlreadyPaidError):
                ledger.arm(run.key, 1, "fit_generator", beside=frozenset())
        return
    assert "--rows" not in str(refused(workplace, lambda: steps.reserve(run)))
    steps.reserve(run, pay_again=True)


@pytest.mark.parametrize("when", ["before", "since"])
def test_a_run_without_a_recorded_name_is_not_refused_for_ever(workplace, when):
    """Another release drew: before, it draws beside that; since, it is refused before it reads."""
    run = prepared(workplace)
    workplace.rewrite("name: town", "name: village")
    other = prepared(workplace)
    if when == "before":
        brought(other, RunState.PUBLISHED)
    with nameless():
        brought(run, RunState.RESERVED)
    if when == "since":
        brought(other, RunState.PUBLISHED)
        assert "ledger void" in str(refused(workplace, lambda: steps.reserve(run)))
        run.open_ledger().void(run.key, 1)
    steps.reserve(run)
    assert fit(run).measurement("fit_generator").exists()


@pytest.fixture
def used(make_workplace):
    """A workplace whose budget of 3 has one unit left: each release costs 2."""
    place = make_workplace(epsilon="3")
    reserved(place, period="2026-11")
    assert spent(place).epsilon == 2
    return place


def overspends(place: Any, run: ReleaseRun) -> None:
    with pytest.raises(errors.BudgetExceededError, match=r"epsilon=1, .* is left"):
        steps.reserve(run)
    assert spent(place).epsilon == 2
    assert not run.snapshot.exists()


def second_spec(place: Any, old: str, new: str) -> Any:
    second = dataclasses.replace(place, spec=place.root / "second.yaml")
    shutil.copy(place.spec, second.spec)
    second.rewrite(old, new)
    return second


@pytest.mark.parametrize("how", ["renamed", "copied", "linked"])
def test_another_name_for_the_file(used, how):
    other = used.root / "other.csv"
    if how == "renamed":
        used.source.rename(other)
    elif how == "copied":
        shutil.copy(used.source, other)
    else:
        other.hardlink_to(used.source)
    used.rewrite("data.csv", "other.csv")
    reserved(used, period="2026-11")  # the same run: it goes on, and costs nothing more
    assert spent(used).epsilon == 2
    overspends(used, prepared(used, period="2026-12"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("name: town", "name: hamlet"), ("synthetic_rows: 300", "synthetic_rows: 301"),
     ("nominal_rows: 400", "nominal_rows: 401"), ("format: csv}", "format: csv, snapshot: again}")],
)  # fmt: skip
def test_a_second_spec(used, old, new):
    overspends(used, prepared(second_spec(used, old, new), period="2026-11"))


@pytest.mark.parametrize(
    ("terms", "error"),
    [("relation: replace_one", errors.UnsupportedRelationError),
     ("relation: add_or_remove_one\nunit: {max_rows: 2, id_column: person}", errors.SpecError),
     ("relation: add_or_remove_one\nunit: {max_rows: 1, id_column: person}", errors.SpecError)],
)  # fmt: skip
def test_other_terms_than_the_populations(used, terms, error):
    """A relation or a bound of rows per person that is not the registered one is refused."""
    if "person" in terms:
        identified(used)
    used.rewrite("relation: add_or_remove_one", terms)
    with pytest.raises(error, match=r"is registered (under|with)"):
        reserved(used, period="2026-12")
    assert spent(used).epsilon == 2


def identified(place: Any) -> None:
    with (place.root / "schema.yaml").open("a") as schema:
        schema.write("  - {name: person, kind: integer, role: identifier}\n")


def test_a_population_of_persons_is_not_paid_by_rows(make_workplace):
    """The registered unit is drawn; the same rows without their identifier are another promise."""
    place = make_workplace(population="visitors", weights="none")
    identified(place)
    Ledger.open(place.ledger).register(terms(name="visitors", id_column="person"))
    with pytest.raises(errors.SpecError):
        reserved(place, period="2026-11")
    place.rewrite("relation: add_or_remove_one",
                  "relation: add_or_remove_one\nunit: {id_column: person}")  # fmt: skip
    reserved(place, period="2026-11")
    assert spent(place, "visitors").epsilon == 2


@pytest.mark.slow
def test_a_cloned_ledger(workplace):
    """Two copies of one ledger: what one releases, the other must pay before it goes on."""
    clone = workplace.root / "clone.sqlite"
    shutil.copy(workplace.ledger, clone)
    second = second_spec(workplace, "state: state", f"state: state\nledger: sqlite:///{clone}")
    clone.chmod(0o600)
    publish_run(workplace.spec, period="2026-11")
    for period in ("2026-12", "2026-11"):
        with pytest.raises(errors.LedgerTamperedError):
            reserved(second, period=period)
    assert Ledger.open(clone).spent("town").epsilon == 0
    assert spent(workplace).epsilon == 2


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_set_elsewhere(used, years):
    """Time is a label: neither a period of long ago nor one to come has a budget of its own."""
    now = datetime.now(UTC) + timedelta(days=365 * years)
    ledger = Ledger.open(used.ledger, clock=lambda: now)
    ledger.register(terms(name="village"))
    run = ReleaseRun.prepare(used.spec, period=f"{now.year}-11")
    overspends(used, run)
    assert ledger.verify().ok
    assert ledger.spent("town").epsilon == 2
