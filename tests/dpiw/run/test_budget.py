"""A plan does not count what fits on the word of a ledger that forgot what was published."""

from __future__ import annotations

import shlex
import shutil
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.errors import LedgerTamperedError
from dpiw.run import steps
from tests.support.ledger import restore
from tests.support.whole_runs import prepared, publish_run


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
    assert "such release" in planned(capsys)[-1]


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


def test_a_folder_that_cannot_be_read_leaves_it_unknown(
    workplace: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace.root)
    (workplace.releases / "torn").mkdir(parents=True)
    left, warned = planned(capsys)[-2:]
    assert left == "ledger: population town: not known what is left"
    assert warned.startswith("warning: releases/torn: ")
    assert warned.endswith("a release is refused until that folder is mended or moved away")


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
