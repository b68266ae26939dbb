"""The rules of the tests' own house: who imports whom, and how long a file may be."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


@pytest.mark.nightly
def test_what_runs_in_an_analyst_s_install_asks_no_fixture_of_ours() -> None:
    """`make test-oldest` runs these files without a conftest, which would need the pipeline."""
    makefile = (TESTS.parent / "Makefile").read_text()
    (light,) = re.findall(r"^LIGHT = \$\(addprefix (\S+),(.+)\)$", makefile, re.MULTILINE)
    files = [f"{light[0]}{name}" for name in light[1].split()]
    words = [sys.executable, "-m", "pytest", "-q", "--noconftest", "--setup-plan", *files]
    subprocess.run(words, cwd=TESTS.parent, check=True, capture_output=True)


def test_a_test_file_is_of_one_subject() -> None:
    """At most 500 lines: a longer one has two."""
    lines = {path.name: len(path.read_text().splitlines()) for path in PATHS}
    assert not {name: count for name, count in lines.items() if count > 500}


def installed(asked: str) -> set[str]:
    """Distributions that pip installs for a requirement, with all that they require."""
    found: set[str] = set()
    seen, left = set(), [Requirement(asked)]
    while left:
        wanted = left.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        found.add(re.sub(r"[-_.]+", "-", wanted.name).lower())
        for extra in ("", *wanted.extras):
            try:
                lines = importlib.metadata.requires(wanted.name) or []
            except importlib.metadata.PackageNotFoundError:  # its import fails by itself
                continue
            for needed in map(Requirement, lines):
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    left.append(needed)
    return found


@pytest.mark.slow
def test_a_fresh_clone_installs_what_the_tests_import() -> None:
    """Not what an environment kept of an earlier day."""
    extras = re.search(r"'\.\[(.*?\btest\b.*?)\]'", (TESTS.parent / "Makefile").read_text())[1]
    there = installed(f"dpiw[{extras}]")
    sources = importlib.metadata.packages_distributions()
    for path in PATHS:
        tops = set(re.findall(r"^ *(?:import|from) (\w+)", path.read_text(), re.M))
        for top in tops & {*sources}:
            owners = {re.sub(r"[-_.]+", "-", name).lower() for name in sources[top]}
            assert owners & there, f"{path.relative_to(TESTS)} imports {top}: add it to `test`"
