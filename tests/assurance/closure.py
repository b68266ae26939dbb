"""What could change a part's outcome: the files a test reaches, and the key made of their contents.

A test reaches its own file, the `conftest.py` files above it, and whatever these import, inside
functions too. Imports are read from the source, never run. A string that names a module of ours
counts as an import (`pytest_plugins`, `monkeypatch.setattr("dpiw.ledger...")`, `-m dpiw.cli.main`).

Some files reach more than their imports say: they start processes, import by computed names, or
look for files beside themselves. Such a *wide* file adds all of the product and all of its own
folder, unless `KNOWN` says what it reaches. `KNOWN` counts the signs it has seen in a file: one
more, and the entry is void. Wrong reuse is worse than a rerun.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

FORMAT = 1
"""Of a key; another number voids all that was kept."""

PRODUCT = ("dpiw", "tasks", "flows")
CODE = frozenset({*PRODUCT, "tests"})
MODULES = (*sorted(CODE), "examples", "benchmarks")
"""Folders whose modules are ours."""

DATA = ("dpiw", "tests")
"""Whose files that are no Python belong to every part (style sheets, golden figures)."""

MADE = frozenset({"build", "dist"})
IGNORED = (".csv", ".pyc", ".so")
"""Made, not written: by `make`, `examples/prepare.py`, Python."""

SIGNS = re.compile(
    r"\b(?:subprocess|multiprocessing|forkserver|Popen|posix_spawn|execv\w*|runpy|import_module"
    r"|__import__|spec_from_file_location|__file__|getsource\w*)\b"
)
"""Of a file that may reach more than it imports. Comments and docstrings do not count."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """What a wide file really reaches.

    Attributes:
        signs: how many signs of `SIGNS` the file had when this was said.
        modules: what its processes load, as modules; the walk goes on from there.
        folders: of which it reads all files.
        why: one sentence for the reader.
    """

    signs: int
    modules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    why: str


KNOWN: Mapping[str, Known] = {
    "tests/support/stores.py": Known(
        signs=15, why="starts PostgreSQL, and a watch that is written there"
    ),
    "tests/proof/conftest.py": Known(signs=1, why="shortens the test's own path"),
    "tests/support/named_tests.py": Known(signs=1, folders=("tests",), why="reads every test file"),
    "tests/flows/conftest.py": Known(
        signs=6, modules=("flows.release",), why="starts Prefect's server, and the release flow"
    ),
    "dpiw/cli/pipeline.py": Known(
        signs=3, modules=("flows.release", "flows.audit"), why="runs a flow's module by its name"
    ),
    "dpiw/run/launch.py": Known(signs=8, modules=("dpiw.run.process",), why="starts stages"),
    "dpiw/methods/generators/inference.py": Known(
        signs=5, modules=("dpiw.methods.generators.inference_process",), why="starts a fit"
    ),
    "dpiw/analysis/optional.py": Known(signs=1, why="imports libraries of others"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What one Python file says of others.

    Attributes:
        names: dotted names it may import; a name may end in what is no module.
        texts: its strings, but for docstrings.
        signs: how many signs of `SIGNS` it has.
    """

    names: frozenset[str]
    texts: frozenset[str]
    signs: int


def _is_statement(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_plain(node: ast.AST) -> bool:
    """An import by a name that stands there: as good as an import statement."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")):
        return False
    return bool(node.args) and isinstance(node.args[0], ast.Constant)


def _imported(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """Dotted names of one import, and of the names taken from it."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        module = ".".join((*above, *filter(None, [node.module])))
        yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


def read(text: str, package: tuple[str, ...]) -> Source:
    """Read a Python file of the package with these parts."""
    tree = ast.parse(text)
    for node in ast.walk(tree):  # docstrings and other strings that stand alone say nothing
        if hasattr(node, "body") and isinstance(node.body, list):
            node.body = [statement for statement in node.body if not _is_statement(statement)] or [
                ast.Pass()
            ]
    nodes = list(ast.walk(tree))
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    tops = "|".join(MODULES)
    dotted = re.compile(rf"(?<![\w./-])(?:{tops})(?:\.\w+)+")
    names = {name for node in nodes for name in _imported(node, package)}
    names |= {name for text in texts for name in dotted.findall(text)}
    plain = sum(_is_plain(node) for node in nodes)
    signs = len(SIGNS.findall(ast.unparse(tree))) - plain
    return Source(names=frozenset(names), texts=frozenset(texts), signs=signs)


class Parser:
    """Reads each version of a file once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Source] = {}

    def source(self, name: str, content: bytes) -> Source:
        """What a file says of others; its name places relative imports."""
        key = (name, hashlib.sha256(content).hexdigest())
        if key not in self._read:
            self._read[key] = read(content.decode(), tuple(name.split("/")[:-1]))
        return self._read[key]


class Snapshot:
    """The files of a checkout at one moment; names are relative, with slashes."""

    def __init__(self, root: Path, parser: Parser, known: Mapping[str, Known] = KNOWN) -> None:
        self._root, self._parser, self._known = root, parser, known
        self._names = sorted(_names(root))
        self._exists = frozenset(self._names)
        self._tops = frozenset(name.partition("/")[0] for name in self._names)
        self._contents: dict[str, bytes] = {}
        self._reached: dict[str, frozenset[str]] = {}

    def content(self, name: str) -> bytes:
        if name not in self._contents:
            self._contents[name] = (self._root / name).read_bytes()
        return self._contents[name]

    def closure(self, test: str) -> frozenset[str]:
        """All that the tests of this file reach, itself among them."""
        reached: set[str] = set()
        data = [name for top in DATA for name in self._below(top) if not name.endswith(".py")]
        waiting = [test, *self._above(test), *data]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self.reached(name)
        return frozenset(reached)

    def reached(self, name: str) -> frozenset[str]:
        """What one file reaches by itself."""
        if name not in self._reached:
            files = frozenset(self._walk(name)) if name.endswith(".py") else frozenset()
            self._reached[name] = files
        return self._reached[name]

    def wide(self, name: str) -> bool:
        """Whether a file may reach more than it says."""
        source = self._parser.source(name, self.content(name))
        known = self._known.get(name)
        return source.signs > 0 and (known is None or known.signs != source.signs)

    def _above(self, test: str) -> list[str]:
        """`conftest.py` in the test's folder and in those above."""
        parts = test.split("/")[:-1]
        names = ["/".join([*parts[:depth], "conftest.py"]) for depth in range(len(parts) + 1)]
        return [name for name in names if name in self._exists]

    def _below(self, top: str) -> list[str]:
        return [name for name in self._names if name == top or name.startswith(f"{top}/")]

    def _walk(self, name: str) -> Iterator[str]:
        source = self._parser.source(name, self.content(name))
        known = self._known.get(name)
        for module in (*source.names, *(known.modules if known else ())):
            yield from self._modules(module)
        for folder in known.folders if known else ():
            yield from self._below(folder)
        for text in source.texts:
            yield from self._named(text)
        if self.wide(name):
            yield from self._widely(name)

    def _modules(self, module: str) -> Iterator[str]:
        """Files that are loaded for a dotted name: its packages', and its own."""
        place = ""
        for part in module.split("."):
            place = f"{place}/{part}" if place else part
            yield from {f"{place}.py", f"{place}/__init__.py"} & self._exists

    def _named(self, text: str) -> Iterator[str]:
        """Files that a string names: of a folder without code (`docs`), or one file."""
        if text in self._exists:
            yield text
        top = text.partition("/")[0]
        if top in self._tops - CODE and re.fullmatch(r"[\w.-]+(/[\w./-]*)?", text):
            yield from self._below(top)

    def _widely(self, name: str) -> Iterator[str]:
        """The product, and the file's own folder with all below."""
        for top in (*PRODUCT, name.rpartition("/")[0]):
            yield from self._below(top) if top else ()


def _names(root: Path) -> Iterator[str]:
    """Files of a checkout that anybody wrote."""
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name for name in folders if not name.startswith((".", "__")) and name not in MADE
        ]
        place = Path(folder).relative_to(root)
        for file in files:
            if not file.startswith(".") and not file.endswith(IGNORED):
                yield (place / file).as_posix()


def surroundings(root: Path) -> dict[str, object]:
    """What else decides an outcome: Python, the distributions of the lock, pytest's settings."""
    lock = root / "deployments" / "constraints.txt"
    names = re.findall(r"^([\w.-]+)==", lock.read_text(), re.M) if lock.exists() else []
    settings = {}
    if (root / "pyproject.toml").exists():
        settings = tomllib.loads((root / "pyproject.toml").read_text()).get("tool", {})
    ini = root / "pytest.ini"
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "distributions": {name: _version(name) for name in sorted({*names, "torch", "pytest"})},
        "pytest": [settings.get("pytest", {}), ini.read_text() if ini.exists() else ""],
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


class Keys:
    """Makes the keys of parts, as the files are now."""

    def __init__(self, root: Path, known: Mapping[str, Known] = KNOWN) -> None:
        self._root, self._known, self._parser = root, known, Parser()

    def of(self, nodes: Iterable[str]) -> dict[str, str]:
        """The keys of tests, by their node ids."""
        snapshot = Snapshot(self._root, self._parser, self._known)
        around = surroundings(self._root)
        tests = {node: node.partition("::")[0] for node in nodes}
        files = {test: _digests(snapshot, test) for test in set(tests.values())}
        payloads = {node: [FORMAT, node, files[test], around] for node, test in tests.items()}
        return {
            node: hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()
            for node, payload in payloads.items()
        }


def _digests(snapshot: Snapshot, test: str) -> dict[str, str]:
    """Of all that a test file reaches, SHA-256 by name."""
    return {
        name: hashlib.sha256(snapshot.content(name)).hexdigest() for name in snapshot.closure(test)
    }
