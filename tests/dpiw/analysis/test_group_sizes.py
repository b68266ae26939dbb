"""What the number of people behind a value lets its verdict be."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.errors.verdicts import EMPTY, LEVEL, NONE, few, size_objections
from dpiw.analysis.sample import WeightedSample
from dpiw.methods.weights.measured.law import MeansLaw

ROWS, PEOPLE = 20_000, 1000


@pytest.fixture(scope="module")
def sample():
    """Rows uniform on [0, 1], all of weight one, with a law of next to no noise."""
    x = (np.arange(ROWS) + 0.5) / ROWS
    law = MeansLaw(
        features=x[:, None] - 0.5, weights=np.ones(ROWS), covariance=1e-12 * np.eye(1),
        rows=PEOPLE, credit=PEOPLE,
    )  # fmt: skip
    table = pd.DataFrame({"x": x, "y": x**2, "g": np.where(x < 0.002, "few", "rest"), "all": 1.0})
    table["ten"] = 10.0
    return WeightedSample(frame=table, weights=np.ones(ROWS), law=law)


@pytest.mark.parametrize(
    ("condition", "objections"),
    [
        ("x >= 0", []),
        ("x < 0.101", []),
        ("x < 0.099", [few(1)]),  # 99 people
        ("x < 0.006", [few(1)]),  # 6 people of 1,000: their share's error is some sqrt(6)/1,000
        ("x < 0.003", [EMPTY]),  # 3 people: 1.96 such errors are more than 3
    ],
)
def test_fewer_people_allow_less(sample, condition, objections):
    for estimate in (
        analysis.mean(sample, "y", where=condition),
        analysis.median(sample, "y", where=condition),
        analysis.std(sample, "y", where=condition),
        analysis.correlation(sample, "x", "y", where=condition),
        analysis.total(sample, "all", population=9.0, where=condition),
        analysis.linear_regression(sample, "y", ["x"], where=condition),
        analysis.value_counts(sample, "all", where=condition),
    ):
        assert all(group == objections for group in size_objections(estimate))


def test_verdicts_hold_the_size_and_intervals_what_is_possible(sample):
    plain, few = (
        analysis.mean(sample, "x", where=where).interval() for where in (None, "x < 0.005")
    )
    assert plain.verdicts == ("use",)
    assert few.verdicts != ("use",)
    edge = analysis.value_counts(sample, "g").interval()  # 2 of 1,000 people
    assert edge.lower[0] == 0
    assert edge.upper[1] == 1
    assert 0 < edge.upper[0] < edge.lower[1] < 1
    assert analysis.total(sample, "all", population=9.0, where="x < 0.002").interval().lower[0] == 0


def test_each_group_has_its_own_size_and_a_difference_the_smaller_one(sample):
    means = analysis.mean(sample, "y", by="g")
    assert means.names[0].endswith("few")
    together = analysis.joint(analysis.mean(sample, "y"), means)
    difference = analysis.t_test(sample, "y", by="g", method="sandwich").estimate
    picked = analysis.wald_test(means, means.names[1:], method="sandwich").estimate
    for estimate, objections in (
        (means, [[EMPTY], []]), (together, [[], [EMPTY], []]), (difference, [[EMPTY]]),
        (picked, [[]]),
    ):  # fmt: skip
        assert size_objections(estimate) == objections


@pytest.mark.parametrize("names", [("heavy", "light"), ("light", "heavy")])
def test_a_difference_is_no_better_than_either_group(sample, names):
    rng = np.random.default_rng(5)
    few = np.arange(ROWS) < 3
    group = np.where(few, *names).astype(object)
    group[63:] = None
    weights = np.where(few, 25.0, 1.0)
    table = pd.DataFrame({"y": rng.normal(size=ROWS), "g": group})
    law = replace(sample.law, rows=10**6, credit=10**6)
    two = replace(sample, frame=table, weights=weights / weights.mean(), law=law)
    means = analysis.mean(two, "y", by="g", where=table["g"].notna().to_numpy())
    large, thin = sorted(size_objections(means), key=len)
    assert large == []
    assert "3.0 effective" in thin[-1].reason
    difference = analysis.t_test(two, "y", by="g", method="sandwich").estimate
    assert size_objections(difference) == [thin]


def test_one_row_has_no_interval_of_no_width(sample):
    flagged, one = replace(sample, frame=sample.table.assign(flag=True)), "x < 0.00004"
    for method in ("noise_aware", "sandwich"):
        for column, limits in (("x", (-np.inf, np.inf)), ("flag", (0, 1))):
            found = analysis.mean(flagged, column, where=one).interval(method=method)
            assert (found.lower[0], found.upper[0]) == limits
    alone = analysis.mean(flagged, "x", where=one)
    assert alone.interval().verdicts == ("do not use",)


def test_a_handful_of_rows_is_no_use_and_many_equal_ones_have_no_error(sample):
    def why(rows, column):
        return analysis.mean(sample, column, where=f"x < {rows / ROWS}").interval()

    assert "9.0 effective" in why(9, "x").told()[0]
    assert why(9, "x").upper[0] < 0.01  # a spread that is seen is kept
    assert why(9, "ten").upper[0] == np.inf
    assert "effective" not in why(10, "x").told()[0]
    assert why(10, "ten").lower[0] == why(10, "ten").upper[0] == 10  # of no known bounds
    assert why(10, "all").lower[0] < why(10, "all").upper[0] == 1  # a share
    uneven = np.where(np.arange(ROWS) == 0, 1000.0, 1.0)
    heavy = replace(sample, weights=uneven / uneven.mean())
    interval = analysis.mean(heavy, "x", where="x < 0.005").interval()  # 100, of which one counts
    assert "1.2 effective" in interval.told()[0]


@pytest.fixture(scope="module")
def uneven(sample):
    """Rows at random, with levels of one row, of three, of thirty, and two that are common."""
    rng = np.random.default_rng(8)
    x = rng.random(ROWS)
    common = rng.choice(["p", "q"], ROWS).astype(object)
    few = common.copy()
    few[:1], few[1:4], few[4:34] = "one", "three", "thirty"
    noise = replace(sample.law, rows=10**6, credit=10**6)
    table = pd.DataFrame({"x": x, "y": x + rng.normal(size=ROWS), "common": common, "few": few})
    table["flag"], table["rare"] = rng.random(ROWS) < 0.3, few == "three"
    table["ten_or_twenty"] = np.where(few == "one", 20.0, 10.0)
    table["spent"] = np.where(few == "three", x, 0.0)
    table["ill"] = np.arange(ROWS) % 2 == 0
    return replace(sample, frame=table, law=noise)


@pytest.mark.parametrize(
    ("features", "thin"),
    [
        (["x", "common", "flag", "x:flag", "common:flag"], set()),
        (["x", "few"], {"few=three", "few=p", "few=q", "few=thirty"}),  # `one` is left out
        (["x", "rare"], {"rare"}),
        (["x", "ten_or_twenty"], {"ten_or_twenty"}),
        (["x", "spent"], {"spent"}),
        (["x", "flag", "rare", "x:rare"], {"rare", "x:rare"}),
    ],
)
def test_a_coefficient_rests_on_the_rows_that_it_compares(uneven, features, thin):
    for estimate in (
        analysis.linear_regression(uneven, "y", features),
        analysis.linear_regression(uneven, "y ~ " + " + ".join(features)),
    ):
        by_name = dict(zip(estimate.names, size_objections(estimate), strict=True))
        spelt = {n: n.replace("[T.True]", "").replace("[T.", "=").replace("]", "") for n in by_name}
        faulty = {spelt[name] for name, objections in by_name.items() if objections}
        assert faulty == thin & set(spelt.values())


def test_a_coefficient_of_one_row_has_no_p_value(uneven):
    table = uneven.table.assign(g=np.where(uneven.table["few"] == "one", "z", "p"))
    lone = replace(uneven, frame=table)
    estimate = analysis.linear_regression(lone, "y", ["x", "g"])
    own = size_objections(estimate)
    assert estimate.interval().verdicts[-1] == "do not use"
    assert own[-1]
    assert size_objections(analysis.wald_test(estimate, ["g=z"]).estimate) == own[-1:]
    assert size_objections(analysis.wald_test(estimate, ["x"]).estimate) == [[]]
    together = analysis.joint(analysis.mean(lone, "x"), estimate)
    assert size_objections(together) == [[], *own]
    few_people = replace(lone, law=replace(lone.law, rows=1000))
    assert size_objections(analysis.linear_regression(few_people, "y", ["x"])) == [[], []]


def test_a_level_of_few_rows_is_used_with_care(uneven):
    found = analysis.value_counts(uneven, "few")
    objections = dict(zip(found.names, size_objections(found), strict=True))
    assert {name for name, own in objections.items() if own} == {"few=one", "few=three"}
    assert objections["few=one"] == [LEVEL]
    told, place = found.interval(), found.names.index("few=one")
    assert told.lower[place] == 0
    assert LEVEL.reason in told.reasons[place]
    assert size_objections(analysis.mean(uneven, "rare")) == [[LEVEL]]
    assert size_objections(analysis.mean(uneven, "flag")) == [[]]
    assert size_objections(analysis.mean(uneven, "x")) == [[]]
    joint = analysis.joint(analysis.mean(uneven, "x"), found)
    assert size_objections(joint)[1:] == [*objections.values()]
    assert size_objections(analysis.wald_test(found, ["few=one"]).estimate) == [[LEVEL]]
    crossed = analysis.chi_square_test(uneven, "few", "flag").estimate
    assert {name.split(", ")[0]: objections for name, objections in
            zip(crossed.names, size_objections(crossed), strict=True)} == {
        name.split("=")[1]: own for name, own in objections.items()
        if any(one.startswith(f"{name.split('=')[1]},") for one in crossed.names)
    }  # fmt: skip
    nobody = analysis.value_counts(uneven, "few", where="few != 'three'")
    assert size_objections(nobody)[nobody.names.index("few=three")] == [NONE]


def test_public_bounds_are_the_limits_of_a_mean_and_of_a_quantile(released):
    column = next(c for c in released.schema["columns"] if c["name"] == "income")
    place = int(released.table["income"].notna().to_numpy().argmax())
    only = np.arange(len(released.table)) == place
    for estimator in (analysis.mean, analysis.median):
        found = estimator(released, "income", where=only).interval()
        assert (found.lower[0], found.upper[0]) == (column["lower"], column["upper"])
    moved = replace(released.sample, frame=released.table.assign(income=-1.0))
    assert analysis.mean(moved, "income").limits is None  # not as it was released
    assert analysis.mean(released, lambda t: t["income"]).limits is None
