"""What is published, pending, missing or withdrawn: random ledgers against a small model."""

import datetime
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dpiw.errors import BudgetExceededError, SpecError
from dpiw.ledger import Ledger
from dpiw.ledger.keyring import Role
from dpiw.plan.calendar import latest_periods
from dpiw.plan.spec import parse_spec
from dpiw.release.manifest import SCHEMA
from dpiw.run import steps
from dpiw.series import completeness
from dpiw.series.completeness import (
    IncompleteSeriesError,
    Series,
    Status,
    check_carried,
    check_complete,
    due_of,
    read_series,
    series_of,
)
from tests.support.ledger import BOTH, PLAN, RUN, ask, cost, digest, key, terms, withdrawal
from tests.support.rings import CURATOR, SECOND, STRANGER
from tests.support.specs import changed
from tests.support.undrawn import draw_no_figures
from tests.support.whole_runs import prepared, publish_run
from tests.support.worlds import numbers

NOW = datetime.datetime(2027, 6, 15, 12, tzinfo=datetime.UTC)
LABELS = [f"2027-0{month}" for month in range(2, 8)]
OVER, WITHIN = LABELS[:4], LABELS[2:4]
"""The periods that are over in June; those within a retention of two."""

STORIES = {
    # what a run's ledger ends with: the period's status once it is over, and a word of the reason
    "void": (Status.MISSING, "given back"),
    "reserve": (Status.MISSING, "reserved, and not drawn"),
    "part": (Status.MISSING, "in part"),
    "arm": (Status.PENDING, "under way"),
    "stale": (Status.MISSING, "no outcome"),
    "lose": (Status.MISSING, "lost"),
    "commit": (Status.MISSING, "drawn, and not published"),
    "unseen": (Status.MISSING, "folder"),
    "publish": (Status.PUBLISHED, ""),
}
PAID = {"reserve", "part", "arm", "stale", "commit"}
"""Runs that hold a payment for a release to come."""


def monthly(**series: Any) -> Any:
    mapping = changed("cadence", "monthly") | {"epsilon": 1, "delta": "1e-9"}
    calendar = {"first": LABELS[0], "last": LABELS[-1], "retention": 2} | series
    source = mapping["source"] | {"path": "data/{period}.csv"}
    return parse_spec(mapping | {"series": calendar, "source": source})


class Desk:
    """A ledger and folders of releases, whose manifests this test states."""

    def __init__(self, root: Path, spec: Any, *, epsilon: str) -> None:
        self.spec, self.moment, self.folders = spec, NOW, dict[str, Any]()
        relation = spec.privacy_unit.relation
        self.ledger = Ledger.create(root / f"{len([*root.iterdir()])}.sqlite",
                                    clock=lambda: self.moment)  # fmt: skip
        self.ledger.register(terms(name=spec.population, relation=relation, delta=Decimal("0.1"),
                                   epsilon=Decimal(epsilon)))  # fmt: skip
        self.root, self.number = root, 0

    def play(self, story: str, label: str, *, release: str, dictionary: int = 1) -> str:
        """Add a run of this story; return its key."""
        self.number += 1
        run, spec = key(self.number), self.spec
        self.moment = NOW - datetime.timedelta(days=2 * (story == "stale"), hours=1)
        self.ledger.reserve(
            population=spec.population, run_key=run, attempt=1, stages=BOTH, plan_digest=PLAN,
            cost=cost(relation=spec.privacy_unit.relation), period=label, release=release,
            max_attempts=1,
        )  # fmt: skip
        first, second = sorted(BOTH)
        match story:
            case "void":
                self.ledger.void(run, 1)
            case "arm" | "stale":
                self.ledger.arm(run, 1, first)
            case "lose":
                self.ledger.arm(run, 1, first)
                self.ledger.lose(run, 1, first)
            case "part":
                self.ledger.commit(self.ledger.arm(run, 1, first), digest(10))
            case "commit" | "unseen" | "publish":
                self.ledger.commit(self.ledger.arm(run, 1, first), digest(10))
                self.ledger.commit(self.ledger.arm(run, 1, second), digest(11))
        if story in ("unseen", "publish"):
            self.ledger.publish(run, digest(100 + self.number))
        if story == "publish":
            self.add_folder(f"{release}-{label}-{run[:8]}", digest(100 + self.number), dictionary)
        return run

    def add_folder(self, name: str, manifest: str, dictionary: int = 1) -> None:
        facts = SimpleNamespace(population=self.spec.population, release_id=name)
        files = {SCHEMA: SimpleNamespace(sha256=digest(dictionary))}
        self.folders[name] = SimpleNamespace(
            facts=facts, digest=manifest, files=files, signer=CURATOR.public
        )

    def series(self, *, now: datetime.datetime = NOW, drawn_only: bool = False) -> Series:
        with pytest.MonkeyPatch.context() as patch:
            folders = [self.root / name for name in sorted(self.folders)]
            patch.setattr(completeness, "release_folders", lambda _: folders)
            patch.setattr(
                completeness, "read_signed_manifest", lambda folder: self.folders[folder.name]
            )
            return series_of(
                self.spec, numbers(1), self.ledger, self.root, now=now, drawn_only=drawn_only
            )


def model(stories: list[str], label: str) -> tuple[Status, str]:
    """What a period must be, and a word of why."""
    for better in ("publish", "arm"):
        if better in stories:
            return STORIES[better]
    nothing = "never started" if label in OVER else "not over"
    why = STORIES[stories[-1]][1] if stories else nothing
    return (Status.MISSING if label in OVER else Status.PENDING), why


@settings(
    max_examples=12, derandomize=True, database=None, deadline=None,
    phases=[Phase.explicit, Phase.generate],  # a history is small; to shrink it takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    histories=st.fixed_dictionaries(
        {label: st.lists(st.sampled_from(sorted(STORIES)), max_size=2) for label in LABELS}
    ),
    other=st.lists(st.sampled_from(LABELS), max_size=2),
    more=st.integers(0, 7),
)
@pytest.mark.slow
def test_every_history_is_the_model_s(tmp_path, histories, other, more):
    """Of runs in any order; another release of the people pays, and is not of this calendar."""
    number = sum(map(len, histories.values())) + len(other)
    desk = Desk(tmp_path, monthly(), epsilon=str(number * Decimal("0.5") + more + 1))
    for label in other:
        desk.play("publish", label, release="another")
    for label, stories in histories.items():
        for story in stories:
            desk.play(story, label, release=desk.spec.name)
    series = desk.series()
    assert [state.label for state in series.periods] == LABELS
    for state in series.periods:
        status, why = model(histories[state.label], state.label)
        assert state.status is status, state
        assert why in state.why, state
        assert bool(state.release) == (status is Status.PUBLISHED)
        far = status is Status.MISSING and state.label not in WITHIN
        assert ("retention" in state.why) == far, state
    is_open = {s.label for s in series.periods if s.status in (Status.MISSING, Status.PENDING)}
    assert [*series.due] == [label for label in WITHIN if label in is_open]
    left = desk.ledger.remaining(desk.spec.population).epsilon_units
    assert series.carries == left // desk.spec.cost.epsilon_units
    payable = [
        label for label in LABELS
        if label in is_open and (label in WITHIN or label not in OVER)
        and not PAID & {*histories[label]}
    ]  # fmt: skip
    beyond = payable[series.carries :]
    assert series.ends == (beyond[0] if beyond else None)
    assert [s.label for s in series.periods if "does not carry" in s.why] == beyond
    missing = [s.label for s in series.periods if s.status is Status.MISSING]
    if missing:
        with pytest.raises(IncompleteSeriesError, match=missing[0]):
            check_complete(series)
    else:
        check_complete(series)
    json.dumps(series.to_json())


def test_the_budget_s_end_of_an_open_calendar(tmp_path):
    """Counted from the first period that nothing was paid for."""
    desk = Desk(tmp_path, monthly(first="2027-05", last=None), epsilon="9.5")
    desk.play("publish", "2027-05", release=desk.spec.name)
    series = desk.series()
    assert (series.carries, series.ends) == (9, "2028-03")  # from June on
    check_carried(series, desk.spec)  # it has no end that could be missed
    later = desk.series(now=NOW + datetime.timedelta(days=101))
    assert later.ends == "2028-04"  # June is before the retention now, and pays nothing


def test_a_calendar_beyond_the_budget_is_refused_unless_said(tmp_path):
    for says in (False, True):
        desk = Desk(tmp_path, monthly(beyond_budget=says, last="2027-12"), epsilon="3")
        series = desk.series()
        assert series.ends == "2027-07"  # after April, May, June
        if says:
            assert due_of(series, desk.spec) == tuple(WITHIN)
        else:
            with pytest.raises(BudgetExceededError, match="2027-07"):
                due_of(series, desk.spec)
            assert not desk.ledger.runs(desk.spec.population)


def test_a_changed_dictionary_is_announced(tmp_path):
    desk = Desk(tmp_path, monthly(), epsilon="9")
    for label, dictionary in zip(LABELS[:4], (1, 1, 2, 2), strict=True):
        if label != LABELS[1]:
            desk.play("publish", label, release=desk.spec.name, dictionary=dictionary)
    series = desk.series()
    states = {state.label: state for state in series.periods}
    changed_in = [label for label, state in states.items() if state.schema_changed]
    assert changed_in == [LABELS[2]]
    assert states[LABELS[0]].schema_digest == digest(1)
    assert states[LABELS[1]].schema_digest is None
    assert series.schema_changes  # what the spec names now is neither


def test_a_folder_alone_publishes_nothing(tmp_path):
    """A folder that the ledger lacks, and one whose bytes are not those that the ledger knows."""
    desk = Desk(tmp_path, monthly(), epsilon="9")
    desk.add_folder(f"{desk.spec.name}-2027-04-{key(7)[:8]}", digest(7))
    run = desk.play("unseen", "2027-05", release=desk.spec.name)
    desk.add_folder(f"{desk.spec.name}-2027-05-{run[:8]}", digest(8))
    states = {state.label: state for state in desk.series().periods}
    assert {states[label].status for label in WITHIN} == {Status.MISSING}
    assert "recover" in states["2027-04"].why


@pytest.mark.parametrize("seen", [True, False])
def test_a_withdrawn_release_is_neither_published_nor_due(tmp_path, seen):
    """Whether or not its folder, with the tombstone, is still among the releases."""
    desk = Desk(tmp_path, monthly(), epsilon="9")
    desk.play("publish" if seen else "unseen", "2027-05", release=desk.spec.name)
    stated = withdrawal(manifest=digest(100 + desk.number))
    desk.ledger.withdraw(desk.spec.population, stated)
    series = desk.series()
    state = series.periods[3]
    assert (state.status, state.why) == (Status.WITHDRAWN, "withdrawn: error")
    assert state.label not in series.due


@pytest.mark.parametrize(
    ("key", "status"),
    [(CURATOR, Status.WITHDRAWN), (SECOND, Status.WITHDRAWN), (STRANGER, Status.MISSING)],
)
def test_a_tombstone_counts_by_the_key_of_its_release_or_of_a_curator(tmp_path, key, status):
    """Where the ledger lost the entry. By any other key the folder is damaged, and nobody's word:

    no reader with the curator's key accepts it, so it is published for nobody.
    """
    desk = Desk(tmp_path, monthly(), epsilon="9")
    run, data = desk.play("commit", "2027-05", release=desk.spec.name), b"a manifest"
    name, digest_ = f"{desk.spec.name}-2027-05-{run[:8]}", hashlib.sha256(data).hexdigest()
    desk.ledger.publish(run, digest_)
    desk.ledger.add_key(desk.spec.population, SECOND.public, Role.CURATOR)
    desk.add_folder(name, digest_)
    (tmp_path / name).mkdir()
    (tmp_path / name / "manifest.json").write_bytes(data)
    assert desk.series().periods[3].status is Status.PUBLISHED
    stated = withdrawal(release_id=name, manifest=digest_).signed(key).to_json()
    (tmp_path / name / "withdrawn.json").write_bytes(stated)
    assert desk.series().periods[3].status is status


def test_an_attempt_that_drew_nothing_is_not_public(tmp_path):
    """Nor a read after a draw that died: whether it is given back can depend on the table."""
    desk, first = Desk(tmp_path, monthly(), epsilon="9"), min(BOTH)
    name, relation = desk.spec.population, desk.spec.privacy_unit.relation
    asked = ask(
        population=name, period="2027-05", release=desk.spec.name, cost=cost(relation=relation)
    )
    desk.moment = NOW - datetime.timedelta(days=3)
    desk.ledger.reserve(**asked)
    desk.ledger.arm(RUN, 1, first)
    died = desk.series(drawn_only=True)
    assert died.periods[3].why == "a draw began, and has no outcome"
    desk.moment = NOW
    desk.ledger.read(RUN, 1)  # for its other stage
    assert desk.series(drawn_only=True) == died
    desk.ledger.lose(RUN, 1, first)
    lost = desk.series(drawn_only=True)
    desk.ledger.reserve(**asked | {"attempt": 2, "stages": {first: BOTH[first]}})
    assert desk.series(drawn_only=True) == lost
    assert desk.series() != lost
    desk.ledger.read(RUN, 2)
    assert desk.series(drawn_only=True) == lost
    desk.ledger.void(RUN, 2)
    assert desk.series(drawn_only=True) == lost


def test_how_often_a_table_was_read_changes_nothing_that_is_shown(tmp_path):
    """Prefect keeps the forecast; how often a table was read in vain is for the custodian.

    The site does not even show whether.
    """
    desk = Desk(tmp_path, monthly(), epsilon="9")
    run = desk.play("reserve", "2027-05", release=desk.spec.name)
    before, public = desk.series(), desk.series(drawn_only=True)
    desk.ledger.read(run, 1)
    once = desk.series()
    for _ in range(desk.ledger.population(desk.spec.population).max_unpaid_reads - 1):
        desk.ledger.read(run, 1)
    assert before.carries > 0
    assert desk.series() == once
    assert (once.carries, once.ends, once.due) == (before.carries, before.ends, before.due)
    assert desk.series(drawn_only=True) == public


@pytest.mark.parametrize(
    ("story", "vain"),
    [("read", True), ("read void", True), ("read arm", False), ("read arm commit", False),
     ("read void reserve read", True), ("reserve", False), ("read arm lose", False)],
)  # fmt: skip
def test_a_period_read_in_vain_is_for_a_person(tmp_path, story, vain):
    """Whatever its last run: a worker would read it at every schedule, and each counts for life."""
    desk = Desk(tmp_path, monthly(), epsilon="9")
    run = desk.play("reserve", "2027-05", release=desk.spec.name)
    stage = sorted(BOTH)[0]
    for step in story.split():
        match step:
            case "read":
                desk.ledger.read(run, 1)
            case "void":
                desk.ledger.void(run, 1)
            case "arm":
                grant = desk.ledger.arm(run, 1, stage)
            case "commit":
                desk.ledger.commit(grant, digest(10))
            case "lose":
                desk.ledger.lose(run, 1, stage)
            case "reserve" if story != "reserve":
                run = desk.play("reserve", "2027-05", release=desk.spec.name)
    series = desk.series()
    assert "2027-05" in series.due
    assert series.by_hand == (("2027-05",) if vain else ())
    assert (series.periods[3].why == "its table was read, and nothing was drawn") is vain
    with pytest.raises(IncompleteSeriesError) as told:
        check_complete(series)
    assert ("dpiw release SPEC --period 2027-05" in str(told.value)) is vain
    assert desk.series(drawn_only=True).by_hand == ()


def give_calendar(place: Any, series: str, path: str = '"{period}.csv"') -> list[str]:
    """Give a workplace a calendar of the three months before this one; return their labels."""
    now = datetime.datetime.now(datetime.UTC)
    labels = latest_periods("monthly", now, "UTC", 3)[:0:-1]
    place.rewrite("cadence: once", f"cadence: monthly\nseries: {{first: {labels[0]}, {series}}}")
    place.rewrite("path: data.csv", f"path: {path}")
    return labels


@pytest.mark.slow
def test_the_command_says_what_is_missing(place, says, monkeypatch):
    """As text and as JSON; nothing of the workspace, and no number of reads."""
    assert "`series: {first: LABEL}`" in says("series", place.spec, code=SpecError.exit_code)
    first, second, third = give_calendar(place, "retention: 3, beyond_budget: true")
    for label in (first, second):
        (place.root / f"{label}.csv").write_bytes(place.source.read_bytes())
    draw_no_figures(monkeypatch.setattr)
    publish_run(place.spec, period=first)
    steps.reserve(prepared(place, period=second))
    failure = says("series", place.spec, code=IncompleteSeriesError.exit_code)
    assert f"{second} (reserved, and not drawn), {third} (never started" in failure


def test_one_file_is_filled_for_no_period(place, says):
    labels = give_calendar(place, "retention: 1", "data.csv")
    refused = says("series", place.spec, code=IncompleteSeriesError.exit_code)
    assert labels[-1] in refused
    spec, series = read_series(place.spec)
    with pytest.raises(SpecError, match="names one file for all periods"):
        due_of(series, spec)
