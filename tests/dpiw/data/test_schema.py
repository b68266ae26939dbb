"""What a schema may declare, in a mapping and in files: levels, groups, buckets, provenance."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest

from dpiw.data.schema.declarations import PROVENANCES, bucket_names, provenance_summary
from dpiw.data.schema.levels import bucket_of, known_texts
from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.errors import SchemaError
from dpiw.plan.json_schema import dictionary_schema
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
        ({"kind": "continuous", "lower": -1e190, "upper": 1e190}, "column c: lower.* 1e\\+60 at"),
        ({"kind": "continuous", "lower": 0, "upper": 1e-190}, "apart by 1e-60"),
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
        ({"kind": "boolean", "true_values": ["1"], "false_values": ["1"]}, "share no text"),
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
def test_bad_names_are_refused_by_their_place(name):
    with pytest.raises(SchemaError):
        Column(name=name, kind=ColumnKind.BOOLEAN)
    columns = [{"name": "first", "kind": "boolean"}, {"name": name, "kind": "boolean"}]
    with pytest.raises(SchemaError) as refused:
        PublicSchema.from_mapping({"name": "s", "columns": columns})
    assert refused.value.field == "column 2 of 2: name"


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


@pytest.mark.slow
def test_unreadable_yaml_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="no such file"):
        PublicSchema.from_yaml(tmp_path / "nothing.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(SchemaError, match="larger"):
        PublicSchema.from_yaml(tmp_path / "big.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\xff")
    with pytest.raises(SchemaError, match="not UTF-8"):
        PublicSchema.from_yaml(tmp_path / "latin.yaml")
    (tmp_path / "list.yaml").write_text("- a")
    with pytest.raises(SchemaError, match="exactly the keys"):
        PublicSchema.from_yaml(tmp_path / "list.yaml")


LEVELS = "columns: [{name: job, kind: categorical, levels_file: codes/jobs.csv}]"
LEVELS_PLACE = "schema.yaml, line 2, column 42: column job: levels_file:"


def dictionary(folder, text):
    path = folder / "schema.yaml"
    path.write_text(f"name: town\n{text}\n")
    return path


def refused(path):
    with pytest.raises(SchemaError) as refusal:
        PublicSchema.from_yaml(path)
    return str(refusal.value)


def test_open_fields_are_refused_all_at_once_with_what_would_settle_them(tmp_path):
    message = refused(
        dictionary(
            tmp_path,
            """columns:
  - {name: age, kind: integer, lower: 0, upper: TODO, provenance: TODO}
  - {name: job, kind: TODO}
  - {name: area, kind: categorical, levels: TODO}
constraints: [{name: c, sum: [age], at_most: TODO}]""",
        )
    )
    assert message.splitlines()[:6] == [
        "schema.yaml: 5 fields are still TODO",
        *("  column age.upper", "  column age.provenance", "  column job.kind"),
        *("  column area.levels", "  constraint c.at_most"),
    ]
    for field in ("upper", "provenance", "kind", "levels"):
        assert f"\n  {field}: " in message


def test_a_level_a_name_and_a_description_may_say_todo(tmp_path):
    schema = PublicSchema.from_yaml(
        dictionary(
            tmp_path,
            "columns: [{name: TODO, kind: categorical, levels: [TODO, done], other: TODO,"
            " description: TODO}]",
        )
    )
    assert schema.column("TODO").levels == ("TODO", "done")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobs.csv", "code,label\n0110,officers\n2211,doctors\n"),
        ("jobs.csv", '\ufeffcode\r\n"0110"\r\n2211\r\n'),
        ("jobs.txt", "0110\r\n2211\r\n"),
    ],
)
def test_levels_of_a_file_are_levels_of_the_dictionary(name, text, tmp_path):
    (tmp_path / "codes").mkdir()
    (tmp_path / "codes" / name).write_text(text, encoding="utf-8", newline="")
    schema = PublicSchema.from_yaml(dictionary(tmp_path, LEVELS.replace("jobs.csv", name)))
    inline = Column(name="job", kind=ColumnKind.CATEGORICAL, levels=("0110", "2211"))
    assert schema.columns == (inline,)
    assert json.dumps(schema.to_mapping())  # where the levels lie is no part of any digest
    assert "levels_file" not in schema.to_mapping()["columns"][0]


def test_only_a_list_of_found_levels_lacks_the_bucket(tmp_path):
    (tmp_path / "codes").mkdir()
    place = tmp_path / "codes" / "jobs.csv"
    bucket = dictionary(tmp_path, LEVELS.replace("}]", ", other: rets}]"))
    place.write_text("job,noisy_count\nsmith,190.04\n")
    assert PublicSchema.from_yaml(bucket).columns[0].levels == ("smith", "rets")
    for text in ("job\nsmith\nrest\n", "job,label\nsmith,Smith\nrest,Rest\n"):
        place.write_text(text)
        assert "other: must be a level; did you mean 'rest'" in refused(bucket)


def test_a_file_of_levels_that_cannot_be_read_is_told_without_its_words(tmp_path):
    (tmp_path / "codes").mkdir()
    place = tmp_path / "codes" / "jobs.csv"
    for text in (None, "code,label\nsecret\n", '"secret', "", b"\xffsecret"):
        if text is not None:
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
        message = refused(dictionary(tmp_path, LEVELS))
        expected = (
            "no such file; a relative path starts" if text is None else "expected a UTF-8 file"
        )
        assert message.startswith(f"{LEVELS_PLACE} {expected}")
        assert "secret" not in message
    place.write_text("code\n0110\n0110\n")
    assert "two levels are equal" in refused(dictionary(tmp_path, LEVELS))


def test_a_file_of_levels_stands_alone(tmp_path):
    both = "columns: [{name: job, kind: categorical, levels: [a], levels_file: codes/jobs.csv}]"
    assert "no `levels` beside it" in refused(dictionary(tmp_path, both))


def test_a_provenance_is_one_of_four_and_moves_nothing_where_it_is_not_stated():
    bounded = {"name": "age", "kind": "integer", "lower": 0, "upper": 110}
    assert Column.from_mapping(bounded).to_mapping() == bounded
    for text in (*PROVENANCES[:-1], "law: civil code", "other: our form of 2024"):
        column = Column.from_mapping(bounded | {"provenance": text})
        assert Column.from_mapping(column.to_mapping()) == column
        assert column.to_mapping()["provenance"] == text
    for text in ("other", "other: ", "the table itself", "law: \n", "law:" + "x" * 500, 3):
        with pytest.raises(SchemaError, match="column age: provenance: expected one of law"):
            Column.from_mapping(bounded | {"provenance": text})


def test_a_plan_tells_how_many_columns_have_which_provenance():
    assert provenance_summary(["", ""]) == ""
    summary = provenance_summary(["law", "codebook: ISCO", "codebook", ""])
    assert summary == "1 from law, 2 from codebook, 1 not stated"


def categorical(**fields: Any) -> Column:
    return Column.from_mapping({"name": "c", "kind": "categorical", **fields})


def read(one: Column, *cells: Any) -> list[Any]:
    schema = PublicSchema(name="one", columns=(one,))
    frame = pd.DataFrame({"c": pd.Series(cells, dtype=object)})
    released = schema.unscale(schema.scale(frame))
    assert schema.unscale(schema.scale(released)).equals(released)  # a release reads as itself
    return [None if pd.isna(cell) else cell for cell in released["c"]]


def test_a_bucket_is_a_function_of_the_text_that_no_version_may_change() -> None:
    """SHA-256 of b'' begins e3b0c44298fc1c14, of b'abc' ba7816bf8f01cfea (FIPS 180-4)."""
    assert bucket_of("", 4096) == 0xE3B0C44298FC1C14 % 4096
    assert bucket_of("abc", 1000) == 0xBA7816BF8F01CFEA % 1000
    assert bucket_names(12)[7] == "bucket 07"
    assert len(set(bucket_names(4096))) == 4096


def test_every_text_has_a_bucket_whatever_stands_around_it() -> None:
    one = categorical(hash_buckets=64, nullable=True)
    name = f"bucket {bucket_of('Süd', 64):02}"
    cells = ["Süd", " Süd\t", "", None, "bucket 63"]
    assert read(one, *cells) == [name, name, None, None, "bucket 63"]
    assert read(one, 17, "17") == [f"bucket {bucket_of('17', 64):02}"] * 2
    folded = categorical(hash_buckets=64, normaliser="casefold")
    assert len({*read(folded, "SÜD", "süd", "su\u0308d")}) == 1
    long = "a\u0323\u0307" * 400  # hashed as it stands
    assert read(one, long) == [f"bucket {bucket_of(long, 64):02}"]
    assert known_texts(one)("never heard of")


def test_buckets_take_texts_about_evenly() -> None:
    counts = pd.Series([bucket_of(f"code {n}", 10) for n in range(10_000)]).value_counts()
    assert counts.between(850, 1150).all()  # five standard deviations; the texts are fixed


def test_members_mean_their_group_and_groups_themselves() -> None:
    groups = {"levels": ["east", "west"], "members": [["3", "3a"], []]}
    one = categorical(**groups, nullable=True)
    assert read(one, "3", 3, "3a", "west", "east", "4") == [*["east"] * 3, "west", "east", None]
    other = categorical(
        **groups | {"levels": ["east", "rest"]}, other="rest", normaliser="casefold"
    )
    assert read(other, "3A", "4") == ["east", "rest"]


def test_what_columns_of_many_levels_say_of_themselves_reads_back() -> None:
    for one in (
        categorical(hash_buckets=5),
        categorical(levels=["a", "b"], members=[["x"], ["y", "z"]]),
    ):
        mapping = json.loads(json.dumps(one.to_mapping()))
        assert Column.from_mapping(mapping) == one
        assert ("levels" in mapping) is bool(one.members)
        dictionary = {"name": "one", "columns": [mapping]}
        jsonschema.validate(dictionary, dictionary_schema())
    plain = categorical(levels=["a"])
    assert plain.to_mapping() == {"name": "c", "kind": "categorical", "levels": ["a"]}


def hierarchy(folder: Path, text: str | None, name: str = "codes.csv") -> PublicSchema:
    if text is not None:
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / "schema.yaml"
    fields = f"name: cause, kind: categorical, hierarchy_file: {name}"
    path.write_text(f"name: town\ncolumns: [{{{fields}}}]\n")
    return PublicSchema.from_yaml(path)


def test_a_file_of_groups_is_levels_and_members(tmp_path: Path) -> None:
    schema = hierarchy(tmp_path, "code,chapter,note\nA1,A,\nB1,B,x\nA2,A,\nB,B,\n")
    assert schema.columns[0] == Column.from_mapping(
        {"name": "cause", "kind": "categorical", "levels": ["A", "B"],
         "members": [["A1", "A2"], ["B1"]]}
    )  # fmt: skip
    dictionary = {"name": "one", "columns": [
        {"name": "cause", "kind": "categorical", "hierarchy_file": "codes.csv"}]}  # fmt: skip
    jsonschema.validate(dictionary, dictionary_schema())


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (None, "codes.csv", "no such file"),
        ("code,chapter\nsecret\n", "codes.csv", "expected a .csv file"),
        ("secret A\n", "codes.txt", "expected a .csv file"),
    ],
)
def test_a_file_of_groups_that_cannot_be_read_is_told_without_its_words(
    text: str | None, name: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError, match=rf"column cause: hierarchy_file: {said}") as told:
        hierarchy(tmp_path, text, name)
    assert "secret" not in str(told.value)


def test_only_plain_codes_of_one_group_each_are_taken(tmp_path: Path) -> None:
    """`"A\\n1"` is one cell with a line break, which no level may have; a blank line is nothing."""
    for rows in ('"A\n1",A\n', "A1,A\nA1,B\n"):
        with pytest.raises(SchemaError, match="column cause: "):
            hierarchy(tmp_path, f"code,chapter\n{rows}")
    assert hierarchy(tmp_path, "code,chapter\nA1,A\n\n").columns[0].members == (("A1",),)
