"""`make bench`: lines are ratios with their targets, what was not run is told, a run resumes."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.benchmarks.scripts import FOLDER, load

record = load("bench_record")
limits, peers = load("bench_limits"), load("bench_peers")
page, bench = load("bench_page"), load("bench")


def place(folder, **others):
    return record.Place(
        data=None, environments=folder, scratch=folder, rows=2000, repeats=1, **others
    )


def found(ours, reference):
    ours, reference = (record.Cost(wall=seconds, cpu=seconds) for seconds in (ours, reference))
    return {"ours": vars(ours), "reference": vars(reference), "told": "a word"}


def kept(**lines):
    return {"lines": lines, "date": "2026-11-23 17:00", "commit": "abc", "load": [0.5, 2.25]}


@pytest.mark.parametrize(
    ("kind", "ours", "reference", "times", "met"),
    [
        ("limit", 2.9, 1.0, "2.9", "yes"), ("limit", 3.1, 1.0, "3.1", "**no**"),
        ("peer", 1.0, 3.1, "3.1", "yes"), ("peer", 1.0, 2.9, "2.9", "**no**"),
        ("seconds", 2.9, 0.5, "5.8", "yes"), ("seconds", 3.1, 9.0, "0.34", "**no**"),
    ],
)  # fmt: skip
def test_a_line_says_its_ratio_its_target_and_whether_it_is_met(kind, ours, reference, times, met):
    line = page.Line(name="x", item="i", ours="o", reference="r", target=3, kind=kind)
    cells = page.row(line, kept(x=found(ours, reference))).split(" | ")
    assert cells[4:5] == [f"**{times}**"]
    assert cells[7] == met
    assert cells[8].startswith("2026-11-23 17:00, abc, load 0.5 to 2.2; a word")


@pytest.mark.slow
def test_sums_and_scores_are_held_against_the_machine_here(tmp_path):
    items = ("features", "scores")
    lines = {k: v for item in items for k, v in getattr(limits, item)(place(tmp_path)).items()}
    names = {line.name for line in bench.LINES if line.item in items}
    assert set(lines) == names
    assert all(line.ours.wall > 0 and line.reference.wall > 0 for line in lines.values())


def test_slopes_are_what_a_further_row_takes():
    def at(cpu):
        return kept() | {"stages": {"ingest": {"wall": 1.0, "cpu": cpu, "peak": 10**9}}}

    sizes = {10: at(1.0), 1010: at(1.5), 2010: at(3.5)}
    assert page.slopes_of(["ingest", "ingest"], sizes)[1010] == pytest.approx(1000)
    slopes = page.slopes_of(["ingest"], sizes)
    assert slopes == {1010: pytest.approx(500), 2010: pytest.approx(2000)}


def test_a_run_goes_on_where_it_was_cut_short(tmp_path, monkeypatch):
    tried = []

    def measured(item, place):
        tried.append(item)
        if item == "features":
            return kept(features=found(1.0, 2.0))
        return kept() | {"not_run": "no"}

    monkeypatch.setattr(bench, "apart", measured)
    arguments = ["--only", "features", "privbayes", "--cache", str(tmp_path / "c"),
                 "--out", str(tmp_path / "o")]  # fmt: skip
    for _ in range(2):
        assert bench.main(arguments) == 0
    assert tried == ["features", "privbayes", "privbayes"]
    assert bench.main([*arguments, "--again"]) == 0
    assert tried[3:] == ["features", "privbayes"]
    text = (tmp_path / "o" / "bench.md").read_text()
    assert "| **0.5** | 0.5 | at most 3 | yes | 2026-11-23 17:00, abc" in text
    assert "| DataSynthesizer's PrivBayes | **not run**: no" in text
    facts = json.loads((tmp_path / "o" / "bench.json").read_text())
    assert facts["items"]["features"]["lines"]["features"]["told"] == "a word"


def test_a_peer_s_call_is_timed_without_its_imports_and_its_failure_is_told(tmp_path, monkeypatch):
    shutil.copy(peers.HERE / "timed.py", tmp_path)
    (tmp_path / "slow.py").write_text(
        "import time\ntime.sleep(0.6)\n"
        "def fit(given):\n    print('noise')\n    return {'rows': given['codes'] + 1}\n"
    )
    monkeypatch.setattr(load("marginal_peers"), "HERE", tmp_path)
    result, took = peers.fitted(sys.executable, "slow", {"codes": np.arange(3)})
    assert result["rows"].tolist() == [1, 2, 3]
    assert 0 < took.wall < 0.6
    (tmp_path / "slow.py").write_text("def fit(given):\n    raise ValueError('no such bins')\n")
    with pytest.raises(record.NotRunError, match="no such bins"):
        peers.fitted(sys.executable, "slow", {"codes": np.arange(3)})


STATED = {"ingest": 559, "histogram": 359, "fit_weights": 359, "debias": 601, "publish": 734}
"""Peak memory of a stage in MiB, measured on 1,000,000 rows of 15 columns."""


@pytest.mark.nightly
def test_a_million_rows_take_the_memory_that_was_stated(tmp_path):
    """By the script in a small process: a child's peak counts its parent's before the start."""
    words = ["--only", "release-1000000", "--cache", tmp_path / "c", "--out", tmp_path / "o"]
    subprocess.run([sys.executable, FOLDER / "bench.py", *words], check=True)
    stages = json.loads((tmp_path / "c" / "release-1000000.json").read_text())["stages"]
    peaks = {name: stages[name]["peak"] / 2**20 for name in STATED}
    assert {name: peak for name, peak in peaks.items() if peak > 1.2 * STATED[name]} == {}
