"""What compares with what in a condition, the order of levels, and conditions that nobody meets."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.conditions import chosen, condition
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import ReleaseError
from tests.support.worlds import declared

SCHOOLS = ("primary", "secondary", "bachelor", "master")
SCHEMA = declared(
    {"name": "age", "kind": "integer", "lower": 18, "upper": 95},
    {"name": "school", "kind": "ordinal", "levels": [*SCHOOLS], "nullable": True},
    {"name": "town", "kind": "categorical", "levels": ["north", "south"]},
    {"name": "ill", "kind": "boolean"},
    {"name": "visit", "kind": "date", "lower": "2025-01-01", "upper": "2025-12-31"},
)


def sample(rows=200, seed=91):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 96, rows),
            "school": rng.choice([*SCHOOLS, None], rows),
            "town": rng.choice(["north", "south"], rows),
            "ill": rng.random(rows) < 0.3,
            "visit": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), "D"),
        }
    )
    release = SimpleNamespace(schema=SCHEMA.to_mapping())
    return WeightedSample(frame=frame, weights=np.ones(rows), release=release)


PEOPLE = sample()


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("school <= 'secondary'", ["primary", "secondary"]),
        ("school > 'secondary'", ["bachelor", "master"]),
        ("'primary' < school <= 'bachelor'", ["secondary", "bachelor"]),
        ("not school < 'master'", ["master"]),
        ("school == 'bachelor' or school < 'secondary'", ["primary", "bachelor"]),
    ],
)
def test_levels_of_an_ordinal_column_compare_in_the_schema_s_order(text, levels):
    expected = PEOPLE.table["school"].isin(levels).to_numpy()  # a missing one is in none
    assert 0 < expected.sum() < PEOPLE.rows
    np.testing.assert_array_equal(chosen(PEOPLE, text), expected)


def test_levels_of_pandas_ordered_types_have_their_order():
    sizes = pd.CategoricalDtype(["small", "large"], ordered=True)
    table = pd.DataFrame({"size": pd.Series(["large", "small", None], dtype=sizes)})
    assert condition(table, "size > 'small'").tolist() == [True, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "town < 'south'", "school < town", "visit > 2025", "visit == 2025", "visit > 20250601",
        "visit in [2025]", "1 < visit", "visit == ill", "visit - 1 > 3", "school != 3",
        "town not in [1]", "town == (age > 3)", "town == age", "school == 'secondry'",
        "not age > 40 or town", "ill and age", "not visit", "age > 40 and 'north'", "age > visit",
        "1 < 2", "age < 3 < 4", "town in 'north'", "age not in 40", "age in ill", "age in []",
        "18 < age in [40]", "18 < age in 40", "18 < age not in 40", "age < [40]", "age in [[1]]",
        "age in [ill]", "age in [ill, 3]", "age > -True", "town == -'a'", "~" * 3000 + "ill",
        "1 in [age]", "1 in age",
        "[40] == age", "age + '1' > 3", "age + 1 > '3'", "age == None",
        "age = 40", "age * 2 > 3", "age > 40 && ill", "age > 40 AND ill", "age > 40 || ill", "!ill",
        "age between 18 and 40", "age <> 40", "school is null", "town == 'a = b' age",
        "age // 2 > 3",
    ],
)  # fmt: skip
def test_what_does_not_compare_is_refused(text):
    with warnings.catch_warnings(action="error"), pytest.raises(ReleaseError):
        chosen(PEOPLE, text)


def test_a_list_behind_a_sign_is_pandas_in():
    ages, days = PEOPLE.table["age"], PEOPLE.table["visit"]
    np.testing.assert_array_equal(chosen(PEOPLE, "age == [30, 31]"), ages.isin([30, 31]))
    day = f"{days[0]:%Y-%m-%d}"
    np.testing.assert_array_equal(chosen(PEOPLE, f"visit == ['{day}']"), days == days[0])
    np.testing.assert_array_equal(chosen(PEOPLE, f"visit != ['{day}']"), days != days[0])


def test_numbers_of_zero_and_one_are_truth_values():
    table = pd.DataFrame({"flag": pd.array([0, 1, None], dtype="Int64"), "age": [50, 60, 70]})
    assert condition(table, "flag and age > 40").tolist() == [False, True, False]
    assert condition(table, "not flag").tolist() == [True, False, False]
    assert condition(table, "`age` > 55 and age < 65").tolist() == [False, True, False]


def test_a_column_of_numbers_and_text_has_levels_too():
    table = pd.DataFrame({"code": pd.Series([1, "a", 2.5, None], dtype=object)})
    assert condition(table, "code == 'a'").tolist() == [False, True, False, False]
    assert condition(table, "code == 1").tolist() == [True, False, False, False]
    with pytest.raises(ReleaseError, match="column 'code' has no level 'b'"):
        condition(table, "code == 'b'")


@pytest.mark.parametrize(
    "estimate",
    [
        lambda where: analysis.mean(PEOPLE, "age", where=where),
        lambda where: analysis.median(PEOPLE, "age", by="town", where=where),
        lambda where: analysis.total(PEOPLE, "age", population=10, where=where),
        lambda where: analysis.correlation(PEOPLE, "age", "ill", where=where),
        lambda where: analysis.linear_regression(PEOPLE, "age", ["ill"], where=where),
        lambda where: analysis.logistic_regression(PEOPLE, "ill", ["age"], where=where),
        lambda where: analysis.crosstab(PEOPLE, "town", "ill", where=where),
        lambda where: analysis.value_counts(PEOPLE, "town", where=where),
        lambda where: analysis.describe(PEOPLE, where=where),
        lambda where: analysis.chi_square_test(PEOPLE, "town", "ill", where=where),
        lambda where: analysis.t_test(PEOPLE, "age", "ill", where=where),
    ],
)
def test_a_condition_that_nobody_meets_is_refused_by_all(estimate):
    with pytest.raises(ReleaseError, match=r"^no row .* where='age > 400'; column"):
        estimate("age > 400")


COLUMNS, LITERALS = ("ok", "age", "u8", "inc"), ("2", "-1", "0.5", "True", "300")


@pytest.mark.parametrize("dtypes", [{}, {"ok": "boolean"}, {"age": "Int64", "ok": "boolean"}])
def test_a_chain_reads_as_its_pairs_whatever_pandas_calls_the_column(dtypes):
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "age": rng.integers(0, 5, 40), "u8": rng.integers(0, 5, 40).astype(np.uint8),
            "inc": rng.normal(size=40), "ok": rng.random(40) < 0.5,
        }
    )  # fmt: skip
    typed = table.astype(dtypes)
    for low, name, high in itertools.product(LITERALS, COLUMNS, LITERALS):
        values, at, to = table[name].astype(float), float(eval(low)), float(eval(high))
        pairs = (at < values) & (values != to)
        for text, meant in (("{} < {} != {}", True), ("not ({} < {} != {})", False)):
            found = condition(typed, text.format(low, name, high))
            assert found.dtype == bool
            np.testing.assert_array_equal(found, pairs == meant)
