"""What a curator's command line holds beside the ledger: schema, completion, forecast, flows."""

import json
import os
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from unittest import mock

import jsonschema
import pytest

from dpiw.cli import pipeline
from dpiw.cli.main import main
from dpiw.data.yaml import load_file
from dpiw.errors import SchemaError, SpecError
from dpiw.ledger import CompositionRule, Ledger
from dpiw.local.collector import local_schema
from dpiw.plan import json_schema
from dpiw.privacy.units import NeighbouringRelation
from tests.support.ledger import terms

ROOT = Path(__file__).resolve().parents[3]
SPECS = [*ROOT.glob("examples/*/release.yaml"), *ROOT.glob("deployments/*-*.yaml")]
SCHEMAS = {**json_schema.SCHEMAS, "local": local_schema}
DICTIONARIES = sorted(ROOT.glob("examples/*/schema.yaml"))


def mapping(path):
    """As the product reads it: exact numbers, dates as text."""
    return load_file(path, what="file", error=SchemaError)


def test_completion_knows_every_command_and_is_a_script(says):
    for shell in ("bash", "zsh"):
        script = says("completion", shell)
        for word in ("release", "register", "--max-unpaid-reads", "dictionary"):
            assert word in script
        if program := shutil.which(shell):
            subprocess.run([program, "-n"], input=script, text=True, check=True)
        if program and shell == "bash":
            script += "\nCOMP_WORDS=(dpiw rel); COMP_CWORD=1; _shtab_dpiw; echo ${COMPREPLY[@]}\n"
            done = subprocess.run([program], input=script, text=True, capture_output=True)
            assert done.stdout.split() == ["release"]


def refused(document, kind):
    return not jsonschema.Draft202012Validator(SCHEMAS[kind]()).is_valid(document)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_schema_is_printed_as_json(kind, says):
    printed = json.loads(says("schema", kind))
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed == SCHEMAS[kind]()
    assert '"ge"' not in json.dumps(printed)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_editors_show_a_sentence_on_every_section_and_field(kind):
    whole = SCHEMAS[kind]()
    for section in (whole, *whole["$defs"].values()):
        fields = section.get("properties", {}).values()
        for description in (part["description"] for part in (section, *fields)):
            assert re.fullmatch(r"\S.{10,}[.)]", description, re.S), description
            assert "Attributes" not in description
    columns = whole["$defs"].get("Column", {}).get("properties", {})
    assert all("`iso`" in columns[name]["description"] for name in columns if "_format" in name)


@pytest.mark.slow
def test_the_schema_takes_every_spec_and_no_field_that_there_is_not():
    for path in SPECS:
        stated = mapping(path)
        assert not refused(stated, "spec"), path
        for change in ({"seed": 42}, {"epsilon": None}, {"nominal_rows": 0},
                       {"source": stated["source"] | {"rows": 1}}):  # fmt: skip
            assert refused(stated | change, "spec"), (path, change)
    stated = mapping(ROOT / "examples" / "local" / "collection.yaml")
    assert not refused(stated, "local")
    for change in ({"seed": 42}, {"label": {"name": "home", "levels": ["yes"]}}, {"delta": None}):
        assert refused(stated | change, "local")


@pytest.mark.slow
def test_the_schema_takes_every_dictionary_and_no_field_that_there_is_not():
    listed = {"name": "job", "kind": "categorical", "levels_file": "jobs.csv"}
    assert not refused({"name": "town", "columns": [listed]}, "dictionary")
    for path in DICTIONARIES:
        stated = mapping(path)
        assert not refused(stated, "dictionary"), path
        assert refused(stated | {"rows": 1}, "dictionary"), path
        first, *others = stated["columns"]
        for change in ({"sensitive": True}, {"kind": "number"}, {"nullable": "maybe"},
                       {"kind": None}):  # fmt: skip
            changed = stated | {"columns": [first | change, *others]}
            assert refused(changed, "dictionary"), (path, change)
        identifier = {"name": "id", "role": "identifier", "decimal": ","}
        assert not refused(stated | {"columns": [identifier, *others]}, "dictionary"), path


@pytest.mark.parametrize(
    ("constraint", "fault"),
    [
        ({"never": {"a": None, "b": ["x", 1, True], "c": {"lower": 1}}}, {"never": {"a": {}}}),
        ({"sum": ["a"], "at_most": "b", "repair": "project"}, {"repair": "drop"}),
        ({"sum": ["a", "b"], "equals": 100}, {"at_most": 100}),
        ({"column": "a", "of": "b", "cases": [{"when": {"upper": 3}, "is": None}]}, {"of": 3}),
    ],
)
def test_the_schema_takes_every_kind_of_constraint(constraint, fault):
    columns = [{"name": "a", "kind": "boolean"}]
    for stated, is_fault in ((constraint, False), (constraint | fault, True)):
        document = {"name": "t", "columns": columns, "constraints": [{"name": "c", **stated}]}
        assert refused(document, "dictionary") is is_fault


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(("full", "code"), [(True, os.EX_IOERR), (False, 141)])
def test_who_stops_reading_is_no_error_and_a_full_disk_is_one_line(full, code):
    with open("/dev/full", "w") as device:
        process = subprocess.Popen(
            [sys.executable, "-m", "dpiw.cli.main", "completion", "bash"], cwd=ROOT, text=True,
            stdout=device if full else subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if process.stdout is not None:
            process.stdout.close()
        told = process.communicate()[1]
    assert (told.count("\n"), process.returncode) == (int(full), code)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"id_column": "person", "max_rows": 2}, 10), ({"id_column": "person"}, 10),
        ({"relation": NeighbouringRelation.REPLACE_ONE}, 21),
    ],
)  # fmt: skip
def test_plan_refuses_what_a_release_would_refuse(workplace, capsys, change, code):
    Ledger.open(workplace.ledger).register(terms(name="other", **change))
    workplace.rewrite("population: town", "population: other")
    assert main(["plan", str(workplace.spec)]) == code
    shown = capsys.readouterr()
    assert "--relation add_or_remove_one" in shown.err.partition("dpiw ledger register OTHER ")[2]


def test_plan_counts_by_the_population_s_own_rule(workplace, capsys):
    ledger = Ledger.open(workplace.ledger)
    filtered = terms(name="filtered", epsilon=Decimal(9), composition=CompositionRule.RENYI)
    ledger.register(filtered)
    workplace.rewrite("population: town", "population: filtered")
    assert main(["plan", str(workplace.spec)]) == 0
    (left,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left ")]
    count = int(left.rpartition("; ")[2].split()[0])
    assert count + 1 > 9 // 2  # vectors compose better than sums


@pytest.fixture
def a_spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").touch()
    return "a.yaml"


def test_the_flows_commands_hand_on_what_was_typed(a_spec, monkeypatch):
    heard = []

    def run_module(name, **_):
        heard.append([name, *sys.argv[1:]])
        assert str(ROOT) in (sys.path[0], os.environ["PYTHONPATH"].split(os.pathsep)[0])
        raise SystemExit(34 if name == "flows.audit" else None)

    monkeypatch.setattr(pipeline.runpy, "run_module", run_module)
    path, words = list(sys.path), list(sys.argv)
    for module, typed in (
        ("flows", "release a.yaml"),
        ("flows", "release a.yaml --period=2027-q1"),
        ("flows", "release a.yaml --rows=7 --period=2027-q1"),
        ("flows", "release a.yaml --pay-again"),
        ("flows.audit", "audit --ledger l --key k.pub"),
        ("flows.audit", "audit --ledger l --key k.pub --key=-2.pub --out o"),
        ("flows.audit", "audit --ledger l"),
        ("flows.local", "local collect a.yaml"),
    ):
        assert main(typed.split()) == (34 if typed.startswith("audit") else 0)
        handed_on = typed.removeprefix("local ").split()[1:]
        assert heard.pop() == [module, *handed_on]
    assert (sys.path, sys.argv) == (path, words)


def test_without_the_flows_it_says_what_to_install(a_spec, monkeypatch, tmp_path, says):
    monkeypatch.setattr(pipeline, "_HOMES", (tmp_path,))
    assert "dpiw[pipeline]" in says("release", a_spec, code=3)
    assert main(["release", "other.yaml"]) == SpecError.exit_code
    assert os.listdir(tmp_path) == [a_spec]


def test_ctrl_c_is_no_traceback(a_spec, monkeypatch, says):
    monkeypatch.setattr(pipeline.runpy, "run_module", mock.Mock(side_effect=KeyboardInterrupt))
    assert says("release", a_spec, code=130) == "stopped\n"
