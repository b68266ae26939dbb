"""What a terminal says at the end of a release: why it failed, what that counts, what to do."""

import contextlib
import io
import os
import sys
from unittest import mock

import pytest
from rich.console import Console

from dpiw.errors import BudgetExceededError, SourceError, SpecError, StageFailedError
from dpiw.ledger import Ledger
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import steps
from dpiw.run.commands import program
from dpiw.run.launch import failure_file
from dpiw.run.run import ReleaseRun
from flows import console, server
from flows.console import StepLog
from tests.support.whole_runs import ingested


@pytest.fixture
def without_server(monkeypatch):
    """Flows are called as they are, and steps are shown to nobody."""
    monkeypatch.setattr(console, "quiet_prefect", lambda: StepLog(Console(file=io.StringIO())))
    monkeypatch.setattr(server, "prefect_server", lambda: contextlib.nullcontext())


@pytest.mark.parametrize(
    ("reachable", "reads"), [(True, "0 of at most 20"), (False, "not known (LedgerError)")]
)
@pytest.mark.usefixtures("without_server")
def test_the_reason_of_a_failed_stage_is_told(workplace, capsys, reachable, reads):
    reason_file = failure_file(ReleaseRun.prepare(workplace.spec, period=None).directory, "ingest")
    reason_file.parent.mkdir(parents=True, exist_ok=True)
    reason_file.write_text(
        "SourceError: column age: not as declared\nfor the custodian alone: row 17\n"
    )

    def flow(*_):
        if not reachable:
            workplace.ledger.unlink()
        raise StageFailedError("ingest", SourceError.exit_code)

    assert console.main(flow, [str(workplace.spec)]) == SourceError.exit_code
    shown = capsys.readouterr().out
    for place in (os.path.relpath(reason_file), str(reason_file.parent), str(workplace.spec)):
        shown = shown.replace(place, "")
    assert "17" not in shown
    assert "not published: stage ingest: SourceError: column age: not as declared" in shown
    assert f"reads without a draw: {reads}" in shown


def test_what_cannot_be_paid_or_read_is_refused_before_a_server_is_asked(
    make_workplace, capsys, without_server, monkeypatch
):
    monkeypatch.setattr(server, "prefect_server", pytest.fail)
    place = make_workplace(epsilon="1")
    assert console.main(pytest.fail, [str(place.spec)]) == BudgetExceededError.exit_code
    assert Ledger.open(place.ledger).spent("town").epsilon == 0
    assert not list((place.root / "state" / "workspace").rglob("scaled.parquet"))
    place.rewrite("epsilon: 2", "epsilon: -2")
    assert console.main(pytest.fail, [str(place.spec)]) == SpecError.exit_code
    assert "epsilon" in capsys.readouterr().out


@pytest.mark.usefixtures("without_server")
def test_the_flow_has_the_period_that_was_said(workplace, capsys):
    workplace.rewrite("cadence: once", "cadence: daily")
    asked = []

    def flow(_, period):
        asked.append(period)
        raise KeyboardInterrupt

    assert console.main(flow, [str(workplace.spec)]) == 130
    shown = capsys.readouterr().out
    assert f"  period  {asked[0]} (today's" in shown
    assert shown.endswith(f"to go on: {program()} release {workplace.spec} --period {asked[0]}\n")


@pytest.mark.parametrize("left", ["nothing", "its output", "no arm"])
@pytest.mark.usefixtures("without_server")
def test_reads_that_are_told_are_those_that_the_ledger_will_count(make_workplace, capsys, left):
    """A draw that was cut off is armed until the next start, which counts it as lost."""
    place = make_workplace(max_attempts=2)

    def flow(*_):
        run = ingested(place)
        if left == "its output":  # and dies before it commits
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Ledger, "commit", lambda *_: sys.exit())
                with pytest.raises(SystemExit):
                    steps.fit_generator(run, noise=SecureNoise())
        elif left == "nothing":
            run.open_ledger().arm(run.key, 1, "fit_generator")
        raise StageFailedError("fit_generator", StageFailedError.exit_code)

    assert console.main(flow, [str(place.spec)]) == StageFailedError.exit_code
    output = capsys.readouterr().out
    nothing = "next: the same command goes on: this stage drew nothing, and"
    assert (nothing in output) == (left == "no arm")
    (line,) = [row for row in output.splitlines() if row.startswith("reads without a draw: ")]
    assert "1 of at most 20 in the life of population town" in line
    assert ("; 2 from the next start on, which counts this draw too" in line) == (left == "nothing")
    steps.reserve(ReleaseRun.prepare(place.spec, period=None))
    counted = {"nothing": 2, "its output": 0, "no arm": 1}[left]
    assert Ledger.open(place.ledger).account("town").unpaid_reads == counted


@pytest.mark.usefixtures("without_server")
def test_an_error_of_another_file_is_told_where_the_source_is_gone_too(
    workplace, capsys, monkeypatch
):
    failed = mock.Mock(side_effect=SourceError("made_elsewhere.parquet: no table"))
    monkeypatch.setattr(console, "more_rows", failed)
    workplace.source.unlink()
    words = [str(workplace.spec), "--rows", "10"]
    assert console.main(pytest.fail, words) == SourceError.exit_code
    assert "SourceError: made_elsewhere.parquet: no table\n" in capsys.readouterr().out
