"""The page of local learning: slopes of known cells, and the people of its studies."""

import numpy as np
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


def test_people_lie_on_the_sphere_and_their_reports_have_the_law():
    rng = np.random.default_rng(1)
    x, y = local.sphere(3)(2000, rng)
    assert np.linalg.norm(x, axis=1) == pytest.approx(np.ones(2000))
    assert np.corrcoef(x[:, 0], y)[0, 1] > 0.5
    parameters = local.calibrated(
        collection="study", features=[local.Feature(name=c, low=-1, high=1) for c in "abc"],
        label="y", levels=("no", "yes"), epsilon=local.Decimal(4), delta=local.DELTA, radius=1.0,
    )  # fmt: skip
    sample = local.told(parameters, (x, y), rng)
    assert (sample.features - x).std() == pytest.approx(parameters.stddev, rel=0.05)
    assert (sample.labels == y).mean() == pytest.approx(parameters.response.keep, abs=0.05)
