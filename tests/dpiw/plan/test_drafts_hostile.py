"""Metadata files that are no metadata: bombs, circles, ways out, tables. Nothing is quoted."""

import os
import socket

import pytest

from dpiw.errors import SchemaError
from dpiw.plan.drafts.formats import draft_table
from dpiw.plan.drafts.reading import MAX_METADATA_BYTES
from tests.support import metadata

SECRET = "hunter2"
SUFFIXES = {"table-schema": "json", "ddi": "xml", "sql": "sql"}


def refused(name, place, **options):
    with pytest.raises(SchemaError) as refusal:
        draft_table(name, str(place), **options)
    assert SECRET not in str(refusal.value)
    assert refusal.value.__cause__ is None
    return str(refusal.value)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def call(*_, **__):
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", call)
    monkeypatch.setattr(socket, "getaddrinfo", call)


@pytest.mark.parametrize("name", SUFFIXES)
@pytest.mark.parametrize(
    "text",
    [
        "", SECRET, f"a,b\n{SECRET},2\n", f'{{"{SECRET} ": 1, "{SECRET} ": 2}}', "[1, 2]",
        "[" * 20_000, '{"a":' * 5000 + "1" + "}" * 5000, "<a>" * 2000, "((((" * 5000, "9" * 5000,
        '{"fields": 3, "recordSet": "x"}',
        '{"fields": [{"name": ["a"], "type": ["b"]}], "recordSet": [{"field": [{"name": 3}]}]}',
        '{"fields": [{"name": "x", "type": [3]}], "primaryKey": 3}',
        '{"fields": []}', '{"fields": [{"name": "a"}, {"name": "A"}]}',
        f'{{"fields": [\n  {{"name": "{SECRET}"',
        "a: &x [1]\nb: *x\n", "a: !!python/object:os.system {}\n", "a: {b: {c: {d: {e: {f: 1}}}}}",
        "age: 3\nsex: [a]\n", f"age: {{possible_values: 3, '{SECRET}': 1}}",
    ],
)  # fmt: skip
def test_what_is_no_metadata_is_refused_without_its_words(name, text, tmp_path):
    place = tmp_path / f"m.{SUFFIXES[name]}"
    place.write_text(text)
    refused(name, place)


@pytest.mark.parametrize("name", SUFFIXES)
def test_only_a_small_regular_file_of_the_right_name_is_opened(name, tmp_path):
    table, pipe, huge, latin = (
        tmp_path / place
        for place in ("people.csv", *(f"{kind}.{SUFFIXES[name]}" for kind in ("p", "h", "l")))
    )
    table.write_text(SECRET)
    os.chmod(table, 0)
    os.mkfifo(pipe)
    with huge.open("wb") as stream:
        stream.truncate(MAX_METADATA_BYTES + 1)
    latin.write_bytes(b"\xe4")
    for place, told in (
        (table, "expected a file named"), (tmp_path / f"n.{SUFFIXES[name]}", "no such file"),
        (pipe, "expected a UTF-8 file"), (huge, "at most"), (latin, "expected a UTF-8 file"),
    ):  # fmt: skip
        assert told in refused(name, place)


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE a [<!ENTITY b "hunter2"><!ENTITY c "&b;&b;&b;">]>',
        '<!DOCTYPE a SYSTEM "http://192.0.2.1/ddi.dtd">',
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE a [<!ENTITY % b SYSTEM "http://192.0.2.1/x"> %b;]>',
    ],
)
def test_document_types_and_entities_are_refused(declared, tmp_path):
    place = tmp_path / "m.xml"
    place.write_text(metadata.DDI.replace("<codeBook", declared + "<codeBook"))
    refused("ddi", place)


@pytest.mark.parametrize(
    "rows",
    [
        "INSERT INTO persons VALUES ('hunter2');", "COPY public.persons (a) FROM stdin;\nhunter2",
        "insert\ninto persons select 'hunter2'", "LOAD DATA INFILE 'hunter2'",
        "INSERT IGNORE INTO persons VALUES ('hunter2')",
    ],
)  # fmt: skip
def test_a_dump_with_rows_is_refused(rows, tmp_path):
    place = tmp_path / "m.sql"
    place.write_text(metadata.SQL + rows)
    refused("sql", place)


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TABLE a (x {SECRET} ,,, CHECK ((x;", f"SELECT '{SECRET}'; DROP TABLE a;",
        f"-- {SECRET}\n\nCREAT TABLE {SECRET} (a int);", f"-- {SECRET}\n",
    ],
)  # fmt: skip
def test_sql_that_cannot_be_read_is_not_quoted(text, tmp_path, caplog):
    place = tmp_path / "m.sql"
    place.write_text(text)
    refused("sql", place)
    place.write_text(metadata.SQL)
    refused("sql", place, dialect="klingon")
    assert SECRET not in caplog.text
