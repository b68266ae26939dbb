"""SIGKILL at every point of the real steps, and at pairs of them, then a clean rerun.

What must hold then: docs/operations.md, "What a rerun does".
"""

import itertools
import signal
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from dpiw.errors import GrantSpentError
from dpiw.ledger import EntryKind
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent
from dpiw.release.verification import verify
from tests.crash import harness
from tests.crash.points import (
    ALL,
    CHOSEN,
    KINDS,
    SETTLING,
    SINGLE,
    Account,
    each_and_the_next,
    loses,
    pairs_of_kinds,
)
from tests.crash.stores import Places, on_stores
from tests.support.found_levels import without_list

KILLED = -signal.SIGKILL

PARTS = 4
"""Of all ordered pairs, so that a stopped suite goes on."""

A_FEW = [
    ("in_read_tx", "after_read"), ("in_arm_tx:fit_generator",),
    ("after_draw:fit_generator", "after_draw:fit_generator"),
    ("before_commit:fit_weights", "in_commit_tx:fit_weights"), ("after_publish", "before_rename"),
]  # fmt: skip
"""One each of reading, arming, drawing, committing, publishing; `make test-crash` has all."""


def live(server: harness.ForkServer, place: harness.Place, points: tuple[str, ...]) -> list[bool]:
    """One history: die at each point in turn, then run to the end; which points were reached."""
    account = Account(place=place)
    reached = []
    for point in points:
        end = server.run(place, point=point)
        assert end in (KILLED, 0), (points, end)
        reached.append(end == KILLED)
        account.died(point if end == KILLED else None)
        harness.check(place)
        account.settle()
    assert server.run(place) == 0, points
    account.died(None)
    harness.check_published(place)
    account.settle()
    return reached


def live_all(
    servers: harness.Servers, new_place: Places, histories: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], list[bool]]:
    def one(server, points):
        place = new_place()
        try:
            reached = live(server, place, points)
        except AssertionError as error:
            error.add_note(f"history: {' -> '.join(points)}, in {place.root}")
            raise
        new_place.done(place)
        return reached

    return dict(zip(histories, servers.each(histories, one), strict=True))


@pytest.mark.slow
def test_a_few_histories(servers, new_place):
    for points, reached in live_all(servers, new_place, A_FEW).items():
        assert all(reached), f"{points}: a point was not reached"


def test_a_stage_that_finds_levels(servers, new_place):
    """A draw that is lost is paid again on the record; one that is kept is what is published."""
    place = new_place()
    data, spec = place.root / "data.csv", place.root / "release.yaml"
    without_list(SimpleNamespace(root=place.root, source=data, spec=spec))
    points = ("after_draw:fit_generator", "after_commit:fit_generator")
    with servers.one() as server:
        assert live(server, place, points) == [True, True]
    assert [stage.method for stage in place.run.plan.stages] == ["levels"]
    assert harness.check_charge(place) == 1
    (folder,) = place.releases.iterdir()
    assert [attempt["stages"] for attempt in verify(folder).certificate.attempts] == [
        {"fit_generator": "lost"}, {"fit_generator": "committed"},
    ]  # fmt: skip
    assert sum("measured" in line for line in place.noise_log()) == 2


@pytest.mark.parametrize("max_attempts", [1, 6])
def test_a_private_choice_is_lost_without_its_sum(servers, new_place, max_attempts):
    """A choice that nobody saw was still drawn: a rerun pays for choices and sum again, or ends."""
    place = new_place(max_attempts=max_attempts)
    spec, count = place.root / "release.yaml", 2
    weights = f"{{method: measured, settings: {{choose: {count}}}, when_infeasible: keep}}"
    usual = "{method: beta_debiased, when_infeasible: keep}"
    assert usual in spec.read_text()
    spec.write_text(spec.read_text().replace(usual, weights))
    point = f"{CHOSEN}:fit_weights"
    with servers.one() as server:
        if max_attempts == 1:
            assert server.run(place, point=point) == KILLED
            assert server.run(place) == GrantSpentError.exit_code
            assert not place.run.measurement("fit_weights").exists()
        else:
            assert live(server, place, (point,)) == [True]
    drawn = [line for line in place.noise_log() if line["stage"] == "fit_weights"]
    first = [line for line in drawn if line["attempt"] == 1]
    assert [line["noise"] for line in first] == ["noisy_argmax"] * count  # and no sum
    events = dict(zip(place.stages, place.run.plan.stages, strict=True))["fit_weights"].events
    assert [*map(type, events)] == [GaussianEvent, ExponentialMechanismEvent]
    records = [e for e in place.ledger().entries() if e.stage == "fit_weights"]
    kinds = [EntryKind.ARM, EntryKind.LOSE]
    if max_attempts == 1:
        assert harness.units(place.ledger().spent("town")) == harness.units(place.whole_cost)
    else:
        assert harness.check_charge(place) == 1
        kinds += [EntryKind.ARM, EntryKind.COMMIT]
        assert len(drawn) > len(first)
    assert [entry.kind for entry in records] == kinds
    harness.check(place)


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
def test_every_point_alone_and_with_the_next(servers, new_place, figures):
    alone = live_all(servers, new_place, [(point,) for point in ALL])
    not_reached = {points[0] for points, reached in alone.items() if not reached[0]}
    assert not_reached == set(SETTLING)  # there is nothing to settle in a first life
    pairs = live_all(servers, new_place, each_and_the_next())
    assert {second for _, second in pairs} == set(ALL)
    assert all(all(reached) for reached in pairs.values()), pairs
    figures(
        f"kill matrix, each point alone and with the next, {new_place.kind}",
        histories=len(alone) + len(pairs), kills=len(SINGLE) + 2 * len(pairs), violations=0,
    )  # fmt: skip


@pytest.mark.crash
def test_every_ordered_pair_of_kinds(servers, new_place, figures):
    """Which pairs: `points.pairs_of_kinds`. A second point is met where the first lets it be."""
    histories = live_all(servers, new_place, pairs_of_kinds())
    assert len(histories) == len(KINDS) * (len(KINDS) + 1)
    assert {first for first, _ in histories} == set(SINGLE)
    assert all(reached[0] for reached in histories.values())
    assert sum(reached[1] for reached in histories.values()) > len(histories) // 3
    figures(
        f"kill matrix, ordered pairs of kinds, {new_place.kind}", histories=len(histories),
        kills=sum(sum(reached) for reached in histories.values()), violations=0,
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_every_ordered_pair(servers, new_place, figures, part):
    """All of them, in parts: what the pairs of kinds stand for."""
    histories = live_all(servers, new_place, [*itertools.product(SINGLE[part::PARTS], ALL)])
    assert all(reached[0] for reached in histories.values())
    assert {pair[1] for pair, reached in histories.items() if reached[1]} == set(ALL)
    figures(
        f"kill matrix, ordered pairs, part {part + 1} of {PARTS}, {new_place.kind}",
        histories=len(histories), kills=sum(map(sum, histories.values())), violations=0,
    )  # fmt: skip


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
def test_with_one_attempt_a_lost_draw_ends_the_run(servers, new_place, figures):
    """`max_attempts: 1`: refused ever after, charged once, never published."""

    def one(server, point):
        place = new_place(max_attempts=1)
        assert server.run(place, point=point) == KILLED
        lost = loses(point) is not None
        for _ in range(2):
            assert server.run(place) == (GrantSpentError.exit_code if lost else 0)
            harness.check(place)
            assert harness.units(place.ledger().spent("town")) == harness.units(place.whole_cost)
        if lost:
            assert "max_attempts=1" in place.error()
            assert not list(place.releases.glob("[!.]*")) if place.releases.exists() else True
            assert all(e.kind is not EntryKind.PUBLISH for e in place.ledger().entries())
        else:
            harness.check_published(place)
        new_place.done(place)
        return lost

    refused = servers.each(list(SINGLE), one)
    figures(
        f"one attempt, {new_place.kind}", histories=len(refused), refused=sum(refused), violations=0
    )


# --- the checks can fail -------------------------------------------------------------------------


def test_the_checks_see_a_draw_that_was_not_paid_for(servers, new_place):
    """The control: a pipeline that draws before it arms, or refunds, is caught by `check`."""
    place = new_place()
    changes = ["tests.crash.mutants:draw_before_arming"]
    servers.run(place, point="in_arm_tx:fit_generator", changes=changes)
    with pytest.raises(AssertionError, match="without an arm"):
        harness.check(place)


def test_the_checks_see_a_read_that_is_not_on_record(servers, new_place):
    place = new_place()
    changes = ["tests.crash.mutants:read_before_the_record"]
    assert servers.run(place, point="in_read_tx", changes=changes) == KILLED
    with pytest.raises(AssertionError, match="opened 1 times, 0 reads on record"):
        harness.check(place)


def test_the_checks_see_a_redraw_under_an_old_arm(servers, new_place):
    place = new_place()
    assert servers.run(place, point="after_draw:fit_generator") == KILLED
    harness.check(place)
    servers.run(place, changes=["tests.crash.mutants:draw_again_for_free"])
    with pytest.raises(AssertionError):
        harness.check(place)
