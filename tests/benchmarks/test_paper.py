"""The paper's tables: cells, known ratios, what is won, its page; no data folder. All is seeded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.benchmarks.scripts import load, metrics

paper_sets = load("paper_sets")
paper_measure = load("paper_measure")
paper_cells = load("paper_cells")
paper_known = load("paper_known")
paper_summary = load("paper_summary")
paper_page = load("paper_page")
paper_report = load("paper_report")
paper_peers = load("paper_peers")


def least_transport(first, w, second):
    """Wasserstein-1 as a linear program over plans: obviously right, and slow."""
    from scipy.optimize import linprog
    from scipy.spatial.distance import cdist

    n, m = len(first), len(second)
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    right = np.concatenate([w / w.sum(), np.full(m, 1 / m)])
    solution = linprog(cdist(first, second).ravel(), A_eq=np.vstack([rows, columns]), b_eq=right)
    return solution.fun


@pytest.fixture
def paper_store(tmp_path, monkeypatch):
    """Made-up rows in place of Banknote; the distance by the slow twin on a few rows."""
    rng, data = np.random.default_rng(2), tmp_path / "data"
    data.mkdir()
    names = ["variance", "skewness", "curtosis", "entropy"]
    frame = pd.DataFrame(rng.normal(size=(200, 4)) * 3, columns=names)
    frame["class"] = (frame["variance"] + rng.normal(size=200) > 0).astype(int)
    frame.to_csv(data / "banknote.csv", index=False)
    monkeypatch.setattr(
        paper_measure, "exact_wasserstein", lambda a, w, b: least_transport(a[:9], w[:9], b[:7])
    )
    monkeypatch.setattr(paper_measure, "PERCEPTRON", metrics.Perceptron(steps=10))
    monkeypatch.setattr(paper_cells, "FITTING_ROWS", 500)
    caches = (
        paper_sets.fingerprint, paper_sets.table, paper_sets.split, paper_cells.fitted,
        paper_cells._alone, paper_cells._together, paper_measure._truths,
    )  # fmt: skip
    for cached in caches:
        cached.cache_clear()
    yield paper_sets.PaperStore(folder=tmp_path / "cache", data=data)
    for cached in caches:
        cached.cache_clear()


def paper_cell(**changes):
    return paper_cells.Cell(
        **({"run": 0, "dataset": "banknote", "generator": "privbayes", "weights": "none"} | changes)
    )


def test_a_papers_cell_is_kept_and_paired_and_spends_what_it_says(paper_store):
    """Same rows under every kind of weights of a run; per-stage budgets add, joint ones do not."""
    records = {
        kind: paper_cells.compute(paper_cell(weights=kind), paper_store)
        for kind in ("none", "beta_noised", "beta_debiased", "logreg")
    }
    again = paper_cells.compute(paper_cell(weights="logreg"), paper_store)
    assert again == json.loads(json.dumps(records["logreg"]))
    parts = {kind: record["metrics"] for kind, record in records.items()}
    halves = paper_sets.split("banknote", 0, paper_store.data)
    rows = halves.ruler.rows(paper_cells.release(paper_cell(), paper_store.data)[0].scaled)
    nearest = [np.linalg.norm(rows - row, axis=1).min() for row in halves.test]
    for part in parts.values():
        assert part["wst_least"] == pytest.approx(np.mean(nearest))
    assert parts["none"]["ess_share"] == 1
    assert parts["beta_noised"]["ess_share"] < 1
    assert parts["beta_noised"] != parts["beta_debiased"]
    assert set(parts["none"]) == set(paper_measure.METRICS)
    measured = paper_cells.compute(paper_cell(weights="joint_measured"), paper_store)["metrics"]
    assert set(measured) == set(paper_measure.METRICS)
    assert measured["ess_share"] > 0.4
    spent = {
        kind: paper_cells.spent(paper_cell(weights=kind), paper_store.data)
        for kind in ("none", "beta_debiased", "joint_linear", "joint_measured", "logreg")
    }
    assert 1.3 < spent["beta_debiased"] <= 2
    assert spent["logreg"] == np.inf
    for kind in ("none", "joint_linear", "joint_measured"):
        assert 0.999 < spent[kind] <= 1
    noise = [
        paper_cells.plan(paper_cell(weights="joint_linear", share=share), paper_store.data)[1]
        for share in (0.1, 0.9)
    ]
    few, many = (method.calibrated.multiplier for method in noise)
    assert few > 2.5 * many  # sqrt(9) = 3 if efforts added up exactly


def test_no_weights_go_below_the_least_distance(rng):
    """The nearest-row bound holds for any weights, and the best weights attain it."""
    rows, test = rng.random((6, 3)), rng.random((4, 3))
    distances = np.linalg.norm(rows[:, None] - test[None], axis=2)
    least = distances.min(axis=0).mean()
    best = np.bincount(distances.argmin(axis=0), minlength=6).astype(float)
    assert least_transport(rows, best, test) == pytest.approx(least)
    for _ in range(5):
        assert least_transport(rows, rng.random(6), test) >= least - 1e-9


def test_known_ratios_have_the_density_they_say(rng):
    """Importance weights exp(b.x) of uniform rows give the means of the drawn rows."""
    known, b = paper_known.log_linear(3, 20_000, rng)
    u = rng.random((200_000, 3))
    w = np.exp(u @ b)
    # sd of each mean below 0.005: five of them; false alarm below 1e-5 over three columns
    np.testing.assert_allclose(known.real.mean(axis=0), w @ u / w.sum(), atol=0.025)
    assert np.linalg.norm(b) == pytest.approx(paper_known.NORM)
    exact = paper_known.normalised(known.published @ b)
    assert np.exp(exact).mean() == pytest.approx(1)
    corner = paper_known.triangle(1000, rng)
    assert (corner.real[:, 1] < corner.real[:, 0]).all()
    above = corner.published[:, 1] > corner.published[:, 0]
    assert paper_known.mass_outside(corner, np.where(above, 1.0, 3.0)) == pytest.approx(
        above.sum() / (above.sum() + 3 * (~above).sum())
    )


def paper_figures_of(values):
    figure = paper_summary.Figure
    return {key: figure(mean=m, error=e, runs=10) for key, (m, e) in values.items()}


def test_cells_won_in_the_metrics_direction_and_beyond_two_errors():
    base = ("banknote", "dpgan", "none")
    theirs = paper_figures_of(
        {(*base, "wst"): (1.0, 0.03), (*base, "mlp"): (0.8, 0.03),
         ("boston", "dpgan", "none", "mlp"): (0.8, 0.03), (*base, "beta_mse"): (2.0, 0.03)}
    )  # fmt: skip
    ours = paper_figures_of(
        {(*base, "wst"): (0.89, 0.04), (*base, "mlp"): (0.91, 0.04),
         ("boston", "dpgan", "none", "mlp"): (0.91, 0.04), (*base, "beta_mse"): (1.91, 0.04)}
    )  # fmt: skip
    counted = paper_summary.count(paper_summary.pairs(ours, theirs))
    # lower wst, higher AUC; higher MSE is lost; 0.09 is within 2 hypot(0.03, 0.04) = 0.1
    assert (counted.cells, counted.won) == (4, 3)
    assert (counted.clearly_won, counted.clearly_lost) == (2, 1)
    same = paper_summary.count(paper_summary.pairs(theirs, theirs))
    assert (same.won, same.clearly_lost) == (0, 0)


def test_our_weights_against_none_are_paired_by_run():
    """A gain of 0.1 in every run is clear though the runs differ by more; once hurt, once not."""
    records = []
    for run, level in enumerate((0.5, 0.9, 1.4)):
        for weights, change in (("none", 0.0), ("dp_mlp", -0.1 - run / 100), ("logreg", 0.1)):
            value = level + change
            records.append(
                {"dataset": "banknote", "generator": "dpgan", "run": run, "weights": weights,
                 "metrics": {"wst": value, "mlp": value}}
            )  # fmt: skip
    comparisons = {
        (kind, metric): paper_summary.against_none(records, kind, metric)
        for kind in ("dp_mlp", "logreg")
        for metric in ("wst", "mlp")
    }
    for kind, metric, won in (("dp_mlp", "wst", 1), ("dp_mlp", "mlp", 0), ("logreg", "mlp", 1)):
        comparison = comparisons[kind, metric]
        assert (
            comparison.cells,
            comparison.won,
            comparison.clearly_won,
            comparison.clearly_lost,
        ) == (1, won, won, 1 - won)
    alone = paper_summary.against_none(records[:2], "dp_mlp", "wst")
    assert (alone.won, alone.clearly_won) == (1, 0)


def test_the_papers_page_marks_wins_losses_and_what_no_rows_could_reach(tmp_path):
    path = tmp_path / "paper_tables.csv"
    path.write_text(
        "table,dataset,sdgp,metric,iw_method,mean,se,eps\n"
        "1,Banknote,PrivBayes,WST,None,0.3,0.01,1\n"
        "1,Banknote,PrivBayes,WST,BetaNoised,0.2,0.01,1\n"
        "1,Banknote,PrivBayes,WST,MLP,0.002,0.001,1\n"
        "3,MNIST,DPCGAN,MLP_ROC_AUC,None,0.85,0.04,9.64\n"
    )
    theirs = paper_summary.printed(path)
    assert ("mnist", "dpcgan", "none", "mlp") in theirs
    base = ("banknote", "privbayes")
    ours = paper_figures_of(
        {(*base, "none", "wst"): (0.2, 0.01), (*base, "beta_noised", "wst"): (0.3, 0.01),
         (*base, "mlp", "wst"): (0.1, 0.01), ("banknote", "real", "none", "wst"): (0.09, 0.01),
         ("banknote", "real", "none", "wst_least"): (0.03, 0.001)}
    )  # fmt: skip
    assert paper_summary.unreachable(ours, theirs) == {(*base, "mlp", "wst")}
    text = "\n".join(paper_page.tables(ours, theirs, ()))
    assert "| None | **0.2 ± 0.01** / 0.3 ± 0.01 + |" in text
    assert "| BetaNoised | 0.3 ± 0.01 / 0.2 ± 0.01 − |" in text
    assert "| MLP | 0.1 ± 0.01 / 0.002 ± 0.001 − (u) |" in text
    assert "| the confidential rows themselves | 0.09 ± 0.01 |" in text
    lost = "\n".join(paper_page.losses(ours, theirs))
    assert "iid Laplace at an L2 scale: not epsilon-DP as derived" in lost
    assert "None" not in lost
    counted = paper_page.counts(ours, theirs)
    assert counted[0].startswith("- All cells compared: 1 of 3 won (1 clearly, 2 clearly lost).")
    assert "Without the 1 Wasserstein" in counted[0]


def boston(ours, theirs, *, better_runs):
    """Boston's printed and our figures of two metrics, ours with runs of their own."""
    figure, key = paper_summary.Figure, ("boston", "privbayes", "none", "mlp")
    wide = ("boston", "dpgan", "none", "beta_mse")
    runs = dict(enumerate(better_runs))
    return (
        {key: figure(mean=ours, error=0.02, runs=3, by_run=runs),
         wide: figure(mean=100.0, error=60.0, runs=3),
         ("boston", "real", "none", "wst"): figure(mean=0.4, error=0.01, runs=3)},
        {key: figure(mean=theirs, error=0.01), wide: figure(mean=0.2, error=0.01),
         ("boston", "privbayes", "none", "wst"): figure(mean=1.0, error=0.0009)},
    )  # fmt: skip


def test_what_counts_do_not_show_is_told():
    """Runs on one side, errors as large as means, and printed figures of another unit."""
    base = ("boston", "privbayes", "none")
    ours, theirs = boston(0.17, 0.2, better_runs=(0.15, 0.17, 0.19))
    assert paper_summary.same_side(ours, theirs, better=True) == {(*base, "mlp")}
    assert not paper_summary.same_side(ours, theirs, better=False)
    mixed, _ = boston(0.17, 0.2, better_runs=(0.15, 0.15, 0.21))
    assert not paper_summary.same_side(mixed, theirs, better=True)
    assert paper_summary.carried_by_few(ours, theirs) == {("boston", "dpgan", "none", "beta_mse")}
    # the published sd over the published range, squared, is 0.0418; 0.2 is far above it
    assert paper_summary.below_constant(theirs) == {(*base, "mlp")}
    assert not paper_summary.below_constant(boston(0.1, 0.05, better_runs=())[1])
    assert paper_summary.too_steady(ours, theirs) == {(*base, "wst")}
    assert [paper_summary.sure_unit((*base, m)) for m in paper_measure.PAPER_METRICS] == [
        False, True, False,
    ]  # fmt: skip
    assert paper_summary.sure_unit(("breast", "dpgan", "none", "mlp"))
    assert not paper_summary.sure_unit(("mnist", "dpcgan", "none", "mlp"))
    text = "\n".join(paper_page.counts(ours, theirs))
    assert "1 regressions of the paper's that a constant would beat" in text
    assert "one side of the printed mean: 1 better, 0 worse" in text
    assert "in 1 cells (boston DPGAN beta MSE)" in text
    assert "0.17 ± 0.02** / 0.2 ± 0.01 (k) |" in "\n".join(paper_page.tables(ours, theirs, ()))


def test_the_page_begins_with_what_the_counts_are_worth():
    """All cells, then those of sure unit apart, `None` apart, and weights at one total."""
    ours, theirs = boston(0.17, 0.2, better_runs=(0.15, 0.17, 0.19))
    wst = ("boston", "privbayes", "none", "wst")
    ours[wst] = paper_summary.Figure(mean=0.9, error=0.01, runs=3)
    records = [
        {"dataset": "boston", "generator": "privbayes", "run": run, "weights": weights,
         "metrics": dict.fromkeys(("wst", "beta_relative", "mlp"), value + run / 100)}
        for weights, value in (("none", 1.0), ("joint_linear", 1.5))
        for run in range(3)
    ]  # fmt: skip
    text = "\n".join(paper_report.in_short(ours, theirs, records))
    assert "Of the 3 printed cells of Tables 1 to 3 ours are beside 3: 2 of 3 won" in text
    assert "reduced here: 1 of 1 won (1 clearly, 0 clearly lost); by part: boston WST 1" in text
    assert "In the others, 1 of 2 won" in text
    assert "one total: WST 0 of 1 settings (0 clearly, 1 clearly worse)" in text


def test_the_chance_of_a_clear_cell():
    """Two-sided tails of t beyond two: 7.66% with 9 degrees of freedom, 6.08% with 18 (tables)."""
    assert paper_summary.chance_of_clear(10) == pytest.approx((0.0608, 0.0766), abs=1e-4)


def test_peers_are_compared_run_by_run():
    """The peer has two runs of our three; clear is: in every common run, and at least two."""
    runs = {"privbayes": (0.5, 0.9, 0.1), "mst": (0.6, 1.0), "dpgan": (0.7, 0.8, 0.9)}
    records = [
        {"dataset": dataset, "generator": generator, "run": run, "weights": "none",
         "metrics": {"wst": value, "mlp": value}}
        for dataset in ("banknote", "boston")
        for generator, values in runs.items()
        for run, value in enumerate(values)
    ]  # fmt: skip
    ours = paper_summary.figures(records)

    def told(generator, metric):
        comparison = paper_summary.against_peer(ours, "mst", generator, "none", metric)
        return comparison.cells, comparison.won, comparison.clearly_won, comparison.clearly_lost

    assert told("privbayes", "wst") == (2, 2, 2, 0)
    assert told("privbayes", "mlp") == (2, 1, 1, 1)  # an area, and Boston's squared error
    assert told("dpgan", "wst") == (2, 2, 0, 0)  # worse by 0.1, better by 0.2
    assert paper_summary.against_peer(ours, "aim", "dpgan", "none", "wst").cells == 0


def test_one_fit_gives_both_rows_of_a_peer_and_rows_to_fit_weights_on(paper_store, monkeypatch):
    """Kept once, since its noise has no seed; what other benchmarks ask for is the same rows."""
    requests = []

    def fit(python, codes, sizes, request):
        requests.append(request)
        rng = np.random.default_rng(len(requests))
        drawn = [
            rng.integers(0, sizes, (n, len(sizes)))
            for n in (request.rows, request.fitting, request.rows)
        ]
        parts = dict(zip(("independent", "fitting", "as_shipped"), drawn, strict=True))
        return paper_peers.PeerRows(**parts)

    monkeypatch.setattr(paper_peers, "fit", fit)
    fair, shipped = (paper_cell(generator=name) for name in ("mst", "mst as shipped"))
    records = [paper_peers.compute_peer(c, paper_store, Path()) for c in (fair, shipped)]
    assert [record["generator"] for record in records] == ["mst", "mst as shipped"]
    assert records[0]["metrics"] != records[1]["metrics"]
    rows, fitting = paper_peers.peer_tables(fair, paper_store, Path())
    others, _ = paper_peers.peer_tables(shipped, paper_store, Path())
    assert (rows.rows, others.rows, fitting.rows) == (1097, 1097, paper_peers.FITTING_ROWS)
    assert not rows.frame().equals(others.frame())
    assert len(requests) == 1
    paper_peers.peer_rows(paper_cell(generator="mst", epsilon=0.3), paper_store, Path())
    assert [(request.epsilon, request.method) for request in requests] == [
        (1.0, "mst"),
        (0.3, "mst"),
    ]
    text = "\n".join(paper_page.peer_counts(paper_summary.figures([
        record | {"generator": name}
        for name in ("privbayes", *paper_peers.PEERS[::2]) for record in records[:1]
    ]), paper_peers.PEERS))  # fmt: skip
    assert "| PrivBayes, None | MST |" in text
    assert "| PrivBayes, None | MST as shipped |" in text


def test_a_refused_fit_is_kept_and_has_no_rows(paper_store, monkeypatch):
    def fit(*_):
        return paper_peers.PeerRows(refused="not done")

    monkeypatch.setattr(paper_peers, "fit", fit)
    cell = paper_cell(generator="aim as shipped")
    assert paper_peers.compute_peer(cell, paper_store, Path())["refused"] == "not done"
    assert paper_peers.peer_tables(cell, paper_store, Path()) is None
    assert paper_peers.peer_rows(cell, paper_store, Path()).refused == "not done"


def test_numbers_without_powers_of_ten():
    figure = paper_summary.Figure
    assert figure(mean=1496.3, error=1234.0, runs=3).text == "1500 ± 1200"
    assert figure(mean=0.85461, error=0.02134).text == "0.855 ± 0.021"
