"""`dpiw init`: drafts beside each other, what to type next, nothing written over."""

import os

import pytest

from dpiw.cli.main import main
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.plan.spec import load_spec
from tests.support import metadata
from tests.support.drafts import settled

HEADER = ["--header", "person,age,sex,ill"]


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_a_dictionary_and_a_spec_and_says_what_to_type(desk, says):
    lines = says("init", "town", *HEADER, "--identifier", "person", "--target", "ill").splitlines()
    assert "4 columns, 8 open fields" in lines[0]
    assert [line.split(" town")[0].split(" --")[0].strip() for line in lines[2:]] == [
        "dpiw plan", "dpiw rehearse", "dpiw key new",
        "dpiw ledger register", "dpiw release",
    ]  # fmt: skip
    text = (desk / "town" / "schema.yaml").read_text()
    assert text.partition("columns:\n")[2].splitlines() == [
        "  - {name: person, role: identifier}",
        "  - {name: age, kind: TODO, nullable: true}",
        "  - {name: sex, kind: TODO, nullable: true}",
        "  - {name: ill, kind: TODO, role: target, nullable: true}",
    ]
    schema = PublicSchema.from_mapping(settled(text))
    assert (schema.name, schema.identifier.name, schema.target.name) == ("town", "person", "ill")
    assert "id_column: person" in (desk / "town" / "release.yaml").read_text()


def test_drafts_are_refused_until_they_are_settled(desk):
    main(["init", "town", *HEADER, "--identifier", "person"])
    with pytest.raises(SpecError) as caught:
        load_spec(desk / "town" / "release.yaml")
    listed = [line.strip() for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert listed[:8] == [
        "source.path", "unit.max_rows", "epsilon", "delta", "nominal_rows", "column age.kind",
        "column sex.kind", "column ill.kind",
    ]  # fmt: skip
    with pytest.raises(SchemaError, match="3 fields"):
        PublicSchema.from_yaml(desk / "town" / "schema.yaml")
    assert main(["plan", "town/release.yaml"]) == SpecError.exit_code


@pytest.mark.parametrize("schema", ["people.csv", "people.yaml", 3])
def test_what_may_be_the_confidential_table_is_not_opened_for_its_open_fields(
    desk, schema, monkeypatch
):
    spec, table = desk / "release.yaml", desk / "people.yaml"
    spec.write_text(f"schema: {schema}\nsource: {{path: people.yaml}}\nepsilon: TODO\n")
    table.write_text("columns: [{name: age, kind: TODO}]\n")
    (desk / "people.csv").hardlink_to(table)
    opened = []
    real = type(table).open
    monkeypatch.setattr(
        type(table), "open", lambda path, *how: opened.append(path) or real(path, *how)
    )
    with pytest.raises(SpecError) as caught:
        load_spec(spec)
    told = str(caught.value).partition("\nwrite instead:\n  epsilon: ")
    assert told[0] == "release.yaml: 1 field is still TODO\n  epsilon"
    assert told[2]
    assert opened == [spec]


def test_nothing_is_written_over(desk):
    folder = desk / "town"
    folder.mkdir()
    (folder / "release.yaml").write_text("mine")
    (desk / "file").write_text("")
    for place in ("town", "file"):
        assert main(["init", place, *HEADER]) == SpecError.exit_code
    assert [path.name for path in folder.iterdir()] == ["release.yaml"]
    assert (folder / "release.yaml").read_text() == "mine"


def test_options_reach_their_reader(desk, capsys):
    (desk / "persons.sql").write_text(metadata.SQL)
    chosen = ["--sql", "persons.sql", "--dialect", "postgres", "--table", "persons"]
    assert main(["init", "sql", *chosen, "--name", "census"]) == 0
    assert "name: census\n" in (desk / "sql" / "schema.yaml").read_text()
    assert main(["init", "head", "--header", "a;b", "--delimiter", ";"]) == 0
    assert "{name: b, kind: TODO, nullable: true}" in (desk / "head" / "schema.yaml").read_text()
    assert '  format: csv\n  delimiter: ";"\n' in (desk / "head" / "release.yaml").read_text()
    for wrong in (
        ["--sql", "persons.sql", "--table", "others"], ["--header", "a,b", "--delimiter", ";;"],
        ["--header", "a,b", "--delimiter", "\\t"], ["--header", "a,b", "--target", "c"],
        ["--header", "patient_id,b", "--identifier", "patient"], ["--header", "a;b"],
        ["--header", "a\tb", "--identifier", "a"], ["--table-schema", "persons.csv"],
    ):  # fmt: skip
        assert main(["init", "none", *wrong]) in (SpecError.exit_code, SchemaError.exit_code)
        # the same command would not do
        assert "correct it, then run" not in capsys.readouterr().err
    assert not (desk / "none").exists()


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_a_header_in_another_encoding(desk, capsys, encoding):
    words = ["--header", os.fsdecode("Körper;a".encode(encoding)), "--delimiter", ";"]
    assert main(["init", "town", *words]) != 0
    assert "rper" not in capsys.readouterr().err
    assert not (desk / "town").exists()
    assert main(["init", "town", *words, "--encoding", encoding]) == 0
    assert '{name: "Körper", kind: TODO' in (desk / "town" / "schema.yaml").read_text()
    spec = desk / "town" / "release.yaml"
    assert f"\n  encoding: {encoding}\n" in spec.read_text()
    schema = settled((desk / "town" / "schema.yaml").read_text())
    assert [column["name"] for column in schema["columns"]] == ["Körper", "a"]


def test_a_byte_order_mark_is_no_part_of_a_name_and_utf_16_is_refused(desk):
    assert main(["init", "town", "--header", "\ufeffage,sex"]) == 0
    assert "{name: age, kind" in (desk / "town" / "schema.yaml").read_text()
    line = os.fsdecode("age,sex".encode("utf-16").replace(b"\0", b""))  # as bash gives it
    assert main(["init", "other", "--header", line]) == SchemaError.exit_code
    assert not (desk / "other").exists()


@pytest.mark.parametrize("command", ["init town --header", "plan release.yaml --header"])
def test_a_table_s_name_is_no_header(workplace, monkeypatch, says, command):
    monkeypatch.chdir(workplace.root)
    os.chmod(workplace.source, 0)
    name = workplace.source.name
    assert "correct it, then run" not in says(*command.split(), name, code=SourceError.exit_code)
