import datetime as dt
import json
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.errors import SchemaError, SourceError
from tests.dpiw.data.centred_bounds import reference_squared_norm, squared_diameter, squared_norm

PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def _mapping():
    return {
        "name": "people",
        "columns": [
            {"name": "id", "role": "identifier"},
            {"name": "age", "kind": "integer", "lower": 0, "upper": 120, "nullable": True},
            {"name": "x", "kind": "continuous", "lower": -1.0, "upper": 1.5},
            {"name": "price", "kind": "continuous", "lower": 0, "upper": 100, "decimals": 2,
             "nullable": True},
            {"name": "employed", "kind": "boolean", "nullable": True},
            {"name": "citizen", "kind": "boolean", "fill": True},
            {"name": "job", "kind": "categorical", "levels": ["a", "b", "rest"], "other": "rest",
             "nullable": True},
            {"name": "grade", "kind": "ordinal", "levels": ["lo", "mid", "hi"], "role": "target"},
            {"name": "born", "kind": "date", "lower": "1900-01-01", "upper": "2020-12-31",
             "nullable": True},
            {"name": "seen", "kind": "datetime", "lower": "1900-01-01", "upper": "2020-12-31T10:00",
             "time_zone": "Europe/Berlin"},
        ],
    }  # fmt: skip


SCHEMA = PublicSchema.from_mapping(_mapping())


def _one(kind, **fields):
    return PublicSchema(name="one", columns=(Column(name="c", kind=ColumnKind(kind), **fields),))


def _cells(schema, cells, dtype=object):
    frame = pd.DataFrame({"c": pd.Series(cells, dtype=dtype)})
    return schema.unscale(schema.scale(frame))["c"].tolist()


@st.composite
def scaled_tables(draw, schema=SCHEMA, least_rows=0):
    count = draw(st.integers(least_rows, 10))
    columns = {}
    for column in schema.released:
        if column.is_numeric:
            cell = st.floats(0, 1)
            if column.nullable:
                cell = st.one_of(cell, st.just(math.nan))
            dtype = np.float64
        else:
            cell = st.integers(-1 if column.nullable else 0, column.cardinality - 1)
            dtype = np.int32
        values = draw(st.lists(cell, min_size=count, max_size=count))
        columns[column.name] = np.array(values, dtype=dtype)
    return schema.project(ScaledTable(columns, count))


# Declarations


def test_mapping_round_trip_is_json():
    text = json.dumps(SCHEMA.to_mapping())
    assert PublicSchema.from_mapping(json.loads(text)) == SCHEMA


def test_roles():
    assert SCHEMA.target.name == "grade"
    assert SCHEMA.identifier.name == "id"
    assert [c.name for c in SCHEMA.released] == [c.name for c in SCHEMA.columns][1:]
    assert SCHEMA.column("born").lower_number == -25567
    assert SCHEMA.column("seen").lower_number == -25567 * 86400 - 3600
    with pytest.raises(SchemaError, match="no column named zzz"):
        SCHEMA.column("zzz")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"kind": "continuous"}, "required"),
        ({"kind": "continuous", "lower": 0}, "required"),
        ({"kind": "continuous", "lower": 1, "upper": 1}, "lower < upper"),
        ({"kind": "integer", "lower": 2, "upper": 1}, "lower < upper"),
        ({"kind": "continuous", "lower": math.nan, "upper": 1}, "finite"),
        ({"kind": "continuous", "lower": 0, "upper": math.inf}, "finite"),
        ({"kind": "continuous", "lower": -1e308, "upper": 1e308}, "too far apart"),
        ({"kind": "continuous", "lower": 1e15, "upper": 1e15 + 1}, "too close"),
        ({"kind": "continuous", "lower": True, "upper": 2}, "no continuous value"),
        ({"kind": "continuous", "lower": "0", "upper": 2}, "no continuous value"),
        ({"kind": "continuous", "lower": 0.05, "upper": 1, "decimals": 1}, "more decimals"),
        ({"kind": "continuous", "lower": 0, "upper": 1, "decimals": 20}, "decimals"),
        ({"kind": "integer", "lower": 0.5, "upper": 2}, "whole numbers"),
        ({"kind": "integer", "lower": 0, "upper": 2**53 + 1}, "2\\^53"),
        ({"kind": "integer", "lower": 2**63 - 5, "upper": 2**63}, "64-bit"),
        ({"kind": "integer", "lower": 0, "upper": 2, "decimals": 1}, "no meaning"),
        ({"kind": "date", "lower": 0, "upper": 5}, "no date value"),
        ({"kind": "date", "lower": "1900-02-29", "upper": "2000-01-01"}, "no date value"),
        ({"kind": "datetime", "lower": "x", "upper": "2000-01-01"}, "no datetime value"),
        ({"kind": "categorical"}, "required"),
        ({"kind": "categorical", "levels": []}, "required"),
        ({"kind": "categorical", "levels": ["a", "a"]}, "equal"),
        ({"kind": "categorical", "levels": ["a", "A"], "normaliser": "casefold"}, "equal"),
        ({"kind": "categorical", "levels": ["a", ""]}, "empty"),
        ({"kind": "categorical", "levels": ["a", " b"]}, "padded"),
        ({"kind": "categorical", "levels": ["a", 1]}, "quotes"),
        ({"kind": "categorical", "levels": "ab"}, "list"),
        ({"kind": "categorical", "levels": ["a"], "other": "b"}, "one of the levels"),
        ({"kind": "categorical", "levels": ["a"], "fill": "b"}, "one of the levels"),
        ({"kind": "categorical", "levels": ["a"], "lower": 0}, "no meaning"),
        ({"kind": "categorical", "levels": ["a"], "normaliser": "magic"}, "exact or casefold"),
        ({"kind": "boolean", "levels": ["a"]}, "no meaning"),
        ({"kind": "boolean", "fill": "yes"}, "true or false"),
        ({"kind": "boolean", "true_values": ["1"], "false_values": ["1"]}, "disjoint"),
        ({"kind": "boolean", "nullable": "no"}, "true or false"),
        ({"kind": "integer", "lower": 0, "upper": 9, "fill": 10}, "inside the bounds"),
        ({"kind": "integer", "lower": 0, "upper": 9, "fill": 1.5}, "whole"),
        ({"kind": "integer", "lower": 0, "upper": 9, "fill": math.nan}, "inside the bounds"),
        ({"kind": "integer", "lower": 0, "upper": 9, "cuts": [3, 2]}, "increasing"),
        ({"kind": "integer", "lower": 0, "upper": 9, "cuts": [0]}, "strictly between"),
        ({"kind": "integer", "lower": 0, "upper": 9, "cuts": [5], "bins": 3}, "not both"),
        ({"kind": "integer", "lower": 0, "upper": 9, "bins": 0}, ">= 1"),
        ({"kind": "datetime", "lower": "2000-01-01", "upper": "2001-01-01",
          "time_zone": "../../etc"}, "time zone"),
        ({"kind": "integer", "lower": 0, "upper": 9, "surprise": 1}, "unknown key"),
        ({"kind": "number"}, "kind is not one of"),
        ({"kind": ["number"]}, "kind is not one of"),
        ({"role": "boss", "kind": "boolean"}, "role is not one of"),
        ({}, "kind is missing"),
        ({"role": "identifier", "levels": ["a"]}, "no meaning"),
        ({"kind": "boolean", "null_is_own_person": True}, "no meaning"),
        ({"kind": "boolean", "description": 3}, "text"),
    ],
)  # fmt: skip
def test_bad_column_is_refused(fields, match):
    mapping = {"name": "s", "columns": [{"name": "c", **fields}]}
    with pytest.raises(SchemaError, match=match):
        PublicSchema.from_mapping(mapping)


@pytest.mark.parametrize("name", ["weight", "log_weight", "Weight", "LOG_WEIGHT"])
def test_reserved_names_are_refused(name):
    with pytest.raises(SchemaError, match="reserved"):
        Column(name=name, kind=ColumnKind.BOOLEAN)


@pytest.mark.parametrize("name", ["", " a", "a\n", "a" * 200, "a\x00", 7])
def test_bad_names_are_refused(name):
    with pytest.raises(SchemaError):
        Column(name=name, kind=ColumnKind.BOOLEAN)


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a"), ("Age", "age"), ("é", "e\u0301"), ("ﬁ", "fi"), ("ａ", "a")]
)
def test_names_that_differ_by_case_or_unicode_only_are_refused(first, second):
    columns = tuple(Column(name=name, kind=ColumnKind.BOOLEAN) for name in (first, second))
    with pytest.raises(SchemaError, match="equal up to case"):
        PublicSchema(name="s", columns=columns)


def test_schema_level_refusals():
    flag = Column(name="c", kind=ColumnKind.BOOLEAN)
    with pytest.raises(SchemaError, match="no column is released"):
        PublicSchema(name="s", columns=(Column(name="i", role=ColumnRole.IDENTIFIER),))
    with pytest.raises(SchemaError, match="more than one target"):
        PublicSchema(
            name="s",
            columns=tuple(
                Column(name=n, kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET) for n in "ab"
            ),
        )
    number = Column(name="c=true", kind=ColumnKind.INTEGER, lower=0, upper=1)
    with pytest.raises(SchemaError, match="indicator"):
        PublicSchema(name="s", columns=(flag, number))
    with pytest.raises(SchemaError, match="Column values"):
        PublicSchema(name="s", columns=("c",))
    for name in ("", "A", "../x", "a b", 7):
        with pytest.raises(SchemaError, match="schema name"):
            PublicSchema(name=name, columns=(flag,))
    for mapping in ([], {"name": "s"}, {"name": "s", "columns": [], "x": 1}):
        with pytest.raises(SchemaError, match="exactly the keys"):
            PublicSchema.from_mapping(mapping)
    with pytest.raises(SchemaError, match="expected a list"):
        PublicSchema.from_mapping({"name": "s", "columns": {"a": 1}})
    with pytest.raises(SchemaError, match="list of mappings"):
        PublicSchema.from_mapping({"name": "s", "columns": ["a"]})


# YAML


def _yaml(tmp_path, text):
    path = tmp_path / "schema.yaml"
    path.write_text(text, encoding="utf-8")
    return PublicSchema.from_yaml(path)


def test_yaml_dates_and_no_stay_text(tmp_path):
    schema = _yaml(
        tmp_path,
        "name: s\ncolumns:\n"
        "- {name: answer, kind: categorical, levels: [no, yes, off]}\n"
        "- {name: born, kind: date, lower: 1900-01-01, upper: 2000-12-31}\n"
        "- {name: x, kind: continuous, lower: -1e-3, upper: 1e6, nullable: true}\n",
    )
    assert schema.column("answer").levels == ("no", "yes", "off")
    assert schema.column("born").upper_number == 11322
    assert schema.column("x").upper == 1e6


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("name: s\nname: t\ncolumns: []", "duplicate key 'name'"),
        ("name: s\ncolumns:\n- {name: a, kind: boolean, kind: integer}", "duplicate key"),
        ("name: !!python/object/apply:os.system ['true']\ncolumns: []", "tags"),
        ("name: !!str s\ncolumns: []", "tags"),
        ("name: &a s\ncolumns: *a", "anchors"),
        ("name: s\ncolumns: [&x [a, a], *x]", "anchors"),
        ("name: s\n? [a, b]\n: 1", "plain text"),
        ("a: [" * 40, "nested"),
        ("name: s\ncolumns: [", "not valid YAML"),
        ("name: s\n---\nname: t", "not valid YAML"),
        ("name: s\ncolumns:\n- {name: c, kind: boolean, nullable: no}", "true or false"),
        ("name: s\ncolumns:\n- {name: c, kind: integer, lower: 0, upper: .nan}", "finite"),
        ("name: s\ncolumns:\n- {name: c, kind: categorical, levels: [1, 2]}", "quotes"),
        ("- a", "exactly the keys"),
        ("", "exactly the keys"),
    ],
)
def test_bad_yaml_is_refused(tmp_path, text, match):
    with pytest.raises(SchemaError, match=match):
        _yaml(tmp_path, text)


def test_unreadable_yaml_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="cannot be read"):
        PublicSchema.from_yaml(tmp_path / "nothing.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(SchemaError, match="larger"):
        PublicSchema.from_yaml(tmp_path / "big.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\xff")
    with pytest.raises(SchemaError, match="not UTF-8"):
        PublicSchema.from_yaml(tmp_path / "latin.yaml")


# Cells: total, row-local, by declared type


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("12", 12), (" 12\t", 12), ("+7", 7), ("007", 7), ("3.7", 4), ("2.5", 2), ("3.0", 3),
        ("1e2", 100), (".5e1", 5), ("-5", 0), ("9" * 400, 120), ("-" + "9" * 400, 0),
        ("1e400", 120), ("-1e400", 0), ("1e-400", 0), ("1e99999999999999999999", 120),
        ("1e-99999999999999999999", 0), ("0e99999999999999999999", 0), ("inf", 120),
        ("-Infinity", 0), ("9223372036854775808", 120), ("18446744073709551616", 120),
        ("nan", None), ("", None), ("abc", None), ("1_000", None), ("1,5", None), ("0x10", None),
        ("=cmd|' /C calc'!A0", None), ("١٢", None), ("true", None), ("1e", None), (".", None),
        ("12\x00", None), (None, None), (pd.NA, None), (pd.NaT, None), (math.nan, None),
        (12, 12), (2**70, 120), (np.uint8(3), 3), (3.0, 3), (math.inf, 120),
        (-math.inf, 0), (1e300, 120), (Decimal("7.2"), 7), (Decimal("NaN"), None),
        (Decimal("sNaN"), None), (True, None), (b"12", None), ([1], None), (object(), None),
        (dt.date(2000, 1, 1), None), (1 + 2j, None), ("\ud800", None),
    ],
)  # fmt: skip
def test_integer_cells(cell, value):
    schema = _one("integer", lower=0, upper=120, nullable=True)
    found = _cells(schema, [cell, "5"])
    assert found[1] == 5
    assert found[0] is pd.NA if value is None else found[0] == value
    filled = _cells(_one("integer", lower=0, upper=120, fill=77), [cell])
    assert filled == [77 if value is None else value]


@pytest.mark.parametrize(
    ("dtype", "cells", "values"),
    [
        ("int64", [-(2**63), 5, 2**63 - 1], [-9, 5, 9]),
        ("uint64", [2**64 - 1, 2**63, 3], [9, 9, 3]),
        ("Int64", [2**62, None, 4], [9, 0, 4]),
        ("UInt64", [2**64 - 1, None, 4], [9, 0, 4]),
        ("float64", [1e300, -math.inf, math.nan, -0.0, 2.5, 3.5, 5e-324], [9, -9, 0, 0, 2, 4, 0]),
        ("float32", [math.inf, math.nan], [9, 0]),
        ("Float64", [None, 3.2], [0, 3]),
        ("bool", [True, False], [0, 0]),
        ("datetime64[s]", ["2000-01-01"], [0]),
        ("category", ["3", "x"], [3, 0]),
        ("timedelta64[s]", [5], [0]),
        ("complex128", [5], [0]),
    ],
)
def test_integer_dtypes(dtype, cells, values):
    assert _cells(_one("integer", lower=-9, upper=9, fill=0), cells, dtype) == values


def test_an_integer_with_a_gap_is_not_read_through_floats():
    top = 2**53 + 1
    schema = _one("integer", lower=top - 10, upper=top + 10, nullable=True)
    for dtype in (object, "Int64"):
        assert _cells(schema, [top, None], dtype)[0] == top
    assert _cells(schema, [str(top), ""], "str")[0] == top


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("0.1", 0.1), ("-0.0", 0.0), ("5e-324", 0.0), ("1e-320", 0.0), ("2", 1.5), ("-2", -1.0),
        ("1e400", 1.5), ("-1e400", -1.0), ("inf", 1.5), (math.inf, 1.5), (-math.inf, -1.0),
        ("1.2345678901234567890123456789", 1.23456789012), ("abc", None), (math.nan, None),
        ("nan", None), (2**53 + 1, 1.5), ("9" * 400, 1.5), (-0.0, 0.0),
        (True, None), ("1e-999999999", 0.0), ("0." + "0" * 500 + "1", 0.0),
    ],
)  # fmt: skip
def test_continuous_cells(cell, value):
    (found,) = _cells(_one("continuous", lower=-1, upper=1.5, nullable=True), [cell])
    assert math.isnan(found) if value is None else found == pytest.approx(value, abs=1e-12)
    assert math.copysign(1, found) == 1 or found < 0  # no negative zero
    if value is None:
        assert _cells(_one("continuous", lower=-1, upper=1.5, fill=0.25), [cell]) == [0.25]


def test_continuous_decimals_are_a_declared_grid():
    schema = _one("continuous", lower=0, upper=100, decimals=2)
    assert _cells(schema, ["99.999", "3.14159", "1e-9"]) == [100.0, 3.14, 0.0]


@pytest.mark.parametrize("other", [None, "rest"])
@pytest.mark.parametrize("nullable", [True, False])
def test_unknown_and_missing_categories(other, nullable):
    schema = _one("categorical", levels=("a", "b", "rest"), other=other, nullable=nullable)
    cells = ["a", " b ", "A", "a\u0301", "=1+1", "\x00", None, "", 1, True, b"a"]
    unknown = other or (math.nan if nullable else "a")
    missing = math.nan if nullable else (other or "a")
    expected = ["a", "b", *[unknown] * 4, missing, missing, unknown, unknown, missing]
    assert pd.Series(_cells(schema, cells)).equals(pd.Series(expected, dtype="str"))


def test_casefold_normaliser_is_declared():
    schema = _one("categorical", levels=("Ärzte", "rest"), other="rest", normaliser="casefold")
    assert _cells(schema, ["ÄRZTE", "A\u0308rzte ", "arzte"]) == ["Ärzte", "Ärzte", "rest"]


def test_numbers_as_categories_do_not_depend_on_a_gap():
    schema = _one("categorical", levels=("1", "2", "2.5"), nullable=True)
    for dtype, cells in ((None, [1, 2]), ("float64", [1, 2, math.nan]), ("Int64", [1, 2, None])):
        assert _cells(schema, cells, dtype)[:2] == ["1", "2"]
    assert _cells(schema, [2.5], "float64") == ["2.5"]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (True, True), (False, False), (1, True), (0, False), (1.0, True), ("yes", True),
        (" TRUE ", True), ("F", False), ("n", False), ("0", False), ("maybe", None), (2, None),
        (None, None), ("", None), (math.nan, None),
    ],
)  # fmt: skip
def test_boolean_cells(cell, value):
    (found,) = _cells(_one("boolean", nullable=True), [cell])
    assert found is pd.NA if value is None else found == value
    assert _cells(_one("boolean", fill=True), [cell]) == [True if value is None else value]


def test_boolean_dtypes_and_declared_words():
    assert _cells(_one("boolean"), [True, False], bool) == [True, False]
    schema = _one("boolean", true_values=("ja",), false_values=("nein",), nullable=True)
    assert _cells(schema, ["Ja", "nein", "yes"]) == [True, False, pd.NA]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1999-12-31", "1999-12-31"), ("0001-01-01", "1900-01-01"), ("9999-12-31", "2020-12-31"),
        ("1900-02-29", None), ("2000-02-29", "2000-02-29"),
        ("2000-05-05T23:00:00-10:00", "2000-05-05"),
        (dt.date(1999, 1, 2), "1999-01-02"), (pd.Timestamp("1999-01-02 23:59"), "1999-01-02"),
        ("31.12.1999", None), (19991231, "1999-12-31"), ("", None), ("=A1", None), (5.5, None),
        ("0000-01-01", None), ("10000-01-01", None),
    ],
)  # fmt: skip
def test_date_cells(cell, value):
    schema = _one("date", lower="1900-01-01", upper="2020-12-31", nullable=True)
    (found,) = _cells(schema, [cell])
    assert found is pd.NaT if value is None else found == pd.Timestamp(value)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("2000-01-01", "1999-12-31T23:00"), ("2000-01-01T00:00:00Z", "2000-01-01T00:00"),
        ("2000-07-01T12:00", "2000-07-01T10:00"), ("2000-07-01 12:00:00.9", "2000-07-01T10:00:00"),
        ("2000-03-26T02:30", "2000-03-26T01:30"),  # daylight-saving gap: offset before the change
        ("2000-10-29T02:30", "2000-10-29T00:30"),  # overlap: the first of the two
        ("0001-01-01", "1899-12-31T23:00"), ("9999-12-31T23:59:59-23:00", "2020-12-31T09:00"),
        ("0001-01-01T00:00:00+23:00", "1899-12-31T23:00"), ("2000-01-01T24:00", None),
        ("2000-01-01T23:59:60", None), ("never", None),
    ],
)  # fmt: skip
def test_datetime_cells(cell, value):
    schema = _one(
        "datetime", lower="1900-01-01", upper="2020-12-31T10:00", time_zone="Europe/Berlin",
        nullable=True,
    )  # fmt: skip
    expected = pd.NaT if value is None else pd.Timestamp(value, tz="UTC")
    assert _cells(schema, [cell])[0] is expected or _cells(schema, [cell])[0] == expected
    if value is not None and "24:00" not in cell:
        moment = dt.datetime.fromisoformat(cell)
        assert _cells(schema, [moment])[0] == expected


def test_datetime_dtypes_agree_with_text():
    schema = _one(
        "datetime", lower="1900-01-01", upper="2020-12-31", time_zone="Europe/Berlin", nullable=True
    )
    naive = pd.Series(["2000-07-01 12:00", "2000-03-26 02:30", None], dtype="datetime64[us]")
    zoned = pd.Series(["2000-07-01 12:00", None], dtype="datetime64[ns]").dt.tz_localize("UTC")
    for series in (naive, zoned):
        text = series.map(lambda m: m.isoformat(), na_action="ignore").astype(object)
        assert schema.scale(pd.DataFrame({"c": series})).equals(
            schema.scale(pd.DataFrame({"c": text}))
        )


@PROPERTY
@given(st.lists(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(),
                          st.datetimes(), st.dates(), st.binary(), st.decimals()),
                min_size=1, max_size=8))  # fmt: skip
def test_scale_is_total_and_row_local(cells):
    frame = pd.DataFrame({c.name: pd.Series(cells, dtype=object) for c in SCHEMA.released})
    whole = SCHEMA.scale(frame)
    for row in range(len(cells)):
        alone = pd.DataFrame({name: [frame[name][row]] for name in frame})
        assert SCHEMA.scale(alone).equals(whole.take([row]))  # whatever dtype pandas inferred
    for column in SCHEMA.released:
        values = whole.columns[column.name]
        if column.is_numeric:
            known = values[~np.isnan(values)]
            assert ((known >= 0) & (known <= 1)).all()
            assert column.nullable or len(known) == len(values)
        else:
            assert values.min() >= (-1 if column.nullable else 0)
            assert values.max() < column.cardinality


def test_integers_too_long_to_print_are_clamped():
    for kind in ("integer", "continuous"):
        schema = _one(kind, lower=0, upper=9)
        assert _cells(schema, [10**5000, -(10**5000)]) == [9, 0]


def test_scale_needs_the_columns():
    frame = SCHEMA.unscale(SCHEMA.scale(_frame()))
    with pytest.raises(SourceError, match="column age: missing"):
        SCHEMA.scale(frame.drop(columns="age"))
    with pytest.raises(SourceError, match="column age: occurs more than once"):
        SCHEMA.scale(pd.concat([frame, frame[["age"]]], axis=1))


# Round trips and projections


def _frame():
    return pd.DataFrame(
        {
            "age": pd.array([0, 120, None], dtype="Int64"),
            "x": [-1.0, 0.1, 1.5],
            "price": [0.01, math.nan, 99.99],
            "employed": pd.array([True, None, False], dtype="boolean"),
            "citizen": [True, False, True],
            "job": pd.Series(["a", None, "rest"], dtype="str"),
            "grade": pd.Series(["lo", "mid", "hi"], dtype="str"),
            "born": pd.Series(["1900-01-01", None, "2020-12-31"], dtype="datetime64[s]"),
            "seen": pd.Series(
                ["1899-12-31 23:00", "2000-01-01", "2020-12-31 09:00"], dtype="datetime64[s]"
            ).dt.tz_localize("UTC"),
        }
    )


def test_conforming_frame_comes_back_equal():
    pd.testing.assert_frame_equal(SCHEMA.unscale(SCHEMA.scale(_frame())), _frame())


@PROPERTY
@given(scaled_tables())
def test_unscale_scale_and_encode_decode_are_identities(scaled):
    frame = SCHEMA.unscale(scaled)
    again = SCHEMA.scale(frame)
    assert again.equals(scaled)
    pd.testing.assert_frame_equal(SCHEMA.unscale(again), frame)
    encoded = SCHEMA.encode(scaled)
    assert encoded.shape == (scaled.rows, SCHEMA.width)
    assert ((encoded >= 0) & (encoded <= 1)).all()
    assert SCHEMA.decode(encoded).equals(scaled)
    text = frame.astype(object).map(lambda cell: None if pd.isna(cell) else str(cell))
    assert SCHEMA.scale(text).equals(scaled)  # a CSV of the release reads back


@PROPERTY
@given(st.data())
def test_any_scaled_table_unscales_to_declared_types_and_ranges(data):
    rows = 4
    values = st.floats(allow_nan=True, allow_infinity=True)
    codes = st.integers(-(2**31), 2**31 - 1)
    scaled = ScaledTable(
        {
            c.name: np.array(
                data.draw(
                    st.lists(values if c.is_numeric else codes, min_size=rows, max_size=rows)
                ),
                dtype=np.float64 if c.is_numeric else np.int32,
            )
            for c in SCHEMA.released
        },
        rows,
    )
    frame = SCHEMA.unscale(scaled)
    assert (frame.dtypes == _frame().dtypes).all()
    assert frame["age"].dropna().between(0, 120).all()
    assert frame["x"].between(-1, 1.5).all()
    assert frame["seen"].notna().all()
    assert frame["grade"].isin(["lo", "mid", "hi"]).all()
    projected = SCHEMA.project(scaled)
    assert SCHEMA.project(projected).equals(projected)
    assert SCHEMA.scale(frame).equals(projected)


@PROPERTY
@given(st.integers(-(2**62), 2**62), st.integers(1, 2**53), st.floats(0, 1, exclude_max=True))
def test_integers_are_exact_up_to_the_widest_range(lower, width, share):
    schema = _one("integer", lower=lower, upper=lower + width)
    value = min(lower + int(share * width), lower + width)
    for cell in (value, lower, lower + width, lower + width - 1, lower + 1):
        frame = pd.DataFrame({"c": [cell]})
        scaled = schema.decode(schema.encode(schema.scale(frame)))
        assert schema.unscale(scaled)["c"][0] == cell
        assert _cells(schema, [str(cell)]) == [cell]


@PROPERTY
@given(
    st.floats(-1e12, 1e12), st.floats(1e-3, 1e12), st.lists(st.floats(0, 1), min_size=1, max_size=9)
)
def test_continuous_grid_is_a_projection_close_to_the_value(lower, width, shares):
    upper = lower + width
    if upper - lower < 2.0**-31 * max(abs(lower), abs(upper)):
        return
    schema = _one("continuous", lower=lower, upper=upper)
    values = np.clip(lower + np.array(shares) * width, lower, upper)
    scaled = schema.scale(pd.DataFrame({"c": values}))
    again = schema.unscale(scaled)
    assert schema.scale(again).equals(scaled)
    step = 10.0 ** -schema.column("c").released_decimals
    assert np.abs(again["c"] - values).max() <= step * 0.51 + 1e-15 * max(abs(lower), abs(upper))


def test_decode_projects_any_matrix():
    rng = np.random.default_rng(7)
    matrix = rng.normal(size=(50, SCHEMA.width))
    matrix[0] = np.nan
    matrix[1] = np.inf
    decoded = SCHEMA.decode(matrix)
    encoded = SCHEMA.encode(decoded)
    assert SCHEMA.decode(encoded).equals(decoded)
    assert SCHEMA.scale(SCHEMA.unscale(decoded)).equals(decoded)
    block = next(b for b in SCHEMA.blocks if b.column == "grade")
    chosen = matrix[2:, block.start : block.stop].argmax(axis=1)
    assert (decoded.columns["grade"][2:] == chosen).all()
    with pytest.raises(SchemaError, match="columns"):
        SCHEMA.decode(matrix[:, 1:])


# Layout, norms


def test_names_of_the_layout():
    assert SCHEMA.encoded_names[:4] == ("age", "age:present", "age:missing", "x")
    assert "job=rest" in SCHEMA.encoded_names
    assert "job:missing" in SCHEMA.encoded_names
    assert SCHEMA.width == len(SCHEMA.encoded_names) == SCHEMA.blocks[-1].stop
    level = _one("categorical", levels=("missing",), nullable=True)
    assert level.encoded_names == ("c=missing", "c:missing")


def _naive_centred(schema, scaled, row):
    features = []
    for column in schema.released:
        value = scaled.columns[column.name][row]
        if column.is_numeric:
            missing = math.isnan(value)
            features.append(0.0 if missing else value - 0.5)
            if column.nullable:
                features += [
                    (float(missing == flag) - 0.5) / math.sqrt(2) for flag in (False, True)
                ]
            continue
        labels = [*range(column.cardinality), *([-1] if column.nullable else [])]
        features += [(float(value == label) - 1 / len(labels)) / math.sqrt(2) for label in labels]
    return np.array(features)


@PROPERTY
@given(scaled_tables(least_rows=2))
def test_centred_norm_and_diameter_bounds_hold(scaled):
    centred = SCHEMA.centred(scaled)
    np.testing.assert_allclose(centred[0], _naive_centred(SCHEMA, scaled, 0), atol=1e-15)
    assert (centred**2).sum(axis=1).max() <= squared_norm(SCHEMA) * (1 + 1e-12)
    distances = ((centred[:, None, :] - centred[None, :, :]) ** 2).sum(axis=2)
    assert distances.max() <= squared_diameter(SCHEMA) * (1 + 1e-12)


def _corner(values, codes):
    columns = {}
    for column in SCHEMA.released:
        if column.is_numeric:
            columns[column.name] = np.array([values[column.nullable]])
        else:
            columns[column.name] = np.array([codes], dtype=np.int32)
    return ScaledTable(columns, 1)


def test_centred_bounds_are_attained():
    top = SCHEMA.centred(_corner((1.0, 1.0), 1))
    assert (top**2).sum() == pytest.approx(squared_norm(SCHEMA), rel=1e-12)
    bottom = SCHEMA.centred(_corner((0.0, math.nan), 0))  # nullable numeric: bound against missing
    distance = ((top - bottom) ** 2).sum()
    assert distance == pytest.approx(squared_diameter(SCHEMA), rel=1e-12)


def test_centred_bounds_by_hand():
    plain = _one("continuous", lower=0, upper=1)
    assert (squared_norm(plain), squared_diameter(plain)) == (0.25, 1.0)
    gap = _one("continuous", lower=0, upper=1, nullable=True)
    assert (squared_norm(gap), squared_diameter(gap)) == (0.5, 1.25)
    assert reference_squared_norm(gap) == pytest.approx(1 / 12 + 1 / 4)
    levels = _one("categorical", levels=tuple("abcd"))
    assert (squared_norm(levels), squared_diameter(levels)) == (0.375, 1.0)
    assert reference_squared_norm(levels) == pytest.approx(0.375)
    single = _one("categorical", levels=("a",))
    assert (squared_norm(single), squared_diameter(single)) == (0.0, 0.0)


def test_reference_variances_match_uniform_rows():
    schema = PublicSchema(
        name="s", columns=tuple(c for c in SCHEMA.released if not (c.is_numeric and c.nullable))
    )
    rng = np.random.default_rng(11)
    rows = 40_000
    columns = {
        c.name: rng.random(rows) if c.is_numeric
        else rng.integers(-int(c.nullable), c.cardinality, rows).astype(np.int32)
        for c in schema.released
    }  # fmt: skip
    centred = schema.centred(ScaledTable(columns, rows))
    variances = schema.centred_reference_variances
    # Largest relative standard error sqrt(1/rows) ~ 0.005 (two-point laws less): 6 of them.
    np.testing.assert_allclose(centred.var(axis=0), variances, rtol=0.03)
    assert (centred**2).sum(axis=1).mean() == pytest.approx(
        reference_squared_norm(schema), rel=0.03
    )


# ScaledTable


@PROPERTY
@given(scaled_tables())
def test_scaled_table_storage_and_rows(scaled):
    assert ScaledTable.from_arrow(scaled.to_arrow()).equals(scaled)
    assert scaled.to_arrow().schema.metadata is None
    half = scaled.rows // 2
    parts = [scaled.take(np.arange(half)), scaled.take(np.arange(half, scaled.rows))]
    assert ScaledTable.concatenate(parts).equals(scaled)
    mask = np.arange(scaled.rows) % 2 == 0
    assert scaled.take(mask).rows == mask.sum()


def test_scaled_table_refusals_and_sealed_repr():
    values = np.array([0.123456])
    table = ScaledTable({"a": values}, 1)
    assert "0.123" not in repr(table)
    assert not table.equals(ScaledTable({"b": values}, 1))
    with pytest.raises(SchemaError, match="column a"):
        ScaledTable({"a": values}, 2)
    with pytest.raises(SchemaError, match="different columns"):
        ScaledTable.concatenate([table, ScaledTable({"b": values}, 1)])
    with pytest.raises(SchemaError, match="column c: missing"):
        _one("boolean").encode(table)
