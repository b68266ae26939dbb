"""The metrics of the benchmarks, each in two independent ways or in closed form; no data folder.

Random tables are seeded and every comparison is exact up to rounding or the tolerance it states,
so nothing here fails by chance.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def load(name):
    """A script of the folder, which is no package; its own imports find their neighbours."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


metrics = load("metrics")
cells = load("weights_cells")
summary = load("weights_summary")
page = load("weights_page")


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def schema(target="label"):
    number = {"kind": ColumnKind.CONTINUOUS, "lower": 0, "upper": 10}
    columns = [
        Column(name="size", **number),
        Column(name="grade", kind=ColumnKind.ORDINAL, levels=("a", "b", "c")),
        Column(name="colour", levels=("red", "green", "blue"), nullable=True),
        Column(name="label", kind=ColumnKind.BOOLEAN),
        Column(name="price", **number),
    ]
    roles = {target: ColumnRole.TARGET}
    return PublicSchema(
        name="shop",
        columns=tuple(
            Column(**(vars(c) | {"role": roles.get(c.name, ColumnRole.FEATURE)})) for c in columns
        ),
    )


def rows(rng, n, shift=0.0):
    size = rng.random(n) * 6 + shift
    frame = pd.DataFrame(
        {
            "size": size,
            "grade": rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2]),
            "colour": rng.choice(["red", "green", "blue", ""], n),
            "label": rng.random(n) < 1 / (1 + np.exp(3 - size)),
            "price": np.clip(size + rng.normal(size=n), 0, 10),
        }
    )
    return schema().scale(frame.astype(str))


def copies(table, counts):
    return table.take(np.repeat(np.arange(table.rows), counts))


def everything(table, w, test, seed=5):
    own = schema()
    domain = Domain.from_schema(own, bins=4)
    x, y = metrics.design(own, table)
    tx, ty = metrics.design(own, test)
    fit = metrics.linear_fit(x, y, w, regression=False)
    return np.array(
        [
            *fit.coefficients,
            metrics.auc(ty, fit.score(tx)),
            metrics.wasserstein_1d_sum(own, table, w, test),
            metrics.sliced_wasserstein(
                own.centred(table), w, own.centred(test), directions=4, seed=seed
            ),
            *metrics.total_variation(domain.codes(table), domain.codes(test), domain.sizes, w),
        ]
    )


def test_a_weight_counts_as_copies_and_its_scale_does_not_matter(rng):
    """Every weighted metric on whole weights equals the unweighted one on repeated rows."""
    table, test = rows(rng, 60), rows(rng, 40, shift=1.0)
    counts = rng.integers(0, 4, table.rows)
    repeated = copies(table, counts)
    weighted = everything(table, counts.astype(float), test)
    kept = table.take(counts > 0)
    whole = everything(kept, counts[counts > 0] * 7.3, test)
    plain = everything(repeated, np.ones(repeated.rows), test)
    np.testing.assert_allclose(weighted, plain, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(whole, plain, rtol=2e-4, atol=1e-6)
    assert np.abs(weighted - everything(table, np.ones(table.rows), test)).max() > 0.01


def test_a_table_has_no_distance_to_itself(rng):
    table = rows(rng, 50)
    found = everything(table, np.ones(50), table)
    np.testing.assert_allclose(found[-4:], 0, atol=1e-12)


def test_wasserstein_by_the_area_between_distribution_functions(rng):
    """W1 on a line is the area between the distribution functions; colours: total variation."""
    table, test, w = rows(rng, 30), rows(rng, 25, shift=2.0), rng.random(30)
    own, grid = schema(), np.linspace(0, 1, 200_001)

    def cdf(values, weights):
        order = np.argsort(values)
        mass = np.concatenate([[0], np.cumsum(weights[order]) / weights.sum()])
        return mass[np.searchsorted(values[order], grid, side="right")]

    expected = 0.0
    for name, width in (("size", 1), ("grade", 2), ("label", 1), ("price", 1)):
        one, two = table.columns[name] / width, test.columns[name] / width
        gap = np.abs(cdf(one, w) - cdf(two, np.ones(25)))
        expected += gap.mean()
    for level in (-1, 0, 1, 2):
        one, two = table.columns["colour"] == level, test.columns["colour"] == level
        expected += abs(w[one].sum() / w.sum() - two.mean()) / 2
    found = metrics.wasserstein_1d_sum(own, table, w, test)
    assert found == pytest.approx(expected, abs=1e-4)


def test_sliced_wasserstein_of_a_shift_in_closed_form(rng):
    """A shift by v moves every projection by v.a; E|v.a| = 2 norm(v)/pi for two columns."""
    one, shift = rng.random((40, 2)), np.array([3.0, 4.0])
    w = np.full(40, 2.5)
    found = metrics.sliced_wasserstein(one, w, one + shift, directions=4000, seed=1)
    # sd of |cos| is 0.308: 5/sqrt(4000) of it is 0.024; the bound is four times that.
    assert found == pytest.approx(5 * 2 / np.pi, abs=0.1)
    assert metrics.sliced_wasserstein(one, w, one, directions=9, seed=1) == 0


def test_total_variation_against_tables_by_hand(rng):
    one, two, w = rng.integers(0, 3, (30, 3)), rng.integers(0, 3, (20, 3)), rng.random(30)

    def table(codes, weights, columns):
        found = {}
        for row, weight in zip(codes, weights / weights.sum(), strict=True):
            key = tuple(int(row[j]) for j in columns)
            found[key] = found.get(key, 0) + weight
        return found

    def distance(columns):
        a, b = table(one, w, columns), table(two, np.ones(20), columns)
        return sum(max(0, a.get(key, 0) - b.get(key, 0)) for key in a)

    expected = [
        np.mean([distance((j,)) for j in range(3)]),
        np.mean([distance(pair) for pair in itertools.combinations(range(3), 2)]),
    ]
    found = metrics.total_variation(one, two, (3, 3, 3), w)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_ridge_in_closed_form(rng):
    """(X'WX/n + penalty) b = X'Wy/n on weighted centred columns, intercept free."""
    x, y, w = rng.random((50, 3)), rng.random(50), rng.random(50)
    w = w / w.mean()
    fit = metrics.linear_fit(x, y, w * 3, regression=True)
    mean_x, mean_y = w @ x / 50, w @ y / 50
    cx, cy = x - mean_x, y - mean_y
    penalty = metrics.PENALTY_PER_ROW * np.eye(3)
    slopes = np.linalg.solve((cx.T * w) @ cx / 50 + penalty, (cx.T * w) @ cy / 50)
    np.testing.assert_allclose(fit.coefficients[:3], slopes, rtol=1e-8)
    assert fit.coefficients[3] == pytest.approx(mean_y - mean_x @ slopes)


def test_logistic_fit_has_no_gradient_and_one_penalty_per_row(rng):
    """The printed objective's gradient vanishes; a table twice over gives the same fit."""
    x, w = rng.random((80, 2)), rng.random(80)
    y = (rng.random(80) < x[:, 0]).astype(float)
    fit = metrics.linear_fit(x, y, w, regression=False)
    b, w = fit.coefficients, w / w.mean()
    residual = w * (1 / (1 + np.exp(-(x @ b[:2] + b[2]))) - y)
    gradient = [*(residual @ x / 80 + metrics.PENALTY_PER_ROW * b[:2]), residual.mean()]
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    twice = metrics.linear_fit(np.tile(x, (2, 1)), np.tile(y, 2), np.tile(w, 2), regression=False)
    np.testing.assert_allclose(twice.coefficients, b, rtol=1e-3)
    assert metrics.linear_fit(x, np.ones(80), w, regression=False) is None


def test_coefficient_errors_and_auc_by_hand():
    truth = np.array([3.0, 4.0])
    assert metrics.coefficient_errors(np.array([3.0, 2.0]), truth) == (2.0, 4 / 25)
    assert metrics.coefficient_errors(None, truth) == (12.5, 1.0)
    y, score = np.array([0, 0, 1, 1.0]), np.array([0.1, 0.5, 0.5, 0.9])
    pairs = [1.0, 1.0, 0.5, 1.0]  # of each class-1 row with each class-0 row; ties count half
    assert metrics.auc(y, score) == pytest.approx(np.mean(pairs))
    assert metrics.auc(y, None) == 0.5


def test_design_keeps_the_target_out(rng):
    table = rows(rng, 20)
    x, y = metrics.design(schema(), table)
    assert x.shape == (20, schema().width - 2)  # the label's block has two columns
    assert set(y) == {0.0, 1.0}
    x, y = metrics.design(schema("price"), table)
    assert x.shape == (20, schema().width - 1)
    np.testing.assert_array_equal(y, table.columns["price"])


@pytest.mark.parametrize("regression", [False, True])
def test_the_perceptron_learns_what_lines_cannot_and_heeds_weights(rng, regression):
    """Truth: inside or outside a square. Almost no weight on wrong labels undoes them."""
    x = rng.random((400, 2)) * 2 - 1
    y = (np.abs(x).max(axis=1) < 0.7).astype(float)
    wrong = rng.random(400) < 0.45
    w = np.where(wrong, 1e-6, 1.0)
    deep = metrics.Perceptron()
    noisy = np.where(wrong, 1 - y, y)
    held = rng.random((300, 2)) * 2 - 1
    truth = (np.abs(held).max(axis=1) < 0.7).astype(float)
    aucs = [
        metrics.auc(truth, deep.score(x, noisy, v, held, regression=regression, seed=0))
        for v in (w, np.ones(400))
    ]
    line = metrics.linear_fit(x, y, np.ones(400), regression=regression)
    assert aucs[0] > 0.97
    assert aucs[0] > aucs[1] + 0.05
    assert metrics.auc(truth, line.score(held)) < 0.75
    again = deep.score(x, noisy, w, held, regression=regression, seed=0)
    assert metrics.auc(truth, again) == aucs[0]


def test_effective_sample_size():
    assert metrics.ess_share(np.array([2.0, 2.0, 2.0])) == pytest.approx(1)
    assert metrics.ess_share(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)


# The table


@pytest.mark.parametrize(
    ("gains", "outcome"),
    [
        ([1.0, 1.1, 0.9, 1.0], "helped"),
        ([-1.0, -1.1, -0.9, -1.0], "hurt"),
        ([1.0, -1.0, 0.5, 0.2], "no clear difference"),
        ([0.15, 0.7, 1.3, 1.85], "no clear difference"),  # t = 2.72: clear if asked one-sided only
        ([0.0, 0.0, 0.0, 0.0], "no clear difference"),
    ],
)
@pytest.mark.parametrize("higher", [False, True])
def test_outcomes_follow_the_t_interval(gains, outcome, higher):
    from scipy import stats

    base = np.array([5.0, 6.0, 7.0, 8.0])
    values = base + gains if higher else base - gains
    change = summary.paired(values, base, higher_is_better=higher)
    assert change.outcome == outcome
    if any(gains):  # the same by a paired t test
        clear = stats.ttest_rel(base, values).pvalue < 0.05
        assert bool(clear) == (outcome != "no clear difference")
    assert summary.paired([1.0], [0.0], higher_is_better=True).outcome == "no clear difference"


def test_overall_outcome():
    assert summary.overall(["helped", "no clear difference"]) == "helped"
    assert summary.overall(["hurt", "no clear difference"]) == "hurt"
    assert summary.overall(["hurt", "helped"]) == "mixed"
    assert summary.overall(["no clear difference"]) == "no clear difference"


LOWER = tuple(name for names in summary.JUDGED.values() for name in names[-1:])


def small_frame(kinds=("linear",)):
    """Weights that halve the distance in one setting and double it in another."""
    records = []
    for epsilon, factor, verdict in (("1", 0.5, "use"), ("6", 2.0, "do not use")):
        for run in range(3):
            level = 1.0 + run / 10
            values = dict.fromkeys(("none", "unused"), level) | dict.fromkeys(kinds, level * factor)
            for kind, value in values.items():
                records.append(
                    {"dataset": "d", "generator": "g", "epsilon": epsilon, "weights": kind,
                     "run": run, "verdict": verdict if kind in kinds else "none",
                     "generator_digest": "same",
                     "metrics": dict.fromkeys(LOWER, value) | {"ess_share": 1.0}}
                )  # fmt: skip
    return summary.frame_of(records)


def test_agreement_counts_releases_by_verdict_and_outcome():
    frame = small_frame()
    for base in ("none", "unused"):
        table = summary.agreement(frame, base, None)
        assert table.loc["use", "helped"] == 3
        assert table.loc["do not use", "hurt"] == 3
        assert table.to_numpy().sum() == 6
    alone = summary.better_alone(frame, "W1, sum of 1-D")
    assert list(alone.better) == [3, 0, 0]
    assert list(alone.releases) == [3, 0, 3]
    assert summary.same_rows(frame)


def test_the_page_says_where_weights_help_and_where_not():
    forecast = {"resolution": 0.7, "tau": 0.2, "feasible": True}
    kinds = summary.WEIGHTED[:3]
    keys = [("d", "g", epsilon, kind) for epsilon in ("1", "6") for kind in kinds]
    text = "\n".join(page.page(small_frame(kinds), dict.fromkeys(keys, forecast)))
    assert "All aspects together, against no weights at equal total epsilon: of 6" in text
    assert "- helped: d g linear at 1; d g interactions at 1; d g fourier at 1." in text
    assert "- hurt: d g linear at 6; d g interactions at 6; d g fourier at 6." in text
    assert "`use` (9): helped 9, did not help 0" in text
    assert "`do not use` (9): helped 0, did not help 9 (of these hurt 9)" in text
    assert "| g | 1 | linear | **-0.55 ± 0.03** |" in text
    assert "| g | 6 | linear | *+1.1 ± 0.06* |" in text


def test_finished_cells_are_kept_and_code_or_data_changes_leave_them(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    (data / "banknote.csv").write_text("variance\n1\n")
    store = cells.Store(folder=tmp_path / "cache", data=data)
    assert store.read("banknote", "a") is None
    store.write("banknote", "a", {"x": 1})
    assert store.read("banknote", "a") == {"x": 1}
    assert [p.name for p in (tmp_path / "cache").rglob("*.json")] == ["a.json"]
    for change in ("data", "code"):
        cells.fingerprint.cache_clear()
        if change == "data":
            (data / "banknote.csv").write_text("variance\n2\n")
        else:
            monkeypatch.setattr(cells, "CODE", "of another version")
        assert store.read("banknote", "a") is None
        store.write("banknote", "a", {"x": 1})
    assert len({path.parent for path in (tmp_path / "cache").rglob("a.json")}) == 3
    cells.fingerprint.cache_clear()


def test_every_schema_and_spec_of_the_table_is_admissible():
    for dataset, own in cells.DATASETS.items():
        PublicSchema.from_yaml(cells.ROOT / own.schema)
        for generator in cells.GENERATORS:
            for kind in cells.KINDS:
                cells.spec_for(dataset, generator, "1", kind)


def test_one_cell_from_a_table_of_its_own(tmp_path, monkeypatch):
    """A whole cell on made-up rows: reproducible, resumed, paired on one generator draw."""
    rng = np.random.default_rng(2)
    data = tmp_path / "data"
    data.mkdir()
    names = ["variance", "skewness", "curtosis", "entropy"]
    frame = pd.DataFrame(rng.normal(size=(300, 4)) * 3, columns=names)
    frame["class"] = (frame["variance"] + rng.normal(size=300) > 0).astype(int)
    frame.to_csv(data / "banknote.csv", index=False)
    small = cells.Dataset(**(vars(cells.DATASETS["banknote"]) | {"synthetic_rows": 400}))
    monkeypatch.setitem(cells.DATASETS, "banknote", small)
    monkeypatch.setattr(cells, "PERCEPTRON", metrics.Perceptron(steps=10))
    for cached in (cells.fingerprint, cells.table, cells.split, cells.plan_for):
        cached.cache_clear()
    found = {}
    for place in ("one", "two"):
        store = cells.Store(folder=tmp_path / place, data=data)
        for kind in ("none", "unused", "linear"):
            cell = cells.Cell(
                run=0, dataset="banknote", generator="histogram", epsilon="1", weights=kind
            )
            record = cells.compute(cell, store)
            assert cells.compute(cell, store) == json.loads(json.dumps(record))
            found[place, kind] = record
    for kind in ("none", "unused", "linear"):
        assert found["one", kind]["metrics"] == found["two", kind]["metrics"]
    digests = {
        kind: found["one", kind]["generator_digest"] for kind in ("none", "unused", "linear")
    }
    assert digests["unused"] == digests["linear"] != digests["none"]
    assert found["one", "unused"]["metrics"]["ess_share"] == 1
    assert found["one", "linear"]["metrics"]["ess_share"] < 1
    assert found["one", "linear"]["verdict"] in summary.VERDICTS
    real = cells.Cell(run=0, dataset="banknote", generator="real", epsilon="-", weights="-")
    floor = cells.compute(real, store)["metrics"]
    assert floor["beta_relative_error"] < found["one", "unused"]["metrics"]["beta_relative_error"]
    for cached in (cells.fingerprint, cells.table, cells.split, cells.plan_for):
        cached.cache_clear()


# The paper's tables


paper_sets = load("paper_sets")
paper_measure = load("paper_measure")
paper_cells = load("paper_cells")
paper_known = load("paper_known")
paper_summary = load("paper_summary")
load("paper_studies")
load("paper_figures")
paper_page = load("paper_page")
for name in ("weights_table", "mnist", "paper_mnist", "paper_peers"):
    load(name)
paper_report = load("paper_report")
paper_peers = load("paper_peers")


def least_transport(one, w, two):
    """Wasserstein-1 as a linear program over plans: obviously right, and slow."""
    from scipy.optimize import linprog
    from scipy.spatial.distance import cdist

    n, m = len(one), len(two)
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    right = np.concatenate([w / w.sum(), np.full(m, 1 / m)])
    found = linprog(cdist(one, two).ravel(), A_eq=np.vstack([rows, columns]), b_eq=right)
    return found.fun


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
    found = {
        kind: paper_cells.compute(paper_cell(weights=kind), paper_store)
        for kind in ("none", "beta_noised", "beta_debiased", "logreg")
    }
    again = paper_cells.compute(paper_cell(weights="logreg"), paper_store)
    assert again == json.loads(json.dumps(found["logreg"]))
    parts = {kind: record["metrics"] for kind, record in found.items()}
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
    one = paper_summary.Figure
    return {key: one(mean=m, error=e, runs=10) for key, (m, e) in values.items()}


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
    found = {
        (kind, metric): paper_summary.against_none(records, kind, metric)
        for kind in ("dp_mlp", "logreg")
        for metric in ("wst", "mlp")
    }
    for kind, metric, won in (("dp_mlp", "wst", 1), ("dp_mlp", "mlp", 0), ("logreg", "mlp", 1)):
        one = found[kind, metric]
        assert (one.cells, one.won, one.clearly_won, one.clearly_lost) == (1, won, won, 1 - won)
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
    one, key = paper_summary.Figure, ("boston", "privbayes", "none", "mlp")
    wide = ("boston", "dpgan", "none", "beta_mse")
    runs = dict(enumerate(better_runs))
    return (
        {key: one(mean=ours, error=0.02, runs=3, by_run=runs),
         wide: one(mean=100.0, error=60.0, runs=3),
         ("boston", "real", "none", "wst"): one(mean=0.4, error=0.01, runs=3)},
        {key: one(mean=theirs, error=0.01), wide: one(mean=0.2, error=0.01),
         ("boston", "privbayes", "none", "wst"): one(mean=1.0, error=0.0009)},
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
        one = paper_summary.against_peer(ours, "mst", generator, "none", metric)
        return one.cells, one.won, one.clearly_won, one.clearly_lost

    assert told("privbayes", "wst") == (2, 2, 2, 0)
    assert told("privbayes", "mlp") == (2, 1, 1, 1)  # an area, and Boston's squared error
    assert told("dpgan", "wst") == (2, 2, 0, 0)  # worse by 0.1, better by 0.2
    assert paper_summary.against_peer(ours, "aim", "dpgan", "none", "wst").cells == 0


def test_one_fit_gives_both_rows_of_a_peer_and_rows_to_fit_weights_on(paper_store, monkeypatch):
    """Kept once, since its noise has no seed; what other benchmarks ask for is the same rows."""
    asked = []

    def fit(python, codes, sizes, one):
        asked.append(one)
        rng = np.random.default_rng(len(asked))
        own = [rng.integers(0, sizes, (n, len(sizes))) for n in (one.rows, one.fitting, one.rows)]
        parts = dict(zip(("independent", "fitting", "as_shipped"), own, strict=True))
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
    assert len(asked) == 1
    paper_peers.peer_rows(paper_cell(generator="mst", epsilon=0.3), paper_store, Path())
    assert [(one.epsilon, one.method) for one in asked] == [(1.0, "mst"), (0.3, "mst")]
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
    one = paper_summary.Figure
    assert one(mean=1496.3, error=1234.0, runs=3).text == "1500 ± 1200"
    assert one(mean=0.85461, error=0.02134).text == "0.855 ± 0.021"
