"""Before a run a plan prints four facts, names what is missing, and a release does as it says."""

import datetime
import errno
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpiw import errors
from dpiw.cli.main import main
from dpiw.ledger import Ledger
from dpiw.plan.spec import load_spec
from dpiw.run import steps
from dpiw.run.commands import program
from dpiw.run.reserve import check_ahead
from dpiw.run.run import current_label
from flows.release import due
from tasks.stages import plan as plan_task
from tests.support.ledger import cost, restore
from tests.support.whole_runs import asked, draw, fitted, ingested, prepared, publish_run, reserved

FACTS = ("period", "cost", "left", "next")


@pytest.fixture
def make(make_workplace, monkeypatch):
    def here(**changes):
        place = make_workplace(**{"weights": "none"} | changes)
        monkeypatch.chdir(place.root)
        return place

    return here


@pytest.fixture
def facts(capsys):
    """What `dpiw plan` prints of the run to come."""

    def planned(*words):
        capsys.readouterr()
        assert main(["plan", "release.yaml", *words]) == 0
        output = capsys.readouterr()
        lines = (
            output.err if words else output.out.partition("no data was read\n")[2]
        ).splitlines()
        assert [line.split()[0] for line in lines] == [*FACTS]
        return {
            name: line.removeprefix(name).strip() for name, line in zip(FACTS, lines, strict=True)
        }

    return planned


def cut_off(place: Any) -> None:
    run = ingested(place)
    run.open_ledger().arm(run.key, 1, "fit_generator")  # and its process dies


def settled(place: Any) -> None:
    cut_off(place)
    run = prepared(place)
    run.open_ledger().lose(run.key, 1, "fit_generator")


def given_back(place: Any) -> None:
    run = reserved(place)
    run.open_ledger().void(run.key, 1)


def changed(place: Any) -> None:
    publish_run(place.spec)
    place.rewrite("synthetic_rows: 300", "synthetic_rows: 301")


def forgotten(place: Any) -> None:
    before = place.ledger.read_bytes()
    publish_run(place.spec)
    restore(place, before)


STATES: dict[str, tuple[Callable[[Any], Any], dict[str, Any], type[errors.DPIWError] | None]] = {
    "new": (lambda _: None, {}, None),
    "reserved": (reserved, {"epsilon": "3"}, None),
    "given back": (given_back, {}, None),
    "between two draws": (fitted, {"epsilon": "3", "weights": "beta_debiased"}, None),
    "drawn": (lambda place: draw(reserved(place)), {"epsilon": "3"}, None),
    "cut off": (cut_off, {}, errors.GrantSpentError),
    "lost": (settled, {}, errors.GrantSpentError),
    "lost, with another attempt": (settled, {"max_attempts": 2}, None),
    "cut off, with another attempt": (cut_off, {"max_attempts": 2}, None),
    "another attempt does not fit": (cut_off, {"max_attempts": 2, "epsilon": "3"},
                                     errors.BudgetExceededError),
    "other settings": (changed, {}, errors.AlreadyPaidError),
    "too small a budget": (lambda _: None, {"epsilon": "1"}, errors.BudgetExceededError),
    "no read left, and none needed": (settled, {"reads": 1, "max_attempts": 2}, None),
    "a ledger that forgot": (forgotten, {}, errors.LedgerTamperedError),
    "a torn folder": (lambda place: (place.releases / "torn").mkdir(parents=True), {},
                      errors.ReleaseError),
    "no source": (lambda place: place.source.unlink(), {}, errors.SourceError),
}  # fmt: skip
"""How a run comes to stand: what makes it so, in which workplace, and how a release ends."""


@pytest.mark.parametrize("name", STATES)
@pytest.mark.slow
def test_a_release_costs_and_leaves_what_was_said_or_is_refused(name, make, facts):
    state, changes, error = STATES[name]
    place = make(**changes)
    state(place)
    entries = len(Ledger.open(place.ledger).entries())
    said = facts()
    assert facts("--json") == said
    ledger = Ledger.open(place.ledger)
    assert len(ledger.entries()) == entries  # a plan settles nothing
    before, command = ledger.spent("town").epsilon, f"{program()} release release.yaml"
    run = prepared(place)
    assert said["period"] == run.period
    if error is not None:
        assert said["next"] != command
        with pytest.raises(error):
            steps.reserve(run)
        assert ledger.spent("town").epsilon == before
        return
    assert said["next"] == command
    steps.reserve(run)
    charged = ledger.spent("town").epsilon - before
    assert said["cost"].startswith(f"epsilon={charged:g}," if charged else "nothing more: ")
    assert said["left"].startswith(f"{ledger.remaining('town')} of ")


def test_what_is_published_costs_nothing(make, facts):
    place = make()
    publish_run(place.spec)
    place.source.unlink()
    said = facts()
    assert said["cost"] == "nothing: it is published"
    assert said["left"].endswith("; 1 more such release fits")
    assert said["next"] == f"{program()} release release.yaml"


def test_a_period_is_named_where_there_are_several(make, facts):
    """Rows of another quarter would be signed as this one's, and the right label pays again."""
    make().rewrite("cadence: once", "cadence: yearly")
    said, year = facts(), datetime.datetime.now(datetime.UTC).year
    assert said["period"].startswith(f"{year} (today's")
    assert said["next"].endswith(f" --period {year}")


def recovery(step: str) -> list[str]:
    """The words of the recovery that a step names; nothing else was drawn since."""
    command = step.partition("to recover it: dpiw ")[2]
    for letter in ("epsilon E", "delta D", "reads N"):
        assert f"--loss-{letter}" in command
        command = command.replace(letter, f"{letter.split()[0]} 0")
    return shlex.split(command)


def test_a_ledger_that_forgot_counts_nothing_until_it_is_recovered(make, facts):
    """By the command that is named; and the recovered release is never drawn again."""
    place = make()
    forgotten(place)
    said = facts()
    assert said["left"] == "not known"
    assert main(recovery(said["next"])) == 0
    said = facts()
    assert "was recovered by ledger entry 3" in said["next"]
    assert "such release" in said["left"]
    with pytest.raises(errors.GrantSpentError, match="recovered by ledger entry 3"):
        steps.reserve(prepared(place))


def test_a_ledger_that_is_shown_by_a_spec_is_held_against_its_releases(make, capsys, says):
    forgotten(make())
    for words, shown in (((), "out"), (("--json",), "err"), (("--csv",), "err")):
        assert main(["ledger", "show", "--ledger", "release.yaml", *words]) == 0
        last = getattr(capsys.readouterr(), shown).splitlines()[-1]
        assert last.startswith("warning: ledger ")
        assert recovery(last)
    assert "warning" not in says("ledger", "show", "--ledger", "state/ledger.sqlite")


def test_who_may_not_look_into_the_workspace_is_told_so(make, facts, monkeypatch):
    """Releases that it built may be unknown to the ledger, so nothing is said of what is left."""
    workspace, scandir = make().root / "state" / "workspace", os.scandir
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)

    def closed(path="."):
        if os.fspath(path) == str(workspace):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    said = facts()
    assert said["left"] == "not known"
    assert "Permission denied" in said["next"]


def test_nothing_is_read_that_an_overdrawn_account_would_not_let_draw(make, facts):
    """A recovery may charge more than was left beside a reservation; a read would count."""
    run = reserved(make())
    ledger = run.open_ledger()
    ledger.recover("town", [], loss=cost("100"))
    head = ledger.head()
    assert "lifetime budget" in facts()["next"]
    with pytest.raises(errors.BudgetExceededError, match="lifetime budget"):
        steps.ingest(run)
    assert ledger.head() == head
    assert not run.snapshot.exists()


def test_on_another_host_a_draw_may_still_go_on(make, facts):
    place = make(max_attempts=2)
    cut_off(place)
    assert facts()["cost"].startswith("epsilon=2,")
    prepared(place).directory.rename(place.root / "elsewhere")
    assert facts()["cost"].startswith("nothing more: ")


@pytest.mark.parametrize("held", [False, True])
def test_another_name_is_offered_only_while_nothing_was_reserved(workplace, capsys, held):
    """Another name for the same people is another budget; what was given back tells of them too."""
    if held:
        run = reserved(workplace)
        Ledger.open(workplace.ledger).void(run.key, 1)
    workplace.rewrite("relation: add_or_remove_one", "relation: replace_one")
    with pytest.raises(errors.UnsupportedRelationError) as refused:
        check_ahead(asked(workplace.spec))
    assert main(["plan", str(workplace.spec)]) == errors.UnsupportedRelationError.exit_code
    for text in (str(refused.value), capsys.readouterr().err):
        assert ("register OTHER" in text) is not held
        assert ("Runs were reserved from it" in text) is held


def test_a_plan_names_no_other_file_beside_the_source(workplace, says):
    """Its output may stand in the log of a CI; a release says it to who starts it."""
    workplace.rewrite("path: data.csv", "path: dta.csv")
    assert "data.csv" not in says("plan", workplace.spec)
    with pytest.raises(errors.SourceError, match=r"dta.csv; did you mean 'data.csv'\?"):
        check_ahead(asked(workplace.spec))


DOORS: dict[str, Callable[[Path, str | None], object]] = {
    "by hand": lambda spec, period: check_ahead(asked(spec, period)),
    "by a worker": lambda spec, period: plan_task.fn(spec, period, due()),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_label_of_another_form_is_refused(workplace, name):
    """By hand and by a deployment's parameters; nothing is made, held or charged."""
    door = DOORS[name]
    entries = len(Ledger.open(workplace.ledger).entries())

    def check_refused(label):
        with pytest.raises(errors.SpecError, match=f"^period {label}: "):
            door(workplace.spec, label)
        assert not (workplace.root / "state/workspace").exists()
        assert len(Ledger.open(workplace.ledger).entries()) == entries

    check_refused("2026-q4")  # the spec has one period
    calendar = "{first: 2026-01, retention: 1000}"
    workplace.rewrite("cadence: once", f"cadence: monthly\nseries: {calendar}")
    workplace.rewrite("path: data.csv", 'path: "data{period}.csv"')
    for label in ("2026-1", "2026-13", "2026-q4"):
        check_refused(label)
    for label in ("2026-01", current_label(load_spec(workplace.spec))):
        (workplace.root / f"data{label}.csv").write_bytes(workplace.source.read_bytes())
    door(workplace.spec, "2026-01")
    door(workplace.spec, None)
