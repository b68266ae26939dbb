import json
import warnings

import numpy as np
import pandas as pd
import pytest

from dpiw.data.cells.counts import count_cells
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.source import validation
from dpiw.errors import StageFailedError
from tests.support.worlds import declared

CANARY = "CANARY-7f3a"

SCHEMA = declared(
    {"name": "id", "role": "identifier"},
    {"name": "n", "kind": "integer", "lower": 0, "upper": 9},
    {"name": "x", "kind": "continuous", "lower": 0, "upper": 1, "nullable": True},
    {"name": "b", "kind": "boolean"},
    {"name": "c", "kind": "categorical", "levels": ["a", "b"]},
    {"name": "d", "kind": "date", "lower": "2000-01-01", "upper": "2001-01-01"},
    {"name": "t", "kind": "datetime", "lower": "2000-01-01", "upper": "2001-01-01"},
    name="toy",
)  # fmt: skip
FRAME = pd.DataFrame({"n": [1, 2], "x": [0.5, None], "b": [True, False], "c": ["a", "b"]}).assign(
    d=pd.Timestamp("2000-05-05"), t=pd.Timestamp("2000-05-05", tz="UTC")
)


def judged(frame):
    return validation.validate_values(
        {c.name: count_cells(c, frame[c.name]) for c in SCHEMA.released}, SCHEMA
    )


def test_values_are_judged_and_never_abort():
    good = judged(FRAME)
    assert good
    assert all(good.values())
    bad = FRAME.astype({"n": "int64"}).assign(n=[1, 99], c=[CANARY, "b"], b=[None, True])
    verdicts = judged(bad)
    assert {name for name, passed in verdicts.items() if not passed} == {
        "n: expect_column_values_to_be_between",
        "c: expect_column_values_to_be_in_set",
        "b: expect_column_values_to_not_be_null",
    }
    text = FRAME.astype(str).assign(n=["1", CANARY], x=["0.5", ""]).astype("str")
    verdicts = judged(text)
    assert not verdicts["n: expect_column_values_to_not_be_null"]
    assert verdicts["x: expect_column_values_to_be_between"]
    assert CANARY not in json.dumps(verdicts)


def test_scaled_table_passes_as_extremes():
    scaled = SCHEMA.scale(FRAME)
    extremes = validation.scaled_extremes(scaled, SCHEMA)
    whole = pd.DataFrame(dict(scaled.columns))
    assert np.array_equal(extremes.loc[0], whole.min())
    assert np.array_equal(extremes.loc[1], whole.max())
    assert all(validation.validate_scaled(extremes, SCHEMA).values())
    empty = validation.scaled_extremes(scaled.take(np.array([], dtype=int)), SCHEMA)
    assert all(validation.validate_scaled(empty, SCHEMA).values())


@pytest.mark.parametrize(
    "change",
    [{"n": 1.0000001}, {"n": -0.1}, {"n": np.nan}, {"n": np.inf}, {"more": 0.5}, {"n": None}],
)
def test_scaled_out_of_range_or_shape_is_our_bug_and_says_nothing(change):
    extremes = validation.scaled_extremes(SCHEMA.scale(FRAME), SCHEMA)
    for name, value in change.items():
        extremes = extremes.assign(**{name: value}) if value is not None else extremes.drop(
            columns=name
        )  # fmt: skip
    with pytest.raises(StageFailedError) as caught:
        validation.validate_scaled(extremes, SCHEMA)
    assert not {"n", "more"} & {*str(caught.value).split()}


@pytest.mark.parametrize("nullable", [False, True])
def test_only_what_may_be_missing_is_left_out_of_extremes(nullable):
    kinds = [{"kind": "continuous", "lower": 0, "upper": 1}, {"kind": "boolean"}]
    columns = [{"name": n, "nullable": nullable, **k} for n, k in zip("xb", kinds, strict=True)]
    schema = PublicSchema.from_mapping({"name": "s", "columns": columns})
    missing = {"x": np.array([0.1, np.nan]), "b": np.array([1, -1])}
    for name, values in missing.items():
        whole = {"x": np.array([0.1, 0.9]), "b": np.array([0, 1]), name: values}
        extremes = validation.scaled_extremes(ScaledTable(whole, 2), schema)
        if nullable:
            assert all(validation.validate_scaled(extremes, schema).values())
            continue
        with pytest.raises(StageFailedError):
            validation.validate_scaled(extremes, schema)


def test_results_are_truth_values_only(capfd):
    import great_expectations.expectations as expect

    frame = pd.DataFrame({"c": [CANARY, CANARY]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = validation.run_checks(
            frame,
            [
                expect.ExpectColumnValuesToBeInSet(column="c", value_set=["a"]),
                expect.ExpectColumnValuesToBeBetween(column="gone", min_value=0, max_value=1),
            ],
        )
    assert results == {
        "c: expect_column_values_to_be_in_set": False,
        "gone: expect_column_values_to_be_between": False,
    }
    out, err = capfd.readouterr()
    assert CANARY not in out + err
    assert "Calculating" not in err
