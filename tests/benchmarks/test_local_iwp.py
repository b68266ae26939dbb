"""The page of local learning: slopes of known cells, and the people of its studies."""

import pytest

from tests.benchmarks.scripts import load

local = load("local_iwp")


def cells(power: float) -> list[object]:
    return [
        local.Cell(name="people", epsilon="2", size=size, runs=3, excess=5 * size**power,
                   error=0.1, naive=0.2, given=1.0, covered=0.95, seconds=1.0)
        for size in local.SIZES
    ]  # fmt: skip


def test_a_slope_is_that_of_the_cells():
    assert local.slope(cells(-1.0), 1000) == pytest.approx(-1)
    assert local.slope(cells(-0.5), 10_000) == pytest.approx(-0.5)
    shown = local.page([cells(-1.0), cells(-0.5)])
    assert "| people | 2 | -1.00 | -1.00 |" in shown
    assert "| people | 2 | 1,000 | 3 | 5.00e-03 |" in shown
