"""The page of MST and AIM: every kind of row by its name, and none that was not made."""

from __future__ import annotations

from tests.benchmarks.scripts import load

for name in ("exact_gan", "exact_ratio", "paper_sets", "paper_measure", "paper_cells"):
    load(name)
for name in ("paper_summary", "paper_peers", "weights_table", "measured_peers"):
    load(name)
marginal = load("marginal_generators")


def test_the_page_shows_what_was_made() -> None:
    metrics = {"tv_1way": 0.25, "linear_auc": 0.5, "beta_relative_error": 1.0}
    records = {
        ("banknote", "mst", "none"): [
            {"metrics": metrics, "seconds": 2},
            {"metrics": metrics | {"tv_1way": 0.35}, "seconds": 4},
        ],
        ("banknote", "mst", "peer"): [{"refused": "gone", "seconds": 1}],
    }
    lines = marginal.page(records)
    (ours,) = [line for line in lines if line.startswith("| ours |")]
    assert "0.3 ± 0.05" in ours
    assert ours.endswith("| 2 | 3 |")
    assert not [line for line in lines if "peers'" in line]
