"""The rules of the tests' own house: who imports whom, and how long a file may be."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.named_tests import TESTS

PATHS = sorted(TESTS.rglob("*.py"))


def from_test_files(path: Path) -> Iterator[str]:
    """Modules `tests. ... .test_*` that a file imports, inside functions and by name too."""
    text = path.read_text()
    if not re.search(r"import_module|tests\b.*\btest_", text):
        return
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        for name in names:
            yield from re.findall(r"^tests\.(?:\w+\.)*?test_\w+", name)


def test_nothing_imports_from_a_test_file(tmp_path: Path) -> None:
    """What several files share has a module of its own: `tests/support`, or beside them."""
    assert not {(path.name, module) for path in PATHS for module in from_test_files(path)}
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

    `support` is what they share, `golden` what they compare with. `benchmarks` mirrors its folder.
    """
    rooms = {path.parent.relative_to(TESTS).parts[0] for path in PATHS if path.parent != TESTS}
    agreed = "dpiw proof crash hostile flows support golden benchmarks"
    assert rooms == {*agreed.split()}


PYTEST_S_OWN = {"capsys", "monkeypatch", "recwarn", "request", "tmp_path"}


def fixtures_of_others(text: str) -> set[str]:
    """What tests and fixtures of a file ask for that neither it nor pytest has."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    fixtures, asked = set(PYTEST_S_OWN), set()
    for function in functions:
        decorators = [ast.unparse(node) for node in function.decorator_list]
        if is_fixture := any("fixture" in text.split("(")[0] for text in decorators):
            fixtures.add(function.name)
        if not (is_fixture or function.name.startswith("test_")):
            continue
        names = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        for node in function.decorator_list:
            words = {
                word
                for constant in ast.walk(node)
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
                for word in re.findall(r"\w+", constant.value)
            }
            if ".parametrize" in ast.unparse(node) and isinstance(node, ast.Call):
                names -= set(re.findall(r"\w+", ast.unparse(node.args[0])))
            elif "usefixtures" in ast.unparse(node):
                names |= words
        asked |= names
    return asked - fixtures - {"self"}


def test_what_runs_in_an_analyst_s_install_asks_no_fixture_of_ours() -> None:
    """`make test-oldest` runs these files without a conftest, which would need the pipeline."""
    makefile = (TESTS.parent / "Makefile").read_text()
    (light,) = re.findall(r"^LIGHT = \$\(addprefix (\S+),(.+)\)$", makefile, re.MULTILINE)
    for name in light[1].split():
        assert not fixtures_of_others((TESTS.parent / f"{light[0]}{name}").read_text()), name
    for text in (  # whoever asks for one, and however
        "def test_a(released): ...",
        "def test_a(*, released): ...",
        "class TestA:\n    def test_a(self, released): ...",
        "@pytest.fixture\ndef own(released): ...\ndef test_a(own): ...",
        "@pytest.mark.usefixtures('released')\ndef test_a(): ...",
        "@pytest.mark.parametrize('a', ['released'])\ndef test_a(a, released): ...",
        "def released(): ...\ndef test_a(released): ...",
    ):
        assert fixtures_of_others(text) == {"released"}, text
    own = "@pytest.fixture\ndef own(): ...\n@pytest.mark.parametrize('a, b', [])\n"
    assert not fixtures_of_others(own + "def test_a(own, a, b, tmp_path): ...")


def test_a_test_file_is_of_one_subject() -> None:
    """At most 600 lines: a longer one has two."""
    lines = {path.name: len(path.read_text().splitlines()) for path in PATHS}
    assert not {name: count for name, count in lines.items() if count > 600}
