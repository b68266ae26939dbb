"""Mutated files end in success or in one of our errors, and the error quotes none of them.

Each case runs in a child process: never another exception, never more
than 5 seconds, never more than 1 GiB resident, no cell in a message or in an error chained to it,
and what is accepted has the declared columns and admissible values.
"""

import secrets
import sys
from unittest import mock

import pytest

from dpiw.data.source.ingest import ingest
from dpiw.errors import DPIWError, SourceError
from tests.hostile.fuzz import corpus, worker
from tests.hostile.fuzz.campaign import run_campaign, run_slice
from tests.hostile.fuzz.mutators import make_case

FAST = {"csv": 100, "parquet": 60, "spec": 50, "schema": 50}
LONG = {"csv": 8_000, "parquet": 7_000, "spec": 2_800, "schema": 2_100}


def check(outcome, cases):
    verdicts, failures = outcome
    assert not failures
    assert sum(verdicts.values()) == cases
    assert 0.04 * cases < verdicts["ok"] < 0.6 * cases  # else the mutants never get past the door


@pytest.mark.parametrize("kind", list(FAST))
@pytest.mark.slow
def test_mutated_files_end_in_success_or_our_error(kind, tmp_path):
    check(run_campaign(kind, 20_270_131, FAST[kind], tmp_path, workers=1), FAST[kind])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", list(LONG))
def test_many_mutated_files(kind, tmp_path, figures):
    """Fresh seeds every night; a failing input is kept in pytest's temporary folder."""
    seed = secrets.randbits(32)
    outcome = run_campaign(kind, seed, LONG[kind], tmp_path)
    verdicts, failures = outcome
    figures(f"fuzz {kind}", seed=seed, cases=LONG[kind], violations=len(failures), **verdicts)
    check(outcome, LONG[kind])


@pytest.fixture
def judged_here(monkeypatch):
    """A case is judged in this process, whose memory other tests have used."""
    monkeypatch.setattr(worker, "peak_bytes", lambda: 0)


@pytest.mark.usefixtures("judged_here")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.slow
def test_the_short_way_is_the_way_of_ingest(kind, tmp_path):
    """The children leave out Great Expectations, for speed: `ingest` itself judges the same."""
    verdicts = set()
    for index in range(25):
        data = make_case(kind, 7, index)
        folder = tmp_path / str(index)
        (folder / "private").mkdir(parents=True)
        short = worker.judge(kind, data, folder, index)
        encoding, delimiter = worker._SETTINGS[index % len(worker._SETTINGS)]
        try:
            ingest(
                folder / "source", file_format=kind, schema=corpus.schema(), unit=corpus.UNIT,
                directory=folder / "private", limits=worker.LIMITS, encoding=encoding,
                delimiter=delimiter,
            )  # fmt: skip
            verdict = "ok"
        except SourceError as error:
            leak = worker.leaks(error, confidential=True)
            verdict = leak or f"refused {type(error).__name__}"
        assert verdict == short
        verdicts.add(verdict)
    assert len(verdicts) == 2


def test_a_case_is_the_same_bytes_again():
    for kind in worker.READERS:
        assert make_case(kind, 5, 17) == make_case(kind, 5, 17)
        assert len({make_case(kind, 5, index) for index in range(20)}) > 15


def chained(error):
    error.__context__ = ValueError("x")
    return error


@pytest.mark.usefixtures("judged_here")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("x"), "KeyError"),
        (SystemExit(1), "SystemExit"),
        (SourceError(f"bad cell {corpus.CANARY}"), "a cell is in the message"),
        (SourceError(f"about {corpus.NUMBER[:8]}"), "a cell is in the message"),
        (AssertionError("other columns"), "other columns"),
        (DPIWError("not the kind of a source"), "DPIWError"),
        (chained(SourceError("unreadable")), "chain"),
    ],
)
def test_a_broken_rule_is_noticed(monkeypatch, tmp_path, error, reason):
    monkeypatch.setitem(worker.READERS, "csv", mock.Mock(side_effect=error))
    verdict = worker.judge("csv", b"", tmp_path, 0)
    assert verdict.startswith("FAILED")
    assert reason in verdict


def dies_in_the_middle(folder, code, reason):
    """The cases after the one that broke a rule are still run."""
    verdicts, failures = run_slice("csv", 1, 0, 5, folder, command=[sys.executable, "-c", code])
    assert list(failures) == [2]
    assert reason in failures[2]
    assert verdicts == {"ok": 4}
    assert (folder / "csv-1-2").read_bytes() == make_case("csv", 1, 2)


def test_a_dead_reader_is_noticed(tmp_path):
    """A worker that only prints, and imports nothing."""
    code = (
        "import os, sys\nfor index in range(*map(int, sys.argv[3:5])):\n"
        "    print('at', index, flush=True)\n    index == 2 and os.abort()\n    print('ok')\n"
    )
    dies_in_the_middle(tmp_path, code, "died with -6")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("deed", "reason", "patience"),
    [
        ("os.abort()", "died with -6", 60),
        ("time.sleep(60)", "Timeout", 0.4),
        ("held.append(b'1' * (400 << 20))", "memory", 60),
    ],
)
def test_a_dead_hanging_or_greedy_reader_is_noticed(tmp_path, deed, reason, patience):
    code = (
        "import os, sys, time\nimport tests.hostile.fuzz.worker as w\nheld = []\n"
        f"w.HANG_SECONDS, w.MEMORY_BYTES = {patience}, 400 << 20\n"
        f"def read(data, folder, index):\n    if index == 2:\n        {deed}\n"
        "w.READERS['csv'] = read\nw.main(sys.argv[1:])\n"
    )
    dies_in_the_middle(tmp_path, code, reason)
