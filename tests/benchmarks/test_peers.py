"""Peers: rows that are independent draws of their fits, and the page, won on common runs alone."""

import importlib
import itertools
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpiw.data.tables import SyntheticTable
from tests.benchmarks.scripts import load, metrics, rows, schema

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
TWINS = ("z", "x", "y")
LEVELS = 8
marginal, peers = load("marginal_peers"), load("measured_peers")


class Joint:
    """A stand-in for mbi's model: a joint table with a name for each axis."""

    def __init__(self, names, table, edges, eliminated):
        self.names, self.table, self.cliques, self.eliminated = names, table, edges, eliminated
        self.domain = SimpleNamespace(attributes=names)
        self.potentials = SimpleNamespace(expand=lambda nodes: self)

    def margin(self, columns):
        """Weights with an axis for each column, in the order asked."""
        places = [self.names.index(name) for name in columns]
        return np.einsum(self.table, list(range(self.table.ndim)), places)

    def project(self, columns):
        return SimpleNamespace(datavector=lambda flatten: self.margin(columns))


def twins():
    """Two columns of eight levels, independent given a third of two that tilts both."""
    tilted = np.stack([np.arange(1, LEVELS + 1), np.arange(LEVELS, 0, -1)]).astype(float)
    table = np.einsum("zx,zy->zxy", tilted, tilted)
    return Joint(list(TWINS), table, [("z", "x"), ("z", "y")], ["y", "x", "z"])


def ring():
    """Four columns in a circle, b and d dependent given c; eliminating a joins b and d."""
    near, far = np.exp(3 * np.eye(4)), np.exp(-3 * np.eye(4))
    table = np.einsum("ab,bc,cd,da->abcd", near, near, near, far)
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    return Joint(list("abcd"), table, edges, list("abcd"))


TRIANGLES = {"ring": [("a", "b", "d"), ("b", "c", "d")], "twins": [("z", "x"), ("z", "y")]}


@pytest.fixture
def peer(monkeypatch):
    """The script that runs in the peers' environment, on the stand-in."""
    mbi = ModuleType("mbi")
    mbi.Domain = lambda names, sizes: SimpleNamespace(attrs=names)
    mbi.Dataset = lambda codes, domain: SimpleNamespace(df=pd.DataFrame(codes))
    mbi.junction_tree = SimpleNamespace()
    mbi.marginal_oracles = SimpleNamespace(message_passing_stable=lambda model: model)

    def tree_of(domain, cliques):
        kind = "twins" if ("z", "x") in cliques else "ring"
        model = {"twins": twins, "ring": ring}[kind]()
        return SimpleNamespace(nodes=TRIANGLES[kind]), model.eliminated

    mbi.junction_tree.make_junction_tree = tree_of
    monkeypatch.setitem(sys.modules, "mbi", mbi)
    monkeypatch.syspath_prepend(FOLDER)
    for name in ("marginals", "sampling"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("marginals")
    for name in ("marginals", "sampling"):
        sys.modules.pop(name, None)


def within(codes, level):
    """The correlation of the last two columns in the rows whose first has that level."""
    rows = codes[codes[:, 0] == level]
    return np.corrcoef(rows[:, 1], rows[:, 2])[0, 1]


def test_children_of_one_parent_share_no_ranks(peer, monkeypatch):
    model = twins()
    monkeypatch.setattr(peer, "mst", lambda codes, domain, given: (model, _named))
    given = {"codes": np.zeros((9, 3)), "sizes": [2, LEVELS, LEVELS], "method": "mst",
             "epsilon": 1.0, "delta": 1e-6, "seed": 0}  # fmt: skip
    drawn = peer.fit(given | {"rows": 3000})["rows"]
    assert drawn.shape == (3000, 3)
    for level in (0, 1):
        assert abs(within(drawn, level)) < 0.07  # 1,500 rows: below 3 errors
    assert peer.fit(given)["rows"].shape == (9, 3)


def _named(drawn):
    """Names of the public domain, as a fit's own undoing of its compression gives."""
    return SimpleNamespace(
        df=drawn.df.rename(columns=dict(zip(TWINS, ("c0", "c1", "c2"), strict=True)))
    )


def test_rows_follow_the_model_also_around_a_circle(peer):
    """Every pair's table; drawn on neighbours of measured margins alone, b and d are wrong."""
    model, count = ring(), 100_000
    drawn = peer.independent(model, count, np.random.default_rng(1)).df

    def distance(frame, pair):
        margin = model.margin(pair) / model.table.sum()
        counts = np.zeros((4, 4))
        np.add.at(counts, (frame[pair[0]], frame[pair[1]]), 1 / count)
        return abs(counts - margin).sum() / 2

    assert max(distance(drawn, pair) for pair in itertools.combinations("abcd", 2)) < 0.01
    short = peer.parents_of(model.eliminated[::-1], model.cliques)
    poor = peer.independent_rows(short, model.margin, count, np.random.default_rng(1))
    assert distance(poor, ("b", "d")) > 0.05


def test_a_fit_is_asked_in_a_process_and_its_rows_come_back(tmp_path, monkeypatch, rng):
    shutil.copy(FOLDER / "timed.py", tmp_path)
    (tmp_path / "marginals.py").write_text(
        "def fit(found):\n"
        "    if str(found['method']) == 'aim': raise ValueError('no such method')\n"
        "    return {'rows': found['codes'][: int(found['rows'])]}\n"
    )
    monkeypatch.setattr(marginal, "HERE", tmp_path)
    private = rows(rng, 30)

    def fit(method):
        asked = marginal.Asked(method=method, epsilon=1.0, delta=1e-6, rows=20, seed=0)
        return marginal.fitted(Path(sys.executable), private, schema(), 30, asked)

    labels = fit("mst").scaled.columns["label"]
    np.testing.assert_array_equal(labels, private.columns["label"][:20])
    with pytest.raises(marginal.PeerError, match="no such method"):
        fit("aim")


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
    told = "By the means of all runs, `measured on privbayes` is not the best in:"
    assert f"{told} 2 of banknote, 2 at epsilon 1." in peers.page(record)
    without = [cell for cell in record["cells"] if cell["method"] != "mst"]
    assert peers.lost(without) == f"{told} none."


@pytest.mark.usefixtures("one_digest")
@pytest.mark.slow
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


@pytest.mark.nightly_cases("0.5", "6.0")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 6.0])
def test_zcdp_is_turned_into_epsilon_and_back(epsilon):
    rho = peers.zcdp_of(epsilon, 1e-6)
    assert peers.epsilon_of(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6)
