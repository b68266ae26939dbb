"""What a worker takes as a flow's parameters, and what Prefect keeps of those it refuses.

Everyone who may start a run chooses its parameters. So they lead to files below a root alone, and
what is refused is a class, a file and a line: no word of a file, no name of a folder.
"""

import base64
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.main import main as dpiw
from dpiw.errors import DPIWError, Mark, SchemaError, SpecError
from dpiw.release.manifest import MANIFEST, SIGNATURE
from flows import audit as audit_module
from flows import local as local_module
from flows import release as release_module
from flows.parameters import ROOT as VARIABLE
from flows.parameters import below_root, ledger_below_root, spec_below_root, typed_here
from tasks.failures import StepFailedError, brief, told_briefly
from tests.conftest import SCHEMA as DICTIONARY
from tests.conftest import SPEC
from tests.flows.conftest import ROOT, pickled
from tests.hostile.leaks.canaries import hits
from tests.support.local import SPEC as LOCAL
from tests.support.patience import until

CANARY = "Quillonworth7731"
"""A cell, a name of a column and a name of a folder."""

TABLE = f"age,income,region,ill\n30,{CANARY},{CANARY},true\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A worker's root, in which it runs, beside a folder that is none of its business."""
    inside, outside = tmp_path / "root", tmp_path / "rooted"
    for folder in (inside, outside, inside / "desk"):
        folder.mkdir()
    for folder in (inside, outside):
        (folder / "release.yaml").write_text(f"{CANARY}: 1\n")
    (inside / "out").symlink_to(outside)
    (inside / "link.yaml").symlink_to(outside / "release.yaml")
    (inside / "loop.yaml").symlink_to("loop.yaml")
    monkeypatch.chdir(inside)
    monkeypatch.delenv(VARIABLE, raising=False)
    return inside


OUTSIDE = {
    "the folder above": "..", "a whole path": "/etc/passwd", "the root of all": "/",
    "a way up": "../rooted/release.yaml", "a way down and up": "desk/../../rooted/release.yaml",
    "a whole path beside": "BESIDE/release.yaml", "a linked folder": "out/release.yaml",
    "a linked file": "link.yaml", "a loop of links": "loop.yaml/x",
    "no text of a path": "a\0b.yaml", "not there": "../rooted/nothing.yaml",
}  # fmt: skip

TAKEN: dict[str, Callable[[str], Any]] = {
    "a path": lambda text: below_root("spec", text),
    "a spec": lambda text: spec_below_root("spec", text),
    "a ledger": ledger_below_root,
    "a ledger's URL": lambda text: ledger_below_root(f"sqlite:///{text}"),
    "a release": lambda text: release_module.release.fn(text),
    "a collection": lambda text: local_module.collect.fn(text),
    "an audit of": lambda text: audit_module.audit.fn(text, "desk"),
    "releases of an audit": lambda text: audit_module.audit.fn("l.sqlite", text),
    "a key of an audit": lambda text: audit_module.audit.fn("l.sqlite", "desk", text),
    "keys of an audit": lambda text: audit_module.audit.fn("l.sqlite", "desk", [text]),
    "a report of an audit": lambda text: audit_module.audit.fn("l.sqlite", "desk", None, text),
}


@pytest.mark.parametrize("taken", TAKEN)
def test_what_lies_outside_the_root_is_refused_unopened(taken, root, monkeypatch):
    inode, opened = (root.parent / "rooted" / "release.yaml").stat().st_ino, []
    real = os.open, Path.open

    def watch(path):
        if isinstance(path, str | Path) and "\0" not in str(path) and os.path.exists(path):
            opened.extend([path] * (os.stat(path).st_ino == inode))

    monkeypatch.setattr(
        Path, "open", lambda path, *w, **n: (watch(path), real[1](path, *w, **n))[1]
    )
    for text in OUTSIDE.values():
        with pytest.raises(SpecError) as refusal:
            TAKEN[taken](text.replace("BESIDE", str(root.parent / "rooted")))
        assert CANARY not in str(refusal.value)
        assert opened == [], text


def test_a_root_of_its_own_is_the_only_one(root, monkeypatch):
    with typed_here():  # a person may name any path, and a flow after them may not
        assert below_root("spec", "/etc/x") == Path("/etc/x")
        assert ledger_below_root("sqlite:////etc/x") == "sqlite:////etc/x"
    assert below_root("spec", "release.yaml") == root / "release.yaml"
    assert below_root("spec", str(root / "desk" / ".." / "release.yaml")) == root / "release.yaml"
    monkeypatch.setenv(VARIABLE, str(root / "desk"))
    with pytest.raises(SpecError):
        below_root("spec", "release.yaml")
    assert below_root("spec", "desk/x.yaml") == root / "desk" / "x.yaml"


def test_a_url_of_a_worker_names_no_files(root):
    url = "postgresql+psycopg://auditor@db/dpiw"
    assert ledger_below_root(url) == url
    assert ledger_below_root(f"{url}?sslmode=verify-full") == f"{url}?sslmode=verify-full"
    for option in ("passfile=/x", "sslkey=/x", "sslrootcert=x", "%68ost=/run/x"):
        with pytest.raises(SpecError):
            ledger_below_root(f"{url}?{option}")
    assert ledger_below_root("sqlite:///desk/l.sqlite") == f"sqlite:///{root}/desk/l.sqlite"


@pytest.mark.parametrize("words", [["plan"], ["local", "plan"], ["rehearse"]], ids=" ".join)
def test_what_is_not_named_as_yaml_is_no_spec(words, tmp_path, capsys):
    for name in ("g.csv", "g.parquet", "g.json", "g.txt", "g", "g.yaml.csv"):
        (tmp_path / name).write_text(f"{CANARY}: 1\n{CANARY}: 2\n")
        link = tmp_path / f"{name}.yml"
        link.symlink_to(name)
        for path in (tmp_path / name, link):
            assert dpiw([*words, str(path)]) == SpecError.exit_code
            told = "".join(capsys.readouterr())
            assert CANARY not in told
            assert "was not opened" in told


@pytest.mark.parametrize(
    "text",
    [f"{CANARY}: 1\n{CANARY}: 2\n", f"a: [{CANARY}", f"a: &{CANARY} 1", f"a: !{CANARY} 1", TABLE,
     f"? {CANARY}\n: 1\n{CANARY}", f"a: *{CANARY}", f"{CANARY}\n---\n{CANARY}", f'"{CANARY}',
     f"%{CANARY}\n", f"a:\n\t{CANARY}: 1", f"{CANARY}: {{{CANARY}", f"a: |{CANARY}"],
)  # fmt: skip
def test_a_text_that_is_not_yaml_is_not_repeated(text, tmp_path, capsys):
    path = tmp_path / "g.yaml"
    path.write_text(text)
    for words in (["plan"], ["local", "plan"]):
        assert dpiw([*words, str(path)]) == SpecError.exit_code
        assert CANARY not in "".join(capsys.readouterr())


def test_an_error_is_kept_as_class_file_and_line():
    mark = Mark("schema.yaml", 3, 5)
    error = SchemaError(CANARY, field=f"column {CANARY}: kind", allowed=CANARY, mark=mark)
    kept = brief(error, "spec")
    assert CANARY not in f"{vars(kept)}{kept.args}{kept.__reduce__()}"
    assert (type(kept), kept.exit_code) == (SchemaError, SchemaError.exit_code)
    assert str(kept).startswith("schema.yaml, line 3: refused")
    assert kept.whole is error
    with pytest.raises(StepFailedError, match="spec failed: KeyError"), told_briefly("spec"):
        raise KeyError(CANARY)


@pytest.mark.parametrize("way", ["itself", "inside", "a link", "signed alone"])
def test_an_audit_writes_into_no_published_release(way, tmp_path, capsys, monkeypatch):
    release = tmp_path / "releases" / "town-2026"
    release.mkdir(parents=True)
    (release / (SIGNATURE if way == "signed alone" else MANIFEST)).write_text("{}")
    (tmp_path / "link").symlink_to(release)
    out = {"inside": release / "a" / "b", "a link": tmp_path / "link"}.get(way, release)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit_module, "quiet_prefect", lambda: None)
    words = ["--ledger", "l.sqlite", "--releases", "releases", "--out", str(out)]
    assert audit_module.main(pytest.fail, words) == SpecError.exit_code
    assert "out: is or lies in a published release" in capsys.readouterr().out
    with pytest.raises(DPIWError):
        audit_module.audit.fn("l.sqlite", "releases", None, str(out))
    assert sorted(tmp_path.rglob("*")) == before


CHILD = """
import json, sys
from flows.audit import audit
from flows.local import collect
from flows.release import release
flows = {"release": release, "audit": audit, "local": collect}
for name, parameters in json.load(sys.stdin):
    state = flows[name](**parameters, return_state=True)
    error = state.result(raise_on_failure=False)
    print(json.dumps([name, parameters, state.name, type(error).__name__, str(error)]))
"""
"""Flows as a worker's child runs them: no person typed their parameters."""


def _files(desk: Path) -> None:
    """Files that a careless reader would quote, below the root and outside it."""
    for folder in (desk, desk / "inside", desk.parent / "outside"):
        folder.mkdir(exist_ok=True)
        (folder / "table.csv").write_text(TABLE)
        (folder / "a.csv").write_text(TABLE)
        (folder / CANARY / "x").mkdir(parents=True)
        (folder / f"{CANARY}.pub").write_text(CANARY)
        (folder / f"{CANARY}.json").write_text(json.dumps({CANARY: 1}))
    settings = {"population": "town", "epsilon": 1, "generator": "histogram", "weights": "none"}
    good = SPEC.strip().format(max_attempts=1, **settings) + "\n"
    good = good.replace("data.csv", "table.csv").replace("state/keys/test.key", "k.key")
    local = LOCAL.replace("reports.csv", "table.csv")
    texts = {
        "copy.yaml": TABLE, "twice.yaml": f"{CANARY}: 1\n{CANARY}: 2\n",
        "open.yaml": f"a: [{CANARY}", "keys.yaml": f"{good}{CANARY}: 1\n",
        "value.yaml": good.replace("add_or_remove_one", CANARY),
        "method.yaml": good.replace("histogram", CANARY),
        "setting.yaml": good.replace("{bins: 4}", f"{{{CANARY}: 1}}"),
        "name.yaml": good.replace("name: town", f"name: {CANARY} b"),
        "todo.yaml": good.replace("name: town", "name: TODO") + f"{CANARY}: TODO\n",
        "schema.yaml": DICTIONARY, "bad_schema.yaml": DICTIONARY.replace("integer", CANARY),
        "keyed_schema.yaml": DICTIONARY.replace("lower:", f"{CANARY}: 0, lower:"),
        "levels_schema.yaml": DICTIONARY.replace("s: [north, south, other]", "s_file: a.csv"),
        "of_bad_schema.yaml": good.replace("schema.yaml", "bad_schema.yaml"),
        "of_keyed_schema.yaml": good.replace("schema.yaml", "keyed_schema.yaml"),
        "of_levels.yaml": good.replace("schema.yaml", "levels_schema.yaml"),
        "of_table.yaml": good.replace("schema: schema.yaml", "schema: inside/table.csv"),
        "of_key.yaml": good.replace("k.key", "inside/table.csv"),
        "of_no_key.yaml": good.replace("k.key", f"{CANARY[:-1]}.pub"),
        "local_keys.yaml": f"{local}{CANARY}: 1\n",
        "local_parameters.yaml": local.replace("parameters.json", f"{CANARY}.json"),
        "local_table.yaml": local.replace("parameters.json", "table.csv"),
        "local_reports.yaml": local.replace("table.csv", "inside"),
    }  # fmt: skip
    for name, text in texts.items():
        (desk / name).write_text(text)
    (desk / "link.yaml").symlink_to("table.csv")
    (desk / "away.yaml").symlink_to(desk.parent / "outside" / "table.csv")


def _family(desk: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every flow with every bad file, wherever a parameter may name one."""
    specs = [*sorted(path.name for path in desk.glob("*.yaml")), "table.csv", "inside", "none.yaml",
             "../outside/table.csv", str(desk.parent / "outside" / "table.csv")]  # fmt: skip
    family: list[tuple[str, dict[str, Any]]] = []
    for spec in specs:
        family += [
            ("release", {"spec": spec}),
            ("local", {"spec": spec}),
            ("audit", {"ledger": spec, "releases": "inside", "out": "report"}),
        ]
    ledger = {"ledger": "l.sqlite", "releases": "inside", "out": "report"}
    family += [
        ("audit", ledger | change)
        for change in (
            {}, {"ledger": "sqlite:///table.csv"}, {"releases": "."}, {"releases": "../outside"},
            {"releases": "table.csv"}, {"releases": f"{CANARY[:-1]}x"}, {"key": "table.csv"},
            {"key": "../outside/table.csv"}, {"key": ["none.pub"]}, {"out": "table.csv"},
            {"out": "../outside"}, {"out": "table.csv/x"},
        )
    ]  # fmt: skip
    return family


KEPT = re.compile(
    r"[\w.]+(, line \d+)?: refused; to read why, type the same dpiw command on the worker's machine"
    r"|\w+ failed: \w+|audit: \d+ errors? found; read [\w/.-]*audit\.html"
)
"""All that the text of a refusal may be: a file, a line, a number of findings."""


@pytest.fixture
def desk(tmp_path, workplace):
    """A worker's root, full of bad files, with a ledger."""
    made = tmp_path / "desk"
    made.mkdir()
    _files(made)
    (made / "l.sqlite").write_bytes(workplace.ledger.read_bytes())
    (made / "l.sqlite").chmod(0o600)
    return made


@pytest.mark.slow
def test_a_refusal_is_a_class_a_file_and_a_line(desk, monkeypatch):
    for module, task in (
        (release_module, "plan"), (local_module, "collect_reports"),
        (local_module, "publish_reports"), (audit_module, "audit_task"),
        (audit_module, "report_audit"),
    ):  # fmt: skip
        monkeypatch.setattr(module, task, getattr(module, task).fn)  # as a step, without a server
    bodies = {
        "release": release_module.release, "local": local_module.collect,
        "audit": audit_module.audit,
    }  # fmt: skip
    monkeypatch.chdir(desk)
    monkeypatch.setenv(VARIABLE, str(desk))
    classes = set()
    for name, parameters in _family(desk):
        with pytest.raises((DPIWError, StepFailedError)) as refusal:
            bodies[name].fn(**parameters)
        assert KEPT.fullmatch(str(refusal.value)), (name, parameters, refusal.value)
        assert hits(pickled(refusal.value), [CANARY]) == [], (name, parameters)
        classes.add(type(refusal.value).__name__)
    assert {"AuditFailedError", "SpecError", "SchemaError", "ManifestError"} <= classes


SERVED = {"release": ("twice.yaml", "of_keyed_schema.yaml"), "audit": ("keys.yaml",),
          "local": ("local_parameters.yaml", "table.csv")}  # fmt: skip
"""Specs whose refusals would quote them, one of a kind."""


@pytest.mark.flow
@pytest.mark.slow
def test_no_word_of_a_file_reaches_prefect(prefect_server, desk):
    family = [
        (name, parameters)
        for name, parameters in _family(desk)
        if parameters.get("spec", parameters.get("ledger")) in SERVED[name]
        or parameters.get("releases") == "."
    ]
    environment = prefect_server.environment() | {VARIABLE: str(desk), "PYTHONPATH": str(ROOT)}
    before = prefect_server.results()
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(family), capture_output=True, text=True,
        check=False, cwd=desk, env=environment,
    )  # fmt: skip
    ends = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(ends) == len(family) >= 6, done.stderr[-3000:]
    for name, parameters, state, error, text in ends:
        assert state == "Failed", (name, parameters, error, text)
        assert KEPT.fullmatch(text), (name, parameters, error, text)
    assert {"AuditFailedError", "SpecError", "SchemaError"} <= {end[3] for end in ends}
    kept = prefect_server.results()
    errors = [pickle.loads(base64.b64decode(kept[name])) for name in kept.keys() - before.keys()]
    assert sorted(map(str, errors)) == sorted(end[4] for end in ends)  # one a failed run
    until(lambda: prefect_server.newest_run()["state_type"] == "FAILED", what="the last end")
    assert b"refused; to read why" in prefect_server.everything_stored()
    assert hits(prefect_server.everything_stored(), [CANARY]) == []
