"""What a schema may declare, in a mapping and in YAML."""

import json
import math

import pytest

from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.errors import SchemaError
from tests.dpiw.data.schema_example import SCHEMA

FLAG = Column(name="c", kind=ColumnKind.BOOLEAN)


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
        ({"kind": "continuous", "lower": 1, "upper": 1}, "lower < upper"),
        ({"kind": "continuous", "lower": math.nan, "upper": 1}, "finite"),
        ({"kind": "continuous", "lower": 0, "upper": math.inf}, "finite"),
        ({"kind": "continuous", "lower": -1e308, "upper": 1e308}, "too far apart"),
        ({"kind": "continuous", "lower": 1e15, "upper": 1e15 + 1}, "too close"),
        ({"kind": "continuous", "lower": "0", "upper": 2}, "no continuous value"),
        ({"kind": "continuous", "lower": True, "upper": 2}, "no continuous value"),
        ({"kind": "continuous", "lower": 0.05, "upper": 1, "decimals": 1}, "more decimals"),
        ({"kind": "continuous", "lower": 0, "upper": 1, "decimals": 20}, "decimals"),
        ({"kind": "integer", "lower": 0.5, "upper": 2}, "whole numbers"),
        ({"kind": "integer", "lower": 0, "upper": 2**53 + 1}, "2\\^53"),
        ({"kind": "integer", "lower": 2**63 - 5, "upper": 2**63}, "64-bit"),
        ({"kind": "integer", "lower": 0, "upper": 2, "decimals": 1}, "no meaning"),
        ({"kind": "date", "lower": "1900-02-29", "upper": "2000-01-01"}, "no date value"),
        ({"kind": "datetime", "lower": "x", "upper": "2000-01-01"}, "no datetime value"),
        ({"kind": "categorical"}, "required"),
        ({"kind": "categorical", "levels": ["a", "a"]}, "equal"),
        ({"kind": "categorical", "levels": ["a", "A"], "normaliser": "casefold"}, "equal"),
        ({"kind": "categorical", "levels": ["a", ""]}, "empty"),
        ({"kind": "categorical", "levels": ["a", " b"]}, "padded"),
        ({"kind": "categorical", "levels": ["a", 1]}, "quotes"),
        ({"kind": "categorical", "levels": "ab"}, "list"),
        ({"kind": "categorical", "levels": ["a"], "other": "b"}, "must be a level"),
        ({"kind": "categorical", "levels": ["a"], "fill": "b"}, "must be a level"),
        ({"kind": "categorical", "levels": ["a"], "lower": 0}, "no meaning"),
        ({"kind": "categorical", "levels": ["a"], "normaliser": "magic"}, "exact or casefold"),
        ({"kind": "categorical", "levels": ["a"], "normaliser": ["exact"]}, "exact or casefold"),
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
        ({"kind": "number"}, "kind: expected one of"),
        ({"kind": ["number"]}, "kind: expected one of"),
        ({"role": "boss", "kind": "boolean"}, "role: expected one of"),
        ({}, "kind: missing"),
        ({"role": "identifier", "levels": ["a"]}, "no meaning"),
        ({"kind": "boolean", "null_is_own_person": True}, "no meaning"),
        ({"kind": "boolean", "description": 3}, "text"),
        *(({"kind": "categorical"} | fields, said) for fields, said in (
            ({"hash_buckets": 1}, "hash_buckets: expected a whole number from 2 to 4096"),
            ({"hash_buckets": True}, "hash_buckets: expected a whole number"),
            ({"hash_buckets": 4, "levels": ["a"]}, "hash_buckets: every text has a bucket"),
            ({"hash_buckets": 4, "other": "a"}, "hash_buckets: every text has a bucket"),
            ({"hash_buckets": 4, "kind": "ordinal"}, "hash_buckets: has no meaning .* ordinal"),
            ({"members": [["a"]], "kind": "boolean"}, "members: has no meaning .* boolean"),
            ({"levels": ["a"], "members": [["b"], ["c"]]}, "members: expected one list of texts"),
            ({"levels": ["a"], "members": ["b"]}, "members: expected a list"),
            ({"levels": ["a"], "members": [[3]]}, "members: every value must be text"),
            ({"levels": ["a", "b"], "members": [["b"], []]}, "two levels are equal"),
            ({"levels": ["a"], "members": [[" b"]]}, "a level is empty, padded"),
            ({"kind": "text"}, "kind: free text is not released"),
        )),
    ],
)  # fmt: skip
def test_bad_column_is_refused(fields, match):
    mapping = {"name": "s", "columns": [{"name": "c", **fields}]}
    with pytest.raises(SchemaError, match=match):
        PublicSchema.from_mapping(mapping)


@pytest.mark.parametrize("column", [{"name": "x" * 5000}, {"name": "c", "y" * 5000: 1}])
def test_a_name_or_key_that_never_ends_is_not_repeated(column):
    with pytest.raises(SchemaError) as caught:
        PublicSchema.from_mapping({"name": "s", "columns": [column]})
    assert len(str(caught.value)) < 200


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


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ([Column(name="i", role=ColumnRole.IDENTIFIER)], "no column is released"),
        ([Column(name=n, kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET) for n in "ab"],
         "more than one target"),
        ([FLAG, Column(name="c=true", kind=ColumnKind.INTEGER, lower=0, upper=1)], "indicator"),
        (["c"], "Column values"),
    ],
)  # fmt: skip
def test_columns_that_do_not_go_together_are_refused(columns, match):
    with pytest.raises(SchemaError, match=match):
        PublicSchema(name="s", columns=tuple(columns))


def test_a_mapping_of_another_shape_is_refused():
    for name in ("", "A", "../x", "a b", 7):
        with pytest.raises(SchemaError, match="schema name"):
            PublicSchema(name=name, columns=(FLAG,))
    for mapping in ([], {}, {"columns": [], "x": 1}, {"columns": {"a": 1}}, {"columns": ["a"]}):
        with pytest.raises(SchemaError):
            PublicSchema.from_mapping(mapping and {"name": "s"} | mapping)


def test_unreadable_yaml_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="no such file"):
        PublicSchema.from_yaml(tmp_path / "nothing.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(SchemaError, match="larger"):
        PublicSchema.from_yaml(tmp_path / "big.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\xff")
    with pytest.raises(SchemaError, match="not UTF-8"):
        PublicSchema.from_yaml(tmp_path / "latin.yaml")
