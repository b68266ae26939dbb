"""The custodian's statement: exact counts, in the private folder, deciding nothing."""

import json
import re
from unittest import mock

import pandas as pd
import pytest

from dpiw.data.cells import statement as cell_statement
from dpiw.data.cells.formats import CANONICAL, CellFormat
from dpiw.data.cells.statement import CellTally, statement
from dpiw.data.source.ingest import IngestLimits, ingest
from dpiw.errors import SchemaError, SpecError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.run import steps
from dpiw.run.run import ReleaseRun, cells_file
from tests.support.read import read_snapshot
from tests.support.statements import GERMAN, SCHEMA, frame_of, stated
from tests.support.whole_runs import workspace_command as command
from tests.support.worlds import declared

ADD = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)


def figures(text):
    """Column -> (missing, unreadable, out of bounds, rounded, no level), from the page's table."""
    counts = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)\s+\w+" + r"\s+([\d,]+)" * 5, line)
        if match:
            counts[match[1]] = tuple(int(group.replace(",", "")) for group in match.groups()[1:])
    return counts


def test_a_decimal_comma_that_nobody_declared_is_told():
    frame = frame_of(income=["1669,78"] * 3000)
    text = stated(frame)
    assert figures(text)["income"] == (0, 3000, 0, 0, 0)
    assert "if numbers are written 1669,78: declare decimal: ','" in text
    declared = stated(frame, GERMAN)
    assert figures(declared)["income"] == (0, 0, 0, 0, 0)
    assert "declare decimal" not in declared


@pytest.mark.parametrize(
    ("column", "cell", "written", "hint"),
    [
        ("income", "2.345,61", CANONICAL, "decimal: ',' and thousands: '.'"),
        ("income", "2 345,61", CANONICAL, "decimal: ',' and thousands: 'space'"),
        ("income", "2'345.61", CANONICAL, "decimal: '.' and thousands: \"'\""),
        ("income", "2345.61", GERMAN, "decimal: '.' and thousands: 'none'"),
        ("d", "31.12.2023", CANONICAL, "date_format: '%d.%m.%Y'"),
        ("d", "2023-12-31", GERMAN, "date_format: 'iso'"),
        ("t", "31.12.2023 14:00", CANONICAL, "datetime_format: '%d.%m.%Y %H:%M'"),
        ("d", "31.12.2023 00:00", CANONICAL, "date_format: '%d.%m.%Y %H:%M'"),
        ("n", "2.345", CANONICAL, "decimal: ',' and thousands: '.'"),
    ],
)
def test_a_hint_names_what_might_be_declared(column, cell, written, hint):
    text = stated(frame_of(**{column: [cell] * 5}), written)
    _, lines = text.split("How the file is written:")
    assert f"column {column}: of 1 different texts" in lines
    assert hint in lines
    assert cell not in text.replace("written 1669,78", "")  # no cell is quoted


def test_bytes_that_are_no_text_in_the_declared_encoding_are_told(place):
    """A file in cp1252 that is declared as UTF-8 is published all the same."""
    header = ",".join(column.name for column in SCHEMA.columns)
    read(
        place, f"{header}\nq,1,1,2020-01-01,2020-01-01,ja,\xe4,lo\n".encode("cp1252"), schema=SCHEMA
    )
    text = (place / "private" / "cells.txt").read_text()
    assert "column c: 1 cells hold bytes that are no text in the declared encoding" in text
    assert text.count("source.encoding") == 1


def test_of_two_forms_that_read_as_much_both_are_named_and_else_the_better():
    text = stated(frame_of(d=["01/02/2023", "03/04/2023", "05/06/2023", "07/08/2023"]))
    assert "declare date_format: '%d/%m/%Y'" in text
    assert "declare date_format: '%m/%d/%Y'" in text
    text = stated(frame_of(d=["13/02/2023", "01/02/2023"], income=["1669,78", "1.669,78"]))
    assert "declare date_format: '%d/%m/%Y'" in text
    assert "'%m/%d/%Y'" not in text
    assert text.count("declare decimal") == 1


def test_the_statement_begins_with_what_was_not_there_and_what_was_not_read():
    frame = frame_of(id=["1", "", " ", "2"], d=["45373", "", "", "1/2/21"], n=["1", "", "\xa0", ""])
    lines = stated(frame).splitlines()
    assert lines[1] == "rows that hold no cell: 2"
    assert lines[2] == "columns of which no cell could be read: income, d, t, b, c, o"
    assert stated(frame_of(id=[])).splitlines()[2].endswith(": none")
    assert "rows read: 0" in stated(frame_of(id=[]))


@pytest.mark.parametrize("cell", ["x", ""])
@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"levels": ["a", "b"], "nullable": True}, "missing"),
        ({"levels": ["a", "b"]}, "'a', the first level"),
        ({"levels": ["a", "b"], "fill": "b"}, "'b', as declared"),
        ({"levels": ["a", "b"], "other": "b"}, "'b'"),
        ({"kind": "boolean"}, "false"),
        ({"kind": "boolean", "fill": True}, "True, as declared"),
        ({"kind": "integer", "lower": 3, "upper": 9}, "3, the lower bound"),
        ({"kind": "date", "lower": "2020-01-01", "upper": "2020-12-31"}, "'2020-01-01', the lower"),
    ],
)
def test_what_became_of_a_cell_is_what_it_became(column, told, cell):
    """Of the two that may be, the one that was; and its value is the one that is released from."""
    schema = declared({"name": "c", "kind": "categorical", **column})
    tally, frame = CellTally(schema), pd.DataFrame({"c": pd.Series([cell], dtype="str")})
    tally.add(frame, frame)
    text = statement(tally, formats={"c": CANONICAL}, kept=1)
    line = next(line for line in text.splitlines() if line.startswith("- column c:"))
    assert f"{int(bool(cell))} of 1 cells" in line
    assert f"{int(not cell)} were missing and became " in line
    assert line.count(f"became {told}") == 2
    assert figures(text)["c"][0] == int(not cell)
    became = schema.unscale(schema.scale(frame))["c"].iloc[0]
    word = told.split(",")[0].strip("'")
    assert (word == "missing") == bool(pd.isna(became))
    if word != "missing":
        assert str(became).removesuffix(" 00:00:00").casefold() == word.casefold()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "private").mkdir(mode=0o700)
    return tmp_path


def read(place, content, *, schema=SCHEMA, file_format="csv", **settings):
    source = place / "source"
    source.write_bytes(content)
    path = ingest(
        source, file_format=file_format, schema=schema, unit=settings.pop("unit", ADD),
        directory=place / "private", limits=IngestLimits(), **settings,
    )  # fmt: skip
    return schema.unscale(read_snapshot(path))


WHOLE = {"name": "n", "kind": "integer", "lower": -5, "upper": 9, "nullable": True}

KEY = {"name": "id", "role": "identifier"}


@pytest.mark.parametrize("own_person", [True, False])
@pytest.mark.parametrize("token", ["NA", "7", "8"])
def test_no_token_names_a_person(place, token, own_person):
    """It would end the read if that person is there, or lift the bound on their rows."""
    unit = PrivacyUnit(relation=ADD.relation, max_rows=1, id_column="id")
    schema = declared(KEY | {"null_is_own_person": own_person}, WHOLE)
    content = b"id,n\nNA,1\nNA,2\n7,3\n7,4\n"
    written = CellFormat(**(vars(CANONICAL) | {"missing": (token,)}))
    assert len(read(place, content, schema=schema, unit=unit, written=written)) == 2
    with pytest.raises(SchemaError, match="column id: missing"):
        declared(KEY | {"missing": [token]}, WHOLE)


def test_a_release_of_a_foreign_file_is_read_as_its_canonical_twin(make_workplace):
    """Spec and dictionary, through the run's own record, up to the snapshot."""
    plain = make_workplace(weights="none")
    abroad = make_workplace(weights="none")
    table = pd.read_csv(plain.source, dtype=str, keep_default_na=False)
    income = table["income"].str.replace(".", ",", regex=False).replace("", "k. A.")
    table = table.assign(income=income, age=table["age"].replace("50", "0050"))
    table.assign(ill=table["ill"].replace("true", "1")).to_csv(
        abroad.source, index=False, sep=";", encoding="cp1252"
    )
    abroad.spec.write_text(
        abroad.spec.read_text().replace(
            "format: csv", 'format: csv, delimiter: ";", encoding: cp1252, missing: [k. A.]'
        )
    )
    dictionary = abroad.root / "schema.yaml"
    dictionary.write_text(
        dictionary.read_text().replace("upper: 1000,", "upper: 1000, decimal: ',', thousands: '.',")
    )
    snapshots = []
    for place in (plain, abroad):
        run = ReleaseRun.prepare(place.spec, period="once")
        steps.reserve(run)
        steps.ingest(ReleaseRun.load(run.directory))
        snapshots.append(read_snapshot(run.snapshot))
    assert snapshots[0].equals(snapshots[1])


@pytest.mark.parametrize("step", ["count_cells", "statement", "write_durably"])
@pytest.mark.parametrize("error", [ValueError, MemoryError, OSError])
def test_a_statement_that_fails_ends_nothing(place, monkeypatch, step, error):
    monkeypatch.setattr(cell_statement, step, mock.Mock(side_effect=error("planted")))
    assert len(read(place, b"id,n\n1,2\n", schema=declared(KEY, WHOLE))) == 1
    assert not (place / "private" / "cells.txt").exists()


def test_the_custodian_finds_it_and_purges_it(make_workplace):
    place = make_workplace(weights="none")
    run = ReleaseRun.prepare(place.spec, period="once")
    state = place.root / "state"
    with pytest.raises(SpecError, match="no statement"):
        command("cells", "--state", state, "--run", run.key)
    steps.reserve(run)
    steps.ingest(run)
    path = run.private / "cells.txt"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "rows read: 400" in text
    assert command("cells", "--state", state, "--run", run.key[:8]) == (0, text)
    assert "stated" in command("show", "--state", state)[1]
    assert json.loads(command("show", "--state", state, "--json")[1])[0]["cells"] == str(path)
    assert cells_file(run.directory) == path
    command("purge", "--state", state, "--run", run.key, "--abandon", "--yes")
    assert not path.exists()
    assert "stated" not in command("show", "--state", state)[1]
    assert cells_file(run.directory) == path  # the sentence does not depend on it


@pytest.mark.parametrize(
    ("columns", "cells", "instead"),
    [
        ("income n", ("12-", "7\u2212", "- 12", "3+", "1_000", "(1,234.50)", "12 %", "12 \u20ac",
                      "12kg", "\u0661\u0662", "\xbd"), "plain numbers"),
        ("d t", ("443", "45373", "5. M\xe4rz 2021", "3/5/21", "03/05/2021 10:00 PM", "1614902400",
                 "2021-03-05T10:00 CET", "2021", "2021\u5e743\u67085\u65e5"), "ISO dates"),
    ],
)  # fmt: skip
def test_notations_that_nothing_declares_are_counted_together(columns, cells, instead):
    names = columns.split()
    text = stated(frame_of(**{name: [*cells, *cells, "n/a", "?"] for name in names}))
    said = f"no setting reads {len(cells)} that hold digits: write {instead} in the file"
    assert text.count(said) == len(names)
    assert ("only negative numbers" in text) == (instead == "plain numbers")
