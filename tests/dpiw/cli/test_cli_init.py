"""`dpiw init`: drafts beside each other, what to type next, nothing written over."""

import pytest

from dpiw.cli.main import main
from dpiw.data.schema import PublicSchema
from dpiw.errors import SchemaError, SpecError
from dpiw.plan.drafts.formats import FORMATS
from dpiw.plan.spec import load_spec
from tests.support import metadata
from tests.support.drafts import settled

HEADER = ["--header", "person,age,sex,ill"]


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_a_dictionary_and_a_spec_and_says_what_to_type(desk, capsys):
    assert main(["init", "town", *HEADER, "--identifier", "person", "--target", "ill"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == (
        "wrote release.yaml, schema.yaml to town: 4 columns, 25 open fields; no data was read"
    )
    assert [line.split(" town")[0].strip() for line in told[2:]] == [
        "dpiw plan", "dpiw rehearse", "dpiw key new",
        "dpiw ledger register POPULATION --ledger", "dpiw release",
    ]  # fmt: skip
    assert told[5].endswith('--relation add_or_remove_one --id-column "person" --max-rows K')
    mapping = settled((desk / "town" / "schema.yaml").read_text(), {})
    schema = PublicSchema.from_mapping(mapping)
    assert (schema.name, schema.identifier.name, schema.target.name) == ("town", "person", "ill")
    assert "id_column: person" in (desk / "town" / "release.yaml").read_text()


def test_drafts_are_refused_until_they_are_settled(desk):
    main(["init", "town", *HEADER, "--identifier", "person"])
    with pytest.raises(SpecError, match="7 fields are still TODO") as told:
        load_spec(desk / "town" / "release.yaml")
    for field in ("population", "source.path", "epsilon", "delta", "nominal_rows"):
        assert f"\n  {field}" in str(told.value)
    with pytest.raises(SchemaError, match="18 fields are still TODO"):
        PublicSchema.from_yaml(desk / "town" / "schema.yaml")
    assert main(["plan", "town/release.yaml"]) == SpecError.exit_code


def test_nothing_is_written_over(desk, capsys):
    folder = desk / "town"
    folder.mkdir()
    (folder / "release.yaml").write_text("mine")
    assert main(["init", "town", *HEADER]) == SpecError.exit_code
    assert "release.yaml there already" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["release.yaml"]
    assert (folder / "release.yaml").read_text() == "mine"
    (desk / "file").write_text("")
    assert main(["init", "file", *HEADER]) == SpecError.exit_code
    assert "cannot be written" in capsys.readouterr().err


def test_an_option_for_every_format_and_one_of_them(capsys):
    with pytest.raises(SystemExit):
        main(["init", "--help"])
    told = capsys.readouterr().out
    assert all(f"--{name} " in told for name in FORMATS)
    for arguments in ([], [*HEADER, "--csvw", "m.json"]):
        with pytest.raises(SystemExit) as ended:
            main(["init", "town", *arguments])
        assert ended.value.code == 2


def test_options_reach_their_reader(desk, capsys):
    (desk / "persons.sql").write_text(metadata.SQL)
    chosen = ["--sql", "persons.sql", "--dialect", "postgres", "--table", "persons"]
    assert main(["init", "sql", *chosen, "--name", "census"]) == 0
    assert "name: census\n" in (desk / "sql" / "schema.yaml").read_text()
    assert main(["init", "head", "--header", "a;b", "--delimiter", ";"]) == 0
    assert "- name: b\n" in (desk / "head" / "schema.yaml").read_text()
    capsys.readouterr()
    for wrong, told in (
        (["--sql", "persons.sql", "--table", "others"], "--table: persons"),
        (["--header", "a,b", "--delimiter", ";;"], "--delimiter: expected one character"),
        (["--header", "a,b", "--target", "c"], "target: no column of that name"),
        (["--csvw", "persons.csv"], "csvw"),
    ):
        assert main(["init", "none", *wrong]) in (SpecError.exit_code, SchemaError.exit_code)
        assert told in capsys.readouterr().err.replace("CSVW", "csvw")
    assert not (desk / "none").exists()
