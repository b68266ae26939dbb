"""What changes a part's key, and what does not: in a small checkout, and in this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.assurance.closure import KNOWN, Keys, Known, Parser, Snapshot

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "dpiw/__init__.py": "",
    "dpiw/direct.py": "from dpiw import indirect\n",
    "dpiw/indirect.py": "",
    "dpiw/lazy.py": "",
    "dpiw/named.py": "",
    "dpiw/apart.py": "",
    "dpiw/page.css": "",
    "flows/__init__.py": "",
    "flows/release.py": "",
    "tests/conftest.py": 'pytest_plugins = ["tests.plugged"]\n',
    "tests/plugged.py": "",
    "tests/proof/conftest.py": "",
    "tests/proof/test_one.py": (
        '"""Unlike dpiw.apart and docs."""\nimport dpiw.direct\n'
        "def test_one(monkeypatch):\n    from dpiw.lazy import x\n"
        '    monkeypatch.setattr("dpiw.named.function", 1)\n'
    ),
    "tests/proof/test_two.py": "",
    "tests/golden/figures.json": "",
    "docs/page.md": "",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = []\n[tool.ruff]\nline-length = 100\n",
    "deployments/constraints.txt": "numpy==1.0\n",
}
NODE = "tests/proof/test_one.py::test_one"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def changes(checkout: Path) -> Callable[[str, str], bool]:
    """Add a text to a file; whether that changed the test's key."""
    keys = Keys(checkout)

    def change(name: str, text: str = "\nx = 1\n") -> bool:
        before = keys.of([NODE])[NODE]
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + text)
        return keys.of([NODE])[NODE] != before

    return change


REACHED = (
    "dpiw/__init__.py", "dpiw/direct.py", "dpiw/indirect.py", "dpiw/lazy.py", "dpiw/named.py",
    "dpiw/page.css", "tests/conftest.py", "tests/plugged.py", "tests/proof/conftest.py",
    "tests/proof/test_one.py", "tests/golden/figures.json",
)  # fmt: skip
APART = ("dpiw/apart.py", "flows/release.py", "tests/proof/test_two.py", "docs/page.md")


@pytest.mark.parametrize("name", REACHED)
def test_an_edit_of_what_a_test_reaches_changes_its_key(changes, name):
    assert changes(name)


@pytest.mark.parametrize("name", APART)
def test_an_edit_of_another_file_does_not(changes, name):
    assert not changes(name)


def test_pytest_settings_count_and_others_do_not(changes):
    assert changes("pytest.ini", "[pytest]\n")
    assert not changes("pyproject.toml", "target-version = 'py312'\n")
    assert changes("pyproject.toml", "[tool.pytest.other]\nx = 1\n")


def test_an_installed_version_counts(changes, checkout, monkeypatch):
    keys = Keys(checkout)
    before = keys.of([NODE])
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0")
    assert keys.of([NODE]) != before


def test_two_tests_of_one_file_have_two_keys(checkout):
    first, second = Keys(checkout).of([NODE, NODE + "[x]"]).values()
    assert first != second


WIDE = (
    "import subprocess\n", "from multiprocessing import Process\n", "HERE = __file__\n",
    "import importlib\nimportlib.import_module(f'dpiw.{name}')\n", "__import__(name)\n",
    "os.posix_spawn(program)\n",
)  # fmt: skip


@pytest.mark.parametrize("text", WIDE)
@pytest.mark.parametrize("place", ["tests/proof/test_one.py", "dpiw/indirect.py"])
def test_who_starts_processes_or_computes_names_depends_on_all(changes, place, text):
    """On the whole product; and a test on all of its own folder."""
    assert changes(place, text)
    assert changes("dpiw/apart.py")
    assert changes("flows/release.py")
    assert changes("tests/proof/test_two.py") == place.startswith("tests")
    assert not changes("docs/page.md")


def test_words_in_comments_and_docstrings_are_no_signs(changes):
    assert changes("tests/proof/test_one.py", '# subprocess\ndef f():\n    """__import__"""\n')
    assert not changes("dpiw/apart.py")


def test_an_import_by_a_plain_name_is_an_import(changes):
    text = "import importlib\nimportlib.import_module('dpiw.apart')\n"
    assert changes("tests/proof/test_one.py", text)
    assert changes("dpiw/apart.py")
    assert not changes("flows/release.py")


@pytest.mark.parametrize("text", ["'docs'", "'docs/page.md'", "'python -m flows.release x'"])
def test_a_file_or_module_in_a_string_counts(changes, text):
    assert changes("tests/proof/test_one.py", f"X = {text}\n")
    assert changes("docs/page.md" if "docs" in text else "flows/release.py")


def test_what_is_known_of_a_file_is_void_with_one_sign_more(checkout):
    file = checkout / "dpiw" / "indirect.py"
    file.write_text("import subprocess\n")
    known = {"dpiw/indirect.py": Known(signs=1, modules=("flows.release",), why="starts a flow")}
    reached = Snapshot(checkout, Parser(), known).closure("tests/proof/test_one.py")
    assert "flows/release.py" in reached
    assert "dpiw/apart.py" not in reached
    file.write_text("import subprocess\nsubprocess.run()\n")
    reached = Snapshot(checkout, Parser(), known).closure("tests/proof/test_one.py")
    assert "dpiw/apart.py" in reached


def test_in_this_checkout_what_is_known_is_so():
    """Each entry still counts; a sensitivity test knows no flow, a crash test knows everything."""
    here = Snapshot(ROOT, Parser())
    assert not [name for name in KNOWN if here.wide(name)]
    narrow = here.closure("tests/proof/test_sensitivity_regression.py")
    assert {
        "dpiw/methods/weights/beta.py",
        "tests/support/stores.py",
        "dpiw/ledger/ledger.py",
    } <= narrow
    assert not [name for name in narrow if name.startswith(("flows/", "tasks/", "tests/crash/"))]
    assert not [name for name in narrow if name.endswith(".py") and here.wide(name)]
    wide = here.closure("tests/crash/test_races.py")
    product = {
        path.relative_to(ROOT).as_posix()
        for top in ("dpiw", "tasks", "flows", "tests/crash")
        for path in (ROOT / top).rglob("*.py")
    }
    assert product <= wide
