"""The neural table and the MNIST benchmark, on small tables of their own; no data folder.

Tables and noise are seeded, and what is compared is exact: nothing here fails by chance.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import struct

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema import PublicSchema
from dpiw.methods.generators.dpgan import DPCGAN
from tests.benchmarks.scripts import cells as weights_cells
from tests.benchmarks.scripts import load, metrics, summary

cells = load("neural_cells")
page = load("neural_page")
table = load("neural_table")
mnist = load("mnist")
judge = load("mnist_judge")

SMALL = {"steps": 20, "lot": 32, "batch": 16}


def three_levels(rng, n):
    """Rows whose level grows with the first column."""
    x = rng.random((n, 2))
    return x, np.clip((3 * x[:, 0]).astype(int), 0, 2).astype(float)


def test_macro_auc_is_the_mean_of_each_level_against_the_rest():
    y = np.array([0, 0, 1, 1, 2, 2.0])
    score = np.array([[3, 1, 2, 0, 1, 1], [1, 2, 3, 0, 1, 1], [0, 0, 0, 0, 1, 2]], dtype=float).T

    def area(k):
        real, rest = score[y == k, k], score[y != k, k]
        return np.mean([(a > b) + (a == b) / 2 for a in real for b in rest])

    assert metrics.auc(y, score) == pytest.approx(np.mean([area(k) for k in range(3)]))
    assert metrics.auc(y, np.ones((6, 3))) == 0.5
    two = np.column_stack([1 - score[:, 1], score[:, 1]])
    assert metrics.auc((y == 1) * 1.0, two) == pytest.approx(area(1))


def test_models_of_three_levels_score_every_level_even_one_they_never_saw():
    rng = np.random.default_rng(4)
    x, y = three_levels(rng, 600)
    held, truth = three_levels(rng, 200)
    for mask in (y >= 0, y != 1):  # all levels, and none of the middle one
        fit = metrics.linear_fit(x[mask], y[mask], np.ones(mask.sum()), regression=False, levels=3)
        deep = metrics.Perceptron().score(
            x[mask], y[mask], np.ones(mask.sum()), held, regression=False, seed=0, levels=3
        )
        for score in (fit.score(held), deep):
            assert score.shape == (200, 3)
            assert metrics.auc(truth == 0, score[:, 0]) > 0.98
            assert metrics.auc(truth == 2, score[:, 2]) > 0.98
            if not (y[mask] == 1).any():
                assert not score[:, 1].any()


def test_every_generator_has_the_weights_it_can_have():
    assert "discriminator" not in cells.kinds_of("pategan")
    assert "discriminator" not in cells.kinds_of("histogram")
    assert cells.kinds_of("gan") == ("none", "discriminator")
    wanted = cells.cells({"iris": 2, "adult": 1}, ("1",))
    assert len(wanted) == len(set(wanted))
    assert {(c.dataset, c.run) for c in wanted} == {("iris", 1), ("iris", 2), ("adult", 1)}
    for cell in wanted:
        if cell.generator in cells.EXACT:
            assert cell.epsilon == cells.NO_PRIVACY


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Made-up rows in place of iris, and networks that train in no time."""
    rng = np.random.default_rng(3)
    data = tmp_path / "data"
    data.mkdir()
    schema = PublicSchema.from_yaml(cells.weights_cells.ROOT / "benchmarks/schemas/iris.yaml")
    levels = schema.target.levels
    names = [column.name for column in schema.columns[:4]]
    frame = pd.DataFrame(rng.random((120, 4)) * 5, columns=names).round(1)
    frame["class"] = np.array(levels)[np.clip(frame[names[0]] / 2, 0, 2).astype(int)]
    frame.to_csv(data / "iris.csv", index=False)
    small = weights_cells.Dataset(
        **(vars(weights_cells.DATASETS["iris"]) | {"synthetic_rows": 200})
    )
    monkeypatch.setitem(weights_cells.DATASETS, "iris", small)
    monkeypatch.setattr(weights_cells, "PERCEPTRON", metrics.Perceptron(steps=5))
    few = dict.fromkeys(("dpgan", "dpcgan", "gan", "cgan"), SMALL)
    few |= {"pategan": {"rounds": 3}, "histogram": {}, "privbayes": {"degree": 1}}
    monkeypatch.setattr(cells, "GENERATORS", few)
    quick = {"method": "dp_mlp", "settings": {"replays": 0, "steps": 10}}
    few_rows = {"method": "measured", "settings": {"omega_seed": 1, "base_rows": 600}}
    changed = {"dp_mlp": quick, "measured": few_rows}
    monkeypatch.setattr(cells, "WEIGHTS", cells.WEIGHTS | changed)
    caches = (weights_cells.fingerprint, weights_cells.table, weights_cells.split,
              cells.plan_for, cells._fit)  # fmt: skip
    for cached in caches:
        cached.cache_clear()
    yield cells.NeuralStore(folder=tmp_path / "cache", data=data)
    for cached in caches:
        cached.cache_clear()


def cell(generator, weights, run=1):
    epsilon = cells.NO_PRIVACY if generator in cells.EXACT else "6"
    return cells.Cell(
        run=run, dataset="iris", generator=generator, epsilon=epsilon, weights=weights
    )


@pytest.mark.nightly
def test_one_generator_with_and_without_weights(world):
    """Reproducible and resumed; paired on one fit wherever the generator keeps its budget."""
    kinds = ("none", "discriminator", "linear")
    results = {kind: cells.compute(cell("dpcgan", kind), world) for kind in kinds}
    digest = {kind: record["generator_digest"] for kind, record in results.items()}
    assert digest["none"] == digest["discriminator"]
    assert digest["linear"] != digest["none"]
    for kind in kinds[1:]:
        assert results[kind]["metrics"]["ess_share"] < 1
        assert results[kind]["unweighted"]["ess_share"] == 1
    assert results["discriminator"]["unweighted"] == results["none"]["metrics"]
    for kind in ("none", "linear"):
        assert cells.compute(cell("dpcgan", kind), world) == json.loads(json.dumps(results[kind]))
    cells._fit.cache_clear()
    fresh = cells.NeuralStore(folder=world.folder / "another", data=world.data)
    again = cells.compute(cell("dpcgan", "linear"), fresh)
    assert again["metrics"] == results["linear"]["metrics"]
    frame = page.table_of(list(results.values()))
    facts = {"command": "x", "commit": "y", "python": "z", "runs": {"iris": 1}, "cpu_minutes": 1}
    assert "iris 1 runs, nominal rows 120" in "\n".join(table.settings(facts))
    noise = table.plans(frame, world)
    assert table.plans(frame, world) == noise
    entries = json.loads(table.record_of(frame, facts, noise))["cells"]
    assert [entry["weights"] for entry in entries] == list(kinds)
    assert all(entry["plan"]["epsilon_pld"] <= 6 for entry in entries)
    assert entries[2]["runs"]["tv_1way"] == [
        pytest.approx(results["linear"]["metrics"]["tv_1way"], rel=1e-4)
    ]


def test_a_fit_is_not_shared_by_weights_that_leave_the_generator_another_budget(world, monkeypatch):
    monkeypatch.setattr(cells, "FITTED_FOR", {"linear": "none"})
    with pytest.raises(SystemExit, match="its generator is not that of none"):
        cells.fit(cell("histogram", "linear"), world.data)


def test_measured_weights_choose_rows_of_a_base_of_the_same_fit(world):
    """As a release in memory would, but for the streams of rows and noise."""
    measured_cell = cell("privbayes", "measured")
    record = cells.compute(measured_cell, world)
    fit = cells.fit(measured_cell, world.data)
    assert record["unweighted"] == fit.metrics != record["metrics"]
    assert record["unweighted"]["ess_share"] == 1 > record["metrics"]["ess_share"] >= 0.49
    rows, weights = cells.chosen(
        measured_cell, weights_cells.split("iris", 1, world.data), fit, world.data
    )
    assert rows.rows == weights.rows == 200
    again = cells.chosen(
        measured_cell, weights_cells.split("iris", 1, world.data), fit, world.data
    )[1]
    assert np.array_equal(weights.log_weights, again.log_weights)


def test_without_privacy_the_same_networks_and_no_plan(world):
    record = cells.compute(cell("cgan", "discriminator"), world)
    assert record["metrics"]["ess_share"] < 1
    assert (
        record["generator_digest"] == cells.compute(cell("cgan", "none"), world)["generator_digest"]
    )


def records(gain):
    """dpgan at half the distance of histogram; weights that add `gain` to the distance."""
    entries = []
    for run in (1, 2, 3):
        level = 1 + run / 10
        values = {("histogram", "none"): level, ("privbayes", "none"): level,
                  ("dpgan", "none"): level / 2, ("dpgan", "linear"): level / 2 + gain}  # fmt: skip
        for (generator, kind), value in values.items():
            scores = dict.fromkeys(page.METRICS, value) | {"ess_share": 1.0}
            record = {"dataset": "d", "generator": generator, "epsilon": "1", "weights": kind,
                      "run": run, "generator_seconds": 2.0, "weights_seconds": 0.5,
                      "metrics": scores}  # fmt: skip
            if kind == "linear":  # the same rows are worse without their weights
                record["unweighted"] = dict.fromkeys(page.METRICS, 2 * value)
            entries.append(record)
    return entries


@pytest.mark.parametrize(("gain", "outcome"), [(0.2, "hurt"), (-0.2, "helped")])
def test_comparisons_are_signed_so_that_more_is_better(gain, outcome):
    frame = page.table_of(records(gain))
    key = ("d", "dpgan", "1", "linear")
    opposite = {"hurt": "helped", "helped": "hurt"}[outcome]
    whole = page.against_none(frame)[key]
    assert whole["tv_1way"].outcome == outcome
    assert whole["mlp_auc"].outcome == opposite  # a higher AUC is better
    assert abs(whole["tv_1way"].mean) == pytest.approx(0.2)
    same = page.against_own_rows(frame)[key]
    assert same["tv_1way"].outcome == "helped"
    assert same["linear_auc"].outcome == "hurt"
    beside = page.against_generator(frame, "histogram")
    assert list(beside) == [("d", "dpgan", "1", "none")]
    assert beside["d", "dpgan", "1", "none"]["tv_2way"].outcome == "helped"
    text = "\n".join(page.page(frame))
    assert "clearly worse in 2 of 4 comparisons, clearly better in 2, neither in 0" in text
    assert "TV 1-way clearly better: d dpgan at 1." in text
    assert "| dpgan | 1 | linear | 2.00 | 0.50 |" in text
    assert summary.LABELS["tv_1way"] in text


# MNIST


def write_idx(path, values):
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    with gzip.open(path, "wb") as file:
        file.write(head + values.astype(np.uint8).tobytes())


def mnist_world(folder, monkeypatch, sizes):
    """Sixty training images of noise and forty test ones, and a script that takes them for all."""
    rng = np.random.default_rng(6)
    for name, rows in (("train", 60), ("t10k", 40)):
        grey = rng.integers(0, 256, (rows, 28, 28))
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", grey)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", np.arange(rows) % 10)
        pixels, digits = mnist.images(folder, name.replace("t10k", "test"), 14)
        expected = grey[3, 2:4, 4:6].mean() / 255
        assert pixels[3, 1 * 14 + 2] == pytest.approx(expected)
        np.testing.assert_array_equal(digits, np.arange(rows) % 10)
    head = "table,dataset,sdgp,metric,iw_method,mean,se,epsilon\n"
    row = "3,MNIST,DPCGAN,MLP_ROC_AUC,None,0.81,0.04,9.64\n"
    (folder / "paper_tables.csv").write_text(head + row)
    monkeypatch.setattr(mnist, "SIZES", sizes)
    monkeypatch.setattr(mnist, "ROWS", 60)
    monkeypatch.setattr(mnist, "SYNTHETIC_ROWS", 50)
    monkeypatch.setattr(judge, "CLASSIFIER", metrics.Perceptron(steps=5))
    where = {"--data": folder, "--out": folder / "out", "--keep": folder / "keep"}
    return [str(word) for pair in where.items() for word in pair] + ["--device", "cpu", "--sizes"]


def test_mnist_runs_on_images_of_its_own_and_says_that_it_is_reduced(tmp_path, monkeypatch):
    sizes = {"quarter": mnist.Size(side=7, settings=SMALL)}
    run = mnist_world(tmp_path, monkeypatch, sizes)
    assert mnist.main([*run, "quarter", "--runs", "2"]) == 0
    twice = json.loads((tmp_path / "out" / "mnist.json").read_text())["runs"]["quarter"]
    assert twice["epsilon_pld"] <= 9.64
    assert set(twice["classifier"]) == {"synthetic", "discriminator", "dp_mlp", "real"}
    both, error = twice["classifier"]["synthetic"], twice["errors"]["synthetic"]
    page = (tmp_path / "out" / "mnist.md").read_text()
    assert "**Reduced**: without the run at 28 x 28 pixels" in page
    assert "0.810" not in page, "figures of smaller images beside the paper's"
    assert f"{both['accuracy']:.3f} ± {error['accuracy']:.3f}" in page
    assert (tmp_path / "out" / "mnist_quarter.png").stat().st_size > 0
    monkeypatch.setattr(DPCGAN, "measure", None)  # a finished fit is read
    assert mnist.main([*run, "quarter"]) == 0
    once = json.loads((tmp_path / "out" / "mnist.json").read_text())["runs"]["quarter"]
    first = once["classifier"]["synthetic"]["accuracy"]
    second = 2 * both["accuracy"] - first
    assert error["accuracy"] == pytest.approx(abs(second - first) / 2, abs=2e-4)
    assert once["errors"]["synthetic"]["accuracy"] is None


def test_variety_is_that_of_the_images_of_a_digit_and_none_where_they_are_one():
    rng = np.random.default_rng(3)
    x, y = rng.random((2000, 9)), np.repeat([0.0, 1.0], 1000)
    image_judge = judge.Judge(schema=mnist.Size(side=3, settings={}).schema, test=(x, y))
    assert image_judge.variety(x[::2] + y[::2, None], y[::2], np.ones(1000)) == pytest.approx(
        1, abs=0.03
    )
    assert (
        image_judge.variety(np.repeat([[0.2], [0.9]], 1000, axis=0) * np.ones(9), y, np.ones(2000))
        < 1e-9
    )
    doubled = image_judge.variety(np.vstack([x, x[:500]]), np.append(y, y[:500]), np.ones(2500))
    w = np.where(np.arange(2000) < 500, 2.0, 1.0)
    assert image_judge.variety(x, y, w) == pytest.approx(doubled)


@pytest.mark.skipif(importlib.util.find_spec("opacus") is None, reason="Opacus is not installed")
def test_mnist_whole_is_convolutions_beside_the_paper_and_keeps_other_sizes(tmp_path, monkeypatch):
    networks = {"image": [28, 28], "generator": [2, 2], "discriminator": [2, 2]}
    sizes = {
        "full": mnist.Size(side=28, settings=SMALL | networks),
        "quarter": mnist.Size(side=7, settings=SMALL),
    }
    run = mnist_world(tmp_path, monkeypatch, sizes)
    weights = {**mnist.MEASURED["weights"]}
    weights["settings"] = weights["settings"] | {"base_rows": 100, "frequencies": 16}
    monkeypatch.setitem(mnist.MEASURED, "weights", weights)
    for size in ("quarter", "full"):
        assert mnist.main([*run, size]) == 0
    facts = json.loads((tmp_path / "out" / "mnist.json").read_text())
    assert list(facts["runs"]) == ["full", "quarter"]
    full = facts["runs"]["full"]
    assert {"measured", "measured: rows"} < set(full["classifier"])
    assert [stage["step"] for stage in full["stages"]] == [2, 5, 10, 20]
    assert full["stages"][-1]["auc"] == pytest.approx(
        full["classifier"]["synthetic"]["auc"], abs=1e-3
    )
    # The generator that leaves weights their share gets more noise; both together have one total.
    assert full["measured"]["noise_multiplier"] > full["noise_multiplier"]
    assert max(full["measured"]["epsilon_pld"], full["epsilon_pld"]) <= 9.64
    page = (tmp_path / "out" / "mnist.md").read_text()
    assert "Reduced" not in page
    assert page.count("0.810 ± 0.040") == 1
