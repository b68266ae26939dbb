"""Mistakes of the first hours: what is told, with which exit code, and that no cell is in it.

Every line of the tables says what somebody did, what they typed, and what lets them go on: file,
field, line and column, the nearest valid word, the command to type next.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
from functools import partial
from unittest import mock

import pytest
from rich.console import Console

from dpiw.cli.main import main
from dpiw.errors import ReleaseError, StageFailedError, WeightError
from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from flows import console, server
from flows.console import StepLog
from tests.hostile.mistakes.cases import ANALYSES, BEGINNINGS, COMMANDS, FILES, nothing
from tests.support.whole_runs import loaded, publish_run

CELL = "canary-mistake"
MISTAKES = {**FILES, **COMMANDS}
NOT_FOR_PEOPLE = re.compile(
    r"Traceback|Input should|Field required|Extra inputs|[Vv]alue error|should match pattern|Errno"
    r"|default factory|<class|\^\["
)


@pytest.fixture(scope="module")
def good(make_workplace):
    """A folder where everything is right, and a cell of the table that nobody may hear of."""
    place = make_workplace()
    table = place.source.read_text().replace("north", CELL, 1)
    place.source.write_text(table)
    return place.root


@pytest.fixture
def folder(good, tmp_path, monkeypatch):
    """A copy of it, in which one may err."""
    shutil.copytree(good, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "desk"


def told(command: str, capsys) -> tuple[int, str]:
    """Exit status and all that is shown."""
    try:
        code = main(shlex.split(command))
    except SystemExit as exit:  # of argparse
        code = exit.code
    shown = capsys.readouterr()
    return code, shown.err + shown.out


def test_without_a_mistake_it_goes_on(folder, capsys):
    """Else the tables below would show nothing."""
    assert told("plan release.yaml", capsys)[0] == 0
    assert told("ledger show --ledger state/ledger.sqlite", capsys)[0] == 0


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_told(folder, capsys, name):
    mistake = MISTAKES[name]
    mistake.slip(folder)
    code, text = told(mistake.command, capsys)
    assert_told(mistake, code, text)
    assert "secret7" not in text
    again = f"correct it, then run: dpiw {mistake.command}" in text
    assert again == (mistake.slip is not nothing and mistake.command == "plan release.yaml")


@pytest.fixture
def flow(monkeypatch):
    """Put a flow instead of the one that `dpiw release` runs: no server, no Prefect."""
    monkeypatch.delitem(sys.modules, "flows.release", raising=False)  # it is run anew
    monkeypatch.setattr(console, "quiet_prefect", lambda: StepLog(Console(file=io.StringIO())))
    monkeypatch.setattr(server, "prefect_server", lambda: contextlib.nullcontext())
    return partial(monkeypatch.setattr, console, "release_flow")


@pytest.mark.parametrize("name", list(BEGINNINGS))
def test_a_run_that_cannot_begin_holds_and_reads_nothing(folder, flow, capsys, name):
    mistake = BEGINNINGS[name]
    mistake.slip(folder)
    flow(lambda *_: steps.reserve(ReleaseRun.prepare(folder / "release.yaml", period=None)))
    period = f" --period={mistake.command}" if mistake.command else ""
    code, text = told(f"release release.yaml{period}", capsys)
    assert_told(mistake, code, text)
    assert "not published: " in text
    (folder / "state").chmod(0o700)
    ledger = folder / "state/ledger.sqlite"
    assert not ledger.exists() or len(Ledger.open(ledger).entries()) == 2


def assert_told(mistake, code, text):
    assert code == mistake.code, text
    for words in mistake.words:
        assert words in text
    assert CELL not in text
    assert not NOT_FOR_PEOPLE.search(text), text


def test_the_key_is_looked_at_before_the_plan_is_made(folder, monkeypatch):
    """A plan may take a minute."""
    monkeypatch.setattr("dpiw.run.run.compile_plan", lambda *_: pytest.fail("planned"))
    (folder / "state/keys/test.key").unlink()
    with pytest.raises(ReleaseError):
        ReleaseRun.prepare(folder / "release.yaml", period=None)


@pytest.mark.parametrize("code", [12, 22, 70])
def test_a_run_ends_with_the_code_of_its_stage(folder, flow, capsys, code):
    """Not with 70 where the page says 12."""
    flow(mock.Mock(side_effect=StageFailedError("ingest", code)))
    assert told("release release.yaml", capsys)[0] == code


@pytest.fixture(scope="module")
def release(make_workplace):
    """A release that an analyst was given."""
    place = make_workplace()
    return loaded(publish_run(place.spec)[1])


@pytest.mark.parametrize("name", list(ANALYSES))
def test_an_analyst_s_mistake_is_told(release, name):
    call, word = ANALYSES[name]
    with pytest.raises((ReleaseError, WeightError)) as caught:
        call(release)
    assert word in str(caught.value)
    assert not NOT_FOR_PEOPLE.search(str(caught.value))
