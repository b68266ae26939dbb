"""What a plan says of the release to come: files that are not there, and what would pay again."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.errors import (
    BudgetExceededError,
    ReleaseError,
    SourceError,
    SpecError,
    UnsupportedRelationError,
)
from dpiw.ledger import Ledger
from dpiw.plan.spec import load_spec
from dpiw.run import steps
from dpiw.run.ahead import missing_files
from dpiw.run.commands import typed_commands
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun
from tasks.stages import plan as plan_task
from tests.support.whole_runs import asked


def rewritten(place: Any, old: str, new: str) -> None:
    text = place.spec.read_text()
    assert old in text
    place.spec.write_text(text.replace(old, new, 1))


def test_files_that_are_not_there_are_named(workplace):
    assert not list(missing_files(load_spec(workplace.spec)))
    rewritten(workplace, "path: data.csv", "path: town.parquet")
    for half in ("key", "pub"):
        (workplace.root / f"state/keys/test.{half}").unlink()
    source, form, key = missing_files(load_spec(workplace.spec))
    assert source.startswith("source.path: no such file, or a folder above it is closed to you")
    assert form == "source.path: town.parquet, and source.format is csv"
    assert key.startswith("signing_key: ")
    assert "\nto make a pair: dpiw key new " in key


def test_a_lost_private_key_is_no_key_that_was_never_made(workplace, capsys):
    """A pair is not made over the public half, and older releases keep the old one."""
    keys = workplace.root / "state/keys"
    (keys / "test.key").rename(keys / "my test.key")
    (keys / "test.pub").rename(keys / "my test.pub")
    rewritten(workplace, "keys/test.key", "keys/my test.key")
    (keys / "my test.key").unlink()
    (told,) = missing_files(load_spec(workplace.spec))
    with pytest.raises(ReleaseError) as refused:
        ReleaseRun.prepare(workplace.spec, period=None)
    spec = load_spec(workplace.spec)
    for text in (told, refused.value.told(typed_commands(spec, workplace.spec))):
        assert "my test.pub is there" in text
        command = text.rpartition(": dpiw ")[2]
    assert main(shlex.split(command)) == 0
    rewritten(workplace, "keys/my test.key", "keys/my test-2.key")
    assert not list(missing_files(load_spec(workplace.spec)))


@pytest.mark.parametrize("reserved", [False, True])
def test_another_name_is_offered_only_while_nothing_was_reserved(workplace, capsys, reserved):
    """Another name for the same people is another budget; what was given back tells of them too."""
    if reserved:
        run = ReleaseRun.prepare(workplace.spec, period=None)
        steps.reserve(run)
        Ledger.open(workplace.ledger).void(run.key, 1)
    rewritten(workplace, "relation: add_or_remove_one", "relation: replace_one")
    with pytest.raises(UnsupportedRelationError) as refused:
        check_ahead(asked(workplace.spec))
    assert main(["plan", str(workplace.spec)]) == UnsupportedRelationError.exit_code
    for text in (str(refused.value), capsys.readouterr().err):
        assert ("register OTHER" in text) is not reserved
        assert ("something was reserved from it" in text) is reserved


def test_a_closed_folder_is_a_fault(workplace, monkeypatch):
    def closed(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    spec = load_spec(workplace.spec)
    monkeypatch.setattr("os.stat", closed)
    monkeypatch.setattr("pathlib.Path.lstat", closed)
    warnings = list(missing_files(spec))
    monkeypatch.undo()
    assert [line.split(":")[0] for line in warnings] == ["source.path", "signing_key"]


def test_a_plan_names_no_other_file_beside_the_source(workplace, capsys):
    """Its output may stand in the log of a CI; a release says it to who starts it."""
    rewritten(workplace, "path: data.csv", "path: dta.csv")
    assert main(["plan", str(workplace.spec)]) == 0
    assert "data.csv" not in capsys.readouterr().out
    with pytest.raises(SourceError, match=r"dta.csv; did you mean 'data.csv'\?"):
        check_ahead(asked(workplace.spec))


def by_hand(spec: Path, period: str | None) -> None:
    check_ahead(asked(spec, period))


@pytest.mark.parametrize("door", [by_hand, plan_task.fn])
def test_a_label_of_another_form_is_refused(workplace, door):
    """By hand and by a deployment's parameters; nothing is made, held or charged."""
    rewritten(workplace, "cadence: once", "cadence: monthly\nback_fill: true")
    entries = len(Ledger.open(workplace.ledger).entries())
    for typed, hint in [
        ("2026-1", r"monthly; expected a label such as 20\d\d-\d\d; did you mean '2026-01'\?\n"),
        (
            "2026-13",
            r"such as 20\d\d-\d\d\nFor releases that follow no calendar, write cadence: once",
        ),
        ("2026-q4", "cadence: once"),
    ]:
        with pytest.raises(SpecError, match=f"^period {typed}: .*(?s:.*){hint}"):
            door(workplace.spec, typed)
    assert not (workplace.root / "state/workspace").exists()
    assert len(Ledger.open(workplace.ledger).entries()) == entries
    door(workplace.spec, "2026-01")
    door(workplace.spec, None)


@pytest.mark.parametrize("door", [by_hand, plan_task.fn])
def test_a_label_is_refused_where_there_is_one_period(workplace, door):
    """By hand and by a deployment's parameters; nothing is made, held or charged."""
    ledger = Ledger.open(workplace.ledger)
    with pytest.raises(SpecError, match=r"^period 2026-q4: the spec's cadence is once"):
        door(workplace.spec, "2026-q4")
    assert not (workplace.root / "state/workspace").exists()
    assert not ledger.runs("town")
    door(workplace.spec, "once")
    rewritten(workplace, "cadence: once", "cadence: quarterly\nback_fill: true")
    door(workplace.spec, "2026-q4")


@pytest.mark.parametrize("door", [by_hand, plan_task.fn])
def test_a_run_that_began_under_such_a_label_goes_on(workplace, door):
    steps.reserve(ReleaseRun.prepare(workplace.spec, period="2026-q4"))
    door(workplace.spec, "2026-q4")


def test_a_budget_that_is_short_is_told_before_a_plan_is_made(workplace, monkeypatch):
    rewritten(workplace, "epsilon: 2", "epsilon: 9")
    monkeypatch.setattr("dpiw.run.run.compile_plan", lambda *_: pytest.fail("planned"))
    with pytest.raises(BudgetExceededError, match="who spent it"):
        check_ahead(asked(workplace.spec))
    assert asked(workplace.spec).found() is None
