"""A ledger restored from an old copy: what it forgot is neither repeated nor refunded."""

import importlib
import shutil
from decimal import Decimal
from typing import Any

import pytest

from dpiw import errors
from dpiw.ledger import CompositionRule, Ledger, StageState
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.around import around
from tests.support.ledger import recover, restore, terms, told
from tests.support.whole_runs import (
    diagnosed,
    draw,
    finish,
    fit,
    ingested,
    killed_at,
    prepared,
    reserved,
)

PUBLISHING = importlib.import_module("dpiw.run.publish")


def registered(place: Any, name: str, epsilon: str = "3", **changes: Any) -> None:
    Ledger.open(place.ledger).register(
        terms(name=name, epsilon=Decimal(epsilon), delta=Decimal("1e-4"), **changes)
    )


def drawn(place: Any, period: str) -> ReleaseRun:
    return draw(prepared(place, period=period))


def spent(place: Any, name: str = "town") -> float:
    ledger = Ledger.open(place.ledger)
    assert ledger.verify().ok
    return ledger.spent(name).epsilon


def lose(place: Any, epsilon: str) -> str:
    return told(
        "recover", "--ledger", str(place.ledger), "--loss-only", "--population", "town",
        "--loss-epsilon", epsilon, "--loss-delta", "1e-6", "--loss-reads", "0",
    )  # fmt: skip


def void(place: Any, run: ReleaseRun, attempt: int = 1) -> str:
    return told(
        "void", run.key, "--attempt", str(attempt), "--ledger", str(place.ledger),
        "--state", str(place.root / "state"),
    )  # fmt: skip


@pytest.mark.slow
def test_a_reservation_from_before_the_copy_is_not_drawn_once_the_account_is_overdrawn(
    make_workplace,
):
    """Given back, spent otherwise, and back in the restored ledger."""
    place = make_workplace(epsilon="4", weights="none")
    waiting = ingested(place, period="2026-09")
    before = place.ledger.read_bytes()
    void(place, waiting)
    finish(drawn(place, "2026-10"))
    finish(drawn(place, "2026-11"))
    restore(place, before)
    recover(place)
    assert spent(place) == 6
    steps.reserve(waiting)
    with pytest.raises(errors.BudgetExceededError):
        steps.fit_generator(waiting, noise=SecureNoise())
    assert not waiting.measurement("fit_generator").exists()
    void(place, waiting)  # not drawn, so it may be given back
    assert spent(place) == 4


@pytest.mark.slow
def test_heads_are_compared_before_every_draw(make_workplace):
    """The copy comes back between two steps of a run."""
    place = make_workplace(epsilon="9", weights="none")
    run = ingested(place, period="2026-10")
    before = place.ledger.read_bytes()
    finish(drawn(place, "2026-11"))
    restore(place, before)
    with pytest.raises(errors.LedgerTamperedError):
        steps.fit_generator(run, noise=SecureNoise())
    stage = Ledger.open(place.ledger).run(run.key).stages["fit_generator"]
    assert stage.state is StageState.RESERVED


@pytest.mark.slow
def test_two_releases_built_on_one_head_are_both_recovered(make_workplace):
    """The second certificate was written between the first one's and its publishing entry."""
    place = make_workplace(epsilon="3", weights="none")
    registered(place, "city")
    before = place.ledger.read_bytes()
    first = drawn(place, "2026-11")
    place.write_spec(population="city", weights="none")
    second = drawn(place, "2026-11")
    for run in (first, second):
        diagnosed(run)
    with killed_at(PUBLISHING, "publish_built"):
        steps.publish(first)
    one, two = (verify(steps.publish(run)).certificate for run in (second, first))
    assert one.ledger_head != two.ledger_head  # no two certificates share one

    restore(place, before)
    recover(place, "--population", "city")
    with pytest.raises(errors.LedgerTamperedError):  # a missing head of one stops all populations
        reserved(place, period="2026-12")
    assert "town" in recover(place)
    assert (spent(place), spent(place, "city")) == (2, 2)
    with pytest.raises(errors.BudgetExceededError):
        reserved(place, period="2026-12")


def test_a_release_of_a_population_of_another_ledger_stops_nobody(make_workplace):
    """Two ledgers may publish into one folder, as long as each has its own populations."""
    place = make_workplace(epsilon="3", weights="none")
    finish(drawn(place, "2026-11"))
    other = make_workplace(epsilon="3", weights="none", population="city")
    other.ledger.unlink()
    Ledger.create(other.ledger)
    registered(other, "city")
    shutil.copytree(place.releases, other.releases)
    reserved(other, period="2026-11")
    assert spent(other, "city") == 2
    registered(other, "town")  # now it must have its releases, too
    with pytest.raises(errors.LedgerTamperedError):
        reserved(other, period="2026-12")


@pytest.mark.crash_cases("[published]")
@pytest.mark.parametrize("where", ["built", "published"])
def test_another_publish_to_hides_no_head(make_workplace, where):
    """The workspace knows what was built, and where the other runs of it published."""
    place = make_workplace(epsilon="9", weights="none")
    before = place.ledger.read_bytes()
    run = drawn(place, "2026-11")
    finish(run)
    restore(place, before)
    place.rewrite("publish_to: state/releases", "publish_to: elsewhere")
    if where == "published":
        shutil.rmtree(run.directory / "built")
    else:
        shutil.rmtree(place.releases)
    with pytest.raises(errors.LedgerTamperedError):
        reserved(place, period="2026-12")
    recover(place, releases=[run.directory / "built"] if where == "built" else [])
    reserved(place, period="2026-12")
    assert spent(place) == 4


@pytest.mark.slow
def test_no_folder_beside_the_releases_is_passed_over(make_workplace):
    place = make_workplace(epsilon="9", weights="none")
    before = place.ledger.read_bytes()
    finish(drawn(place, "2026-10"))
    folder = finish(drawn(place, "2026-11"))
    manifest = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").unlink()
    with pytest.raises(errors.ReleaseError, match=r"manifest\.json"):
        reserved(place, period="2026-12")
    restore(place, before)
    with pytest.raises(errors.ReleaseError, match=folder.name):
        recover(place)
    (folder / "manifest.json").write_bytes(manifest)
    deeper = place.releases / "2026"
    deeper.mkdir()
    shutil.move(folder, deeper / folder.name)
    with pytest.raises(errors.ReleaseError, match="2026"):
        recover(place)
    assert spent(place) == 0
    shutil.move(deeper / folder.name, folder)
    deeper.rmdir()
    recover(place)
    assert spent(place) == 4


def test_a_run_that_cannot_be_read_may_have_published_anywhere(place):
    first, other = (prepared(place, period=period) for period in ("2026-10", "2026-11"))
    record = (first.directory / "run.json").read_bytes()
    for damaged in (b"{", b"[]", b"{}"):
        (first.directory / "run.json").write_bytes(damaged)
        with pytest.raises(errors.ReleaseError, match=r"run\.json"):
            steps.reserve(other)
    (first.directory / "run.json").unlink()  # it was never prepared to its end
    steps.reserve(other)
    (first.directory / "run.json").write_bytes(record)
    steps.reserve(first)


@pytest.mark.parametrize("published_before", [False, True])
def test_a_forgotten_draw_is_neither_repeated_nor_given_back(make_workplace, published_before):
    place = make_workplace(epsilon="6.5", weights="none")
    if published_before:
        finish(drawn(place, "2026-10"))
    run = reserved(place, period="2026-11")
    before = place.ledger.read_bytes()
    fit(run)
    restore(place, before)
    steps.reserve(run)
    with pytest.raises(errors.LedgerTamperedError, match="stage fit_generator: the workspace"):
        steps.fit_generator(run, noise=SecureNoise())
    held = spent(place)
    with pytest.raises(errors.LedgerTamperedError, match="not given back"):
        void(place, run)
    assert spent(place) == held  # what was reserved pays for the draw
    lose(place, "2")  # what else was drawn may be stated, with or without a release
    assert spent(place) == held + 2
    with pytest.raises(errors.LedgerTamperedError, match="not given back"):
        void(place, run)
    assert run.measurement("fit_generator").exists()


def test_a_source_that_broke_gives_no_forgotten_draw_back(make_workplace):
    place = make_workplace(epsilon="4", weights="none")
    run = reserved(place, period="2026-09")
    before = place.ledger.read_bytes()
    fit(run)
    restore(place, before)
    run.snapshot.unlink()
    place.source.write_text("nonsense\n1\n")
    steps.reserve(run)
    with pytest.raises(errors.LedgerTamperedError, match="not given back"):
        steps.ingest(run)
    assert spent(place) == 2


def test_a_void_needs_the_workspace_to_look_into(place):
    run = reserved(place, period="2026-11")
    (place.root / "other").mkdir()
    words = ("void", run.key, "--ledger", str(place.ledger))
    with pytest.raises(errors.SpecError):
        told(*words, "--state", str(place.root / "other"))
    with pytest.raises(SystemExit):
        told(*words)
    assert spent(place) == 2
    void(place, run)
    assert spent(place) == 0


def test_a_later_attempts_draw_does_not_settle_an_earlier_arm(make_workplace):
    """The copy knows attempt 1 as armed; it was lost, and attempt 2 was drawn."""
    place = make_workplace(epsilon="9", weights="none", max_attempts=2)
    run = ingested(place, period="2026-11")
    Ledger.open(place.ledger).arm(run.key, 1, "fit_generator")  # and its process dies
    before = place.ledger.read_bytes()
    steps.reserve(run)
    steps.fit_generator(run, noise=SecureNoise())
    assert spent(place) == 4
    restore(place, before)
    with pytest.raises(errors.LedgerTamperedError, match="a draw that the ledger does not know"):
        steps.reserve(run)
    measurement = run.measurement("fit_generator")
    data = measurement.read_bytes()
    measurement.write_bytes(b"torn")  # one that cannot be read is not committed, either
    with pytest.raises(errors.LedgerTamperedError, match="a draw that the ledger does not know"):
        steps.reserve(run)
    measurement.write_bytes(data)
    stage = Ledger.open(place.ledger).run(run.key).stages["fit_generator"]
    assert (stage.state, stage.output_digest) == (StageState.ARMED, None)
    lose(place, "2")
    assert spent(place) == 4
    with pytest.raises(errors.LedgerTamperedError, match="a draw that the ledger does not know"):
        steps.reserve(run)


def test_a_found_draw_is_durable_before_it_is_committed(place, monkeypatch):
    """Killed between rename and commit: the name may not be on the disk yet."""
    run = reserved(place, period="2026-11")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "commit", lambda *_: None)
        fit(run)
    done: list[str] = []
    module, replace = importlib.import_module("dpiw.run.reserve"), monkeypatch.setattr

    def synced(_, folder):
        done.append(f"sync {folder.name}")

    around(module, "sync_directory", after=synced, replace=replace)
    around(Ledger, "commit_found", after=lambda *_: done.append("commit"), replace=replace)
    steps.reserve(run)
    assert done == [f"sync {run.directory.name}", "commit"]


@pytest.mark.nightly_cases("RENYI")
@pytest.mark.parametrize("composition", list(CompositionRule))
@pytest.mark.slow
def test_a_ledger_made_anew_holds_what_the_old_one_held(place, composition):
    """Draws that were never published show in later certificates; nothing is charged twice."""
    registered(place, "village", epsilon="30", composition=composition)
    place.write_spec(population="village", weights="none")

    def begun_again_and_recovered():
        old = Ledger.open(place.ledger)
        before = old.spent("village"), old.account("village").held.renyi
        for file in place.ledger.parent.glob("ledger.sqlite*"):
            file.unlink()
        Ledger.create(place.ledger)  # with this registration alone
        registered(place, "village", epsilon="30", composition=composition)
        recover(place)
        new = Ledger.open(place.ledger)
        assert (new.spent("village"), new.account("village").held.renyi) == before

    drawn(place, "2026-07")
    finish(drawn(place, "2026-08"))
    drawn(place, "2026-09")
    finish(drawn(place, "2026-10"))
    begun_again_and_recovered()
    # the next release continues the recovered ones, so that it, too, can be recovered exactly
    finish(drawn(place, "2026-11"))
    begun_again_and_recovered()


@pytest.mark.slow
def test_a_release_whose_predecessor_is_not_given_is_refused_or_pays_for_all(make_workplace):
    place = make_workplace(epsilon="30", weights="none")
    drawn(place, "2026-09")
    finish(drawn(place, "2026-10"))
    before = place.ledger.read_bytes()
    drawn(place, "2026-11")
    folder = finish(drawn(place, "2026-12"))
    truth = spent(place)
    restore(place, before)
    with pytest.raises(errors.SpecError):
        recover(place, releases=[folder])
    recover(place, "--previous-lost", releases=[folder])
    assert spent(place) == 4 + 8  # what the certificate says was spent, none of it known to be here
    restore(place, before)
    recover(place)  # with the release before it: for the new draws alone
    assert spent(place) == truth == 8


@pytest.mark.slow
def test_a_conflict_before_publication_is_in_the_certificate(make_workplace):
    place = make_workplace(epsilon="9", weights="none")
    run = drawn(place, "2026-11")

    with killed_at(PUBLISHING, "publish_built"):
        finish(run)
    with pytest.raises(errors.LedgerConflictError):
        Ledger.open(place.ledger).commit_found(run.key, 1, "fit_generator", "1" * 64)
    folder = steps.publish(run)
    assert verify(folder).certificate.epsilon == "4"
    # after publication the release stays what it is
    with pytest.raises(errors.LedgerConflictError):
        Ledger.open(place.ledger).commit_found(run.key, 1, "fit_generator", "2" * 64)
    assert steps.publish(run) == folder
