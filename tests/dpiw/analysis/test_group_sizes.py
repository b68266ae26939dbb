"""What the number of people behind a value lets its verdict be."""

from __future__ import annotations

from dataclasses import replace

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


def test_one_row_has_no_interval_of_no_width(sample):
    """Its spread is not zero but unknown: the estimate's limits, and the reason."""
    table = sample.table.assign(flag=True)
    one = replace(sample, table=table)
    for method in ("noise_aware", "sandwich"):
        alone = analysis.mean(one, "x", where="x < 0.00004").interval(method=method)
        assert (alone.lower[0], alone.upper[0]) == (-np.inf, np.inf)
        share = analysis.mean(one, "flag", where="x < 0.00004").interval(method=method)
        assert (share.lower[0], share.upper[0]) == (0, 1)
    told = analysis.mean(one, "x", where="x < 0.00004").interval()
    assert told.verdicts == ("do not use",)
    assert "one synthetic row is behind it (expected >= 10)" in repr(told)
    rng = np.random.default_rng(3)
    drawn = analysis.mean(one, "x", where="x < 0.00004").interval(
        method="bootstrap", replicates=20, rng=rng
    )
    assert drawn.upper[0] == np.inf


def test_a_handful_of_rows_is_no_use_and_many_equal_ones_have_no_error(sample):
    def why(rows, column):
        return analysis.mean(sample, column, where=f"x < {rows / ROWS}").interval()

    assert "9.0 effective synthetic rows are behind it (expected >= 10)" in why(9, "x").told()[0]
    assert why(9, "x").upper[0] < 0.01  # a spread that is seen is kept
    assert why(9, "all").upper[0] == np.inf
    assert "synthetic row" not in why(10, "x").told()[0]
    assert why(10, "all").lower[0] == why(10, "all").upper[0] == 1
    uneven = np.where(np.arange(ROWS) == 0, 1000.0, 1.0)
    heavy = replace(sample, weights=uneven / uneven.mean())
    found = analysis.mean(heavy, "x", where="x < 0.005").interval()  # 100 rows, one of which counts
    assert "1.2 effective synthetic rows" in found.told()[0]


def test_public_bounds_are_the_limits_of_a_mean_and_of_a_quantile(released):
    lower, upper = (
        next(c[end] for c in released.schema["columns"] if c["name"] == "income")
        for end in ("lower", "upper")
    )
    place = int(released.table["income"].notna().to_numpy().argmax())
    only = np.arange(len(released.table)) == place
    for estimator in (analysis.mean, analysis.median):
        found = estimator(released, "income", where=only).interval()
        assert (found.lower[0], found.upper[0]) == (lower, upper)
    moved = replace(released.sample, table=released.table.assign(income=-1.0))
    assert analysis.mean(moved, "income").limits is None  # not as it was released
    assert analysis.mean(released, lambda t: t["income"]).limits is None
