"""The throughput of DP-SGD: every variant trains its network."""

import numpy as np
import pytest

from tests.benchmarks.scripts import load

script = load("dp_sgd")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", script.VARIANTS)
def test_every_variant_takes_steps(name):
    rows = np.random.default_rng(0).normal(size=(96, script.WIDTHS[0]))
    script.VARIANTS[name](rows, lot=32)(4)
