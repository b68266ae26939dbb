"""What `dpiw init` drafts, `dpiw plan` takes once it is settled; the rest is refused by name."""

import contextlib
import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dpiw.cli.main import main
from dpiw.data.schema.declarations import RESERVED_NAMES, folded_name, name_fault
from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec
from tests.support.drafts import settled

NAMES = (
    "age", "Größe", "a b", "no", "net: income", "#x", "'q'", '"', "{", "年齢", "null", "=A1",
    "true",
    "a,b", "\\n", "2024-01-01", "𝒳", "a=b", "id", "pid", "a'b", "`x`", "%s", "@", "a;b", "é", "c",
    "x" * 128, "a=f", "TODO", "kind", "name", "b", "d", "f", "g", "weights", "log weight",
)  # fmt: skip
REFUSED = ("weight", "Log_Weight", "ＷＥＩＧＨＴ", "a\tb", "y" * 129, "e\u0301", "nan")
"""Names that no released column has, that no header has, or that another column has."""
NUMBERS = st.one_of(
    st.none(), st.integers(-5, 120), st.sampled_from([0, -1, 2**31, 2**53, 2**63, 10**20]),
    st.sampled_from([0.5, 1e-9, 1e300, -1e300, 17.25, 1e16, 0.1]),
)  # fmt: skip
DATES = st.sampled_from([None, "1900-01-01", "2030-12-31", "0001-01-01", "9999-12-31", "2024-02-30",
                         "2024-01-01T00:00:00Z", "20240101", ""])  # fmt: skip
LEVELS = st.one_of(
    st.just(()),
    st.lists(
        st.sampled_from(["f", "m", "", " f", "F", "TODO", "missing", "a,b", "=1", "x\ny", "null",
                         "1", "01", "é", "e\u0301", "z" * 1001, "'", '"', "age", "id"]),
        max_size=6,
    ),
    st.integers(31, 40).map(lambda n: [f"{k},{k}" for k in range(n)]),
    st.integers(31, 40).map(lambda n: ["age,id", "age", *(f"code {k}" for k in range(n))]),
    st.integers(31, 40).map(lambda n: [f"Place {k}, NY, USA" for k in range(n)]),
)  # fmt: skip
COLUMNS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES * 6 + REFUSED),
        "kind": st.sampled_from(
            ["integer", "number", "boolean", "string", "date", "datetime", "?"]
        ),
        "low": NUMBERS, "high": NUMBERS, "first": DATES, "last": DATES, "levels": LEVELS,
        "required": st.booleans(),
        "format": st.sampled_from([None, "%d.%m.%Y", "%y", "J|N", "|", "dd.MM.yyyy", "%"]),
        "decimal": st.sampled_from([None, ",", ".", "x", " "]),
        "group": st.sampled_from([None, ",", ".", " ", "'"]),
        "missing": st.lists(st.sampled_from(["", "NA", "-9", "f", " ", "0", "TODO"]), max_size=3),
        "person": st.sampled_from([False, False, False, True]),
    }
)  # fmt: skip
TABLES = st.lists(COLUMNS, min_size=1, max_size=5, unique_by=lambda column: column["name"])


def stated(**values):
    return {name: value for name, value in values.items() if value not in (None, [], ())}


def header(columns):
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([column["name"] for column in columns])
    return out.getvalue()


def table_schema(columns):
    """The metadata that state most of a column; each format's own words: test_drafts.py."""
    fields = []
    for column in columns:
        timed = column["kind"] in ("date", "datetime")
        low, high = (column[end] for end in (("first", "last") if timed else ("low", "high")))
        rules = stated(minimum=low, maximum=high, enum=list(column["levels"]))
        fields.append(
            stated(name=column["name"], type=column["kind"], format=column["format"],
                   decimalChar=column["decimal"], groupChar=column["group"],
                   missingValues=column["missing"], trueValues=["ja", "TODO"],
                   falseValues=column["missing"])
            | {"constraints": rules | {"required": column["required"]}}
        )  # fmt: skip
    keys = [column["name"] for column in columns if column["person"]]
    return json.dumps({"fields": fields, "primaryKey": keys})


def init(base, *words):
    """What `dpiw init base/draft` says of a refusal; empty where it wrote a draft."""
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        code = main(["init", str(base / "draft"), "--name", "town", *words])
    assert (code == 0) == (base / "draft").exists()
    refusals = {kind.exit_code for kind in (SchemaError, SourceError, SpecError)}
    assert code in {0, *refusals}, told.getvalue()
    return "" if code == 0 else told.getvalue()


def planned(folder):
    """The plan of drafts that somebody settles."""
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    dictionary = settled(files["schema.yaml"])
    (folder / "schema.yaml").write_text(
        json.dumps(dictionary, ensure_ascii=False), encoding="utf-8"
    )
    spec = load_text(files["release.yaml"], what="spec", exact=True)
    spec["source"]["path"] = "../table.csv"
    spec |= {"epsilon": 2, "delta": "1e-7", "nominal_rows": 5000}
    if "unit" in spec and spec["unit"]["max_rows"] == "TODO":
        spec["unit"]["max_rows"] = 3
    (folder / "release.yaml").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    loaded = load_spec(folder / "release.yaml")
    return compile_plan(loaded, load_schema(loaded))


def excused(names, told):
    """Whether a refusal names a column that no table may have, or two that are too alike.

    A header with a number is refused by the number's place, one of a single name with a delimiter
    in it, and so is a table of one identifier alone.
    """
    if len(names) == 1 and ("no column is released" in told or "between the names" in told):
        return True
    alike = len({folded_name(name) for name in names}) < len(names)
    if "nan" in names and "found a number" in told:
        return True
    refused = [n for n in names if folded_name(n) in RESERVED_NAMES or n == "TODO" or name_fault(n)]
    named = any(f"column {name}" in told for name in refused if not name_fault(name))
    if any(name_fault(name) for name in refused):
        named |= "a column name" in told
    return named or (alike and "equal up to case" in told)


@pytest.mark.parametrize("name", ["header", "table-schema"])
@settings(derandomize=True, database=None, deadline=None, max_examples=8, phases=[Phase.generate])
@given(columns=TABLES, target=st.booleans())
@pytest.mark.slow
def test_a_draft_is_planned_or_refused_by_name(name, columns, target):
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        names = [column["name"] for column in columns]
        (base / "m.json").write_text(table_schema(columns), encoding="utf-8")
        words = [f"--{name}={header(columns) if name == 'header' else base / 'm.json'}"]
        words += [f"--identifier={c['name']}" for c in columns if c["person"]][:1]
        words += [f"--target={names[0]}"] * (target and not columns[0]["person"])
        told = init(base, *words)
        if told:
            nobody = all(column["person"] for column in columns) and "no column is released" in told
            assert nobody or excused(names, told), told
        else:
            planned(base / "draft")


@pytest.mark.nightly_cases("700-mst")
@pytest.mark.parametrize(("columns", "method"), [(3, "aim"), (118, "mst"), (700, "mst")])
def test_a_draft_of_many_columns_has_methods_that_a_plan_takes(columns, method, tmp_path):
    """AIM takes at most 64 columns, PrivBayes 117."""
    told = init(tmp_path, f"--header={','.join(f'c{n}' for n in range(columns))}")
    assert not told
    plan = planned(tmp_path / "draft")
    assert plan.generator.method == method
    assert plan.weights.method == "measured"


def test_the_person_is_whom_the_curator_names(tmp_path):
    """A column that only looks like an identifier, and stands before it, names nobody."""
    assert not init(tmp_path, "--header=id,person,age", "--identifier=person")
    plan = planned(tmp_path / "draft")
    assert plan.spec.unit.id_column == "person"
    assert [column.name for column in plan.schema.released] == ["id", "age"]


@pytest.mark.parametrize("level", ["Place {}, NY, USA", "age,id {}", "<td>{}"])
def test_levels_that_would_make_no_list_stand_in_the_dictionary(level, tmp_path):
    levels = [level.format(number) for number in range(40)]
    fields = [{"name": "age", "type": "string", "constraints": {"enum": levels, "required": True}},
              {"name": "id", "type": "boolean"}, {"name": "c", "type": "boolean"}]  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps({"fields": fields}))
    assert not init(tmp_path, f"--table-schema={tmp_path / 'm.json'}")
    assert planned(tmp_path / "draft").schema.column("age").levels == tuple(levels)


@pytest.mark.parametrize(
    ("delimiter", "taken"), [(";", True), ("\t", True), ('"', False), ("\n", False), (" ", False)]
)
def test_a_delimiter_that_no_spec_has_is_refused(delimiter, taken, tmp_path):
    told = init(tmp_path, f"--header=a{delimiter}b", f"--delimiter={delimiter}")
    assert (told == "") is taken
    if taken:
        planned(tmp_path / "draft")
