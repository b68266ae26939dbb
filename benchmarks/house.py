"""The house in numbers: what a stranger meets in a checkout, or in an earlier commit.

    python benchmarks/house.py [--release] [COMMIT ...]

A table with a column for each commit (default: HEAD): entries at the top of dpiw/, lines of
product and of tests, files of more than 500 lines, and imports against the direction of the rooms,
those inside functions included. Reads source text; imports nothing of it.

`--release` publishes the worked example from each commit's files as well, with this environment's
packages: its seconds, from nothing but the environment to the signed folder, and how often a plan
is compiled on the way, in all its processes.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.test_architecture import BELOW, ROOT, room

LONG = 500
PRODUCT = ("dpiw", "tasks", "flows")


def modules(checkout: Path) -> dict[str, Path]:
    """Every module of dpiw by its dotted name."""
    paths = {}
    for path in sorted((checkout / "dpiw").rglob("*.py")):
        name = ".".join(path.relative_to(checkout).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    return paths


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of ours that a file imports anywhere but for type checkers."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names.update(name if name in known else node.module for name in full)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return {name for name in names if name in known and name != "dpiw"}


def upward(known: dict[str, Path]) -> int | None:
    """Imports that the table of rooms forbids; None where there are no rooms."""
    ours = {name: path for name, path in known.items() if name != "dpiw"}
    if {room(name) for name in ours} != set(BELOW):
        return None
    return sum(
        room(target) not in {room(name), *BELOW[room(name)]}
        for name, path in ours.items()
        for target in imported(path, known)
    )


def lines(checkout: Path, folders: tuple[str, ...]) -> dict[Path, int]:
    """Lines of every Python file below some folders."""
    paths = [path for folder in folders for path in (checkout / folder).rglob("*.py")]
    return {path: len(path.read_text().splitlines()) for path in paths}


def numbers(checkout: Path) -> dict[str, int | None]:
    """Every figure of one checkout."""
    product, known = lines(checkout, PRODUCT), modules(checkout)
    inside = sorted((checkout / "dpiw").iterdir())
    top = [p for p in inside if p.suffix == ".py" or (p / "__init__.py").exists()]
    return {
        "entries of dpiw/": len(top),
        "modules of dpiw/": len(known),
        "lines of product": sum(product.values()),
        "lines of tests": sum(lines(checkout, ("tests",)).values()),
        f"files of product over {LONG} lines": sum(count > LONG for count in product.values()),
        "imports against the rooms' direction": upward(known),
    }


def at(commit: str, folder: Path) -> Path:
    """A commit's files, in a folder of their own."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    place = folder / commit.replace("/", "-")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


_COUNTED = """

_compile_plan_itself = compile_plan


def compile_plan(*args, **kwargs):
    import os

    with open(os.environ["DPIW_COMPILED"], "a") as compiled:
        compiled.write(".")
    return _compile_plan_itself(*args, **kwargs)
"""
"""Behind the module that compiles plans: one character a time, whatever the process."""


def released(checkout: Path) -> dict[str, int | float]:
    """Publish the worked example of some commit's files, which are changed on the way."""
    (home,) = (
        path
        for path in (checkout / "dpiw").rglob("*.py")
        if "\ndef compile_plan(" in path.read_text()
    )
    home.write_text(home.read_text() + _COUNTED)
    compiled = checkout / "compiled.txt"
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "DPIW_COMPILED": str(compiled),
    }
    ready = Path(sys.prefix) / ".pipeline"
    started = time.perf_counter()
    subprocess.run(
        ["make", "-o", str(ready), "release", f"VENV={sys.prefix}"],
        cwd=checkout,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - started
    return {
        "times a plan is compiled in one release": len(compiled.read_text()),
        "seconds of a first release": round(seconds, 1),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", action="store_true", help="publish the worked example too")
    parser.add_argument("commits", nargs="*", default=["HEAD"], metavar="COMMIT")
    asked = parser.parse_args(arguments)
    columns: dict[str, dict[str, int | float | None]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for commit in asked.commits:
            checkout = at(commit, Path(folder))
            columns[commit] = {**numbers(checkout)}
            if asked.release:
                columns[commit] |= released(checkout)
    print("| | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for what in next(iter(columns.values())):
        cells = [
            "no rooms" if column[what] is None else f"{column[what]:,}"
            for column in columns.values()
        ]
        print(f"| {what} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
