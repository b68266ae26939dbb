"""The throughput of DP-SGD: every variant trains its network, and the page says what was found."""

import dataclasses

import numpy as np
import pytest

from tests.benchmarks.scripts import load

nets, script = load("dp_sgd_nets"), load("dp_sgd")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", nets.NETS)
def test_every_variant_takes_a_step(name):
    net = dataclasses.replace(nets.NETS[name], lot=32)
    rows = net.rows(np.random.default_rng(0))[:96]
    for make in nets.variants(net).values():
        make(rows)(1)


def test_the_page_says_which_targets_are_met():
    row = {"cpu_us": 2e3, "wall_us": 1e3, "rows_per_s": 128e3, "peak_mib": 7.0}
    ratios = {
        "torch, no privacy": 1.0, "torch, no privacy, double": 2.0,
        "Opacus, hooks, its loader": 8.0, "Opacus, ghost, its loader": 4.0,
    }  # fmt: skip
    results = {
        name: {v: row | {"ratio": ratio} for v, ratio in (ratios | {"ours": ours}).items()}
        for name, ours in (("perceptron", 1.25), ("convolution", 4.0))
    }
    words = ("command", "commit", "machine", "cores", "python", "numpy", "torch", "opacus")
    loads = {"load_before": 0.0, "load_after": 0.0, "turns": dict.fromkeys(nets.NETS, 3)}
    page = script.report(results, dict.fromkeys(words, "x") | loads | {"device": "cpu"})
    for line in (
        "| perceptron | times the cost of torch, no privacy | at most 2 | 1.25 | yes |",
        "| perceptron | times faster than Opacus, hooks, its loader | 8 | 6.40 | no |",
        "| convolution | times the cost of torch, no privacy | at most 3 | 4.00 | no |",
        "| convolution | times the cost of torch, no privacy, double | at most 3 | 2.00 | yes |",
        "| ours | 128,000 | 2.00 | 1.00 | 4.00 | 7 |",
    ):
        assert line in page.splitlines()
