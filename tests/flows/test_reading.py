"""`dpiw release SPEC --until ingest`: its custodian looks how cells were read before a draw."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.ledger import EntryKind, Ledger, RunState
from dpiw.run.run import ReleaseRun, cells_file
from flows import console
from tests.support.whole_runs import publish_run


def never(spec: str, period: str | None) -> str:
    raise AssertionError("the flow was started")


def read(place: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints; its source is read then."""
    assert console.main(never, [str(place.spec), "--until", "ingest"]) == 0
    return capsys.readouterr().out


def line(printed: str, begins: str) -> str:
    (found,) = [one for one in printed.splitlines() if one.startswith(begins)]
    return found.removeprefix(begins).strip()


def test_it_stops_before_the_first_draw_and_the_release_goes_on(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = read(workplace, capsys)
    run, ledger = ReleaseRun.prepare(workplace.spec, period=None), Ledger.open(workplace.ledger)
    kinds = [entry.kind for entry in ledger.entries()]
    assert EntryKind.ARM not in kinds
    assert cells_file(Path(run.spec.state), run.spec.population, run.key).is_file()
    assert ("✓ reserve" in printed, "✓ ingest" in printed, "fit" in printed) == (True, True, False)
    assert line(printed, "to go on").endswith(f"dpiw release {workplace.spec}")
    assert read(workplace, capsys).splitlines()[-6:] == printed.splitlines()[-6:]
    assert kinds.count(EntryKind.READ) == 1
    publish_run(workplace.spec)
    kinds = [entry.kind for entry in Ledger.open(workplace.ledger).entries()]
    assert (kinds.count(EntryKind.READ), kinds.count(EntryKind.RESERVE)) == (1, 1)


def test_what_it_holds_is_given_back_by_the_command_it_prints(
    workplace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line(read(workplace, capsys), "to give up"))
    assert main(words[1:]) == 0
    ledger = Ledger.open(workplace.ledger)
    (run,) = ledger.runs("town")
    assert run.state is RunState.VOIDED
    assert ledger.account("town").unpaid_reads == 1
