"""Files of data dictionaries: open fields, files of levels, provenance."""

import json

import pytest

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.confidential import Confidential
from dpiw.data.declarations import PROVENANCES, provenance_summary
from dpiw.data.schema import PublicSchema
from dpiw.errors import SchemaError

LEVELS = "columns: [{name: job, kind: categorical, levels_file: codes/jobs.csv}]"
LEVELS_PLACE = "schema.yaml, line 2, column 42: column job: levels_file:"


def dictionary(folder, text):
    path = folder / "schema.yaml"
    path.write_text(f"name: town\n{text}\n")
    return path


def refused(path, **options):
    with pytest.raises(SchemaError) as refusal:
        PublicSchema.from_yaml(path, **options)
    return str(refusal.value)


def test_open_fields_are_refused_all_at_once_with_what_would_settle_them(tmp_path):
    message = refused(
        dictionary(
            tmp_path,
            """columns:
  - {name: age, kind: integer, lower: 0, upper: TODO, provenance: TODO}
  - {name: job, kind: TODO}
  - {name: area, kind: categorical, levels: TODO}""",
        )
    )
    assert message.splitlines()[:5] == [
        "schema.yaml: 4 fields are still TODO",
        *("  column age.upper", "  column age.provenance", "  column job.kind"),
        "  column area.levels",
    ]
    for field in ("upper", "provenance", "kind", "levels"):
        assert f"\n  {field}: " in message
    assert "codebook" in message
    assert message.endswith("never what the confidential table holds")


def test_an_open_field_of_a_constraint_is_told_by_its_name(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_text("name: t\ncolumns: []\nconstraints: [{name: c, sum: [a], at_most: TODO}]")
    with pytest.raises(SchemaError, match=r"constraint c\.at_most"):
        PublicSchema.from_yaml(path)


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
        ("jobs.txt", "0110\n2211"),
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
        expected = "no such file; a path starts" if text is None else "expected a UTF-8 file"
        assert message.startswith(f"{LEVELS_PLACE} {expected}")
        assert "secret" not in message
    place.write_text("code\n0110\n0110\n")
    assert "two levels are equal" in refused(dictionary(tmp_path, LEVELS))


def test_a_file_of_levels_is_not_the_confidential_source_nor_beside_levels(tmp_path):
    (tmp_path / "codes").mkdir()
    table = tmp_path / "codes" / "jobs.csv"
    table.write_text("job\nsecret\n")
    zone = Confidential(source=table, state=tmp_path / "state", releases=tmp_path / "releases")
    message = refused(dictionary(tmp_path, LEVELS), confidential=zone)
    assert message.startswith(f"{LEVELS_PLACE} this is source.path")
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
