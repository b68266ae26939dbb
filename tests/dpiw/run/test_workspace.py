"""The confidential workspace is emptied without losing what was paid for."""

import datetime
import json
import shutil
from pathlib import Path

import pytest

from dpiw.errors import (
    GrantSpentError,
    LedgerConflictError,
    LedgerError,
    SpecError,
    StageFailedError,
)
from dpiw.ledger import Ledger, RunState
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import steps
from dpiw.run.locks import drawing, working
from dpiw.run.workspace import CONSEQUENCES, WorkspaceRun, purge, select, survey
from tests.support.whole_runs import draw, finish, fitted, prepared, publish_run, reserved
from tests.support.whole_runs import workspace_command as command

NOW = datetime.datetime(2027, 1, 31, tzinfo=datetime.UTC)


def look(place, index=0):
    return survey(place.root / "state")[index]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_a_published_run_loses_its_confidential_files_and_nothing_else(place):
    run, folder = publish_run(place.spec)
    (run.directory / "log" / "ingest.log").write_text("confidential")
    (run.directory / ".fit_generator.npz.abcd").write_bytes(b"half")
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (run.private / "link").symlink_to(outside)
    before, release = contents(run.directory), contents(folder)
    shown = look(place)
    assert (shown.state, shown.finished, shown.key) == ("published", True, run.key)
    assert shown.confidential_bytes > 0

    assert purge(shown) == shown.confidential_bytes
    after = contents(run.directory)
    gone = set(before) - set(after)
    assert {"private/scaled.parquet", "private/validation.json", "private/cells.txt",
            "log/ingest.log", ".fit_generator.npz.abcd"} <= gone  # fmt: skip
    assert all(name.startswith(("private", "log", ".")) for name in gone)
    after.pop("fit_weights.lock")  # empty; this plan has no such stage
    assert after == {name: data for name, data in before.items() if name not in gone}
    assert list(run.private.iterdir()) == []
    assert contents(outside) == {"file": b"kept"}
    assert look(place).confidential_bytes == 0
    assert purge(look(place)) == 0

    # a rerun needs neither snapshot nor source, and ends in the same release at no cost
    place.source.unlink()
    again = draw(prepared(place))
    assert finish(again) == folder
    assert contents(folder) == release
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_a_run_that_needs_its_snapshot_is_refused_or_abandoned(place):
    run = prepared(place)
    with pytest.raises(SpecError, match="unknown to its ledger"):
        purge(look(place))
    steps.reserve(run)
    steps.ingest(run)
    with pytest.raises(SpecError, match=r"not finished \(reserved\).*reads the source again"):
        purge(look(place))
    assert run.snapshot.exists()
    assert purge(look(place), abandon=True) > 0
    assert not run.snapshot.exists()
    with pytest.raises(StageFailedError, match="ingest"):  # no draw without a snapshot, unarmed
        steps.fit_generator(run, noise=SecureNoise())
    draw(run)  # nothing was drawn on the old snapshot: the source may be read again
    finish(run)
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_a_drawn_run_is_published_without_its_snapshot(place):
    run = draw(prepared(place))
    assert purge(look(place), abandon=True) > 0
    place.source.unlink()
    draw(prepared(place))
    finish(run)
    assert Ledger.open(place.ledger).run(run.key).state is RunState.PUBLISHED


def half_drawn(place):
    run = fitted(place)
    steps.draw_synthetic(run)
    return run


def test_a_purged_run_never_mixes_two_states_of_the_table(workplace):
    run = half_drawn(workplace)
    assert look(workplace).state == "armed"
    purge(look(workplace), abandon=True)
    steps.reserve(run)
    with pytest.raises(LedgerConflictError, match="mix two states"):
        steps.ingest(run)
    assert list(run.private.iterdir()) == []
    assert Ledger.open(workplace.ledger).spent("town").epsilon == 2  # what was armed stays paid


def test_what_was_reserved_to_repeat_a_lost_draw_is_given_back(make_workplace):
    place = make_workplace(max_attempts=2)
    run = half_drawn(place)
    ledger = Ledger.open(place.ledger)
    ledger.arm(run.key, 1, "fit_weights")  # and the process dies
    purge(look(place), abandon=True)
    steps.reserve(run)
    assert ledger.spent("town").epsilon > 2
    with pytest.raises(LedgerConflictError, match="mix two states"):
        steps.ingest(run)
    assert ledger.spent("town").epsilon == 2
    assert ledger.run(run.key).state is RunState.LOST


def test_a_voided_run_may_be_purged(place):
    run = reserved(place)
    Ledger.open(place.ledger).void(run.key, 1)
    (run.private / "leftover").write_text("x")
    assert look(place).state == "voided"
    assert purge(look(place)) == 1


def test_a_run_at_work_is_left_alone(place):
    run = prepared(place)
    for lock in (drawing(run, "fit_generator"), working(run)):
        with lock, pytest.raises(GrantSpentError, match="working on it"):
            purge(look(place), abandon=True)


def test_what_has_no_readable_record_is_shown_and_left_alone(place):
    run = prepared(place)
    for text in ("{", "[]", '{"key": 1}', json.dumps({"key": "f" * 64, "spec": {}})):
        (run.directory / "run.json").write_text(text)
        shown = look(place)
        assert (shown.state, shown.key, shown.finished) == ("run.json unreadable", "", False)
        with pytest.raises(SpecError, match="cannot be read"):
            purge(shown, abandon=True)


@pytest.mark.parametrize("name", ["run", "private", "log"])
def test_a_purge_does_not_pretend_to_have_emptied_a_link(place, tmp_path, name):
    run = prepared(place)
    earlier = look(place)
    folder = {"run": run.directory}.get(name, run.directory / name)
    (folder / "kept").write_text("confidential")
    elsewhere = tmp_path / folder.name  # a run's record is believed by its folder's name
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)
    shown = look(place)
    assert (shown.state, shown.finished) == ("a link, open to others, or another user's", False)
    for listed in (shown, earlier):
        with pytest.raises(SpecError, match="is a link"):
            purge(listed, abandon=True)
    assert (elsewhere / "kept").read_text() == "confidential"


def test_a_ledger_out_of_reach_does_not_hide_the_other_runs(place):
    first = draw(prepared(place, period="2027-01"))
    finish(first)
    text = place.spec.read_text()
    place.spec.write_text(f"{text}ledger: gone.sqlite\n")
    second = prepared(place, period="2027-02")
    shown = {run.key: run.state for run in survey(place.root / "state")}
    assert shown == {first.key: "published", second.key: "its ledger cannot be opened"}
    assert command("show", "--state", place.root / "state")[0] == 0
    (gone,) = [run for run in survey(place.root / "state") if run.key == second.key]
    assert not gone.finished
    with pytest.raises(LedgerError, match="no such file"):
        purge(gone, abandon=True)


def entry(number, state="published", last_at="2027-01-01T00:00:00Z"):
    return WorkspaceRun(
        directory=Path(f"{number}"), key=f"{number:08d}" + "0" * 56, population="town",
        period="once", ledger="", state=state, last_at=last_at, confidential_bytes=1, kept_bytes=1,
    )  # fmt: skip


RUNS = [entry(1), entry(2, last_at="2027-01-30T00:00:00Z"), entry(3, state="voided"),
        entry(4, state="armed"), entry(5, state="unknown to its ledger", last_at="")]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"all_published": True}, [1, 2, 3]), ({"older_than": 7}, [1, 3]),
        ({"all_published": True, "older_than": 0}, [1, 2, 3]), ({"key": "00000004"}, [4]),
        ({"key": "00000002", "older_than": 7}, []), ({}, "name runs"),
        ({"key": "0000"}, "8 digits"), ({"key": "00000009"}, "8 digits"),
        ({"all_published": True, "older_than": -1}, "days >= 0"),
    ],
)  # fmt: skip
def test_runs_are_chosen_by_key_and_age(options, chosen):
    """Or a careless choice is refused."""
    terms = {"key": None, "all_published": False, "older_than": None} | options
    if isinstance(chosen, str):
        with pytest.raises(SpecError, match=chosen):
            select(RUNS, now=NOW, **terms)
    else:
        assert select(RUNS, now=NOW, **terms) == [RUNS[number - 1] for number in chosen]


def test_every_unfinished_state_says_what_purging_it_means():
    unfinished = {state.value for state in RunState} - {"published", "withdrawn", "voided"}
    assert set(CONSEQUENCES) == unfinished | {"unknown to its ledger"}


def test_the_commands_show_ask_and_remove(place):
    run, _ = publish_run(place.spec)
    state = place.root / "state"
    code, text = command("show", "--state", state)
    assert code == 0
    assert [run.key[:12] in line and "published" in line for line in text.splitlines()][1]
    facts = json.loads(command("show", "--state", state, "--json")[1])
    assert facts[0]["run_key"] == run.key
    code, text = command("purge", "--state", state, "--all-published")
    assert (code, run.snapshot.exists()) == (0, True)
    assert "--yes" in text
    assert command("purge", "--state", state, "--older-than", 3, "--yes")[1] == "no run to purge\n"
    code, text = command("purge", "--state", state, "--run", run.key[:8], "--yes")
    assert (code, run.snapshot.exists()) == (0, False)
    assert text.startswith("removed ")
    with pytest.raises(SpecError, match="one by one"):
        command("purge", "--state", state, "--all-published", "--abandon", "--yes")


def test_a_run_that_cannot_be_judged_is_named_and_the_others_are_purged(place):
    run, _ = publish_run(place.spec)
    state = place.root / "state"
    lost = run.directory.parent / "lost"
    (lost / "private").mkdir(parents=True, mode=0o700)
    lost.chmod(0o700)
    (lost / "private" / "rows").write_text("kept")
    code, text = command("purge", "--state", state, "--all-published", "--yes")
    assert code == LedgerError.exit_code
    assert text.startswith("removed ")
    line = f"passed over run lost ({run.directory.parent.name}): run.json unreadable"
    assert text.splitlines()[-1] == line
    assert not run.snapshot.exists()
    assert (lost / "private" / "rows").read_text() == "kept"
