"""The tables of weights and generators: outcomes, pages, cells; no data folder."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpiw.data.schema.schema import PublicSchema
from dpiw.plan.plan import compile_plan
from dpiw.plan.table import plan_table
from tests.benchmarks.scripts import load, metrics, study

page = load("weights_page")
table = load("weights_table")


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
@pytest.mark.parametrize("name", ["tv_1way", "mlp_auc"])
def test_outcomes_follow_the_t_interval(gains, outcome, name):
    base = np.array([5.0, 6.0, 7.0, 8.0])
    values = base + gains if name in page.HIGHER_IS_BETTER else base - gains
    assert page.outcome(page.paired(values, base, name)) == outcome
    if any(gains):  # the same by a paired t test
        clear = stats.ttest_rel(base, values).pvalue < 0.05
        assert bool(clear) == (outcome != "no clear difference")
    assert page.outcome(page.paired([1.0], [0.0], name)) == "no clear difference"


def test_overall_outcome():
    assert page.overall(["helped", "no clear difference"]) == "helped"
    assert page.overall(["hurt", "no clear difference"]) == "hurt"
    assert page.overall(["hurt", "helped"]) == "mixed"
    assert page.overall(["no clear difference"]) == "no clear difference"


LOWER = [names[-1] for names in page.JUDGED.values()]


def records():
    """Weights that halve each distance in one setting and double it in another; a network."""
    entries = []
    for epsilon, factor, verdict in (("1", 0.5, "use"), ("6", 2.0, "do not use")):
        for run in range(3):
            level = 1.0 + run / 10
            values = {("privbayes", "none"): level, ("privbayes", "linear"): level * factor,
                      ("dpgan", "none"): level * factor}  # fmt: skip
            for (generator, kind), value in values.items():
                entry = {"dataset": "d", "generator": generator, "epsilon": epsilon,
                         "weights": kind, "run": run,
                         "metrics": dict.fromkeys(LOWER, value) | {"ess_share": 1.0}}  # fmt: skip
                if kind == "linear":
                    entry |= {"verdict": verdict, "unweighted": dict.fromkeys(LOWER, level)}
                entries.append(entry)
    return entries


def test_a_page_says_where_weights_help_and_where_not():
    forecast = {"resolution": 0.7, "feasible": True}
    keys = [("d", "privbayes", epsilon, "linear") for epsilon in ("1", "6")]
    summary = page.summary(records(), dict.fromkeys(keys, forecast))
    assert json.loads(json.dumps(summary)) == summary, "a page is made of JSON"
    text = "\n".join(page.body(summary))
    assert "of 2 settings weights helped in 1, were mixed in 0" in text
    assert "`use` (3): helped 3, did not help 0" in text
    assert "`do not use` (3): helped 0, did not help 3 (of these hurt 3)" in text
    assert "| privbayes | 1 | linear | **-0.55 ± 0.03** |" in text
    assert "| privbayes | 6 | linear | *+1.1 ± 0.06* |" in text
    assert f"| dpgan | privbayes |{' +1 -1 of 2 |' * len(page.JUDGED)}" in text
    assert "worth their budget (2 settings): helped 1, hurt 1" in text


def test_finished_cells_are_kept_and_code_or_data_changes_leave_them(tmp_path, monkeypatch):
    source, made = tmp_path / "banknote.csv", []
    source.write_text("1")
    store = study.Store(folder=tmp_path / "cache", data=tmp_path)

    def make():
        made.append(len(made))
        return {"x": made[-1]}

    def kept():
        return store.kept("a", make, [source])

    assert [kept(), kept()] == [{"x": 0}, {"x": 0}]
    source.write_text("2")
    assert kept() == {"x": 1}
    monkeypatch.setattr(study, "CODE", "of another version")
    assert kept() == kept() == {"x": 2}
    assert len([*(tmp_path / "cache").rglob("*")]) == 6, "three folders with a cell each"


def test_every_schema_and_spec_of_the_tables_is_admissible(cells):
    every = table.STUDIES.values()
    for dataset in {dataset for one in every for dataset in one.datasets}:
        PublicSchema.from_yaml(cells.ROOT / cells.DATASETS[dataset].schema)
    wanted = {
        (cell.dataset, cell.generator, "1", cell.weights)
        for one in every
        for cell in cells.cells(dict.fromkeys(one.datasets, 1), one.generators, ("1",), one.kinds)
        if cell.generator in cells.GENERATORS and cell.generator not in cells.EXACT
    }
    assert len(wanted) > 50
    for words in wanted:
        cells.spec_for(*words)


@pytest.fixture
def data(tmp_path, monkeypatch, cells):
    """Made-up rows in place of Iris, and networks that train in no time."""
    rng, folder = np.random.default_rng(3), tmp_path / "data"
    folder.mkdir()
    schema = PublicSchema.from_yaml(cells.ROOT / "benchmarks/schemas/iris.yaml")
    names = [column.name for column in schema.columns[:4]]
    frame = pd.DataFrame(rng.random((120, 4)) * 5, columns=names).round(1)
    levels = np.array(schema.target.levels)
    frame["class"] = levels[np.clip(frame[names[0]] / 2, 0, 2).astype(int)]
    frame.to_csv(folder / "iris.csv", index=False)
    small = cells.Dataset(**(vars(cells.DATASETS["iris"]) | {"synthetic_rows": 200}))
    monkeypatch.setitem(cells.DATASETS, "iris", small)
    monkeypatch.setattr(cells, "PERCEPTRON", metrics.Perceptron(steps=5))
    few = {name: {"steps": 10, "lot": 32, "batch": 16} for name in ("dpgan", "dpcgan", "gan")}
    few |= {"histogram": {}, "privbayes": {"degree": 1}}
    monkeypatch.setattr(cells, "GENERATORS", few)
    changed = {"measured": {"method": "measured", "settings": {"omega_seed": 1, "base_rows": 600}},
               "dp_mlp": {"method": "dp_mlp", "settings": {"steps": 10}}}  # fmt: skip
    monkeypatch.setattr(cells, "WEIGHTS", {**cells.WEIGHTS, **changed})
    return folder


@pytest.mark.nightly
def test_a_small_table_from_cells_to_its_page(data, cells, tmp_path, monkeypatch):
    small = table.Study(
        datasets=("iris",), generators=("histogram", "dpcgan", "gan"),
        epsilons=("6",), runs=1, kinds=("none", "discriminator", "measured"),
    )  # fmt: skip
    monkeypatch.setattr(table, "STUDIES", {"neural_table": small})
    monkeypatch.setattr(table, "GENERATORS", cells.GENERATORS)
    words = ["--name", "neural_table", "--data", str(data), "--cache", str(tmp_path / "cache"),
             "--out", str(tmp_path)]  # fmt: skip
    assert table.main(words) == 0
    text, record = [(tmp_path / f"neural_table.{kind}").read_text() for kind in ("md", "json")]
    entries = {(e["generator"], e["weights"]): e for e in json.loads(record)["cells"]}
    assert len(entries) == 1 + 2 + 3 + 2
    assert entries["gan", "discriminator"]["metrics"]["ess_share"][0] < 1
    assert "unused" not in entries["histogram", "none"]
    assert entries["histogram", "measured"]["forecast"].keys() == {"resolution", "feasible"}
    assert entries["dpcgan", "none"]["against"].keys() == {"histogram"}
    assert "| gan (not private) | inf | discriminator |" in text
    monkeypatch.setattr(cells, "release", None)  # finished cells are read
    assert table.main(words) == 0
    assert (tmp_path / "neural_table.json").read_text() == record
    (tmp_path / "neural_table.md").unlink()
    assert table.main(["--name", "neural_table", "--page", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "neural_table.md").read_text() == text


@pytest.mark.slow
def test_a_cell_can_be_made_again_and_is_paired_on_one_generator_draw(data, cells, tmp_path):
    made = {}
    for place in ("one", "two"):
        store = study.Store(folder=tmp_path / place, data=data)
        for kind in ("none", "linear", "measured"):
            words = {"generator": "histogram", "epsilon": "1", "weights": kind}
            cell = cells.Cell(run=0, dataset="iris", **words)
            made[place, kind] = cells.compute(cell, store)
    for kind in ("none", "linear", "measured"):
        assert made["one", kind]["metrics"] == made["two", kind]["metrics"]
        if kind != "none":
            record = made["one", kind]
            assert record["unweighted"]["ess_share"] == 1 > record["metrics"]["ess_share"]
            assert record["unweighted"] != made["one", "none"]["metrics"], "it had all the budget"
            assert record["verdict"] in page.VERDICTS


@pytest.mark.nightly_cases("banknote", "adult", "acs")
@pytest.mark.parametrize(
    ("name", "expected"),
    [("breast", ["0.5", "1"]), ("boston", ["0.5", "1", "3"]), ("banknote", []), ("adult", []),
     ("acs", [])],
)  # fmt: skip
@pytest.mark.slow
def test_what_the_plan_warns_of_was_measured(cells, name, expected):
    """PrivBayes rows: where warned, models were chance (area 0.5, R2 0); elsewhere far better."""
    recorded = json.loads((cells.ROOT / "benchmarks/results/measured_table.json").read_text())
    schema, told = PublicSchema.from_yaml(cells.ROOT / cells.DATASETS[name].schema), []
    rows = [cell for cell in recorded["cells"] if cell["dataset"] == name]
    rows = [cell for cell in rows if (cell["generator"], cell["weights"]) == ("privbayes", "none")]
    for cell in rows:
        plan = compile_plan(cells.spec_for(name, "privbayes", cell["epsilon"], "none"), schema)
        warned = [text for text in plan.told if "privbayes counts tables of at most" in text]
        told += [cell["epsilon"]] * bool(warned)
        assert all(f"warning: {text}" in plan_table(plan) for text in warned)
        assert plan.to_json()["warnings"] == [*plan.told]
        assert not {*warned} & {*plan.warnings}  # no certificate repeats it
        skill = [2 * m[0] - 1 for k, m in cell["metrics"].items() if k == "linear_auc"]
        skill += [m[0] for k, m in cell["metrics"].items() if k == "linear_r2"]
        assert all(value < 0.2 if warned else value > 0.4 for value in skill), cell
    assert len(rows) == 4
    assert told == expected
