"""Drafts from metadata: what each format settles, what stays open, and that drafts load."""

import json

import pytest

from dpiw.data.schema.columns import ColumnKind, ColumnRole
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError
from dpiw.plan.drafts import writer
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft
from dpiw.plan.drafts.formats import draft_table
from tests.support import metadata
from tests.support.drafts import settled

SUFFIXES = {"ddi": "xml", "sql": "sql"}
TEXTS = {"table-schema": metadata.TABLE_SCHEMA, "ddi": metadata.DDI, "sql": metadata.SQL}


def place(folder, name, text):
    path = folder / f"metadata.{SUFFIXES.get(name, 'json')}"
    path.write_text(text, encoding="utf-8")
    return path


def drafted(folder, name, text=None, **options):
    """What the format's example tells, as mappings by column; and the draft."""
    path = place(folder, name, TEXTS[name] if text is None else text)
    draft = draft_table(name, str(path), **options)
    return {column.name: column.to_mapping() for column in draft.columns}, draft


def load(draft):
    """The schema of a draft that somebody has settled."""
    text = writer.dictionary_text(draft, name="town", origin="in a test")
    return PublicSchema.from_mapping(settled(text))


IDENTIFIER = {"role": "identifier"}
CSV_NUMBER = {"decimal": ",", "thousands": "."}
TELLS = {
    "table-schema": {
        "person": IDENTIFIER,
        "age": {"lower": 0, "upper": 110, "nullable": False, "missing": ["NA"]},
        "income": CSV_NUMBER | {"missing": ["NA"]},
        "sex": {"levels": ["f", "m"], "nullable": True, "missing": ["NA"]},
        "grade": {"kind": "ordinal", "levels": ["1", "2"], "missing": ["NA"]},
        "smoker": {"true_values": ["ja"], "missing": ["NA"]},
        "seen": {"date_format": "%d.%m.%Y", "missing": ["NA"]},
        "place": {"kind": None},
    },
    "ddi": {
        "age": {"lower": None, "upper": 110, "missing": ["-9"]},  # the table's least value, too
        "income": {"kind": "continuous", "decimals": 2, "description": "euros", "lower": None,
                   "upper": None},
        "sex": {"levels": ["1", "2"], "missing": ["9"],
                "description": "sex (1=male, 2=female)"},
        "seen": {"kind": "date"},
    },
    "sql": {
        "person": IDENTIFIER,
        "age": {"lower": 0, "upper": 110, "nullable": False,  # age < 111
                "description": "completed years"},
        "income": {"lower": -500, "upper": 500000, "decimals": 2}, "sex": {"levels": ["f", "m"]},
        "grade": {"levels": ["low", "high"]}, "born": {"lower": "1900-01-01"},
        "seen": {"kind": "datetime"}, "ill": {"kind": "boolean"},
        "town": {"kind": "categorical", "levels": None},
    },
}  # fmt: skip
"""By format: what its example tells of each column; None is what it leaves open."""


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_format_tells(name, tmp_path):
    options = {"dialect": "postgres"} if name == "sql" else {}
    columns, draft = drafted(tmp_path, name, **options)
    assert list(columns) == list(TELLS[name])
    for column, told in TELLS[name].items():
        assert {field: columns[column].get(field) for field in told} == told, column
    assert "4242" not in str(draft)  # no row, no count of them and no statistic
    schema = load(draft)
    assert [column.name for column in schema.columns] == list(columns)


def test_one_table_of_two_in_another_dialect(tmp_path):
    text = "CREATE TABLE `a` (x INT); CREATE TABLE `b` (`y` ENUM('u','v') COMMENT 'letter', "
    text += "z TEXT CHECK (z IN ('p', 'q')));"
    columns, draft = drafted(tmp_path, "sql", text, table="b", dialect="mysql")
    assert (draft.name, columns["y"]["levels"]) == ("b", ["u", "v"])
    assert columns["y"]["description"] == "letter"
    assert columns["z"]["levels"] == ["p", "q"]


def test_what_a_table_schema_states_and_nothing_takes_is_told_in_the_draft(tmp_path):
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": "forty"}},
        {"name": "day", "type": "date", "constraints": {"minimum": 1900}},
        {"name": "size", "type": "int"},
        {"name": "place", "type": "geopoint"},
        {"name": "code", "type": "any", "constraints": {"enum": ["a"]}},
    ]
    _, draft = drafted(tmp_path, "table-schema", json.dumps({"fields": fields}))
    assert [bool(column.notes) for column in draft.columns] == [True, True, True, True, False]
    text = writer.dictionary_text(draft, name="town", origin="")
    assert all(note in text for column in draft.columns for note in column.notes)
    assert "forty" not in text


def test_a_resource_of_a_data_package(tmp_path):
    resources = [
        {"name": "towns", "path": "towns.csv", "schema": {"fields": [{"name": "town"}]}},
        {"name": "far", "path": "far.csv", "schema": "https://example.org/schema.json"},
    ]
    package = json.dumps({"resources": resources})
    columns, draft = drafted(tmp_path, "table-schema", package, table="towns")
    assert (list(columns), draft.name) == (["town"], "towns")
    with pytest.raises(SchemaError):
        drafted(tmp_path, "table-schema", package, table="far")


def test_ddi_takes_no_statistics_and_no_range_that_is_the_table_s(tmp_path):
    columns, draft = drafted(tmp_path, "ddi")
    assert not {"lower", "upper"} & columns["income"].keys()
    assert draft.columns[1].notes
    assert "424242" not in str(draft)
    text = '<var name="a"><varFormat type="character"/></var>'
    columns, _ = drafted(tmp_path, "ddi", f"<codeBook><dataDscr>{text}</dataDscr></codeBook>")
    assert columns["a"]["kind"] == "categorical"


def test_a_header_leaves_all_but_names_open():
    draft = draft_table("header", 'ID;age;"net; income"', delimiter=";")
    assert [column.name for column in draft.columns] == ["ID", "age", "net; income"]
    assert draft.columns[0].role is ColumnRole.IDENTIFIER
    assert draft.columns[1] == ColumnDraft(name="age")
    assert not draft.columns[2].notes
    padded = draft_table("header", "age, sex").columns
    assert [(column.name, bool(column.notes)) for column in padded] == [
        ("age", False), ("sex", True),
    ]  # fmt: skip
    odd = ("age," + "42" * 100, "age,a\u200b42")
    for line in ("", "age,,sex", "age,AGE", "age,42,sex", "1.5", r"a\tb", *odd):
        with pytest.raises(SchemaError) as refusal:
            draft_table("header", line)
        assert "42" not in str(refusal.value)
    assert refusal.value.field == "the metadata: name 2 of 2"


def test_what_the_dictionary_would_refuse_is_opened_with_a_note():
    far = ColumnDraft(name="n", kind=ColumnKind.INTEGER, lower=0, upper=2**60, provenance="law")
    opened = far.admissible()
    assert (opened.lower, opened.upper, opened.provenance) == (None, None, "")
    assert opened.notes
    twice = ColumnDraft(name="d", kind=ColumnKind.DATE, written={"date_format": "%y"})
    assert twice.admissible().written == {}
    sound = ColumnDraft(name="n", kind=ColumnKind.INTEGER, lower=5)
    assert sound.admissible() is sound


def test_a_name_that_no_released_column_may_have_is_refused_by_name():
    for column, taken in (("weight", False), ("Log_Weight", False), ("mass", True)):
        draft = draft_table("header", f"{column},age")
        if not taken:
            with pytest.raises(SchemaError, match=f"column {column}: name"):
                writer.drafted_files(draft, name="town", origin="")
            draft = draft.with_role(column, ColumnRole.IDENTIFIER)
        assert writer.drafted_files(draft, name="town", origin="")


def test_a_long_list_of_levels_is_drafted():
    levels = tuple(f"{number:04}" for number in range(1000))
    job = ColumnDraft(name="job", kind=ColumnKind.CATEGORICAL, levels=levels)
    assert load(TableDraft(columns=(job,))).column("job").levels == levels


def test_names_of_dictionaries():
    for text, plain in (
        ("Bevölkerung 2024", "bevoelkerung-2024"), ("Tierklinik Su\u0308d", "tierklinik-sued"),
        ("Łódź", "lodz"), ("København", "koebenhavn"), ("Æsir", "aesir"),
        ("Straße", "strasse"), ("Élèves & Nîmes", "eleves-nimes"), ("人口 B", "b"),
    ):  # fmt: skip
        assert writer.dictionary_name("", text, "x") == plain
    with pytest.raises(SchemaError, match="--name"):
        writer.dictionary_name("", "人口")


def test_a_spec_is_left_open_where_a_person_decides():
    draft = TableDraft(columns=(ColumnDraft(name="age"),))
    mapping = load_text(writer.spec_text(draft, name="2024"), what="spec", exact=True)
    open_fields = {key for key, value in mapping.items() if value == "TODO"}
    assert open_fields == {"epsilon", "delta", "nominal_rows"}
    assert mapping["source"]["path"] == "TODO"
    assert mapping["name"] == mapping["population"] == "2024"
    assert mapping["weights"] == {"method": "measured"}
