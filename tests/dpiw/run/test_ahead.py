"""What a plan says of the release to come: files that are not there, and what would pay anew."""

from __future__ import annotations

import json
import os
import shlex
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
from dpiw.plan import promise
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from dpiw.run.ahead import missing_files, paid_anew
from dpiw.run.commands import filled_in, program
from dpiw.run.reserve import check_ahead
from dpiw.run.run import ReleaseRun
from tasks.plan import plan as plan_task
from tests.support.whole_runs import draw, finish, publish_run


def rewritten(place: Any, old: str, new: str) -> None:
    text = place.spec.read_text()
    assert old in text
    place.spec.write_text(text.replace(old, new, 1))


def test_a_plan_warns_of_files_that_are_not_there(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(missing_files(load_spec(workplace.spec)))
    rewritten(workplace, "path: data.csv", "path: town.parquet")
    for half in ("key", "pub"):
        (workplace.root / f"state/keys/test.{half}").unlink()
    assert main(["plan", str(workplace.spec)]) == 0
    output = capsys.readouterr().out
    assert "warning: source.path: no such file, or a folder above it is closed to you" in output
    assert "town.parquet, and source.format is csv" in output
    assert "warning: signing_key: no such file; dpiw key new " in output


def test_a_plan_warns_of_a_link_and_beside_json(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A release opens no link; who reads the JSON is told on the other stream."""
    (workplace.root / "linked.csv").symlink_to(workplace.source)
    rewritten(workplace, "path: data.csv", "path: linked.csv")
    assert main(["plan", str(workplace.spec), "--json"]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert captured.err.startswith(
        "warning: source.path: a symbolic link; expected the table's regular"
    )


def test_a_plan_says_that_a_public_key_signs_nothing(workplace: Any) -> None:
    """Before a pair is made, and after: `dpiw key new` makes both halves."""
    rewritten(workplace, "keys/test.key", "keys/mine.pub")
    spec, keys = load_spec(workplace.spec), workplace.root / "state/keys"
    (before,) = missing_files(spec)
    assert "signing_key: mine.pub is named like the public half of a pair" in before
    assert "name the private one: mine.key (dpiw key new " in before
    create_key_pair(keys, "mine")
    (after,) = missing_files(spec)
    assert after.endswith("name the private one: mine.key")


def test_a_lost_private_key_is_no_key_that_was_never_made(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for text in (told, filled_in(str(refused.value), spec, workplace.spec)):
        assert "my test.pub is there, so the pair was made: put my test.key back; if it" in text
        assert "keep my test.pub" in text
        command = text.partition("(dpiw ")[2].partition(")")[0]
    assert main(shlex.split(command)) == 0
    rewritten(workplace, "keys/my test.key", "keys/my test-2.key")
    assert not list(missing_files(load_spec(workplace.spec)))


@pytest.mark.parametrize("reserved", [False, True])
def test_another_name_is_offered_only_while_nothing_was_reserved(
    workplace: Any, capsys: pytest.CaptureFixture[str], reserved: bool
) -> None:
    """Another name for the same people is another budget; what was given back tells of them too."""
    if reserved:
        run = ReleaseRun.prepare(workplace.spec, period=None)
        steps.reserve(run)
        Ledger.open(workplace.ledger).void(run.key, 1)
    rewritten(workplace, "relation: add_or_remove_one", "relation: replace_one")
    with pytest.raises(UnsupportedRelationError) as refused:
        check_ahead(workplace.spec, None)
    assert main(["plan", str(workplace.spec)]) == UnsupportedRelationError.exit_code
    for text in (str(refused.value), capsys.readouterr().err):
        assert ("register OTHER" in text) is not reserved
        assert ("and never use this one" in text) is not reserved
        assert ("something was reserved from it" in text) is reserved


def test_a_closed_folder_is_a_warning_of_a_plan(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Any, **_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    spec = load_spec(workplace.spec)
    monkeypatch.setattr("os.stat", closed)
    monkeypatch.setattr("pathlib.Path.lstat", closed)
    warnings = list(missing_files(spec))
    monkeypatch.undo()
    assert [line.split(":")[0] for line in warnings] == ["source.path", "signing_key"]


def test_another_setting_and_another_label_pay_anew(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_run(workplace.spec)
    ledger = Ledger.open(workplace.ledger)
    spec = load_spec(workplace.spec)
    plan = compile_plan(spec, load_schema(spec))
    assert not list(paid_anew(plan, ledger, None))
    rewritten(workplace, "synthetic_rows: 300", "synthetic_rows: 301")
    assert main(["plan", str(workplace.spec)]) == 0
    assert (
        "town once is published already, with other settings or another" in capsys.readouterr().out
    )


def test_a_new_version_is_told_of_what_an_earlier_one_began(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has another key: it would draw, and pay, once more."""
    run, ledger = ReleaseRun.prepare(workplace.spec, period=None), Ledger.open(workplace.ledger)

    def told_later() -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(promise, "__version__", "0.9.9")
            return list(paid_anew(run.plan, ledger, None))

    label, cause = f"{run.spec.name} once", "with other settings or another version of dpiw"
    assert not told_later()
    steps.reserve(run)
    (warning,) = told_later()
    begins = f"{label} is reserved, {cause} (run {run.key[:8]}): this pays anew; "
    assert warning.startswith(begins)
    back = " gives back epsilon=2, delta=1E-6, unless it is running at this moment"
    assert warning.endswith(f" ledger void {run.key[:12]} --attempt 1{places(workplace)}{back}")
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    (warning,) = told_later()
    assert warning.startswith(f"{label} is drawn and charged, not published, {cause}")
    assert not list(paid_anew(run.plan, ledger, None))


def places(place: Any) -> str:
    """What a command names of a workplace."""
    paths = {"ledger": place.ledger, "state": place.root / "state"}
    words = [f" --{name} {shlex.quote(os.path.relpath(path))}" for name, path in paths.items()]
    return "".join(words)


def planned(place: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a plan says of unfinished runs of other periods."""
    capsys.readouterr()
    assert main(["plan", str(place.spec)]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if "not finished" in line or "not published" in line]


def test_a_plan_names_what_other_periods_hold_and_how_they_go_on(
    make_workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reserved, drawn, published, and too many of them."""
    place = make_workplace(weights="none")
    rewritten(place, "cadence: once", "cadence: daily")
    rewritten(place, "epsilon: 2", "epsilon: 0.5")
    assert not planned(place, capsys)
    run = ReleaseRun.prepare(place.spec, period="2026-01-02")
    steps.reserve(run)
    (held,) = planned(place, capsys)
    command = f"release {place.spec} --period 2026-01-02 goes on with it"
    title = "warning: town 2026-01-02"
    assert held.startswith(f"{title} is not finished and holds epsilon=0.5, delta=1E-6; ")
    assert held.endswith(command)
    draw(run)
    (drawn,) = planned(place, capsys)
    assert drawn.startswith(f"{title} is drawn, not published, and was charged epsilon=0.5,")
    assert drawn.endswith(command)
    finish(run)
    assert not planned(place, capsys)
    for day in range(3, 8):
        steps.reserve(ReleaseRun.prepare(place.spec, period=f"2026-01-0{day}"))
    more, *newest = planned(place, capsys)
    show = more.partition("warning: town: 2 more periods are not finished: ")[2]
    assert show.startswith(f"{program()} ledger show --ledger ")
    assert main(shlex.split(show)[1:]) == 0
    assert [line[:24] for line in newest] == [f"warning: town 2026-01-0{day}" for day in (5, 6, 7)]


def reserved_of_2001(place: Any) -> ReleaseRun:
    """A run of a yearly release, not this year's."""
    rewritten(place, "cadence: once", "cadence: yearly")
    run = ReleaseRun.prepare(place.spec, period="2001")
    steps.reserve(run)
    return run


def test_of_other_settings_a_plan_says_how_a_reservation_is_given_back(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = reserved_of_2001(workplace)
    rewritten(workplace, "synthetic_rows: 300", "synthetic_rows: 301")
    (line,) = planned(workplace, capsys)
    assert f"; only the settings and the version of dpiw that began it (run {run.key[:8]})" in line
    void, _, back = line.split("; ")[-1].partition(" gives back ")
    assert back == "epsilon=2, delta=1E-6, unless it is running at this moment"
    assert main(shlex.split(void)[1:]) == 0
    assert not planned(workplace, capsys)


def begun_twice(place: Any) -> ReleaseRun:
    """A run of 2001 whose first draw is lost, and whose second is reserved."""
    run = ReleaseRun.prepare(place.spec, period="2001")
    steps.reserve(run)
    steps.ingest(run)
    run.open_ledger().arm(run.key, 1, "fit_generator")  # and its process dies
    steps.reserve(run)
    return run


def test_a_second_attempt_is_all_that_is_given_back(
    make_workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one's draw is lost, and stays charged."""
    place = make_workplace(weights="none", max_attempts=2)
    rewritten(place, "cadence: once", "cadence: yearly")
    begun_twice(place)
    rewritten(place, "synthetic_rows: 300", "synthetic_rows: 301")
    (line,) = planned(place, capsys)
    assert "2001 is not finished and holds epsilon=4, delta=2E-6; only" in line
    void, _, back = line.split("; ")[-1].partition(" gives back ")
    assert back.startswith("epsilon=2, delta=1E-6, unless ")
    assert main(shlex.split(void)[1:]) == 0
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_what_was_cut_off_under_other_settings_costs_again(
    make_workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_workplace(weights="none", max_attempts=3)
    rewritten(place, "cadence: once", "cadence: yearly")
    run = begun_twice(place)
    run.open_ledger().arm(run.key, 2, "fit_generator")  # and its process dies, too
    rewritten(place, "synthetic_rows: 300", "synthetic_rows: 301")
    (line,) = planned(place, capsys)
    again = " go on with it, and draw again, at a further cost, what was cut off"
    assert line.endswith(f"{again}, unless a process draws it at this moment")
    run.open_ledger().lose(run.key, 2, "fit_generator")
    (line,) = planned(place, capsys)
    assert line.endswith(again)


def test_a_plan_names_no_other_file_beside_the_source(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its output may stand in the log of a CI; a release says it to who starts it."""
    rewritten(workplace, "path: data.csv", "path: dta.csv")
    assert main(["plan", str(workplace.spec)]) == 0
    assert "data.csv" not in capsys.readouterr().out
    with pytest.raises(SourceError, match=r"dta.csv; did you mean 'data.csv'\?"):
        check_ahead(workplace.spec, None)


def test_a_run_that_can_only_be_refused_is_not_told_for_ever(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = reserved_of_2001(workplace)
    steps.ingest(run)
    run.open_ledger().arm(run.key, 1, "fit_generator")  # and its process dies
    assert not planned(workplace, capsys)


@pytest.mark.parametrize("door", [check_ahead, plan_task.fn])
def test_a_label_of_another_form_is_refused(workplace: Any, door: Any) -> None:
    """By hand and by a deployment's parameters; nothing is made, held or charged."""
    rewritten(workplace, "cadence: once", "cadence: monthly\nback_fill: true")
    entries = len(Ledger.open(workplace.ledger).entries())
    for typed, hint in [
        ("2026-1", r"monthly has labels such as 20\d\d-\d\d; did you mean '2026-01'\?\n"),
        ("2026-13", r"such as 20\d\d-\d\d\n\(releases that follow no calendar: cadence: once, and"),
        ("2026-q4", "a name for each"),
    ]:
        with pytest.raises(SpecError, match=f"^period {typed}: .*(?s:.*){hint}"):
            door(workplace.spec, typed)
    assert not (workplace.root / "state/workspace").exists()
    assert len(Ledger.open(workplace.ledger).entries()) == entries
    door(workplace.spec, "2026-01")
    door(workplace.spec, None)


@pytest.mark.parametrize("door", [check_ahead, plan_task.fn])
def test_a_label_is_refused_where_there_is_one_period(workplace: Any, door: Any) -> None:
    """By hand and by a deployment's parameters; nothing is made, held or charged."""
    ledger = Ledger.open(workplace.ledger)
    with pytest.raises(SpecError, match=r"period 2026-q4: expected none .*another name, a new"):
        door(workplace.spec, "2026-q4")
    assert not (workplace.root / "state/workspace").exists()
    assert not ledger.runs("town")
    door(workplace.spec, "once")
    rewritten(workplace, "cadence: once", "cadence: quarterly\nback_fill: true")
    door(workplace.spec, "2026-q4")


@pytest.mark.parametrize("door", [check_ahead, plan_task.fn])
def test_a_run_that_began_under_such_a_label_goes_on(workplace: Any, door: Any) -> None:
    steps.reserve(ReleaseRun.prepare(workplace.spec, period="2026-q4"))
    door(workplace.spec, "2026-q4")


def test_a_budget_that_is_short_is_told_before_a_plan_is_made(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(workplace, "epsilon: 2", "epsilon: 9")
    monkeypatch.setattr("dpiw.run.run.compile_plan", lambda *_: pytest.fail("planned"))
    with pytest.raises(BudgetExceededError, match="who spent it: dpiw ledger show"):
        check_ahead(workplace.spec, None)
    assert ReleaseRun.find(workplace.spec, period=None) is None


def test_a_plan_warns_where_no_more_such_release_fits(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(workplace.spec)]) == 0
    assert "\nwarning: no more" not in capsys.readouterr().out
    rewritten(workplace, "epsilon: 2", "epsilon: 9")
    assert main(["plan", str(workplace.spec)]) == 0
    output = capsys.readouterr().out
    assert "\nwarning: no more such release fits; epsilon: 5 fits\n" in output
    with pytest.raises(BudgetExceededError, match=r"is left of .*; epsilon: 5 fits; who spent it"):
        check_ahead(workplace.spec, None)
    rewritten(workplace, "epsilon: 9", "epsilon: 5")
    check_ahead(workplace.spec, None)


def test_a_plan_says_how_wide_bins_are(workplace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(workplace.spec)]) == 0
    assert "bins            age 4 of 25 each, income 4 of 250 each;" in capsys.readouterr().out
    schema = workplace.root / "schema.yaml"
    text = schema.read_text()
    cut = text.replace("upper: 100}", "upper: 100, cuts: [20, 60]}", 1)
    schema.write_text(cut.replace("upper: 1000,", "upper: 1000, cuts: [50, 200],", 1))
    assert main(["plan", str(workplace.spec)]) == 0
    output = capsys.readouterr().out
    assert "  bins  " not in output
    assert "cuts            age 60 to 100, 40% of its bounds" in output
    assert "income 200 to 1,000, 80% of its bounds; within a bin nothing tells" in output
    cut = text.replace("upper: 100}", "upper: 100, cuts: [25, 50, 75]}", 1)
    schema.write_text(cut.replace("upper: 1000,", "upper: 1000, cuts: [250, 500, 750],"))
    assert main(["plan", str(workplace.spec)]) == 0
    assert "within a bin" not in capsys.readouterr().out
