"""The page of local learning: slopes of known cells, and the people of its studies."""

from dataclasses import asdict, replace

import pytest

from tests.benchmarks.scripts import load

local = load("local_iwp")


def cells(power):
    return [
        local.Cell(name="people", epsilon="2", size=size, runs=3, excess=5 * size**power,
                   error=0.1, naive=0.2, given=1.0, covered=0.95, seconds=1.0)
        for size in local.SIZES
    ]  # fmt: skip


def test_a_slope_is_that_of_the_cells():
    assert local.slope(cells(-1.0), 1000) == pytest.approx(-1)
    assert local.slope(cells(-0.5), 10_000) == pytest.approx(-0.5)
    every = [*cells(-1.0), *(replace(cell, epsilon="8") for cell in cells(-0.5)), cells(-2.0)[0]]
    every[-1] = replace(every[-1], name="few")
    shown = local.page({"command": "x", "cells": [asdict(cell) for cell in every]})
    assert "| people | 2 | exponential | -1.00 | -1.00 | 1,000 reports |" in shown
    assert "| people | 8 | exponential | -0.50 | -0.50 | 1,000 reports |" in shown
    assert not any(line.startswith("| few | 2 | -") for line in shown), "one size has no slope"
    assert any(line.startswith("| people | 2 | exponential | 1,000 | 3 |") for line in shown)
