"""Conditions, groups, levels, tables, and how estimates print."""

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.columns import MOST_LEVELS, levels
from dpiw.analysis.conditions import condition
from dpiw.analysis.sample import weighted_sample
from dpiw.errors import ReleaseError
from tests.support.worlds import people

TABLE = people()
WEIGHTS = np.random.default_rng(32).gamma(2.0, 1.0, len(TABLE))
SOURCE = (TABLE, WEIGHTS)


@pytest.mark.parametrize(
    ("text", "naive"),
    [
        ("age > 40", lambda t: t["age"] > 40),
        ("30 < age <= 40 and not smoker", lambda t: t["age"].between(31, 40) & ~t["smoker"]),
        ("age > 40 & smoker", lambda t: (t["age"] > 40) & t["smoker"]),
        (
            "region in ['north', 'west'] or income >= 2e3",
            lambda t: t["income"].notna() & (t["region"].ne("south") | t["income"].ge(2000)),
        ),
        ("region not in ('north',)", lambda t: t["region"] != "north"),
        ("`odd name` > 0 and income > 500",
         lambda t: (t["odd name"] > 0) & (t["income"] > 500)),
        ("visits == 1", lambda t: (t["visits"] == 1).fillna(False)),
        ("born < '1960-01-01'", lambda t: t["born"] < pd.Timestamp("1960-01-01")),
        ("born in ['1950-01-03', '1960-02-01'] or born >= '1970-01-01T00:00'", lambda t: (
            t["born"].isin([pd.Timestamp("1950-01-03"), pd.Timestamp("1960-02-01")])
            | (t["born"] >= pd.Timestamp("1970-01-01"))
        )),
        (f"born not in ['{TABLE['born'][0]}']", lambda t: t["born"] != t["born"][0]),
        ("'1955-01-01' < born < '1960-01-01' & smoker",
         lambda t: t["born"].between("1955-01-02", "1959-12-31") & t["smoker"]),
        ("not (smoker & region == 'south')", lambda t: ~(t["smoker"] & (t["region"] == "south"))),
        ("smoker", lambda t: t["smoker"]),
        ("income != 0 or smoker", lambda t: t["income"].notna()),  # missing: left out
        ("not income > 1000", lambda t: t["income"] <= 1000),
    ],
)  # fmt: skip
def test_conditions_choose_what_they_say(text, naive):
    expected = naive(TABLE).to_numpy(dtype=bool)
    assert 0 < expected.sum() < len(TABLE)
    np.testing.assert_array_equal(condition(TABLE, text), expected)
    chosen = analysis.mean(SOURCE, "age", where=text).value
    ages = TABLE["age"].to_numpy()
    assert chosen == pytest.approx(np.average(ages[expected], weights=WEIGHTS[expected]))


@pytest.mark.parametrize(
    "text",
    [
        "agee > 40", "Region == 'south'", "`od name` > 0", "region == south",
        "age > 40 and and smoker", "odd name > 0", "age.abs() > 40", "__import__('os')",
        "@age > 3", "age[0] > 3", "age if smoker else 3", "age ** 2 > 4", "(lambda: 1)() > 0",
        "age + 1", "region > 3", "age == '40'", "smoker == 'yes'", "region == 'sout'",
        "age > 40 & region in ['south', 'East']", "born < '01/07/1960'", "'30/06/1960' < born",
        "born < '1960-02-30'", "born < '1960-01-01T00:00+02:00'",
        "born in ['1960-01-01', 'May 1960']",
    ],
)  # fmt: skip
def test_conditions_that_are_refused(text):
    with pytest.raises(ReleaseError):
        analysis.mean(SOURCE, "age", where=text)


def test_moments_are_read_in_their_column_s_zone():
    moments = pd.Series(pd.to_datetime(["2025-06-30T22:00Z", "2025-06-30T21:59Z"]))
    table = pd.DataFrame({"seen": moments.dt.tz_convert("Europe/Berlin")})
    for text in ("2025-07-01", "2025-07-01 00:00", "2025-06-30T22:00Z", "2025-07-01T01:00+03:00"):
        assert condition(table, f"seen >= '{text}'").tolist() == [True, False]
        assert condition(table, f"seen in ['{text}']").tolist() == [True, False]


@pytest.mark.parametrize("name", ["mean", "median", "variance", "std"])
def test_groups_are_the_estimates_of_each_group(name):
    estimator, levels = getattr(analysis, name), ("north", "south", "west")
    grouped = estimator(SOURCE, "income", by="region", where="age > 30")
    label = f"{name}(income) where age > 30 | region="
    assert grouped.names == tuple(label + level for level in levels)
    for level, value in zip(levels, grouped.values, strict=True):
        alone = estimator(SOURCE, "income", where=f"region == '{level}' and age > 30")
        assert value == pytest.approx(alone.value)
    frame = grouped.interval().frame()
    assert (frame["lower"] < frame["upper"]).all()


def test_spread_against_statsmodels():
    weighted = pytest.importorskip("statsmodels.stats.weightstats").DescrStatsW
    known = TABLE["income"].notna().to_numpy()
    peer = weighted(TABLE["income"][known], weights=WEIGHTS[known], ddof=0)
    assert analysis.variance(SOURCE, "income").value == pytest.approx(peer.var)
    assert analysis.std(SOURCE, "income").value == pytest.approx(peer.std)
    assert analysis.median(SOURCE, "income").value == pytest.approx(
        peer.quantile(0.5, return_pandas=False)[0]
    )


def test_shares_of_levels_by_hand():
    shares = analysis.value_counts(SOURCE, "region")
    regions = ("north", "south", "west")
    assert shares.names == tuple(f"region={level}" for level in regions)
    naive = [WEIGHTS[TABLE["region"] == level].sum() / WEIGHTS.sum() for level in regions]
    np.testing.assert_allclose(shares.values, naive)
    alone = analysis.mean(SOURCE, lambda t: t["region"] == "south")
    assert shares.covariance()[1, 1] == pytest.approx(alone.covariance()[0, 0])
    binned = analysis.value_counts(SOURCE, "income", bins=[0, 1000, 5000])
    parts = ("[0, 1000]", "(1000, 5000]", "outside", "missing")
    assert binned.names == tuple(f"income={part}" for part in parts)
    beyond = analysis.mean(SOURCE, lambda t: t["income"] > 5000)
    assert binned["income=outside"] == pytest.approx(beyond.value)
    assert binned.values.sum() == pytest.approx(1)


def test_a_description_of_every_column():
    some, where = (TABLE[TABLE["age"] > 30], WEIGHTS[TABLE["age"] > 30]), "age > 30"
    shown = analysis.describe(SOURCE, where=where)
    assert list(shown.index) == list(TABLE.columns)
    for column, statistic, found in (
        ("age", "mean", analysis.mean(some, "age")),
        ("income", "std", analysis.std(some, "income")),
        ("income", "50%", analysis.median(some, "income")),
    ):
        assert shown.loc[column, statistic] == pytest.approx(found.value)
    assert shown.loc["region", "levels"] == 3
    assert shown.loc["born", "levels"] == TABLE["born"].nunique()
    shares = analysis.value_counts(some, "region")
    assert shown.loc["region", "top share"] == pytest.approx(shares.values.max())
    assert shown.loc["born", ["top", "top share", "50%"]].isna().all()  # some day is no main one
    two = analysis.describe(SOURCE, "region", "age", where=where)
    pd.testing.assert_frame_equal(two, shown.loc[["region", "age"]][two.columns])
    with pytest.raises(ReleaseError):
        analysis.describe(SOURCE, "agee")


def test_many_numbers_are_no_levels():
    assert TABLE["age"].nunique() > MOST_LEVELS
    for ask in (
        lambda: analysis.crosstab(SOURCE, "age", "smoker"),
        lambda: analysis.value_counts(SOURCE, "age"),
        lambda: analysis.mean(SOURCE, "income", by="age"),
        lambda: analysis.chi_square_test(SOURCE, "age", "smoker"),
    ):
        with pytest.raises(ReleaseError, match="column 'age'"):
            ask()
    with pytest.raises(ReleaseError, match="column 'born'"):
        analysis.value_counts(SOURCE, "born")
    edges = ([10], [], [65, 18], [18, 18], ["x", "y"], [0, 10**400])
    dates = (["2025-01-01"], ["2025-01-01", "2024-01-01"], ["01/07/2025", "2025-08-01"])
    for column, wrong in (("age", (0, True, "ab", *edges)), ("born", (0, ["x", "y"], *dates))):
        for bins in wrong:
            with pytest.raises(ReleaseError, match=f"column '{column}'"):
                analysis.value_counts(SOURCE, column, bins=bins)
    counts = analysis.crosstab(SOURCE, "age", "smoker", bins=4)
    assert counts.shape == (4, 2)
    assert counts.to_numpy().sum() == pytest.approx(1)
    assert list(counts.columns) == [False, True]
    with pytest.raises(ReleaseError):
        levels(weighted_sample(SOURCE), "region", 3)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_bins_of_dates_begin_with_their_first_edge(zone):
    days = ["2024-01-01", "2024-06-30", "2024-07-01", None, "2025-01-01"]
    table = pd.DataFrame({"day": pd.to_datetime(days).tz_localize(zone)})
    sample = weighted_sample((table, None))
    edged = levels(sample, "day", ["2024-01-01", "2024-07-01", "2025-01-01"])
    assert edged.codes.tolist() == [0, 0, 1, 3, 2]
    assert edged.labels[-2:] == ("outside", "missing")
    if zone is None:
        assert edged.labels[0] == "[2024-01-01, 2024-07-01)"
    halves = levels(sample, "day", 2)
    assert halves.codes.tolist() == [0, 0, 0, 2, 1]  # all of the range, both ends included
    alone = levels(weighted_sample((table.iloc[3:4], None)), "day", 2)
    assert alone.labels == ("missing",)
    counts = analysis.crosstab((TABLE, None), "born", "smoker", bins=3)
    assert counts.shape == (3, 2)
    assert counts.to_numpy().sum() == pytest.approx(1)


def test_estimates_print_with_interval_and_verdict():
    estimate = analysis.mean(SOURCE, "age")
    text, interval = repr(estimate), estimate.interval()
    for fact in ("mean(age)", f"{estimate.value:.6g}", f"{interval.lower[0]:.6g}", "not assessed"):
        assert fact in text
    assert f"{estimate:.3f}" == f"{estimate.value:.3f}"
    assert str(estimate) == f"{estimate}" == text
    assert float(estimate) == estimate.value
    assert "<table" in estimate._repr_html_()
    printed = repr(analysis.mean(SOURCE, "age", by="region")).splitlines()
    assert len(printed) == 7  # one line says for all of them why it is not assessed


def test_only_estimates_of_one_sample_are_joined():
    age, median = analysis.mean(SOURCE, "age"), analysis.median(SOURCE, "age")
    other = analysis.mean((TABLE, None), "age")
    for wrong in ((age, other), (), ([other, other],), (other, "age"), (age, median)):
        with pytest.raises(ReleaseError):
            analysis.joint(*wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"where": (TABLE["age"] > 40)[:-1]}, {"by": ["region", "region"]}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_condition_of_other_rows_and_a_group_twice_are_refused(wrong):
    with pytest.raises(ReleaseError):
        analysis.mean(SOURCE, "income", **wrong)
