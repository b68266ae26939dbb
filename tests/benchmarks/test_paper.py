"""The paper's tables: cells, known ratios, what is won, its page; no data folder. All is seeded."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from dpiw.methods.weights.paper.regression import LinearMap, Regression, solve
from tests.benchmarks.scripts import load, metrics

paper_sets = load("paper_sets")
paper_weights = load("paper_weights")
paper_toy = load("paper_toy")
paper_page = load("paper_page")
paper = load("paper")


def least_transport(first, w, second):
    """Wasserstein-1 as a linear program over plans: obviously right, and slow."""
    n, m = len(first), len(second)
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    right = np.concatenate([w / w.sum(), np.full(m, 1 / m)])
    solution = linprog(cdist(first, second).ravel(), A_eq=np.vstack([rows, columns]), b_eq=right)
    return solution.fun


PRINTED = (
    "table,dataset,sdgp,metric,iw_method,mean,se,eps\n"
    "1,Banknote,PrivBayes,WST,None,0.3,0.01,1\n"
    "1,Banknote,PrivBayes,WST,BetaNoised,0.2,0.01,1\n"
    "1,Banknote,PrivBayes,WST,MLP,0.002,0.001,1\n"
    "1,Boston,PrivBayes,MLP_MSE,None,0.2,0.01,1\n"
    "3,MNIST,DPCGAN,MLP_ROC_AUC,None,0.85,0.04,9.64\n"
)


@pytest.fixture
def data(banknote, monkeypatch):
    """The distance is the slow twin's, on a few rows."""
    (banknote / "paper_tables.csv").write_text(PRINTED)
    monkeypatch.setattr(
        paper_sets, "exact_wasserstein", lambda a, w, b: least_transport(a[:9], w[:9], b[:7])
    )
    monkeypatch.setattr(paper_sets, "PERCEPTRON", metrics.Perceptron(steps=10))
    monkeypatch.setattr(paper, "FITTING_ROWS", 500)
    caches = (
        paper_sets.table, paper_sets.split, paper_sets._truths, paper._model,
        paper._stages, paper_weights.alone,
    )  # fmt: skip
    for cached in caches:
        cached.cache_clear()
    yield banknote
    for cached in caches:
        cached.cache_clear()


BASE = paper.Cell(part="tables", run=0, dataset="banknote", generator="privbayes")


@pytest.mark.nightly
@pytest.mark.usefixtures("one_digest")
def test_a_small_table_from_cells_to_its_page(data, tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "GENERATORS", {"privbayes": {"degree": 1, "bins": 4}})
    monkeypatch.setattr(paper, "QUICK", {"tables": 2, "poster": 1, "bayes": 1, "steps": 1})
    monkeypatch.setattr(paper, "PRIVATE", ("privbayes",))
    monkeypatch.setattr(paper, "POSTER", {("privbayes", "banknote"): (1, 1)})
    monkeypatch.setattr(paper, "BAYES", ("privbayes",))
    monkeypatch.setattr(paper, "BAYES_EPSILONS", (6.0,))
    monkeypatch.setattr(paper, "NETWORKS", ())
    kinds = ("none", "beta_noised", "beta_debiased", "logreg", "joint_measured")
    monkeypatch.setattr(paper, "KINDS", kinds)
    words = ["--data", str(data), "--quick", "--datasets", "banknote",
             "--cache", str(tmp_path / "cache"), "--out", str(tmp_path), "--parts"]  # fmt: skip
    assert paper.main([*words, "poster", "bayes"]) == 0
    assert paper.main([*words, "tables"]) == 0
    record = json.loads((tmp_path / "paper.json").read_text())
    entries = {(e["generator"], e["weights"]): e for e in record["tables"]}
    assert set(entries) == {("real", "none"), *(("privbayes", kind) for kind in kinds)}
    assert all(entry["runs"] == 2 for entry in entries.values())
    assert entries["privbayes", "none"]["metrics"]["ess_share"][0] == 1
    assert entries["privbayes", "beta_noised"]["metrics"]["ess_share"][0] < 1
    assert entries["privbayes", "beta_noised"] != entries["privbayes", "beta_debiased"]
    (exact, *weighted) = record["bayes"]
    assert exact["metrics"]["shift"][0] == 0
    assert exact["metrics"]["width"][0] == pytest.approx(1)
    assert all(entry["metrics"]["shift"][0] > 0 for entry in weighted)
    noised = record["poster"][0]["metrics"]
    assert 0 < noised["log_own"][0] < noised["log_logreg"][0], "shrinkage is more than the noise"
    assert list(record["made"]) == ["poster", "bayes", "tables"]
    text = (tmp_path / "paper.md").read_text()
    monkeypatch.setattr(paper, "metrics_of", None)  # finished cells are read
    assert paper.main([*words, "tables"]) == 0
    assert json.loads((tmp_path / "paper.json").read_text()) == record
    assert paper.main(["--page", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "paper.md").read_text() == text


@pytest.mark.slow
def test_kinds_of_weights_of_a_run_are_of_the_same_rows(data):
    rows = {
        kind: paper.release(replace(BASE, weights=kind), data)[0].frame()
        for kind in ("none", "beta_noised", "logreg", "mlp")
    }
    for other in rows.values():
        pd.testing.assert_frame_equal(rows["none"], other)


def test_regression_without_noise_is_that_of_beta_weights(rng):
    tables = paper_toy.triangle(150, rng).tables
    features = LinearMap(tables.rows.schema)
    exact = solve(
        Regression(
            private=features.matrix(tables.private.confidential()),
            synthetic=features.matrix(tables.fitting.scaled), synthetic_weight=3 / 80, penalty=4.0,
        ),
        tolerance=1e-11,
    )  # fmt: skip
    logits = paper_weights.regression_log_odds(tables, penalty=4.0)
    np.testing.assert_allclose(logits, features.matrix(tables.rows.scaled) @ exact, atol=1e-7)


def test_rows_of_the_toy_lie_in_the_triangle(rng):
    corner = paper_toy.triangle(1000, rng)
    assert (corner.real[:, 1] < corner.real[:, 0]).all()
    above = corner.published[:, 1] > corner.published[:, 0]
    assert paper_toy.mass_outside(corner, np.where(above, 1.0, 3.0)) == pytest.approx(
        above.sum() / (above.sum() + 3 * (~above).sum())
    )


def test_cells_won_in_the_metrics_direction_and_beyond_two_errors():
    base = ("banknote", "dpgan", "none")
    theirs = {(*base, "wst"): (1.0, 0.03), (*base, "mlp"): (0.8, 0.03),
              ("boston", "dpgan", "none", "mlp"): (0.8, 0.03),
              (*base, "beta_mse"): (2.0, 0.03)}  # fmt: skip
    ours = {(*base, "wst"): (0.89, 0.04), (*base, "mlp"): (0.91, 0.04),
            ("boston", "dpgan", "none", "mlp"): (0.91, 0.04),
            (*base, "beta_mse"): (1.91, 0.04)}  # fmt: skip
    # lower wst, higher AUC; higher MSE is lost; 0.09 is within 2 hypot(0.03, 0.04) = 0.1
    assert paper_page.count(theirs, ours, theirs) == [4, 3, 2, 1]
    assert paper_page.count(theirs, theirs, theirs) == [4, 0, 0, 0]
    assert paper_page.text_of((1496.3, 1234.0)) == "1500 ± 1200"
    assert paper_page.text_of((0.85461, 0.02134)) == "0.855 ± 0.021"
    assert paper_page.sure_unit((*base, "wst"))
    assert not paper_page.sure_unit(("boston", "dpgan", "none", "mlp"))
    assert not paper_page.sure_unit(("mnist", "dpcgan", "none", "mlp"))
