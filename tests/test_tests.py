"""The rules of the tests' own house: who imports whom, and how long a file may be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.named_tests import TESTS

PATHS = sorted(TESTS.rglob("*.py"))


def from_test_files(path: Path) -> Iterator[str]:
    """Modules `tests. ... .test_*` that a file imports, inside functions and by name too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        for name in names:
            yield from re.findall(r"^tests\.(?:\w+\.)*?test_\w+", name)


def test_nothing_imports_from_a_test_file() -> None:
    """What several files share has a module of its own: `tests/support`, or beside them."""
    assert not {
        (path.relative_to(TESTS).as_posix(), module)
        for path in PATHS
        for module in from_test_files(path)
    }


def test_an_import_from_a_test_file_is_seen(tmp_path: Path) -> None:
    """Whichever way it is written."""
    path = tmp_path / "one.py"
    for text in (
        "import tests.a.test_b",
        "from tests.a import test_b as b",
        "def f():\n    from tests.a.test_b import test_c",
        "importlib.import_module('tests.a.test_b')",
    ):
        path.write_text(text)
        assert set(from_test_files(path)) == {"tests.a.test_b"}, text
    path.write_text("from tests.support.ledger import digest, adult")
    assert not set(from_test_files(path))


def test_the_rooms() -> None:
    """A test is of the package, a proof, a crash, something hostile, or a flow.

    `support` is what they share, `golden` what they compare with. `benchmarks` mirrors its folder,
    and `assurance` runs long suites.
    """
    rooms = {path.parent.relative_to(TESTS).parts[0] for path in PATHS if path.parent != TESTS}
    assert rooms == {
        "dpiw", "proof", "crash", "hostile", "flows", "support",
        "golden", "benchmarks", "assurance",
    }  # fmt: skip


PYTEST_S_OWN = {"capsys", "monkeypatch", "recwarn", "request", "tmp_path"}


def test_what_runs_in_an_analyst_s_install_asks_no_fixture_of_ours() -> None:
    """`make test-oldest` runs these files without a conftest, which would need the pipeline."""
    makefile = (TESTS.parent / "Makefile").read_text()
    (names,) = re.findall(r"^LIGHT = \$\(addprefix (\S+),(.+)\)$", makefile, re.MULTILINE)
    for name in names[1].split():
        functions = [
            node
            for node in ast.parse((TESTS.parent / f"{names[0]}{name}").read_text()).body
            if isinstance(node, ast.FunctionDef)
        ]
        known = PYTEST_S_OWN | {function.name for function in functions}
        for test in functions:
            decorators = " ".join(map(ast.unparse, test.decorator_list))
            asked = {argument.arg for argument in test.args.args if argument.arg not in decorators}
            if test.name.startswith("test_"):
                assert asked <= known, f"{name}: {test.name} asks for {asked - known}"


def test_a_test_file_is_of_one_subject() -> None:
    """At most 600 lines: a longer one has two."""
    lines = {path.name: len(path.read_text().splitlines()) for path in PATHS}
    assert not {name: count for name, count in lines.items() if count > 600}
