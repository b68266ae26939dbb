"""A custodian's expectations: checked with the dictionary, counted at ingest, stated alone."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema.columns import Column
from dpiw.data.source.validation import judge_expectations
from dpiw.errors import SchemaError
from tests.support.whole_runs import ingested
from tests.support.worlds import declared

CANARY = "CANARY-7f3a"
TYPE = "expect_column_values_to_"
BETWEEN = {"type": f"{TYPE}be_between", "min_value": 3, "max_value": 200}
NUMBER = {"name": "n", "kind": "integer", "lower": 0, "upper": 9, "nullable": True}
WORD = {"name": "c", "kind": "categorical", "levels": ["a", "b"], "normaliser": "casefold"}
TEXTS = st.sampled_from(["", " ", "3", "2.5", "200.0", "201", "1e400", "x", "-7"])


def judged(column, *expectations, texts):
    made = Column.from_mapping(column | {"expectations": [*expectations]})
    return judge_expectations(made, pd.Series(texts, dtype="str")).tolist()


@settings(derandomize=True, database=None, deadline=None, max_examples=5)
@given(texts=st.lists(TEXTS), size=st.integers(1, 3))
@pytest.mark.slow
def test_counts_of_batches_add_up_to_those_of_the_table(texts, size):
    numbers = [float(text) for text in texts if text.strip() not in ("", "x")]
    fail, odd = sum(not 3 <= number <= 200 for number in numbers), texts.count("x")
    gaps = len(texts) - odd - len(numbers)
    whole = [[len(numbers), fail, odd], [len(numbers) + gaps, gaps, odd]]
    for step in (size, len(texts) + 1):
        batches = [texts[start : start + step] for start in range(0, len(texts), step)]
        told = [judged(NUMBER, BETWEEN, {"type": f"{TYPE}not_be_null"}, texts=b) for b in batches]
        assert sum(map(np.array, told), np.zeros((2, 3))).tolist() == whole


@pytest.mark.parametrize(("column", "name", "arguments", "texts", "counts"), [
    (WORD, "be_in_set", {"value_set": ["A"]}, ["a", " A", "b", None], [3, 1, 0]),
    (WORD, "not_be_in_set", {"value_set": ["a"]}, ["a", "b", "\ufffd"], [2, 1, 1]),
    ({"name": "b", "kind": "boolean"}, "not_be_null", {}, ["Yes", "maybe", ""], [2, 1, 1]),
    (WORD, "be_null", {}, ["a", "", None], [3, 1, 0]),
    (NUMBER, "not_be_in_set", {"value_set": [3]}, ["3", "3.0", "4"], [3, 2, 0]),
    (NUMBER, "be_between", {"max_value": 9}, [CANARY] * 4, [0, 0, 4]),
    ({"name": "d", "kind": "date", "lower": "2020-01-01", "upper": "2029-12-31"}, "be_between",
     {"min_value": "2021-01-01"}, ["2020-12-31", "2031-01-01"], [2, 1, 0]),
])  # fmt: skip
def test_cells_are_judged_as_the_column_reads_them(column, name, arguments, texts, counts):
    assert judged(column, {"type": TYPE + name, **arguments}, texts=texts) == [counts]


def test_what_great_expectations_cannot_do_is_not_judged(monkeypatch, capfd, caplog):
    monkeypatch.setattr(Column, "expected", lambda *_: {"min_value": 5, "max_value": 1})
    assert judged(NUMBER, BETWEEN, texts=["4", CANARY]) == [[0, 0, 2]]
    assert CANARY not in "".join(capfd.readouterr()) + caplog.text


@pytest.mark.parametrize(("column", "expectation", "field"), [
    *((NUMBER, {"type": TYPE + bad}, "type") for bad in ("be_unique", "match_regex", "")),
    (NUMBER, {"type": f"{TYPE}be_between"}, f"{TYPE}be_between"),
    *((NUMBER, BETWEEN | {"min_value": bad}, f"{TYPE}be_between") for bad in ("3", 201, np.nan)),
    *((NUMBER, BETWEEN | {"max_value": bad}, f"{TYPE}be_between") for bad in (2**53 + 1, 10**400)),
    (NUMBER, BETWEEN | {"mostly": 0.5}, f"{TYPE}be_between"),
    (WORD, BETWEEN | {"min_value": "a", "max_value": "b"}, f"{TYPE}be_between"),
    (WORD, {"type": f"{TYPE}be_in_set", "value_set": []}, f"{TYPE}be_in_set"),
])  # fmt: skip
def test_what_no_cell_alone_decides_or_does_not_fit_is_refused(column, expectation, field):
    with pytest.raises(SchemaError) as caught:
        Column.from_mapping(column | {"expectations": [expectation]})
    (error,) = caught.value.several
    assert error.field == f"column {column['name']}: expectations: {field}"
    assert error.allowed


@pytest.mark.slow
def test_only_the_statement_tells_a_table_that_fails(make_workplace, capfd):
    shown, stated = [], []
    for ages in (["30", "40"], ["1", "300"]):
        place = make_workplace(weights="none")
        path, more = place.root / "schema.yaml", f"name: age, expectations: [{BETWEEN}],"
        path.write_text(path.read_text().replace("name: age,", more, 1))
        header = place.source.read_text().splitlines()[0]
        place.source.write_text("\n".join([header, *(f"{age},1,north,true" for age in ages * 3)]))
        run = ingested(place, period="once")
        outside = [p for p in run.directory.rglob("*") if p.is_file() and p.parent != run.private]
        texts = {p.name: p.read_text().replace(str(place.root), "") for p in outside}
        entries = [entry.kind for entry in run.open_ledger().entries(run_key=run.key)]
        shown.append((texts, entries, run.key, capfd.readouterr()))
        stated.append((run.private / "cells.txt").read_text())
    assert shown[0] == shown[1]
    published = declared(NUMBER | {"expectations": [BETWEEN]}, name="t").published_mapping()
    assert published == declared(NUMBER, name="t").to_mapping()
    assert "column age: 6 cells judged, 0 failed, 0 cannot be judged" in stated[0]
    assert "column age: 6 cells judged, 6 failed, 0 cannot be judged" in stated[1]
