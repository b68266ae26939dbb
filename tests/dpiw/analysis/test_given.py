"""A Series goes by its index, everything else by position; a sample's rows stay as they were."""

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.errors import ReleaseError, WeightError

ROWS = 300


def table(index=None, seed=5):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 96, ROWS),
            "hours": rng.normal(35, 9, ROWS),
            "town": rng.choice(["north", "south"], ROWS),
        },
        index=index,
    )


def indices():
    shuffled = np.random.default_rng(6).permutation(ROWS)
    return {
        "as it is read": None,
        "a part of a table": pd.RangeIndex(1000, 1000 + 3 * ROWS, 3),
        "a shuffled table": pd.Index(shuffled),
        "names": pd.Index([f"row {i}" for i in shuffled]),
        "two levels": pd.MultiIndex.from_product([range(ROWS // 3), list("abc")]),
    }


DOORS = {
    "a mask": lambda t, s: analysis.mean((t, None), "hours", where=s(t)["age"] > 60),
    "a function's mask": lambda t, s: analysis.mean(
        (t, None), "hours", where=lambda rows: s(rows)["age"] > 60),
    "values": lambda t, s: analysis.mean((t, None), s(t)["hours"], where="age > 60"),
    "a function's values": lambda t, s: analysis.variance(
        (t, None), lambda rows: s(rows)["hours"], where="age > 60"),
    "a quantile's": lambda t, s: analysis.quantile((t, None), s(t)["hours"], 0.3, where="age > 60"),
    "a correlation's": lambda t, s: analysis.correlation((t, None), "age", s(t)["hours"]),
    "a total's": lambda t, s: analysis.total(
        (t, None), s(t)["hours"], where=s(t)["age"] > 60, population=9),
    "weights": lambda t, s: analysis.mean((t, s(t)["age"]), "hours"),
    "a sample's weights": lambda t, s: analysis.mean(
        analysis.WeightedSample(frame=t, weights=s(t)["age"] / t["age"].mean()), "hours"),
    "a regression's mask": lambda t, s: analysis.linear_regression(
        (t, None), "hours", ["town"], where=s(t)["age"] > 60),
    "shares": lambda t, s: analysis.value_counts((t, None), "town", where=s(t)["age"] > 60),
    "a test's mask": lambda t, s: analysis.t_test(
        (t, None), "hours", by="town", where=s(t)["age"] > 60).estimate,
}  # fmt: skip


@pytest.mark.parametrize("index", indices().values(), ids=indices())
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_series_goes_by_its_index(door, index):
    rows = table(index)
    straight = door(rows, lambda t: t).values
    assert np.array_equal(door(rows, lambda t: t.sort_values("hours")).values, straight)
    assert np.array_equal(door(rows, lambda t: t.sample(frac=1, random_state=1)).values, straight)


def test_arrays_and_lists_go_by_position():
    rows = table(indices()["a shuffled table"])
    old = analysis.mean((rows, None), "hours", where="age > 60").value
    is_old = rows["age"] > 60
    for mask in (is_old, is_old.to_numpy(), list(is_old), is_old.array):
        assert analysis.mean((rows, None), "hours", where=mask).value == old
    assert analysis.mean((rows, None), is_old).value == pytest.approx(is_old.mean())
    weighted = analysis.mean((rows, rows["age"]), "hours").value
    assert analysis.mean((rows, list(rows["age"])), "hours").value == weighted


REFUSED = {
    "mask": lambda t, values: analysis.mean((t, None), "hours", where=values > 60),
    "function": lambda t, values: analysis.mean((t, None), "hours", where=lambda _: values > 60),
    "values": lambda t, values: analysis.median((t, None), values),
    "weights": lambda t, values: analysis.mean((t, values), "hours"),
}


@pytest.mark.parametrize("door", REFUSED.values(), ids=REFUSED)
def test_another_index_is_refused(door):
    rows = table()
    for wrong in (rows["age"].set_axis(range(40, ROWS + 40)), rows["age"][:100]):
        with pytest.raises((ReleaseError, WeightError), match=r"\.reindex\(table\.index\)"):
            door(rows, wrong)


@pytest.mark.parametrize("door", REFUSED.values(), ids=REFUSED)
def test_an_index_with_a_label_twice_finds_no_row(door):
    twice = np.arange(ROWS) // 2
    rows = table(twice)
    straight = door(table(), table()["age"]).values
    assert np.array_equal(door(rows, rows["age"]).values, straight)
    for asked, given in ((rows, rows["age"].sort_values()), (table(), rows["age"])):
        with pytest.raises((ReleaseError, WeightError)):
            door(asked, given)


def _column(rows):
    rows["age"] = 0


def _array(rows):
    values = rows["age"].to_numpy()
    if values.flags.writeable:
        values[:] = 0


def _order(rows):
    rows.sort_values("age", inplace=True)  # noqa: PD002


def _function(change):
    """A function of the table that changes what it was given."""

    def change_and_ask(rows):
        change(rows)
        return np.ones(ROWS, dtype=bool)

    return change_and_ask


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("change", [_column, _array, _order])
def test_what_is_done_to_a_sample_s_table_changes_no_estimate(change, released):
    given = table()
    made = analysis.weighted_sample((given, given["hours"].abs()))
    for source in (made, released.sample):
        before = analysis.mean(source, "age").value
        adults = analysis.mean(source, "age", where="age > 30").value
        change(source.table)
        if source is made and change is not _array:
            change(given)
        analysis.mean(source, "age", where=_function(change))
        assert analysis.mean(source, "age").value == before
        assert analysis.mean(source, "age", where="age > 30").value == adults
        with pytest.raises(ValueError, match="read-only"):
            source.weights[:] = 1
    assert released.mean("age").value == before
