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

from dpiw.columns import Column, ColumnKind, ColumnRole
from dpiw.domain import Domain
from dpiw.schema import PublicSchema

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
    kinds = summary.WEIGHTED
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
