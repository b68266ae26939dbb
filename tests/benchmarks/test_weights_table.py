"""The table of weights on four data sets: outcomes, its page, its cells; no data folder."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema import PublicSchema
from tests.benchmarks.scripts import cells, metrics, page, summary


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
    kinds = summary.WEIGHTED[:1]
    keys = [("d", "g", epsilon, kind) for epsilon in ("1", "6") for kind in kinds]
    text = "\n".join(page.page(small_frame(kinds), dict.fromkeys(keys, forecast)))
    assert "All aspects together, against no weights at equal total epsilon: of 2" in text
    assert "- helped: d g linear at 1." in text
    assert "- hurt: d g linear at 6." in text
    assert "`use` (3): helped 3, did not help 0" in text
    assert "`do not use` (3): helped 0, did not help 3 (of these hurt 3)" in text
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
    for dataset, entry in cells.DATASETS.items():
        PublicSchema.from_yaml(cells.ROOT / entry.schema)
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
    records = {}
    for place in ("one", "two"):
        store = cells.Store(folder=tmp_path / place, data=data)
        for kind in ("none", "unused", "linear"):
            cell = cells.Cell(
                run=0, dataset="banknote", generator="histogram", epsilon="1", weights=kind
            )
            record = cells.compute(cell, store)
            assert cells.compute(cell, store) == json.loads(json.dumps(record))
            records[place, kind] = record
    for kind in ("none", "unused", "linear"):
        assert records["one", kind]["metrics"] == records["two", kind]["metrics"]
    digests = {
        kind: records["one", kind]["generator_digest"] for kind in ("none", "unused", "linear")
    }
    assert digests["unused"] == digests["linear"] != digests["none"]
    assert records["one", "unused"]["metrics"]["ess_share"] == 1
    assert records["one", "linear"]["metrics"]["ess_share"] < 1
    assert records["one", "linear"]["verdict"] in summary.VERDICTS
    real = cells.Cell(run=0, dataset="banknote", generator="real", epsilon="-", weights="-")
    floor = cells.compute(real, store)["metrics"]
    assert floor["beta_relative_error"] < records["one", "unused"]["metrics"]["beta_relative_error"]
    for cached in (cells.fingerprint, cells.table, cells.split, cells.plan_for):
        cached.cache_clear()
