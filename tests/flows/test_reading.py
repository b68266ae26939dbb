"""`dpiw release SPEC --until ingest`: its custodian looks how cells were read before a draw."""

import contextlib
import io
import shlex
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.errors import AlreadyPaidError, SpecError
from dpiw.ledger import EntryKind, Ledger, RunState
from dpiw.plan.spec import load_spec
from dpiw.run import steps
from dpiw.run.commands import program
from dpiw.run.run import ReleaseRun, cells_file, current_label
from flows import console, server
from tests.support.whole_runs import ingested, publish_run


@pytest.fixture(autouse=True)
def ingest_here(monkeypatch):
    """Ingest in this process; the flows of `test_canary_scan.py` start a process for each stage."""

    def ingest(_, directory):
        steps.ingest(ReleaseRun.load(directory))

    monkeypatch.setattr("tasks.stages.launch_stage", ingest)


def read(place: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints; its source is read then."""
    assert console.main(pytest.fail, [str(place.spec), "--until", "ingest"]) == 0
    return capsys.readouterr().out


def line(printed: str, begins: str) -> str:
    (matching,) = [candidate for candidate in printed.splitlines() if candidate.startswith(begins)]
    return matching.removeprefix(begins).strip()


@pytest.mark.slow
def test_it_stops_before_the_first_draw_and_the_release_goes_on(workplace, capsys):
    printed = read(workplace, capsys)
    run, ledger = ReleaseRun.prepare(workplace.spec, period=None), Ledger.open(workplace.ledger)
    assert line(printed, "read").startswith("now: ")
    kinds = [entry.kind for entry in ledger.entries()]
    assert EntryKind.ARM not in kinds
    assert cells_file(run.directory).is_file()
    assert ("✓ reserve" in printed, "✓ ingest" in printed, "fit_" in printed) == (True, True, False)
    assert line(printed, "to go on").endswith(f"dpiw release {workplace.spec}")
    again = read(workplace, capsys)
    assert line(again, "read").startswith("before")
    assert again.splitlines()[-6:] == printed.splitlines()[-6:]
    assert kinds.count(EntryKind.READ) == 1
    publish_run(workplace.spec)
    kinds = [entry.kind for entry in Ledger.open(workplace.ledger).entries()]
    assert (kinds.count(EntryKind.READ), kinds.count(EntryKind.RESERVE)) == (1, 1)


def test_what_it_holds_is_given_back_by_the_command_it_prints(workplace, capsys):
    words = shlex.split(line(read(workplace, capsys), "to give up"))
    assert main(words[1:]) == 0
    ledger = Ledger.open(workplace.ledger)
    (run,) = ledger.runs("town")
    assert run.state is RunState.VOIDED
    assert ledger.account("town").unpaid_reads == 1


def test_once_a_draw_was_begun_there_is_nothing_to_look_at_first(make_workplace, capsys):
    workplace = make_workplace(max_attempts=2)
    run = ingested(workplace)
    run.open_ledger().arm(run.key, 1, run.plan.stages[0].name)  # and its process dies
    before = [*run.open_ledger().entries()]
    assert console.main(pytest.fail, [str(workplace.spec), "--until", "ingest"]) == 32
    output = capsys.readouterr().out
    assert "not read: LedgerConflictError: " in output
    assert "to give up" not in output
    assert [*run.open_ledger().entries()] == before
    steps.reserve(run)  # a second attempt, of which nothing is armed: the first one's draw is lost
    assert run.open_ledger().run(run.key).state is RunState.RESERVED
    assert console.main(pytest.fail, [str(workplace.spec), "--until", "ingest"]) == 32


@pytest.mark.slow
def test_what_pays_anew_is_told_as_a_release_tells_it(workplace, capsys):
    publish_run(workplace.spec)
    workplace.rewrite("synthetic_rows: 300", "synthetic_rows: 301")
    words = [str(workplace.spec), "--until", "ingest"]
    assert console.main(pytest.fail, words) == AlreadyPaidError.exit_code
    assert f"{program()} release {workplace.spec} --period once --pay" in capsys.readouterr().out
    assert console.main(pytest.fail, [*words, "--pay-again"]) == 0
    assert "epsilon=2," in line(capsys.readouterr().out, "  cost")


def weekly(place: Any) -> str:
    """Make it a weekly release; this week's label."""
    place.rewrite("cadence: once", "cadence: weekly")
    return current_label(load_spec(place.spec))


def test_what_goes_on_names_the_period_that_today_chose(workplace, capsys, monkeypatch):
    label = weekly(workplace)
    command = f"dpiw release {workplace.spec} --period {label}"
    assert line(read(workplace, capsys), "to go on").endswith(command)
    spent = Ledger.open(workplace.ledger).spent("town")
    for module in ("dpiw.plan.calendar", "dpiw.run.run"):
        monkeypatch.setattr(f"{module}.period_at", lambda *_: "2030-w01")
    words = shlex.split(command)[2:]
    assert console.main(pytest.fail, [*words, "--until", "ingest"]) == 0
    assert Ledger.open(workplace.ledger).spent("town") == spent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_person_agreed_to_is_held_before_the_flow_begins(workplace, monkeypatch):
    weekly(workplace)
    words = [str(workplace.spec), "--period", "1000-w01"]
    for stdin in (io.StringIO("1000-w01\n"), Terminal("no\n"), Terminal("")):
        monkeypatch.setattr("sys.stdin", stdin)
        assert console.main(pytest.fail, words) == SpecError.exit_code
    monkeypatch.setattr(server, "prefect_server", lambda: contextlib.nullcontext())
    monkeypatch.setattr("sys.stdin", Terminal("1000-w01\n"))
    held = []

    def flow(spec, period):
        held.append([run.period for run in Ledger.open(workplace.ledger).runs("town")])
        raise KeyboardInterrupt

    assert console.main(flow, words) == 130
    assert held == [["1000-w01"]]
