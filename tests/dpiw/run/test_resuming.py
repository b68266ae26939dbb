"""A training that dies in the middle goes on from its checkpoint, and costs what was planned."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import GrantSpentError, LedgerConflictError, LedgerTamperedError, StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.privacy import accounting
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.release.verification import verify
from dpiw.run import draw as confidential
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from dpiw.run.workspace import purge, survey
from tests.conftest import town
from tests.support.around import around
from tests.support.ledger import restore
from tests.support.noise import LOTS, Cut
from tests.support.whole_runs import finish, ingested

GENERATOR = "{method: dpgan, settings: {steps: 40, lot: 32, batch: 8, generator: [4]}}"
WEIGHTS = "dp_mlp, settings: {hidden: [4], steps: 40, lot: 32}"


@pytest.fixture
def make_run(make_workplace):
    """A run that is ready to train its generator."""

    def make(*, resumes=1, weights="none"):
        place = make_workplace(weights=weights, max_attempts=2)
        stated = GENERATOR.replace("steps: 40", f"steps: 40, resumes: {resumes}")
        place.rewrite("{method: histogram, settings: {bins: 4}}", stated)
        return ingested(place)

    return make


@pytest.fixture
def at_step_four(monkeypatch):
    """Do something once the training's checkpoint of that step is kept."""

    def watch(act):
        def at(_, __, step, *___):
            if step == 4:
                act()

        around(confidential.StageCheckpoints, "at", after=at, replace=monkeypatch.setattr)

    return watch


def test_what_watches_a_training_shows_no_state():
    named = dict.fromkeys(("run", "ledger", "grant", "settings", "terms", "progress"))
    watch = confidential.StageCheckpoints(last=b"settings\n777", **named)
    assert (watch.resumed(), "777" in repr(watch)) == (b"777", False)


def gone(*_: object) -> None:
    raise OSError("gone")


def train(run: ReleaseRun, draws: int | None = None) -> int:
    """Train the generator until it is done, or until `draws` lots are drawn."""
    noise = Cut(draws, of=LOTS)
    if draws is None:
        steps.fit_generator(run, noise=noise)
    else:
        with pytest.raises(StageFailedError):
            steps.fit_generator(run, noise=noise)
    return noise.drawn


def stage(run: ReleaseRun, name: str = "fit_generator") -> Any:
    return run.open_ledger().run(run.key).stages[name]


def checkpoints(run: ReleaseRun) -> list[Path]:
    return sorted(run.directory.glob("*.checkpoint"))


@pytest.mark.nightly_cases("[0]", "[39]")
@pytest.mark.parametrize("dies_after", [0, 7, 39])
@pytest.mark.slow
def test_a_killed_training_goes_on_and_costs_what_was_planned(make_run, dies_after):
    run = make_run()
    *_, event = run.plan.stages[0].events
    assert event.count == 42
    told: list[tuple[int, int]] = []
    before = run.open_ledger().spent("town")
    train(run, dies_after)
    kept = dies_after - dies_after % 2
    assert stage(run).state is StageState.ARMED
    assert stage(run).checkpoint.step == kept
    (path,) = checkpoints(run)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.name.split(".")[:2] == ["fit_generator", f"{kept:08d}"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == stage(run).checkpoint.digest
    steps.reserve(run)
    noise = Cut(of=LOTS)
    steps.fit_generator(run, noise=noise, progress=lambda *at: told.append(at))
    again = noise.drawn
    assert again == 40 - kept
    assert told == [(step, 40) for step in range(kept + 2, 41, 2)]  # public numbers alone
    assert dies_after + again <= event.count
    assert stage(run).state is StageState.COMMITTED
    assert checkpoints(run) == []
    assert run.open_ledger().spent("town") == before
    kinds = [entry.kind for entry in run.open_ledger().entries()]
    assert (kinds.count(EntryKind.RESUME), kinds.count(EntryKind.LOSE)) == (1, 0)


@pytest.mark.slow
def test_what_died_after_its_last_step_draws_nothing_more(make_run, monkeypatch):
    run = make_run()
    monkeypatch.setattr(confidential, "check_room", lambda *_, **__: None)
    monkeypatch.setattr(confidential, "write_durably", gone)
    assert train(run, 100) == 40
    monkeypatch.undo()
    steps.reserve(run)
    assert train(run) == 0
    assert stage(run).state is StageState.COMMITTED


@pytest.mark.slow
def test_a_resumed_run_is_published_at_the_plans_cost(make_run):
    run = make_run(weights=WEIGHTS)
    train(run, 11)
    steps.reserve(run)
    train(run)
    steps.draw_synthetic(run)
    with pytest.raises(StageFailedError):
        steps.fit_weights(run, noise=Cut(25, of=LOTS))
    steps.reserve(run)
    noise = Cut(of=LOTS)
    steps.fit_weights(run, noise=noise)
    assert noise.drawn == 16
    folder = finish(run)
    certificate = verify(folder).certificate
    events = [event for planned in run.plan.stages for event in planned.events]
    assert [event.count for event in events] == [1, 1, 1, 1, 42, 42]  # four columns' histograms
    assert accounting.epsilon(events, delta=1e-6) <= 2
    assert float(certificate.epsilon) == 2
    (attempt,) = json.loads((folder / "certificate.json").read_text())["attempts"]
    assert attempt["resumed"] == {"fit_generator": 1, "fit_weights": 1}


@pytest.mark.slow
def test_without_a_resume_left_the_draw_is_lost_and_paid_again(make_run):
    run = make_run()
    train(run, 11)
    steps.reserve(run)
    train(run, 5)
    assert stage(run).resumes_left == 0
    before = run.open_ledger().spent("town").epsilon_units
    with pytest.raises(GrantSpentError):
        steps.fit_generator(run, noise=Cut(of=LOTS))
    steps.reserve(run)
    assert (stage(run).state, stage(run).attempt) == (StageState.RESERVED, 2)
    assert run.open_ledger().spent("town").epsilon_units > before
    assert train(run) == 40
    assert checkpoints(run) == []


@pytest.mark.slow
def test_a_training_that_may_not_be_resumed_leaves_no_checkpoint(make_run):
    run = make_run(resumes=0)
    assert run.plan.stages[0].resumption is None
    assert run.plan.stages[0].events[-1].count == 40
    train(run, 11)
    assert checkpoints(run) == []
    steps.reserve(run)
    assert stage(run).attempt == 2


def removed(run: ReleaseRun) -> None:
    checkpoints(run)[0].unlink()


def changed(run: ReleaseRun) -> None:
    data = bytearray(checkpoints(run)[0].read_bytes())
    data[len(data) // 2] ^= 1
    checkpoints(run)[0].write_bytes(data)


def rolled_back(run: ReleaseRun) -> None:
    """An earlier checkpoint of the same arm: going on from there would repeat more than is paid."""
    (path,) = checkpoints(run)
    path.write_bytes(run.directory.joinpath("earlier").read_bytes())


def purged(run: ReleaseRun) -> None:
    run.snapshot.unlink()


@pytest.mark.nightly_cases("removed", "purged", "rolled_back")
@pytest.mark.parametrize("spoil", [removed, changed, rolled_back, purged])
@pytest.mark.slow
def test_what_cannot_be_resumed_as_it_was_is_lost(make_run, at_step_four, spoil):
    run = make_run()
    at_step_four(lambda: shutil.copy(checkpoints(run)[0], run.directory / "earlier"))
    train(run, 11)
    spoil(run)
    steps.reserve(run)
    assert (stage(run).state, stage(run).attempt) == (StageState.RESERVED, 2)
    steps.ingest(run)
    assert train(run) == 40


@pytest.mark.slow
def test_a_checkpoint_that_is_not_on_record_is_not_resumed_from(make_run, monkeypatch):
    """Killed between the file of step 12 and its entry: it goes on from step 10."""
    run = make_run()

    def dies(*_, step, **__):
        if step == 12:
            raise RuntimeError("gone")

    around(confidential.Ledger, "checkpoint", before=dies, replace=monkeypatch.setattr)
    assert train(run, 100) == 12
    monkeypatch.undo()
    assert len(checkpoints(run)) == 2
    steps.reserve(run)
    assert train(run) == 30  # 12 + 30 = 42, all that is accounted


@pytest.mark.slow
def test_a_restored_ledger_does_not_train_a_second_time(make_run):
    """The ledger comes back from before the arm, or from before the resume."""
    run = make_run()
    ledger = Path(run.open_ledger().location)
    copies = [ledger.read_bytes()]
    train(run, 11)
    copies.append(ledger.read_bytes())
    steps.reserve(run)
    train(run, 5)
    for copy in copies:
        restore(ledger, copy)
        with pytest.raises(LedgerTamperedError):
            go_on(run)
        assert stage(run).attempt == 1


def go_on(run: ReleaseRun) -> None:
    steps.reserve(run)
    steps.fit_generator(run, noise=Cut(0, of=LOTS))


@pytest.mark.slow
def test_a_restored_ledger_buys_no_step(make_run, monkeypatch):
    """Resumed, dead before its first own checkpoint, and the ledger restored to before that."""
    run = make_run()
    ledger = Path(run.open_ledger().location)
    train(run, 11)
    copy = ledger.read_bytes()
    monkeypatch.setattr(confidential.StageCheckpoints, "at", gone)
    steps.reserve(run)
    train(run, 100)
    restore(ledger, copy)
    with pytest.raises(LedgerTamperedError):
        steps.reserve(run)
    with pytest.raises(LedgerTamperedError):
        steps.fit_generator(run, noise=Cut(0, of=LOTS))


def test_an_older_ledger_and_checkpoint_beside_a_newer_one_are_refused(
    make_run, at_step_four, back_up
):
    run, saved = make_run(), {}
    ledger = Path(run.open_ledger().location)

    def save():
        copied = Path(back_up(str(ledger)))
        saved.update({path: path.read_bytes() for path in checkpoints(run)})
        saved[ledger] = copied.read_bytes()

    at_step_four(save)
    train(run, 11)
    restore(ledger, saved.pop(ledger))
    for path, data in saved.items():
        path.write_bytes(data)
    with pytest.raises(LedgerTamperedError):
        steps.reserve(run)


@pytest.mark.slow
def test_a_training_is_not_resumed_on_another_snapshot(make_run):
    """The workspace is purged between `reserve` and `ingest`, and the source has changed."""
    run = make_run()
    train(run, 11)
    steps.reserve(run)
    (found,) = survey(run.directory.parents[2])
    purge(found, abandon=True)
    assert checkpoints(run) == []
    town(300, seed=99).to_csv(Path(run.spec.source.path), index=False)
    with pytest.raises(GrantSpentError):
        steps.ingest(run)
    assert not run.snapshot.exists()
    steps.reserve(run)
    assert stage(run).attempt == 2
    steps.ingest(run)
    assert train(run) == 40


@pytest.mark.slow
def test_a_training_begun_with_seeded_noise_stays_unpublishable(make_run):
    noise = SeededNoise(1)
    noise.gaussian_vector = Cut(39, of=LOTS).gaussian_vector
    run = make_run()
    with pytest.raises(StageFailedError):
        steps.fit_generator(run, noise=noise)
    steps.reserve(run)
    train(run)
    data = run.measurement("fit_generator").read_bytes()
    assert not Measurement.from_bytes(data).publishable


@pytest.mark.slow
def test_what_was_committed_after_a_death_leaves_no_checkpoint(make_run, monkeypatch):
    run = make_run()
    monkeypatch.setattr(confidential.Ledger, "commit", gone)
    with pytest.raises(OSError, match="gone"):
        steps.fit_generator(run, noise=SecureNoise())
    monkeypatch.undo()
    steps.reserve(run)
    steps.fit_generator(run, noise=Cut(0, of=LOTS))
    assert stage(run).state is StageState.COMMITTED
    assert checkpoints(run) == []


@pytest.mark.slow
def test_who_was_taken_over_writes_no_output(make_run, monkeypatch):
    """Its lock was lost, and another process resumed the stage while it drew its last step."""
    run = make_run()

    def overtaken(_, ledger, *__, step, **___):
        if step == 40:
            ledger.resume(run.key, 1, "fit_generator", step=40)

    around(confidential.Ledger, "checkpoint", after=overtaken, replace=monkeypatch.setattr)
    train(run, 100)
    assert not run.measurement("fit_generator").exists()


@pytest.mark.slow
def test_a_damaged_table_is_found_before_anything_is_armed(make_run):
    run = make_run()
    whole = run.snapshot.read_bytes()
    run.snapshot.write_bytes(whole[:60] + bytes([whole[60] ^ 4]) + whole[61:])
    for _ in range(2):
        with pytest.raises(LedgerConflictError):
            steps.fit_generator(run, noise=SecureNoise())
        assert stage(run).state is StageState.RESERVED
    run.snapshot.write_bytes(whole)
    assert train(run) == 40
