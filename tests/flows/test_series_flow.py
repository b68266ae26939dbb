"""A fill of a calendar: oldest first, once each, also after a kill; in Prefect, with its page."""

import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import BudgetExceededError, DPIWError, GrantSpentError, SourceError
from dpiw.ledger import Ledger, RunState
from dpiw.plan.calendar import latest_periods
from dpiw.run import steps
from dpiw.series.completeness import IncompleteSeriesError, Status
from flows import console
from flows import series as module
from tests.flows.conftest import ROOT
from tests.support.patience import SECONDS, until
from tests.support.whole_runs import ingested, prepared


def give_calendar(place: Any, *, beyond: str = "true", tables: int = 3) -> list[str]:
    """Three months before this one, and tables of the first of them; return their labels."""
    now = datetime.datetime.now(datetime.UTC)
    labels = latest_periods("monthly", now, "UTC", 3)[:0:-1]
    place.rewrite(
        "cadence: once",
        f"cadence: monthly\nseries: {{first: {labels[0]}, last: {labels[-1]}, retention: 3,"
        f" beyond_budget: {beyond}}}",
    )
    place.rewrite("path: data.csv", 'path: "tables/{period}.csv"')
    (place.root / "tables").mkdir()
    for label in labels[:tables]:
        shutil.copyfile(place.source, place.root / "tables" / f"{label}.csv")
    return labels


@pytest.fixture
def fills(monkeypatch):
    """What a fill starts, with the exit code that each period ends with."""
    monkeypatch.setattr(module, "prefect_server", contextlib.nullcontext)

    def fills(place: Any, codes: dict[str, int]) -> tuple[int, list[str]]:
        started: list[str] = []

        def main(flow: object, words: list[str]) -> int:
            assert flow is console.release_flow
            assert words[:2] == [str(place.spec), "--period"]
            started.append(words[2])
            return codes.get(words[2], 0)

        monkeypatch.setattr(console, "main", main)
        return module.main([str(place.spec), "--fill"]), started

    return fills


def test_a_fill_goes_on_after_what_concerns_one_period_and_stops_at_what_concerns_all(
    place, fills, capsys
):
    labels = give_calendar(place)
    assert fills(place, {}) == (IncompleteSeriesError.exit_code, labels)
    for error in (GrantSpentError, SourceError, BudgetExceededError):
        goes_on = error is GrantSpentError  # a read that failed counts for life: not once more
        expected = IncompleteSeriesError.exit_code if goes_on else error.exit_code
        stop = {labels[1]: error.exit_code}
        assert fills(place, stop) == (expected, labels if goes_on else labels[:2])
    (place.root / "tables" / f"{labels[0]}.csv").unlink()
    assert fills(place, {})[1] == labels[1:]  # not read, not reserved, and named
    assert "passed over: source.path" in capsys.readouterr().out


def test_a_worker_reads_no_table_again_that_was_read_in_vain(place, fills, monkeypatch):
    """Each read counts for life, so only a person starts the period again, and sees how."""
    labels = give_calendar(place)
    (place.root / "tables" / f"{labels[0]}.csv").write_text("no,such,columns\n")
    run = prepared(place, period=labels[0])
    steps.reserve(run)
    with pytest.raises(DPIWError):
        steps.ingest(run)
    reads = Ledger.open(place.ledger).account("town").unpaid_reads
    assert reads == 1
    started = []
    monkeypatch.setattr(module, "spec_below_root", lambda _, path: Path(path))
    monkeypatch.setattr(module, "show_series", lambda path, *, fills: module.read_series(path)[1])
    monkeypatch.setattr(module, "release", lambda path, label: started.append(label))
    for _ in range(2):
        with pytest.raises(IncompleteSeriesError) as told:
            module.series.fn(str(place.spec))
        assert f"{labels[0]} (its table was read, and nothing was drawn)" in str(told.value)
        assert f"dpiw release SPEC --period {labels[0]}" in str(told.value)
    assert started == labels[1:] * 2
    assert Ledger.open(place.ledger).account("town").unpaid_reads == reads
    assert fills(place, {})[1] == labels  # a person's `--fill`


def test_a_worker_goes_on_from_the_copy_of_one_that_was_killed_after_its_read(
    place, fills, monkeypatch
):
    """No read is left to do: only without the copy is the read one in vain."""
    labels = give_calendar(place)
    run = ingested(place, period=labels[0])
    started = []
    monkeypatch.setattr(module, "spec_below_root", lambda _, path: Path(path))
    monkeypatch.setattr(module, "show_series", lambda path, *, fills: module.read_series(path)[1])
    monkeypatch.setattr(module, "release", lambda path, label: started.append(label))
    with pytest.raises(IncompleteSeriesError, match="reserved, and not drawn"):
        module.series.fn(str(place.spec))
    run.snapshot.unlink()
    with pytest.raises(IncompleteSeriesError, match="its table was read, and nothing was drawn"):
        module.series.fn(str(place.spec))
    assert started == [*labels, *labels[1:]]


@pytest.mark.parametrize("given_up", [False, True])
def test_a_copy_of_a_run_that_is_given_up_or_of_another_spec_starts_no_worker(place, given_up):
    """The run of the spec as it is now would read again, and a voided run is over."""
    labels = give_calendar(place)
    run = ingested(place, period=labels[0])
    assert module.read_series(place.spec)[1].by_hand == ()
    if given_up:
        Ledger.open(place.ledger).void(run.key, 1)
    else:
        place.rewrite("epsilon: 2", "epsilon: 1")
    assert module.read_series(place.spec)[1].by_hand == (labels[0],)


def test_a_calendar_that_the_budget_does_not_carry_starts_nothing(place, fills, capsys):
    give_calendar(place, beyond="false")  # 5 for life, 2 for each
    assert fills(place, {}) == (BudgetExceededError.exit_code, [])
    assert "beyond_budget: true" in capsys.readouterr().out
    assert not Ledger.open(place.ledger).runs("town")


CHILD = """
import contextlib, sys
from pathlib import Path
import flows.server
from flows import console, series
from tests.support.undrawn import draw_no_figures
from tests.support.whole_runs import publish_run
flows.server.prefect_server = series.prefect_server = contextlib.nullcontext
console.release_flow = lambda spec, period: str(publish_run(Path(spec), period=period)[1])
draw_no_figures(setattr)
sys.exit(series.main(sys.argv[1:]))
"""
"""`dpiw series SPEC --fill`, whose releases take their steps without a server of Prefect."""


@pytest.mark.crash
def test_a_killed_fill_goes_on_and_pays_once(make_workplace, tmp_path):
    """Killed in the second period, once its draw is paid for: it is published, and not paid again.

    What the first command published is what the second finds; a third has nothing to do.
    """
    place = make_workplace(weights="none", epsilon="6")
    labels = give_calendar(place)
    words = [sys.executable, "-c", CHILD, str(place.spec), "--fill"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path / "prefect")}
    ledger = Ledger.open(place.ledger)

    def drawn() -> bool:
        second = [run for run in ledger.runs("town") if run.period == labels[1]]
        is_drawn = any(run.state in (RunState.COMMITTED, RunState.PUBLISHED) for run in second)
        return process.poll() is not None or is_drawn

    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            words, cwd=place.root, env=environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            until(drawn, what="the second period's draw", every=0.02)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, (tmp_path / "out").read_text()
    before = {run.period: run for run in ledger.runs("town")}
    assert before[labels[0]].state is RunState.PUBLISHED
    assert labels[2] not in before
    for _ in range(2):
        again = subprocess.run(
            words, cwd=place.root, env=environment, capture_output=True, text=True, check=False
        )
    runs = {run.period: run for run in ledger.runs("town")}
    assert [*runs] == labels
    assert [len(run.attempts) for run in runs.values()] == [1, 1, 1]
    assert {run.state for run in runs.values()} == {RunState.PUBLISHED}, again.stdout
    assert again.returncode == 0
    assert ledger.spent("town").epsilon == 6


@pytest.mark.slow
def test_the_flow_fills_in_prefect_and_shows_the_page(place, prefect_server):
    """The period without a table is named, the other one published as a run inside this one."""
    labels = give_calendar(place, tables=2)
    (place.root / "tables" / f"{labels[1]}.csv").unlink()
    code = "import sys; from flows.series import series; series(sys.argv[1])"
    ended = prefect_server.python("-c", code, place.spec)
    assert ended.returncode == 1
    assert IncompleteSeriesError.__name__ in ended.stderr
    (published,) = place.releases.iterdir()
    assert published.name.startswith(f"town-{labels[0]}-")
    names = [run["name"] for run in prefect_server.api("flow_runs/filter", {})]
    assert f"town {labels[0]}" in names
    assert not {f"town {label}" for label in labels[1:]} & {*names}
    (page,) = prefect_server.api(
        "artifacts/latest/filter", {"artifacts": {"key": {"any_": ["town-series"]}}}
    )
    rows = page["data"] if isinstance(page["data"], list) else json.loads(page["data"])
    missing = Status.MISSING.value
    assert [(row["period"], row["status"]) for row in rows] == [
        (labels[0], Status.PUBLISHED.value), (labels[1], missing), (labels[2], missing)
    ]  # fmt: skip
    assert "carries 1 further period" in page["description"]
    assert str(place.root / "tables").encode() not in prefect_server.everything_stored()
