"""A plan does not count what fits on the word of a ledger that forgot what was published."""

from __future__ import annotations

import shlex
import shutil
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.errors import BudgetExceededError, GrantSpentError, LedgerTamperedError, SignatureError
from dpiw.ledger import Ledger
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from tests.support.ledger import restore
from tests.support.whole_runs import draw, prepared, publish_run


@pytest.fixture
def forgetful(make_workplace: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A release is published; the ledger is a copy from before. And the release's name."""
    place = make_workplace(weights="none")
    monkeypatch.chdir(place.root)
    before = place.ledger.read_bytes()
    folder = publish_run(place.spec)[1]
    restore(place, before)
    return place, folder.name


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert main(["plan", "release.yaml", *words]) == 0
    told = capsys.readouterr()
    return (told.err if words else told.out).splitlines()


def test_a_release_that_the_ledger_lacks_is_named_and_nothing_counted(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place, name = forgetful
    left, warned = planned(capsys)[-2:]
    assert left.startswith("ledger: not known what is left of population town: its ledger lacks")
    assert ", and says epsilon=5," in left
    assert warned.startswith(f"warning: it lacks what was published: {name}. It was restored from")
    assert "such release" not in left + warned
    assert warned in planned(capsys, "--json")
    with pytest.raises(LedgerTamperedError):  # the very check
        steps.reserve(prepared(place))


def test_the_command_that_is_named_recovers_it(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    warned = planned(capsys)[-1]
    command = warned.partition("recovered: ")[2].partition(" (with the folder")[0]
    for letter in ("epsilon E", "delta D", "reads N"):
        assert f"--loss-{letter}" in command
        command = command.replace(letter, f"{letter.split()[0]} 0")
    assert main(shlex.split(command)[1:]) == 0
    assert "such release" in planned(capsys)[-2]


def test_after_a_change_of_keys_the_command_wants_the_old_one_too(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place, _ = forgetful
    create_key_pair(place.root / "state" / "keys", "new")
    place.spec.write_text(place.spec.read_text().replace("keys/test.key", "keys/new.key"))
    warned = planned(capsys)[-1]
    assert "--key once for each key that signed, older ones too" in warned
    command = warned.partition("recovered: ")[2].partition(" (with the folder")[0]
    for letter in ("epsilon E", "delta D", "reads N"):
        command = command.replace(letter, f"{letter.split()[0]} 0")
    assert main(shlex.split(command)[1:]) == SignatureError.exit_code
    assert "--key is given once for each, older ones too" in capsys.readouterr().err
    assert main([*shlex.split(command)[1:], "--key", "state/keys/test.pub"]) == 0


def test_what_a_run_built_and_did_not_publish_shows_it_too(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place, name = forgetful
    built = prepared(place).directory / "built"
    shutil.rmtree(built, ignore_errors=True)
    shutil.move(place.releases / name, built)
    assert f"published: {name}. " in planned(capsys)[-1]


def test_many_are_not_all_named(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpiw.run.budget.unknown_releases", lambda *_: tuple("abcd"))
    assert "published: a, b, c, .... It was" in planned(capsys)[-1]


def test_a_recovered_release_is_told_to_be_refused(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledger would pay for more such releases, and not for this one."""
    place, _ = forgetful
    recover = planned(capsys)[-1].partition("recovered: ")[2].partition(" (with the folder")[0]
    for letter in ("epsilon E", "delta D", "reads N"):
        recover = recover.replace(letter, f"{letter.split()[0]} 0")
    assert main(shlex.split(recover)[1:]) == 0
    warned = planned(capsys)[-1]
    assert warned.startswith("warning: town once: its release was recovered by ledger entry 3 and")
    assert "so a release of it is refused; another source.snapshot is a new run" in warned
    assert warned in planned(capsys, "--json")
    with pytest.raises(GrantSpentError, match="recovered by ledger entry 3"):
        steps.reserve(prepared(place))


def cut_off(place: Any) -> tuple[Any, Ledger]:
    """A run whose process was killed while it drew."""
    run, ledger = prepared(place), Ledger.open(place.ledger)
    steps.reserve(run)
    steps.ingest(run)
    ledger.arm(run.key, 1, "fit_generator")
    return run, ledger


def test_a_draw_that_was_cut_off_is_told_before_it_is_settled_and_after(
    make_workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_workplace(weights="none")
    monkeypatch.chdir(place.root)
    run, ledger = cut_off(place)
    entries = len(ledger.entries())
    begun = "warning: town once: the draw of fit_generator was cut off and stays charged"
    refused = (
        "; this run was reserved with max_attempts 1 and cannot draw again, so a release of it is"
        " refused; another source.snapshot is a new run, and pays anew"
    )
    doubt = ", unless a process draws it at this moment"
    assert planned(capsys)[-1] == begun + doubt + refused
    assert len(ledger.entries()) == entries  # a plan settles nothing
    run.directory.rename(place.root / "elsewhere")  # as on another host: it may be drawn there
    assert not any("cut off" in line for line in planned(capsys))
    (place.root / "elsewhere").rename(run.directory)
    with pytest.raises(GrantSpentError, match="max_attempts=1"):
        steps.reserve(run)
    assert planned(capsys)[-1] == begun + refused


@pytest.mark.parametrize(("epsilon", "fits"), [("5", ""), ("3", ", which does not fit any more")])
def test_a_draw_that_may_be_paid_again_says_what_it_costs(
    make_workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    epsilon: str, fits: str,
) -> None:  # fmt: skip
    place = make_workplace(epsilon=epsilon, weights="none", max_attempts=2)
    monkeypatch.chdir(place.root)
    run, ledger = cut_off(place)
    warned = planned(capsys)[-1]
    assert f"a release of it draws that again, and pays epsilon=2, delta=1E-6{fits}" in warned
    if fits:
        with pytest.raises(BudgetExceededError):
            steps.reserve(run)
    else:
        steps.reserve(run)
        assert ledger.spent("town").epsilon == 4


def test_what_is_held_already_goes_on(
    make_workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second such release fits; this one need not."""
    place = make_workplace(epsilon="3", weights="none")
    monkeypatch.chdir(place.root)
    steps.reserve(prepared(place))
    assert planned(capsys)[-1].startswith("begun: as planned here (once) is held; to run that goes")
    draw(prepared(place))
    begun = planned(capsys)[-1]
    assert begun.startswith("begun: as planned here (once) is drawn, not published; to run that")
    assert Ledger.open(place.ledger).spent("town").epsilon == 2


def test_a_ledger_that_is_shown_by_a_spec_is_held_against_its_releases(
    forgetful: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own path nobody says where to look."""
    warned = planned(capsys)[-1]
    for words, shown in (((), "out"), (("--json",), "err"), (("--csv",), "err")):
        assert main(["ledger", "show", "--ledger", "release.yaml", *words]) == 0
        assert getattr(capsys.readouterr(), shown).splitlines()[-1] == warned
    assert main(["ledger", "show", "--ledger", "state/ledger.sqlite"]) == 0
    assert "warning" not in capsys.readouterr().out


def test_a_folder_that_cannot_be_read_leaves_it_unknown(
    workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace.root)
    (workplace.releases / "torn").mkdir(parents=True)
    left, warned = planned(capsys)[-2:]
    assert left == "ledger: population town: not known what is left"
    assert warned.startswith("warning: releases/torn: ")
    assert "; get it again; or, if it is no release, or `dpiw ledger show` has its run" in warned
    assert warned.endswith("a release is refused until that is done")


def test_a_run_between_two_draws_goes_on(
    make_workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told that it does not fit, a curator would give up what is paid, and pay anew."""
    place = make_workplace(epsilon="3")
    monkeypatch.chdir(place.root)
    run = prepared(place)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    begun = planned(capsys)[-1]
    assert begun.startswith("begun: as planned here (once) is begun and charged; to run that goes")


def test_what_mends_a_folder_depends_on_where_it_lies(
    make_workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run has built of its release is never moved: no command makes it again."""
    place = make_workplace(weights="none")
    monkeypatch.chdir(place.root)
    run, folder = publish_run(place.spec)
    (run.directory / "built" / "manifest.json").write_text("{")
    warned = planned(capsys)[-1]
    assert "; copy over it the folder that this run has published; where" in warned
    shutil.rmtree(run.directory / "built")
    shutil.copytree(folder, run.directory / "built")
    assert "warning" not in planned(capsys)[-1]
    (run.directory / "run.json").write_text("{")
    assert "leave the run's folder where it lies" in planned(capsys)[-1]


def test_a_whole_ledger_is_counted(
    workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace.root)
    publish_run(workplace.spec)
    told = "\n".join(planned(capsys))
    assert "such release" in told
    assert "lacks" not in told
    assert "published: as planned here (once); to run that again spends nothing" in told
    assert not any("lacks" in line for line in planned(capsys, "--json"))
