"""What the number of people behind a value lets its verdict be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.group_sizes import EMPTY, FEW, size_faults
from dpiw.analysis.noise import WeightLaw
from dpiw.analysis.sample import WeightedSample
from dpiw.privacy.units import NoiseKind, NoiseLaw

ROWS, PEOPLE = 20_000, 1000


@pytest.fixture(scope="module")
def sample():
    """Rows uniform on [0, 1], all of weight one, with a law of next to no noise."""
    x = (np.arange(ROWS) + 0.5) / ROWS
    law = WeightLaw(
        features=np.column_stack([x - 0.5, np.full(ROWS, 0.5)]), coefficients=np.zeros(2),
        noise=NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=1e-6, dimension=2), penalty=1.0,
        nominal_rows=PEOPLE, fitting_rows=10**9, debias=False,
    )  # fmt: skip
    table = pd.DataFrame({"x": x, "y": x**2, "g": np.where(x < 0.002, "few", "rest"), "all": 1.0})
    return WeightedSample(table=table, weights=np.ones(ROWS), law=law)


@pytest.mark.parametrize(
    ("condition", "faults"),
    [
        ("x >= 0", []),
        ("x < 0.101", []),
        ("x < 0.099", [FEW]),  # 99 people
        ("x < 0.006", [FEW]),  # 6 people of 1,000: their share's error is some sqrt(6)/1,000
        ("x < 0.003", [EMPTY]),  # 3 people: 1.96 such errors are more than 3
    ],
)
def test_fewer_people_allow_less(sample, condition, faults):
    for estimate in (
        analysis.mean(sample, "y", where=condition),
        analysis.median(sample, "y", where=condition),
        analysis.std(sample, "y", where=condition),
        analysis.correlation(sample, "x", "y", where=condition),
        analysis.total(sample, "all", population=9.0, where=condition),
        analysis.linear_regression(sample, "y", ["x"], where=condition),
        analysis.value_counts(sample, "all", where=condition),
    ):
        assert all(found == faults for found in size_faults(estimate))


def test_verdicts_hold_the_size_and_intervals_what_is_possible(sample):
    plain, few = (
        analysis.mean(sample, "x", where=where).interval() for where in (None, "x < 0.005")
    )
    assert plain.verdicts == ("use",)
    assert few.verdicts != ("use",)
    assert "cut" not in repr(plain)
    edge = analysis.value_counts(sample, "g").interval()  # 2 of 1,000 people
    assert "95% intervals, noise-aware, cut to what is possible" in repr(edge)
    assert edge.lower[0] == 0
    assert edge.upper[1] == 1
    assert 0 < edge.upper[0] < edge.lower[1] < 1
    assert analysis.total(sample, "all", population=9.0, where="x < 0.002").interval().lower[0] < 0


def test_each_group_has_its_own_size_and_a_difference_the_smaller_one(sample):
    means = analysis.mean(sample, "y", by="g")
    assert means.names[0].endswith("few")
    assert size_faults(means) == [[EMPTY], []]
    together = analysis.joint(analysis.mean(sample, "y"), means)
    assert size_faults(together) == [[], [EMPTY], []]
    difference = analysis.t_test(sample, "y", by="g", method="sandwich").estimate
    assert size_faults(difference) == [[EMPTY]]
    picked = analysis.wald_test(means, means.names[1:], method="sandwich").estimate
    assert size_faults(picked) == [[]]
