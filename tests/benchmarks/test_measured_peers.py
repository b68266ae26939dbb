"""The page of peers: cells are won on common runs alone, and kept ones only while they hold."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.scripts import load

for name in ("exact_gan", "exact_ratio", "paper_sets", "paper_measure", "paper_cells"):
    load(name)
for name in ("paper_summary", "paper_peers", "weights_table"):
    load(name)
peers = load("measured_peers")


def test_a_cell_is_won_on_the_runs_that_both_have():
    easy, hard = {"tv_1way": 0.1, "linear_auc": 0.9}, {"tv_1way": 0.3, "linear_auc": 0.6}
    worse = {"tv_1way": 0.2, "linear_auc": 0.8}
    setting = ("banknote", "1")
    runs = {
        (*setting, "measured on privbayes"): {0: easy, 1: hard},
        (*setting, "privbayes"): {0: worse, 1: {"tv_1way": 0.4, "linear_auc": 0.5}},
        (*setting, "mst"): {0: worse},  # its one run was an easy one
    }
    won = peers.won(runs, "measured on privbayes", peers.UNWEIGHTED)
    assert won == {"linear": [True], "TV 1-way": [True]}
    runs[*setting, "mst"] = {0: {"tv_1way": 0.05, "linear_auc": 0.8}}
    won = peers.won(runs, "measured on privbayes", peers.UNWEIGHTED)
    assert won == {"linear": [True], "TV 1-way": [False]}
    assert "1 of 2 (50%)" in peers.share(won)
    (line,) = [line for line in peers.page(runs) if line.startswith("| mst |")]
    assert line.endswith("| 1 |")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "KEPT", tmp_path / "kept.jsonl")
    monkeypatch.setattr(peers, "peers_digest", lambda dataset, data: digests[-1])
    digests = ["one"]
    return digests


def test_a_peer_s_cell_is_kept_while_what_it_depends_on_is_the_same(store, monkeypatch):
    class Place:
        data = None

    cell, fits = peers.cell_of("mst", "banknote", "1", 0), []

    def fitted(cell, store, python):
        fits.append(cell)
        return {"metrics": {"tv_1way": 0.123456789}}

    monkeypatch.setattr(peers, "peer_cell", fitted)
    peers.made(cell, Place, None)
    assert peers.made(cell, Place, None)["metrics"] == {"tv_1way": 0.123457}
    assert len(fits) == 1
    store.append("two")
    assert not peers.at_hand(cell, Place)
    peers.made(cell, Place, None)
    assert len(fits) == 2
    assert [json.loads(line)["digest"] for line in peers.KEPT.read_text().splitlines()] == [*store]
