"""The page of peers: cells are won on common runs alone."""

import json

import numpy as np
import pytest

from dpiw.data.tables import SyntheticTable
from tests.benchmarks.scripts import load, metrics

peers = load("measured_peers")
marginal = load("marginal_peers")


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
    record = {"command": "x", "dpiw": "y", "commit": "z", **peers.summary(runs)}
    (line,) = [line for line in peers.page(record) if line.startswith("| mst |")]
    assert line.endswith("| 1 |")


def test_a_small_study_with_a_stand_in_for_the_peers(tmp_path, monkeypatch, cells, banknote):
    fits = []

    def fitted(python, private, schema, nominal_rows, asked):
        fits.append(asked)
        if asked.method == "aim":
            raise marginal.PeerError("too slow")
        chosen = np.random.default_rng(len(fits)).integers(private.rows, size=asked.rows)
        return SyntheticTable(schema=schema, scaled=private.take(chosen))

    monkeypatch.setattr(peers, "fitted", fitted)
    monkeypatch.setattr(peers, "environment", lambda folder: folder)
    monkeypatch.setattr(peers, "BASE_ROWS", 600)
    small = cells.Dataset(**(vars(cells.DATASETS["banknote"]) | {"synthetic_rows": 200}))
    monkeypatch.setitem(cells.DATASETS, "banknote", small)
    monkeypatch.setattr(cells, "PERCEPTRON", metrics.Perceptron(steps=5))
    words = ["--data", str(banknote), "--datasets", "banknote", "--epsilons", "1", "--runs", "1",
             "--cache", str(tmp_path / "cache"), "--out", str(tmp_path)]  # fmt: skip
    for _ in range(2):
        assert peers.main(words) == 0
    assert [asked.method for asked in fits] == ["mst", "aim", "mst"]
    assert fits[2].epsilon < fits[0].epsilon == 1, "weights have their share of the total"
    record = json.loads((tmp_path / "measured_peers.json").read_text())
    assert {cell["method"] for cell in record["cells"]} == {
        *peers.UNWEIGHTED[:2], *peers.WEIGHTED,
    }  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 6.0])
def test_zcdp_is_turned_into_epsilon_and_back(epsilon):
    rho = peers.zcdp_of(epsilon, 1e-6)
    assert peers.epsilon_of(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6)
