"""The code of a page: which files it is, what makes them other code, and how a page is named."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests import stale
from tests.benchmarks.scripts import load
from tests.support import dependencies
from tests.support.dependencies import changed, code, digest, files_of

provenance = load("provenance")

MADE_UP = {
    "benchmarks/page.py": "import helper\nSCHEMA = 'examples/a/schema.yaml'\n",
    "benchmarks/helper.py": 'from dpiw.rooms import law\nRUN = ["-m", "dpiw.run.process"]\n',
    "benchmarks/other.py": "import page\n",
    "dpiw/__init__.py": '__version__ = "1"\n',
    "dpiw/rooms/__init__.py": "",
    "dpiw/rooms/law.py": (
        '"""A law."""\nREACH = 2  # of both sides\n\n\ndef law(x):\n    """Times."""\n'
        '    if x < 0:\n        raise ValueError(f"{x} is below 0")\n    return REACH * x\n'
    ),
    "dpiw/run/process.py": "",
    "examples/a/schema.yaml": "name: a\n",
}
"""A script, what it imports, starts and reads, and a script that it does not need."""


def test_the_files_of_a_script_are_all_that_it_needs_and_no_others():
    left_out = {"benchmarks/other.py", "dpiw/__init__.py"}
    assert files_of("page", MADE_UP).keys() == MADE_UP.keys() - left_out
    assert files_of("other", MADE_UP).keys() == MADE_UP.keys() - {"dpiw/__init__.py"}


@pytest.mark.parametrize(
    ("path", "old", "new", "counts"),
    [
        ("dpiw/rooms/law.py", "REACH = 2", "REACH = 3", True),
        ("dpiw/rooms/law.py", "REACH * x", "REACH * (x + 0)", True),
        ("dpiw/rooms/law.py", "x < 0", "x < None", True),
        ("dpiw/rooms/law.py", "{x} is", "{-x} is", True),  # computed, so it may have effects
        ("dpiw/rooms/law.py", "2  # of both sides", "2", False),
        ("dpiw/rooms/law.py", "A law.", "A reading of it.", False),
        ("dpiw/rooms/law.py", '    """Times."""\n', "", False),
        ("dpiw/rooms/law.py", "is below 0", "expected at least 0", False),
        ("dpiw/rooms/law.py", "\n\n\ndef", "\n\ndef", False),
        ("dpiw/rooms/law.py", "REACH = 2", "from __future__ import x\nREACH = 2", False),
        ("benchmarks/helper.py", "import law", "import law as _law", True),
        ("examples/a/schema.yaml", "name: a", "name: b", True),
        ("dpiw/__init__.py", '"1"', '"2"', False),
        ("benchmarks/other.py", "import page", "import sys", False),
    ],
)
def test_what_a_page_depends_on_is_what_the_code_does(path, old, new, counts):
    assert old in MADE_UP[path]
    now, then = MADE_UP | {path: MADE_UP[path].replace(old, new)}, MADE_UP
    files = files_of("page", now)
    assert (code(files) != code(files_of("page", then))) is counts
    assert changed(files, then, now) == ({path} if counts else set())


def test_a_file_that_came_is_one_that_changed():
    now = MADE_UP | {"benchmarks/helper.py": "import fresh\n", "benchmarks/fresh.py": "x = 1\n"}
    came = {"benchmarks/helper.py", "benchmarks/fresh.py"}
    assert changed(files_of("page", now), MADE_UP, now) == came


@pytest.mark.slow
def test_another_layout_is_the_same_code():
    for path in (dependencies.ROOT / "benchmarks").glob("*.py"):
        text = path.read_text()
        assert digest("a.py", ast.unparse(ast.parse(text))) == digest("a.py", text), path.name
        assert digest("a.py", f"{text}\nlast = 0\n") != digest("a.py", text)


def test_a_command_names_its_script():
    assert provenance.script_of("python benchmarks/coverage.py --name x.py") == "coverage"
    assert provenance.script_of("make bench DATA=folder") == "bench"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository of the made-up files and its commit; pages lie in `tmp_path`."""
    root = tmp_path / "home"
    for path, text in MADE_UP.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "First"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    for module in (dependencies, provenance):
        monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.delenv("DPIW_COMMIT", raising=False)
    dependencies.committed.cache_clear()
    yield root
    dependencies.committed.cache_clear()


def named(tmp_path: Path, **record) -> str:
    (tmp_path / "page.json").write_text(json.dumps(record))
    return stale.state(tmp_path / "page.json", dependencies.present(), 1)


def test_a_page_is_fresh_until_its_code_changes(home, tmp_path):
    record = provenance.stamp("python benchmarks/page.py")
    commit = record["commit"]
    assert re.fullmatch(r"[0-9a-f]{7,}", commit)
    assert record["code"] == code(files_of("page", MADE_UP))
    told = {"command": record["command"], "parts": {"a": {"commit": commit}}}  # as kept before
    assert named(tmp_path, **record) == named(tmp_path, **told) == ""
    (home / "dpiw/rooms/law.py").write_text("REACH = 3\n")
    (home / "benchmarks/page.py").write_text(MADE_UP["benchmarks/page.py"] + "X = 1\n")
    message = f"2 of 6 files changed since {commit}: benchmarks/page.py and 1 more"
    assert named(tmp_path, **record) == named(tmp_path, **told) == message
    assert provenance.commit() == f"{commit}-dirty"
    assert named(tmp_path, **provenance.stamp("make page")) == ""  # by its digest
    again = {"lines": 1, "commit": commit, "code": provenance.stamp("make page")["code"]}
    assert named(tmp_path, **record, again=again) == "", "later code made lines again"
    assert named(tmp_path, **record | {"commit": "0"}, again=record) == message
    missing = "Git does not have its commit 0000000 here"
    assert named(tmp_path, **told | {"parts": {"commit": "0000000"}}) == missing


@pytest.mark.parametrize("commit", ["{}-dirty", "{} or before"])
def test_code_that_was_never_committed_is_not_fresh(home, tmp_path, commit):
    told = {"command": "make page", "commit": commit.format(provenance.commit())}
    assert named(tmp_path, **told).startswith(f"0 of 6 files changed since {told['commit']}")


def test_a_page_without_commit_is_named_and_fails_where_readme_quotes_it(
    home, tmp_path, monkeypatch, capsys
):
    assert named(tmp_path, command="make page") == stale.NO_COMMIT
    assert stale.state(tmp_path / "none.json", MADE_UP) == stale.NO_COMMIT
    monkeypatch.setattr(stale, "ROOT", home)
    monkeypatch.setattr(stale, "RESULTS", tmp_path)
    (tmp_path / "page.md").write_text("")
    for readme, status in (("results/other.md", 0), ("results/page.md", 1)):
        (home / "README.md").write_text(readme)
        assert stale.main([]) == status
    first, _, quoted, _ = capsys.readouterr().out.splitlines()
    assert first == "page.md: names no commit"
    assert quoted == "page.md, quoted by README: names no commit"
    (tmp_path / "page.json").write_text(json.dumps(provenance.stamp("make page")))
    assert stale.main(["page"]) == 0
    assert capsys.readouterr().out == "1 of 1 pages are of the code as it is\n"


def test_every_page_of_the_repository_ends_with_its_commits():
    pages = {path.stem for path in provenance.RESULTS.glob("*.md")}
    records = {path.stem for path in provenance.RESULTS.glob("*.json")}
    assert pages == records
    for name in records:
        record = json.loads((provenance.RESULTS / f"{name}.json").read_text())
        assert [*provenance.stamps(record)], name
        assert (provenance.RESULTS / f"{name}.md").read_text().endswith(provenance.foot(record))
        script = provenance.script_of(re.findall(r'"command": "(.*?)"', json.dumps(record))[0])
        assert (provenance.ROOT / "benchmarks" / f"{script}.py").exists()
