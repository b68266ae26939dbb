"""A custodian's expectations: checked with the dictionary, counted at ingest, stated alone."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source.validation import judge_expectations
from dpiw.errors import SchemaError
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.worlds import declared

CANARY = "CANARY-7f3a"
TYPE = "expect_column_values_to_"
BETWEEN = {"type": f"{TYPE}be_between", "min_value": 3, "max_value": 200}
NUMBER = {"name": "n", "kind": "integer", "lower": 0, "upper": 9, "nullable": True}
WORD = {"name": "c", "kind": "categorical", "levels": ["a", "b"], "normaliser": "casefold"}
DAY = {"name": "d", "kind": "date", "lower": "2020-01-01", "upper": "2029-12-31"}


def judged(column, *expectations, cells):
    (made,) = declared(column | {"expectations": [*expectations]}, name="t").columns
    return judge_expectations(made, cells)


@settings(derandomize=True, database=None, deadline=None, max_examples=5)
@given(
    st.lists(st.sampled_from(["", " ", "3", "2.5", "200.0", "201", "1e400", "x", "-7"])),
    st.integers(1, 3),
)
def test_counts_of_batches_add_up_to_those_of_the_table(texts, size):
    """Values beyond the column's bounds are judged as they are written, not as they are clamped."""
    numbers = [float(text) for text in texts if text.strip() not in ("", "x")]
    odd = texts.count("x")
    fail = sum(not 3 <= number <= 200 for number in numbers)
    not_missing = len(numbers)
    gaps = len(texts) - odd - not_missing
    expected = [[len(numbers), fail, odd], [not_missing + gaps, gaps, odd]]
    cells = pd.Series(texts, dtype="str")
    for step in (size, len(texts) + 1):
        batches = [cells[start : start + step] for start in range(0, len(texts), step)]
        told = [judged(NUMBER, BETWEEN, {"type": f"{TYPE}not_be_null"}, cells=b) for b in batches]
        assert sum(told, np.zeros((2, 3))).tolist() == (expected if batches else [[0] * 3] * 2)


@pytest.mark.parametrize(
    ("column", "name", "arguments", "cells", "counts"),
    [
        (WORD, "be_in_set", {"value_set": ["A"]}, ["a", " A", "b", None], [3, 1, 0]),
        (WORD, "not_match_regex", {"regex": "^a"}, ["a", "b", "\ufffd"], [2, 1, 1]),
        (WORD, "be_null", {}, ["a", "", None], [3, 1, 0]),
        (NUMBER, "not_be_in_set", {"value_set": [3]}, ["3", "3.0", "4"], [3, 2, 0]),
        (NUMBER, "be_between", {"max_value": 9}, [CANARY] * 4, [0, 0, 4]),
        (DAY, "be_between", {"min_value": "2021-01-01"}, ["2020-12-31", "2031-01-01"], [2, 1, 0]),
        (DAY, "be_between", {"max_value": "2021-01-01"},
         np.array(["2020-01-01", "9999-12-31"], "datetime64[s]") + np.array([0, 9**9]), [1, 0, 1]),
    ],
)  # fmt: skip
def test_cells_are_judged_as_the_column_reads_them(column, name, arguments, cells, counts):
    kind = "str" if isinstance(cells, list) else None
    expectation = {"type": TYPE + name, **arguments}
    told = judged(column, expectation, cells=pd.Series(cells, dtype=kind))
    assert told.tolist() == [counts]


@pytest.mark.parametrize("wrong", [{"min_value": 5, "max_value": 1}, {"min_value": dt.date.max}])
def test_what_great_expectations_cannot_do_is_not_judged(monkeypatch, capfd, caplog, wrong):
    """Its exceptions are of a metric, or of an argument; neither leaves a cell anywhere."""
    column = Column.from_mapping(NUMBER | {"expectations": [BETWEEN]})
    monkeypatch.setattr(Column, "expected", lambda *_: wrong)
    cells = pd.Series(["4", CANARY], dtype="str")
    assert judge_expectations(column, cells).tolist() == [[0, 0, 2]]
    assert CANARY not in "".join(capfd.readouterr()) + caplog.text


@pytest.mark.parametrize(
    ("column", "expectation", "field"),
    [
        (NUMBER, "text", "type"),
        (NUMBER, {"type": "expect_column_mean_to_be_between", "min_value": 3}, "type"),
        (NUMBER, {"type": f"{TYPE}be_unique"}, "type"),
        (NUMBER, {"type": f"{TYPE}be_between"}, f"{TYPE}be_between"),
        (NUMBER, BETWEEN | {"mostly": 0.5}, f"{TYPE}be_between"),
        (NUMBER, BETWEEN | {"min_value": "3"}, f"{TYPE}be_between"),
        (NUMBER, BETWEEN | {"min_value": 201}, f"{TYPE}be_between"),
        (NUMBER, BETWEEN | {"min_value": float("nan")}, f"{TYPE}be_between"),
        (NUMBER, BETWEEN | {"max_value": 2**53 + 1}, f"{TYPE}be_between"),
        (NUMBER, BETWEEN | {"max_value": 10**400}, f"{TYPE}be_between"),
        (WORD, BETWEEN, f"{TYPE}be_between"),
        (WORD, BETWEEN | {"min_value": "a", "max_value": "b"}, f"{TYPE}be_between"),
        (WORD, {"type": f"{TYPE}be_in_set", "value_set": "ab"}, f"{TYPE}be_in_set"),
        (WORD, {"type": f"{TYPE}be_in_set", "value_set": []}, f"{TYPE}be_in_set"),
        (WORD, {"type": f"{TYPE}match_regex", "regex": "(?=a"}, f"{TYPE}match_regex"),
        (NUMBER, {"type": f"{TYPE}match_regex", "regex": "3"}, f"{TYPE}match_regex"),
        (WORD, {"type": f"{TYPE}be_null", "regex": "3"}, f"{TYPE}be_null"),
    ],
)
def test_what_no_cell_alone_decides_or_does_not_fit_is_refused(column, expectation, field):
    with pytest.raises(SchemaError) as caught:
        Column.from_mapping(column | {"expectations": [expectation]})
    (error,) = caught.value.several
    assert error.field == f"column {column['name']}: expectations: {field}"
    assert error.allowed


def test_no_release_shows_them_and_another_run_begins():
    schema = declared(NUMBER | {"expectations": [BETWEEN]}, name="t")
    assert PublicSchema.from_mapping(schema.to_mapping()).to_mapping() == schema.to_mapping()
    assert (
        schema.to_mapping() != schema.published_mapping() == declared(NUMBER, name="t").to_mapping()
    )


def test_only_the_statement_tells_a_table_that_fails(make_workplace, capfd):
    """Both runs end well, and what is not in the private folder is the same."""
    shown, stated = [], []
    for ages in (["30", "40"], ["1", "300"]):
        place = make_workplace(weights="none")
        schema = place.root / "schema.yaml"
        text = schema.read_text().replace("name: age,", f"name: age, expectations: [{BETWEEN}],", 1)
        schema.write_text(text)
        table = place.source.read_text().splitlines()
        rows = [f"{age},1,north,true" for age in ages * 3]
        place.source.write_text("\n".join([table[0], *rows]))
        run = ReleaseRun.prepare(place.spec, period="once")
        steps.reserve(run)
        steps.ingest(run)
        outside = [p for p in run.directory.rglob("*") if p.is_file() and p.parent != run.private]
        texts = {p.name: p.read_text().replace(str(place.root), "") for p in outside}
        entries = [entry.kind for entry in run.open_ledger().entries(run_key=run.key)]
        shown.append((texts, entries, run.key, capfd.readouterr()))
        stated.append((run.private / "cells.txt").read_text())
    assert shown[0] == shown[1]
    assert "column age: 6 cells judged, 0 failed, 0 cannot be judged" in stated[0]
    assert "column age: 6 cells judged, 6 failed, 0 cannot be judged" in stated[1]
