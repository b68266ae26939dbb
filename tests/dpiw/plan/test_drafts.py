"""Drafts from metadata: what each format settles, what stays open, and that drafts load."""

from __future__ import annotations

import datetime
import enum
import json
import sys
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from dpiw.data.columns import ColumnKind, ColumnRole
from dpiw.data.schema import PublicSchema
from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft
from dpiw.plan.drafts.formats import FORMATS, Metadata, draft_table
from dpiw.plan.drafts.model import read_json_schema
from dpiw.plan.drafts.writer import (
    DICTIONARY,
    dictionary_files,
    dictionary_name,
    drafted_files,
    spec_text,
)
from tests.support import metadata
from tests.support.drafts import settled

SUFFIXES = {"ddi": "xml", "sql": "sql", "smartnoise": "yaml", "dpsynth": "yaml"}
TEXTS = {
    "csvw": metadata.CSVW, "table-schema": metadata.TABLE_SCHEMA, "croissant": metadata.CROISSANT,
    "ddi": metadata.DDI, "sql": metadata.SQL, "smartnoise": metadata.SMARTNOISE,
    "dpsynth": metadata.DPSYNTH,
}  # fmt: skip
PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=50)


def place(folder, name, text):
    path = folder / f"metadata.{SUFFIXES.get(name, 'json')}"
    path.write_text(text, encoding="utf-8")
    return path


def drafted(folder, name, text=None, **options):
    """What the format's example tells, as mappings by column; and the draft."""
    path = place(folder, name, TEXTS[name] if text is None else text)
    draft = draft_table(name, Metadata(place=str(path), **options))
    return {column.name: column.to_mapping() for column in draft.columns}, draft


def load(draft):
    """The schema of a draft that somebody has settled."""
    files = dictionary_files(draft, name="town", origin="in a test")
    return PublicSchema.from_mapping(settled(files[DICTIONARY], files))


def test_csvw(tmp_path):
    columns, draft = drafted(tmp_path, "csvw")
    assert draft.name == "persons"
    assert list(columns) == [
        "person",
        "age",
        "income",
        "ill",
        "seen",
        "odd",
        "sex",
        "born",
    ]  # titles are the header
    assert columns["person"] == {"name": "person", "role": "identifier"}
    assert columns["age"] | {"provenance": "codebook"} == {
        "name": "age", "kind": "integer", "nullable": False, "lower": 0, "upper": 110,
        "missing": ["-9"], "description": "completed years", "provenance": "codebook",
    }  # fmt: skip
    assert columns["income"]["lower"] == 0
    assert (columns["income"]["decimal"], columns["income"]["thousands"]) == (",", ".")
    assert (columns["ill"]["true_values"], columns["ill"]["false_values"]) == (["J"], ["N"])
    assert columns["seen"]["date_format"] == "%d.%m.%Y"
    assert "date_format" not in columns["odd"]  # what we have no words for is left out, with a note
    assert "upper" not in columns["income"]
    assert columns["sex"] == {"name": "sex", "kind": "categorical", "missing": ["NA"]}
    assert columns["born"]["lower"] == "1900-01-01"


def test_csvw_with_its_schema_beside_it(tmp_path):
    document = json.loads(metadata.CSVW)
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "persons.json").write_text(json.dumps(document.pop("tableSchema")))
    table = {"url": "persons.csv", "tableSchema": "schemas/persons.json"}
    second = {"url": "others.csv", "tableSchema": {"columns": [{"name": "a"}]}}
    group = json.dumps({"tables": [table, second]})
    with pytest.raises(SchemaError, match=r"--table: persons\.csv, others\.csv"):
        drafted(tmp_path, "csvw", group)
    columns, _ = drafted(tmp_path, "csvw", group, table="persons.csv")
    assert list(columns) == ["person", "age", "income", "ill", "seen", "odd", "sex", "born"]


def test_table_schema(tmp_path):
    columns, _ = drafted(tmp_path, "table-schema")
    assert columns["person"]["role"] == "identifier"
    assert (columns["age"]["lower"], columns["age"]["upper"], columns["age"]["nullable"]) == (
        0,
        110,
        False,
    )
    assert (columns["income"]["decimal"], columns["income"]["thousands"]) == (",", ".")
    assert (columns["sex"]["levels"], columns["sex"]["nullable"]) == (["f", "m"], True)
    assert (columns["grade"]["kind"], columns["grade"]["levels"]) == ("ordinal", ["1", "2"])
    assert columns["smoker"]["true_values"] == ["ja"]
    assert columns["seen"]["date_format"] == "%d.%m.%Y"
    assert "kind" not in columns["place"]
    assert all(
        column.get("missing") == ["NA"] for column in columns.values() if "role" not in column
    )


def test_what_a_table_schema_states_and_nothing_takes_is_told_in_the_draft(tmp_path):
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": "forty"}},
        {"name": "day", "type": "date", "constraints": {"minimum": 1900}},
        {"name": "size", "type": "int"},
        {"name": "place", "type": "geopoint"},
        {"name": "code", "type": "any", "constraints": {"enum": ["a"]}},
    ]
    _, draft = drafted(tmp_path, "table-schema", json.dumps({"fields": fields}))
    (text,) = dictionary_files(draft, name="town", origin="").values()
    notes = [line.strip() for line in text.splitlines() if line.startswith("    #")]
    assert notes[:2] == [
        "# the metadata's upper bound is no integer value: left out",
        "# the metadata's lower bound is no date value: left out",
    ]
    assert notes[2].startswith("# its type settles no kind; that do string, number, ")
    assert notes[2].endswith("; did you mean 'integer'?")
    assert notes[3].endswith("date, datetime")
    assert len(notes) == 4
    assert "forty" not in text


def test_a_resource_of_a_data_package(tmp_path):
    resources = [
        {"name": "towns", "path": "towns.csv", "schema": {"fields": [{"name": "town"}]}},
        {"name": "far", "path": "far.csv", "schema": "https://example.org/schema.json"},
    ]
    package = json.dumps({"resources": resources})
    columns, draft = drafted(tmp_path, "table-schema", package, table="towns")
    assert (list(columns), draft.name) == (["town"], "towns")
    with pytest.raises(SchemaError, match="another address is not read"):
        drafted(tmp_path, "table-schema", package, table="far")


def test_croissant_takes_enumerations_and_no_rows(tmp_path):
    columns, draft = drafted(tmp_path, "croissant")
    assert list(columns) == ["person", "age", "sex", "ill"]
    assert columns["person"]["role"] == "identifier"
    assert columns["age"] == {"name": "age", "kind": "integer", "description": "years"}
    assert columns["sex"]["levels"] == ["f", "m"]
    assert columns["ill"]["kind"] == "boolean"
    assert "4242" not in str(draft)


def test_ddi_takes_no_statistics_and_no_range_that_is_the_table_s(tmp_path):
    columns, draft = drafted(tmp_path, "ddi")
    assert "lower" not in columns["age"]  # the table's least value, too
    assert columns["age"]["upper"] == 110
    assert columns["age"]["missing"] == ["-9"]
    assert columns["income"] == {
        "name": "income", "kind": "continuous", "decimals": 2, "description": "euros",
    }  # fmt: skip
    assert "range is the least and largest value" in draft.columns[1].notes[0]
    assert (columns["sex"]["levels"], columns["sex"]["missing"]) == (["1", "2"], ["9"])
    assert columns["sex"]["description"] == "sex (1=male, 2=female)"
    assert columns["seen"]["kind"] == "date"
    assert "4242" not in str(draft)


def test_sql(tmp_path):
    columns, draft = drafted(tmp_path, "sql", dialect="postgres")
    assert draft.name == "persons"
    assert columns["person"]["role"] == "identifier"
    assert (columns["age"]["lower"], columns["age"]["upper"]) == (0, 110)  # age < 111
    assert (columns["age"]["nullable"], columns["age"]["description"]) == (False, "completed years")
    assert (columns["income"]["lower"], columns["income"]["upper"]) == (-500, 500000)
    assert columns["income"]["decimals"] == 2
    assert columns["sex"]["levels"] == ["f", "m"]
    assert columns["grade"]["levels"] == ["low", "high"]
    assert columns["born"]["lower"] == "1900-01-01"
    assert columns["seen"]["kind"] == "datetime"
    assert (columns["ill"]["kind"], columns["town"]["kind"]) == ("boolean", "categorical")
    assert not draft.columns[-1].levels


def test_sql_of_another_dialect_and_one_table_of_two(tmp_path):
    text = "CREATE TABLE `a` (x INT); CREATE TABLE `b` (`y` ENUM('u','v') COMMENT 'letter');"
    columns, _ = drafted(tmp_path, "sql", text, table="b", dialect="mysql")
    assert columns["y"]["levels"] == ["u", "v"]
    assert columns["y"]["description"] == "letter"


class Grade(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Person(BaseModel):
    """A row."""

    age: int = Field(ge=0, lt=111, description="completed years")
    income: float | None = Field(gt=-1, le=500000)
    sex: Literal["f", "m"]
    grade: Grade | None
    ill: bool
    born: datetime.date
    note: str


def test_a_pydantic_model():
    draft = read_json_schema(Person.model_json_schema())
    columns = {column.name: column.to_mapping() for column in draft.columns}
    assert (columns["age"]["lower"], columns["age"]["upper"]) == (0, 110)
    assert columns["age"]["description"] == "completed years"
    assert (columns["income"]["lower"], columns["income"]["nullable"]) == (-1, True)
    assert (columns["sex"]["levels"], columns["sex"]["nullable"]) == (["f", "m"], False)
    assert (columns["grade"]["levels"], columns["grade"]["nullable"]) == (["low", "high"], True)
    assert (columns["ill"]["kind"], columns["born"]["kind"]) == ("boolean", "date")
    assert load(draft).name == "town"


def test_a_pydantic_model_is_found_by_its_place(tmp_path, monkeypatch):
    (tmp_path / "dpiw_rows.py").write_text(
        "from pydantic import BaseModel\nclass Row(BaseModel):\n    ill: bool\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    draft = draft_table("pydantic", Metadata(place="dpiw_rows:Row"))
    assert (draft.name, [column.name for column in draft.columns]) == ("Row", ["ill"])
    assert sys.path == before


def test_smartnoise_takes_no_number_of_rows(tmp_path):
    columns, draft = drafted(tmp_path, "smartnoise")
    assert (draft.name, draft.max_rows) == ("Persons", 4)
    assert columns["person"] == {"name": "person", "role": "identifier"}
    assert (columns["age"]["lower"], columns["age"]["upper"], columns["age"]["nullable"]) == (
        0,
        110,
        False,
    )
    assert columns["income"]["upper"] == 500000
    assert columns["sex"] == {"name": "sex", "kind": "categorical"}
    assert (columns["ill"]["kind"], columns["seen"]["kind"]) == ("boolean", "datetime")
    assert "4242" not in spec_text(draft, name="town")
    assert "max_rows: 4" in spec_text(draft, name="town")


def test_dpsynth(tmp_path):
    columns, _ = drafted(tmp_path, "dpsynth")
    assert (columns["age"]["kind"], columns["age"]["lower"], columns["age"]["upper"]) == (
        "integer",
        0,
        110,
    )
    assert columns["age"]["nullable"] is False
    assert (columns["sex"]["levels"], columns["sex"]["other"]) == (["f", "m", "3"], "m")
    assert columns["ill"]["kind"] == "boolean"
    assert columns["town"] == {"name": "town", "kind": "categorical"}
    assert "kind" not in columns["story"]


def test_a_header_leaves_all_but_names_open():
    draft = draft_table("header", Metadata(place='ID;age;"net; income"', delimiter=";"))
    assert [column.name for column in draft.columns] == ["ID", "age", "net; income"]
    assert draft.columns[0].role is ColumnRole.IDENTIFIER
    assert draft.columns[1] == ColumnDraft(name="age")
    assert not draft.columns[2].notes
    padded = draft_table("header", Metadata(place="age, sex")).columns
    assert [column.name for column in padded] == ["age", "sex"]
    assert ["white space" in str(column.notes) for column in padded] == [False, True]
    for line, told in (
        ("", "one line of column names"), ("age,,sex", "name 2 of 3: a column name is empty"),
        ("age,AGE", "columns 1 and 2"), ("age,42,sex", "name 2 of 3: a name is a number"),
        ("1.5", "name 1 of 1: a name is a number"), (r"a\tb", r"in bash a tab is $'\t'"),
    ):  # fmt: skip
        with pytest.raises(SchemaError) as refusal:
            draft_table("header", Metadata(place=line))
        assert told in str(refusal.value)
        assert "42" not in str(refusal.value)


@pytest.mark.parametrize("name", TEXTS)
def test_a_draft_loads_once_it_is_settled(name, tmp_path):
    _, draft = drafted(tmp_path, name)
    schema = load(draft)
    assert [column.name for column in schema.columns] == [column.name for column in draft.columns]


def test_every_format_has_an_example():
    assert set(FORMATS) == {*TEXTS, "header", "header-file", "pydantic"}


def test_what_the_dictionary_would_refuse_is_opened_with_a_note():
    far = ColumnDraft(name="n", kind=ColumnKind.INTEGER, lower=0, upper=2**60, provenance="law")
    opened = far.admissible()
    assert (opened.lower, opened.upper, opened.provenance) == (None, None, "")
    assert "not admissible" in opened.notes[-1]
    twice = ColumnDraft(name="d", kind=ColumnKind.DATE, written={"date_format": "%y"})
    assert twice.admissible().written == {}
    sound = ColumnDraft(name="n", kind=ColumnKind.INTEGER, lower=5)
    assert sound.admissible() is sound


def test_a_name_that_no_released_column_may_have_is_refused_by_name():
    for column, taken in (("weight", False), ("Log_Weight", False), ("mass", True)):
        draft = draft_table("header", Metadata(place=f"{column},age"))
        if not taken:
            with pytest.raises(SchemaError, match=f"column {column}: name: reserved"):
                drafted_files(draft, name="town", origin="")
            draft = draft.with_role(column, ColumnRole.IDENTIFIER)
        assert drafted_files(draft, name="town", origin="")


def test_long_lists_of_levels_go_to_files_of_their_own():
    levels = tuple(f"{number:04}" for number in range(40))
    draft = TableDraft(
        columns=(ColumnDraft(name="job", kind=ColumnKind.CATEGORICAL, levels=levels),)
    )
    files = dictionary_files(draft, name="town", origin="in a test")
    assert files["levels-001.txt"].splitlines() == list(levels)
    assert "levels_file: levels-001.txt" in files[DICTIONARY].replace('"', "")
    assert load(draft).column("job").levels == levels


def test_names_of_dictionaries():
    for text, plain in (
        ("Bevölkerung 2024", "bevoelkerung-2024"), ("Tierklinik Su\u0308d", "tierklinik-sued"),
        ("Straße", "strasse"), ("Élèves & Łódź", "eleves-lodz"), ("人口 B", "b"),
    ):  # fmt: skip
        assert dictionary_name("", text, "x") == plain
    with pytest.raises(SchemaError, match="--name"):
        dictionary_name("", "人口")


def test_a_spec_is_left_open_where_a_person_decides():
    mapping = load_text(spec_text(TableDraft(columns=(ColumnDraft(name="age"),)), name="2024"),
                        what="spec", exact=True)  # fmt: skip
    open_fields = {key for key, value in mapping.items() if value == "TODO"}
    assert open_fields == {"epsilon", "delta", "nominal_rows"}
    assert mapping["source"]["path"] == "TODO"
    assert mapping["name"] == mapping["population"] == "2024"


NAMES = st.sampled_from(
    ["age", "Größe", "a b", "TODO", "no", "3", "net: income", "#x", "'q'", '"', "{", "年齢", "-",
     "null", "true", "a,b", "\\n", "1e3", "2024-01-01", "𝒳"]
)  # fmt: skip


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any")


WORDS = st.text(max_size=8)
NUMBERS = st.none() | st.integers() | st.floats() | WORDS
FIELDS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "type": st.sampled_from(
            ["string", "number", "integer", "boolean", "date", "datetime", "any", 3]
        ),
        "description": WORDS,
        "format": st.sampled_from(["%d.%m.%Y", "%y", "default"]),
        "trueValues": st.lists(WORDS, max_size=2),
        "falseValues": st.lists(WORDS, max_size=2),
        "decimalChar": WORDS,
        "missingValues": st.lists(WORDS, max_size=3),
        "constraints": st.fixed_dictionaries(
            {}, optional={"minimum": NUMBERS, "maximum": NUMBERS, "required": st.booleans(),
                          "enum": st.lists(NUMBERS, max_size=40)},
        ),
    },
)  # fmt: skip


@PROPERTY
@given(st.lists(FIELDS, min_size=1, max_size=5, unique_by=lambda one: one["name"]))
def test_any_table_schema_drafts_a_dictionary_that_loads_once_settled(one_folder, fields):
    columns, draft = drafted(one_folder, "table-schema", json.dumps({"fields": fields}))
    schema = load(draft)
    assert [column.name for column in schema.columns] == list(columns)
    for column in schema.columns:
        stated = columns[column.name]
        assert column.kind.value == stated.get("kind", "boolean")
        for field in ("lower", "upper"):
            assert getattr(column, field) == stated.get(field, getattr(column, field))


def test_a_drafted_spec_leaves_the_weights_to_their_rule():
    """A setting that is stated stands: fewer frequencies reach less, and cap the products."""
    draft = TableDraft(columns=(ColumnDraft(name="age"),))
    mapping = load_text(spec_text(draft, name="town"), what="spec", exact=True)
    assert mapping["weights"] == {"method": "measured", "settings": {"omega_seed": 1}}
