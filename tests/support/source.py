"""The product as text: its modules, what they import, circles among them, and very small files.

    python -m tests.support.source

writes today's circles and small files to `tests/golden/debts.json`. `test_architecture.py` fails
when the list holds something that is gone, or lacks something that came: only a renamed file may
add a line to it.
"""

import ast
import functools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("dpiw", "tasks", "flows")
DEBTS = ROOT / "tests" / "golden" / "debts.json"
SMALL = 60
"""Lines: a smaller file is a registry, a protocol, constants or a package's face."""


def modules(checkout: Path, folders: tuple[str, ...] = PRODUCT) -> dict[str, Path]:
    """Every module below some folders, by its dotted name."""
    return {
        ".".join(path.relative_to(checkout).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in folders
        for path in sorted((checkout / folder).rglob("*.py"))
    }


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, read once for all rules."""
    return ast.parse(path.read_text())


@functools.cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file."""
    return tuple(ast.walk(parsed(path)))


class Imports(NamedTuple):
    """Names that a file imports: when it is loaded, in functions, for type checkers."""

    loaded: frozenset[str]
    lazy: frozenset[str]
    typed: frozenset[str]

    @property
    def run(self) -> frozenset[str]:
        """At run time."""
        return self.loaded | self.lazy

    @property
    def every(self) -> frozenset[str]:
        return self.run | self.typed


@functools.cache
def imports(path: Path) -> Imports:
    """What a file imports: `from a import b` counts as `a` and as `a.b`."""
    found: tuple[set[str], set[str], set[str]] = set(), set(), set()

    def visit(node: ast.AST, sort: int) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            sort = 2
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            sort = max(sort, 1)
        elif isinstance(node, ast.Import):
            found[sort].update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found[sort].update(
                (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            )
        if not isinstance(node, ast.expr):
            for child in ast.iter_child_nodes(node):
                visit(child, sort)

    visit(parsed(path), 0)
    return Imports(*map(frozenset, found))


def graph(known: dict[str, Path], *, only_loaded: bool = False) -> dict[str, set[str]]:
    """Modules that each module imports; its own package's face is left out."""
    return {
        name: {
            target
            for target in (imports(path).loaded if only_loaded else imports(path).every)
            if target in known and target != name and not name.startswith(f"{target}.")
        }
        for name, path in known.items()
    }


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that all lead to each other, by name."""
    names = sorted(edges)
    place = {name: number for number, name in enumerate(names)}
    pairs = [(place[name], place[target]) for name in names for target in edges[name]]
    starts, ends = np.array(pairs, dtype=int).reshape(-1, 2).T
    matrix = coo_array((np.ones(len(pairs)), (starts, ends)), shape=(len(names), len(names)))
    count, group = connected_components(matrix, connection="strong")
    groups = [[name for name in names if group[place[name]] == one] for one in range(count)]
    return sorted(members for members in groups if len(members) > 1)


def is_small(path: Path) -> bool:
    """Whether a file is too small and does something: it is no registry, protocol or face."""
    if path.stem in ("__init__", "__main__", "registry"):
        return False
    if len(path.read_text().splitlines()) >= SMALL:
        return False
    protocols = {
        function
        for node in walked(path)
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
        for function in node.body
    }
    functions = (n for n in walked(path) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(function not in protocols for function in functions)


def debts(checkout: Path = ROOT) -> dict[str, list[str]]:
    """What the rules forbid and a checkout has: circles, each as one text, and small files."""
    known = modules(checkout)
    small = [name for name, path in known.items() if is_small(path)]
    return {
        "circles": [" ".join(group) for group in circles(graph(known))],
        "small files": sorted(small),
    }


if __name__ == "__main__":
    DEBTS.write_text(json.dumps(debts(), indent=1) + "\n")
