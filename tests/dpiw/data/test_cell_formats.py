"""How a source writes its cells: which settings are admissible, where they stand, what they key."""

import dataclasses

import pandas as pd
import pytest

from dpiw.data.cell_formats import (
    CANONICAL,
    FORMAT_FIELDS,
    CellFormat,
    date_pattern,
    without_defaults,
)
from dpiw.data.cell_reading import settled_formats
from dpiw.data.schema import PublicSchema
from dpiw.errors import SchemaError, SpecError
from dpiw.plan.spec import load_schema, load_spec, parse_spec

SPEC = {
    "format": 1,
    "name": "town",
    "population": "town",
    "source": {"path": "data.csv", "format": "csv"},
    "schema": "schema.yaml",
    "epsilon": 1,
    "delta": 0,
    "nominal_rows": 100,
    "generator": {"method": "histogram"},
    "weights": {"method": "none"},
    "synthetic_rows": 10,
    "state": "state",
    "signing_key": "key",
    "publish_to": "out",
}
NUMBER = {"name": "x", "kind": "continuous", "lower": 0, "upper": 9}
WHOLE = {"name": "x", "kind": "integer", "lower": 0, "upper": 9}
DATE = {"name": "x", "kind": "date", "lower": "2000-01-01", "upper": "2001-01-01"}
MOMENT = {**DATE, "kind": "datetime"}
WORD = {"name": "x", "kind": "categorical", "levels": ["a", "Other"], "normaliser": "casefold"}
TRUTH = {"name": "x", "kind": "boolean", "true_values": ["Ja"]}
PERSON = {"name": "x", "role": "identifier"}


def spec_of(**source):
    return parse_spec(SPEC | {"source": SPEC["source"] | source})


def schema_of(*columns):
    (first, *others) = columns
    return PublicSchema.from_mapping({"name": "s", "columns": [first, *others]})


def settled(column, *, file_format="csv", **source):
    columns = [column, {**DATE, "name": "spare"}]
    given = dataclasses.replace(CANONICAL, **source)
    return settled_formats(schema_of(*columns), given, file_format=file_format)["x"]


GOOD = [
    {"decimal": ","},
    {"decimal": ",", "thousands": "."},
    {"decimal": ",", "thousands": "space"},
    {"decimal": ".", "thousands": ","},
    {"thousands": "'"},
    {"decimal": ".", "thousands": "none"},
    *({"date_format": text} for text in (
        "iso", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d/%m/%Y", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M:%S",
    )),
    {"datetime_format": "%Y-%m-%dT%H:%M:%S"},
    {"missing": ["NA", "-9", ".", "k. A."]},
]  # fmt: skip
BAD = [
    ("decimal", ";"), ("decimal", ""), ("decimal", "comma"),
    ("thousands", ";"), ("thousands", " "), ("thousands", ""), ("thousands", "."),
    *(("date_format", text) for text in (
        "", "%d.%m.%y", "%d.%m", "%d.%m.%Y %d", "%Y-%j", "%d %b %Y", "%d.%m.%Y %H",
        "%Y-%m-%d %M:%H",
        "%d.%m.%Y %H:%M:%S:%f", "%Y-%m-%d%z", " %d.%m.%Y", "%d,%m,%Y", "%", "%d.%m.%Y%", "ISO",
        "%d.%m.%Y" + "-" * 64, "%x", "%d\n%m\n%Y", "%H:%M %d.%m.%Y",
    )),
    ("datetime_format", "%H:%M"),
    *(("missing", tokens) for tokens in (
        [-9], [""], [" NA"], ["NA", "NA"], ["a\nb"], ["x" * 65], [None], [["NA"]],
        [str(number) for number in range(101)],
    )),
]  # fmt: skip


@pytest.mark.parametrize("source", GOOD)
def test_a_source_may_say_how_it_is_written(source):
    spec = spec_of(**source)
    assert spec.source.written.fault() is None
    shown = spec.source.written.to_mapping()
    assert {name: shown[name] for name in source} == source
    assert set(shown) == set(FORMAT_FIELDS)


@pytest.mark.parametrize(("field", "value"), BAD)
def test_what_is_no_format_is_refused_by_its_field(field, value):
    with pytest.raises(SpecError, match=rf"^source\.{field}: .*(expected|empty)") as caught:
        spec_of(**{field: value})
    told = str(caught.value)
    assert "input" not in told
    fitting = {"decimal": NUMBER, "thousands": NUMBER, "date_format": DATE}
    column = {**fitting.get(field, MOMENT), field: value}
    if (field, value) == ("thousands", "."):
        column["decimal"] = "."
    with pytest.raises(SchemaError, match=rf"column x: {field}: .*(expected|empty)"):
        schema_of(column)


@pytest.mark.parametrize("value", ["NA", {"NA": 1}, 5])
def test_missing_is_a_list(value):
    with pytest.raises(SpecError, match=r"source\.missing"):
        spec_of(missing=value)
    with pytest.raises(SchemaError, match="column x: missing: expected a list"):
        schema_of({**NUMBER, "missing": value})


@pytest.mark.parametrize("field", ["decimal", "thousands", "date_format", "datetime_format"])
def test_parquet_stores_values_and_only_knows_tokens(field):
    value = {"decimal": ",", "thousands": ","}.get(field, "%d.%m.%Y")
    with pytest.raises(SpecError, match=rf"source\.{field}: expected only for a CSV"):
        spec_of(format="parquet", **{field: value})
    assert spec_of(format="parquet", missing=["-9"]).source.written.missing == ("-9",)
    column = {"date_format": DATE, "datetime_format": MOMENT}.get(field, NUMBER)
    with pytest.raises(SchemaError, match=rf"column x: {field}: expected only for a CSV"):
        settled({**column, field: value}, file_format="parquet")
    assert settled({**column, "missing": ["-9"]}, file_format="parquet").missing == ("-9",)


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        (NUMBER, {"decimal", "thousands"}), (WHOLE, {"decimal", "thousands"}),
        (DATE, {"date_format"}), (MOMENT, {"datetime_format"}), (WORD, set()), (TRUTH, set()),
        (PERSON, set()), ({**PERSON, "kind": "integer"}, set()),
    ],
)  # fmt: skip
def test_a_column_takes_what_means_something_for_its_kind(column, fields):
    own = {"decimal": ",", "thousands": "space", "date_format": "%d.%m.%Y",
           "datetime_format": "%d.%m.%Y", "missing": ["NA"]}  # fmt: skip
    fields = fields if column.get("role") == "identifier" else fields | {"missing"}
    for field, value in own.items():
        if field in fields:
            assert getattr(schema_of({**column, "name": "x", field: value}, WORD | {"name": "y"})
                           .columns[0].written, field) is not None  # fmt: skip
        else:
            with pytest.raises(SchemaError, match=f"column x: {field}: has no meaning"):
                schema_of({**column, field: value}, WORD | {"name": "y"})
    everything = {**own, "missing": ("NA",)}
    used = settled(column, **everything)
    for field, value in everything.items():
        expected = value if field in fields else getattr(CANONICAL, field)
        assert getattr(used, field) == expected


def test_a_column_wins_over_its_source_and_may_go_back_to_the_plain_form():
    source = {"decimal": ",", "thousands": ".", "missing": ("NA",)}
    plain = {**NUMBER, "decimal": ".", "thousands": "none", "missing": []}
    assert settled(plain, **source) == CANONICAL
    assert settled(NUMBER, **source).decimal == ","
    assert settled({**DATE, "date_format": "iso"}, date_format="%d.%m.%Y") == CANONICAL
    assert settled({**NUMBER, "missing": ["-9"]}, **source).missing == ("-9",)  # instead, not too


def test_column_and_source_must_fit_together():
    with pytest.raises(SchemaError, match="column x: thousands: expected another sign"):
        settled({**NUMBER, "decimal": ","}, thousands=",")
    with pytest.raises(SchemaError, match="column x: thousands: expected another sign"):
        settled({**NUMBER, "thousands": "."})


@pytest.mark.parametrize(
    ("column", "token"),
    [(WORD, "a"), (WORD, "OTHER"), (TRUTH, "ja"), (TRUTH, "0")],
)
def test_a_token_that_is_a_value_of_the_column_is_refused(column, token):
    match = "column x: missing: a token is one of the column's own values"
    with pytest.raises(SchemaError, match=match) as caught:
        settled(column, missing=(token,))
    assert token not in str(caught.value).replace("a token", "").replace("values", "").split()
    with pytest.raises(SchemaError, match=match):
        schema_of({**column, "missing": [token]})
    assert settled({**column, "missing": []}, missing=(token,)).missing == ()
    assert settled({**NUMBER, "missing": ["5"]}).missing == ("5",)  # a number may: it wins


def test_the_data_dictionary_keeps_what_it_says():
    column = {**NUMBER, "decimal": ",", "thousands": ".", "missing": ["-9"]}
    schema = schema_of(column)
    assert schema.to_mapping()["columns"] == [column]
    again = PublicSchema.from_mapping(schema.to_mapping())
    assert (
        again.columns[0].written
        == schema.columns[0].written
        == CellFormat(decimal=",", thousands=".", missing=("-9",))
    )
    assert schema_of(NUMBER).to_mapping()["columns"] == [NUMBER]
    with pytest.raises(SchemaError, match="written: unknown key"):
        schema_of({**NUMBER, "written": {"decimal": ","}})


def test_how_a_column_is_written_is_no_part_of_what_it_is():
    """So that `rehearse --like` takes a former release whose source was written otherwise."""
    assert schema_of({**NUMBER, "decimal": ","}).released == schema_of(NUMBER).released


def test_a_released_table_is_canonical_whatever_its_source_was():
    """What analysts, public rows and stand-ins go through knows nothing of the format."""
    schema = schema_of({**NUMBER, "decimal": ",", "thousands": ".", "missing": ["5"]})
    text = pd.DataFrame({"x": pd.Series(["1.5", "5", "1,5"], dtype="str")})
    assert schema.unscale(schema.scale(text))["x"].tolist() == [1.5, 5.0, 0.0]


def test_the_format_is_part_of_the_run_and_its_absence_is_not():
    plain, schema = spec_of(), schema_of(NUMBER, {**DATE, "name": "d"})
    digest = plain.digest(schema)
    same = spec_of(decimal=".", thousands="none", date_format="iso", datetime_format="iso",
                   missing=[])  # fmt: skip
    assert same.digest(schema) == digest
    assert not set(FORMAT_FIELDS) & set(without_defaults(plain.source.model_dump(mode="json")))
    others = [
        spec_of(**change).digest(schema)
        for change in (
            {"decimal": ","}, {"thousands": ","}, {"date_format": "%d.%m.%Y"},
            {"datetime_format": "%d.%m.%Y"}, {"missing": ["NA"]}, {"missing": ["-9"]},
        )
    ]  # fmt: skip
    others += [
        plain.digest(schema_of({**NUMBER, **change}, {**DATE, "name": "d"}))
        for change in ({"decimal": ","}, {"missing": ["NA"]}, {"missing": []})
    ]
    assert len({digest, *others}) == 1 + len(others)


def test_a_spec_is_checked_against_its_dictionary_before_anything_is_read(workplace):
    text = workplace.spec.read_text()
    workplace.spec.write_text(text.replace("format: csv", "format: csv, missing: [north]"))
    with pytest.raises(SchemaError, match="column region: missing"):
        load_schema(load_spec(workplace.spec))


@pytest.mark.parametrize(
    ("date_format", "good", "bad"),
    [
        ("%d.%m.%Y", ["1.2.2024", "01.02.2024"], ["1.2.24", "001.2.2024", "1-2-2024", "1x2x2024"]),
        ("%Y%m%d", ["20240201"], ["2024021", "2024-02-01", "202402010"]),
        ("%Y-%m-%d %H:%M", ["2024-1-2 3:04", "2024-01-02 03:04"], ["2024-1-2T3:04", "2024-1-2"]),
    ],
)
def test_digits_of_a_date(date_format, good, bad):
    pattern = date_pattern(date_format)
    assert all(pattern.fullmatch(text) for text in good)
    assert not any(pattern.fullmatch(text) for text in bad)
