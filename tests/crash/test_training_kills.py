"""SIGKILL in the middle of a training: resumed within what was planned, or lost and paid again."""

import json
import os
import random
import secrets
import signal

import pytest

from dpiw.errors import GrantSpentError, StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.run import steps
from dpiw.run.launch import launch_stage
from tests.crash.harness import ROOT, STAGES, ForkServer, Place, units
from tests.crash.stores import on_stores
from tests.crash.trainings import ONCE, POINTS, RESUMING, SITE, drawn_log

pytestmark = pytest.mark.crash

STEPS, EVERY, RESUMES, ATTEMPTS = 40, 2, 2, 3
ACCOUNTED = STEPS + EVERY * RESUMES
KILLED = -signal.SIGKILL
Death = tuple[str, str, int]
NOWHERE: Death = ("none", "none", 0)

RUNS = 12
FIRST = (("fit_generator", "before_file", 0), ("fit_generator", "after_draw", 22))
"""How the first random runs begin: with draws that no checkpoint holds, and after some that one
does. (A training killed before its first draw goes on from its public start.)"""


def neural(place: Place) -> Place:
    """The place, its spec with a GAN and network weights."""
    spec = place.root / "release.yaml"
    common = f"steps: {STEPS}, lot: 32, resumes: {RESUMES}"
    text = spec.read_text()
    for old, new in (
        ("{method: histogram, settings: {bins: 4}}",
         f"{{method: dpgan, settings: {{{common}, batch: 8, generator: [4]}}}}"),
        ("method: beta_debiased",
         f"method: dp_mlp, settings: {{{common}, hidden: [4]}}"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text.replace("max_attempts: 6", f"max_attempts: {ATTEMPTS}"))
    return place


def live(server: ForkServer, place: Place, dies: Death = NOWHERE) -> int:
    """Take all steps, or die; the exit code."""
    end = server.run(place, changes=["tests.crash.trainings:deadly"], dies=dies)
    check(place)
    return end


def drawn(place: Place, stage: str) -> int:
    path = drawn_log(place.root, stage)
    return path.stat().st_size if path.exists() else 0


def check(place: Place) -> None:
    """Never more noise than was paid for; the charge is the plan's, and each loss's again."""
    ledger = place.ledger()
    assert ledger.verify().ok
    record = ledger.run(place.run.key)
    expected = list(units(place.whole_cost))
    for attempt in record.attempts[1:]:
        again = units(place.run.plan.stage_cost(frozenset(attempt.stages)))
        expected = [sum(parts) for parts in zip(expected, again, strict=True)]
    assert list(units(ledger.spent("town"))) == expected
    for name in place.stages:
        paid = sum(name in attempt.stages for attempt in record.attempts)
        assert drawn(place, name) <= ACCOUNTED * paid, f"{name}: paid {paid} times"


def resumed(place: Place) -> int:
    return sum(entry.kind is EntryKind.RESUME for entry in place.ledger().entries())


def lost(place: Place) -> int:
    return place.ledger().run(place.run.key).counted_attempts - 1


def test_killed_in_its_own_process_it_resumes_and_is_charged_as_planned(
    new_place, tmp_path, monkeypatch
):
    """As in production: the stage is a process of its own."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    place, site = neural(new_place()), tmp_path / "sitecustomize.py"

    def train(dies):
        site.write_text(SITE.format(folder=str(place.root), dies=dies))
        steps.reserve(place.run)
        for stage in ("ingest", "fit_generator"):
            launch_stage(stage, place.run.directory)

    with pytest.raises(StageFailedError):
        train(("fit_generator", "after_draw", 22))
    assert drawn(place, "fit_generator") == 23
    assert place.ledger().run(place.run.key).stages["fit_generator"].state is StageState.ARMED
    check(place)
    train(NOWHERE)
    check(place)
    assert resumed(place) == 1
    assert units(place.ledger().spent("town")) == units(place.whole_cost)
    assert STEPS <= drawn(place, "fit_generator") <= STEPS + EVERY
    new_place.done(place)


@on_stores("sqlite", "postgresql")
def test_killed_at_every_point_of_a_training(servers, new_place, figures):
    """At the first, a middle and the last passing of each point, and around the output."""
    cases = [(point, n) for point in POINTS[:2] for n in (0, 17, STEPS - 1)]
    cases += [(point, n) for point in POINTS[2:] for n in (0, 9, STEPS // EVERY)]
    cases += [(point, 0) for point in ONCE]

    def one(server, dies):
        place = neural(new_place())
        assert live(server, place, dies) == KILLED, dies
        assert live(server, place) == 0, dies
        assert not list(place.run.directory.glob("*.checkpoint"))
        counts = resumed(place), lost(place)
        new_place.done(place)
        return counts

    for stage in STAGES if new_place.kind == "sqlite" else STAGES[:1]:
        counts = servers.each([(stage, *case) for case in cases], one)
        total = tuple(sum(numbers) for numbers in zip(*counts, strict=True))
        # Without a checkpoint on record (three of the points, at their first passing) it is lost.
        assert total == (len(cases) - 4, 3)
        figures("training kills", store=new_place.kind, stage=stage, kills=len(cases),
                resumed=total[0], lost=total[1], violations=0)  # fmt: skip


@on_stores("sqlite", "postgresql")
def test_killed_at_random_again_and_again(servers, new_place, figures):
    """Until it is through or its attempts are used up; the seed is printed."""
    seed = secrets.randbits(32)
    print(json.dumps({"seed": seed}))
    choose = random.Random(seed)

    def death():
        point = choose.choice([*POINTS, *ONCE, *RESUMING])
        return choose.choice(STAGES), point, choose.randrange(STEPS if "draw" in point else 8)

    def one(server, deaths):
        place, ends = neural(new_place()), list[int]()
        while deaths and (not ends or ends[-1] == KILLED):
            ends.append(live(server, place, deaths.pop(0)))
        assert set(ends) <= {KILLED, 0, GrantSpentError.exit_code}
        if ends[-1] == GrantSpentError.exit_code:  # its attempts are used up
            assert "max_attempts" in place.error()
        counts = [ends.count(KILLED), resumed(place), lost(place), ends[-1] not in (0, KILLED)]
        new_place.done(place)
        return counts

    deaths = [[death() for _ in range(choose.randrange(1, 7))] for _ in range(RUNS)]
    for number, first in enumerate(FIRST):  # one is lost and one resumed whatever the seed
        deaths[number] = [first, NOWHERE]
    kills, resumes, losses, refused = map(
        sum, zip(*servers.each(deaths, one), strict=True)
    )  # fmt: skip
    figures("random training kills", store=new_place.kind, seed=seed, runs=RUNS, kills=kills,
            resumed=resumes, lost=losses, refused=refused, violations=0)  # fmt: skip
    assert resumes > 0
    assert losses > 0
