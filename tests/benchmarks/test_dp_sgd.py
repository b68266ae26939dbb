"""The throughput of DP-SGD: every variant trains its network."""

import dataclasses

import numpy as np
import pytest

from tests.benchmarks.scripts import load

nets = load("dp_sgd_nets")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", nets.NETS)
def test_every_variant_takes_a_step(name):
    net = dataclasses.replace(nets.NETS[name], lot=32)
    rows = net.rows(np.random.default_rng(0))[:96]
    for make in nets.variants(net).values():
        make(rows)(1)
