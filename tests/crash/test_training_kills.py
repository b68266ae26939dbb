"""SIGKILL in the middle of a training, in the stage's own process, as in production."""

from __future__ import annotations

import json
import os
import random
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpiw.errors import GrantSpentError, StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.run import steps
from dpiw.run.launch import launch_stage
from tests.crash.conftest import Places
from tests.crash.harness import ROOT, Place, units
from tests.crash.stores import on_stores

STEPS, EVERY, RESUMES, ATTEMPTS = 40, 2, 2, 3
ACCOUNTED = STEPS + EVERY * RESUMES

# Runs in the stage's own process: counts every draw of noise on disk, and dies where it is told.
DEADLY = """
import sys
if "dpiw.run.process" in " ".join(sys.orig_argv):
    import os, pathlib, signal
    from dpiw.ledger import Ledger
    from dpiw.privacy.randomness import SecureNoise
    from dpiw.run import checkpoints, draw as confidential
    here = pathlib.Path(__file__).parent
    stage = sys.orig_argv[sys.orig_argv.index("dpiw.run.process") + 1]
    word = (here / "dies").read_text().split() if (here / "dies").exists() else []
    left = {word[1]: int(word[2])} if word and word[0] == stage else {}
    def passed(point):
        if point in left:
            left[point] -= 1
            if left[point] < 0:
                (here / "dies").unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)
    def around(owner, name, before, after):
        real = getattr(owner, name)
        def wrapped(*args, **options):
            passed(before)
            result = real(*args, **options)
            passed(after)
            return result
        setattr(owner, name, wrapped)
    draw = SecureNoise.gaussian_vector
    def drawn(self, *, scale, size):
        passed("before_draw")
        log = os.open(here / f"{stage}.drawn", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, b".")
        os.close(log)
        noise = draw(self, scale=scale, size=size)
        passed("after_draw")
        return noise
    SecureNoise.gaussian_vector = drawn
    around(checkpoints, "write_durably", "before_file", "after_file")
    around(Ledger, "checkpoint", "before_entry", "after_entry")
    around(Ledger, "resume", "before_resume", "after_resume")
    around(confidential, "write_durably", "before_output", "after_output")
"""

POINTS = (
    "before_draw", "after_draw", "before_file", "after_file", "before_entry", "after_entry",
)  # fmt: skip
"""Passed once per step or checkpoint."""

ONCE = ("before_output", "after_output")

RUNS = 12
FIRST = (("fit_generator", "before_file", 0), ("fit_generator", "after_draw", 22))
"""How the first random runs begin: with draws that no checkpoint holds, and after some that one
does. (A training killed before its first draw goes on from its public start.)"""


class Deadly:
    """A stage process that dies at the n-th passing of a point."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.word = folder / "dies"
        (folder / "sitecustomize.py").write_text(DEADLY)

    def dies(self, stage: str, point: str, passing: int) -> None:
        self.word.write_text(f"{stage} {point} {passing}")

    def drawn(self, stage: str) -> int:
        path = self.folder / f"{stage}.drawn"
        return path.stat().st_size if path.exists() else 0


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deadly]:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Deadly(tmp_path)


def neural(place: Place) -> Place:
    """The place, its spec with a GAN and network weights."""
    spec = place.root / "release.yaml"
    common = f"steps: {STEPS}, lot: 32, resumes: {RESUMES}"
    text = spec.read_text()
    for old, new in (
        ("{method: histogram, settings: {bins: 4}}",
         f"{{method: dpgan, settings: {{{common}, batch: 8, generator: [4]}}}}"),
        ("method: beta_debiased",
         f"method: dp_mlp, settings: {{{common}, hidden: [4], replays: 0}}"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text.replace("max_attempts: 6", f"max_attempts: {ATTEMPTS}"))
    return place


def attempt(place: Place, deadly: Deadly) -> bool:
    """Everything from the reservation to the last draw; False: a stage was killed.

    A killed stage ends as any other that fails; that it was killed, its word says, which is gone.
    """
    had_word = deadly.word.exists()
    try:
        steps.reserve(place.run)
        for stage in ("ingest", "fit_generator"):
            launch_stage(stage, place.run.directory)
        steps.draw_synthetic(place.run)
        launch_stage("fit_weights", place.run.directory)
    except StageFailedError as error:
        if error.code != StageFailedError.exit_code or not had_word or deadly.word.exists():
            raise
        return False
    return True


def check(place: Place, deadly: Deadly) -> dict[str, int]:
    """Never more noise than was paid for; the charge is the plan's, and each loss's again."""
    ledger = place.ledger()
    assert ledger.verify().ok
    record = ledger.run(place.run.key)
    expected = list(units(place.whole_cost))
    for run_attempt in record.attempts[1:]:
        for place_, part in enumerate(
            units(place.run.plan.stage_cost(frozenset(run_attempt.stages)))
        ):
            expected[place_] += part
    assert list(units(ledger.spent("town"))) == expected
    counted = {}
    for name in place.stages:
        paid = sum(name in run_attempt.stages for run_attempt in record.attempts)
        drawn = counted[name] = deadly.drawn(name)
        assert drawn <= ACCOUNTED * paid, f"{name}: {drawn} draws, {paid} times paid"
    return counted


def finish(place: Place, deadly: Deadly, *, most: int) -> None:
    for _ in range(most):
        if attempt(place, deadly):
            break
        check(place, deadly)
    else:
        raise AssertionError("it never ends")
    steps.debias(place.run)
    steps.diagnose(place.run)
    steps.publish(place.run)
    assert not list(place.run.directory.glob("*.checkpoint"))
    check(place, deadly)


def resumes(place: Place) -> int:
    return sum(entry.kind is EntryKind.RESUME for entry in place.ledger().entries())


CASES = [("fit_generator", "after_draw", 22)]


@pytest.mark.crash
@pytest.mark.parametrize(("stage", "point", "passing"), CASES)
def test_killed_in_mid_training_it_resumes_and_is_charged_as_planned(
    new_place: Places, deadly: Deadly, stage: str, point: str, passing: int
) -> None:
    place = neural(new_place())
    deadly.dies(stage, point, passing)
    assert not attempt(place, deadly)
    assert place.ledger().run(place.run.key).stages[stage].state is StageState.ARMED
    check(place, deadly)
    finish(place, deadly, most=1)
    assert resumes(place) == 1
    assert units(place.ledger().spent("town")) == units(place.whole_cost)
    assert STEPS <= deadly.drawn(stage) <= STEPS + EVERY
    new_place.done(place)


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
@pytest.mark.parametrize("stage", ["fit_generator", "fit_weights"])
def test_killed_at_every_point_of_a_training(
    new_place: Places, deadly: Deadly, figures: Callable[..., None], stage: str
) -> None:
    """At the first, a middle and the last passing of each point, and around the output."""
    cases = [(point, n) for point in POINTS[:2] for n in (0, 17, STEPS - 1)]
    cases += [(point, n) for point in POINTS[2:] for n in (0, 9, STEPS // EVERY)]
    cases += [(point, 0) for point in ONCE]
    resumed = lost = 0
    for point, passing in cases:
        place = neural(new_place())
        deadly.dies(stage, point, passing)
        assert not attempt(place, deadly), (point, passing)
        finish(place, deadly, most=1)
        resumed += resumes(place)
        lost += place.ledger().run(place.run.key).counted_attempts - 1
        new_place.done(place)
        (deadly.folder / f"{stage}.drawn").unlink(missing_ok=True)
        for log in deadly.folder.glob("*.drawn"):
            log.unlink()
    figures("training kills", store=new_place.kind, stage=stage, kills=len(cases), resumed=resumed,
            lost=lost, violations=0)  # fmt: skip
    # Without a checkpoint on record (three of the points, at their first passing) it is lost.
    assert (resumed, lost) == (len(cases) - 4, 3)


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
def test_killed_at_random_again_and_again(
    new_place: Places, deadly: Deadly, figures: Callable[..., None]
) -> None:
    """Until it is through or its attempts are used up; the seed is printed."""
    seed = secrets.randbits(32)
    print(json.dumps({"seed": seed}))
    choose = random.Random(seed)
    kills = resumed = lost = refused = 0
    for run in range(RUNS):
        place = neural(new_place())
        for time in range(choose.randrange(2 if run < len(FIRST) else 1, 7)):
            stage = choose.choice(["fit_generator", "fit_weights"])
            point = choose.choice([*POINTS, *ONCE, "before_resume", "after_resume"])
            passing = choose.randrange(STEPS if "draw" in point else 8)
            if time == 0 and run < len(FIRST):  # one is lost and one resumed whatever the seed
                stage, point, passing = FIRST[run]
            deadly.dies(stage, point, passing)
            try:
                kills += not attempt(place, deadly)
            except GrantSpentError as error:  # its attempts are used up
                if "max_attempts" not in str(error):
                    raise
                refused += 1
                break
            check(place, deadly)
        deadly.word.unlink(missing_ok=True)
        resumed += resumes(place)
        lost += place.ledger().run(place.run.key).counted_attempts - 1
        check(place, deadly)
        new_place.done(place)
        for log in deadly.folder.glob("*.drawn"):
            log.unlink()
    figures("random training kills", store=new_place.kind, seed=seed, runs=RUNS, kills=kills,
            resumed=resumed, lost=lost, refused=refused, violations=0)  # fmt: skip
    assert resumed > 0
    assert lost > 0
