"""The house in numbers: what a stranger meets in a checkout, or in an earlier commit.

    python benchmarks/house.py [COMMIT ...]

A table with a column for each commit (default: HEAD), from source text. Circles and imports
against the rooms' direction count imports in functions and for type checkers.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.support import source
from tests.support.source import ROOT
from tests.test_architecture import BELOW, room

LONG = 500
"""Lines that a file of the product may have."""


def upward(known: dict[str, Path]) -> int | None:
    """Imports that the table of rooms forbids; None where the rooms are others."""
    ours = {name: path for name, path in known.items() if name.startswith("dpiw.")}
    if {room(name) for name in ours} != set(BELOW):
        return None
    return sum(
        room(target) not in {room(name), *BELOW[room(name)]}
        for name, path in ours.items()
        for target in source.imports(path).every & ours.keys()
    )


def lines(checkout: Path, *folders: str) -> list[int]:
    """Lines of every Python file below some folders."""
    paths = [path for folder in folders for path in (checkout / folder).rglob("*.py")]
    return [len(path.read_text().splitlines()) for path in paths]


def words(checkout: Path) -> int:
    """Words of the pages in docs/."""
    return sum(len(page.read_text().split()) for page in (checkout / "docs").glob("*.md"))


WANTED = {
    "files of product": 280,
    "lines of product": 54_000,
    "lines of tests": 62_000,
    "lines of benchmarks": 7_000,
    f"files of product over {LONG} lines": 0,
    f"files of product under {source.SMALL} lines that do something": 0,
    "modules that nobody imports": 8,
    "circles": 0,
    "files in circles": 0,
    "imports against the rooms' direction": 0,
    "words in docs": 42_000,
}
"""At most, of the figures that have a limit."""


def numbers(checkout: Path) -> dict[str, int | None]:
    """Every figure of one checkout."""
    known = source.modules(checkout)
    edges = source.graph(known)
    circles = source.circles(edges)
    imported = set[str]().union(*edges.values())
    starts = {name for name, path in known.items() if path.name in ("__init__.py", "__main__.py")}
    product = lines(checkout, *source.PRODUCT)
    return {
        "files of product": len(product),
        "lines of product": sum(product),
        "lines of tests": sum(lines(checkout, "tests")),
        "lines of benchmarks": sum(lines(checkout, "benchmarks")),
        f"files of product over {LONG} lines": sum(count > LONG for count in product),
        f"files of product under {source.SMALL} lines that do something": sum(
            map(source.is_small, known.values())
        ),
        "modules that nobody imports": len(known.keys() - imported - starts),
        "circles": len(circles),
        "files in circles": sum(map(len, circles)),
        "imports against the rooms' direction": upward(known),
        "words in docs": words(checkout),
    }


def at(commit: str, folder: Path) -> Path:
    """A commit's files, in a folder of their own."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    place = folder / commit.replace("/", "-")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commits", nargs="*", default=["HEAD"], metavar="COMMIT")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        columns = {commit: numbers(at(commit, Path(folder))) for commit in asked.commits}
    print("| | " + " | ".join(columns) + " | at most |")
    print("|---" * (len(columns) + 2) + "|")
    for what in next(iter(columns.values())):
        cells = [
            "other rooms" if column[what] is None else f"{column[what]:,}"
            for column in columns.values()
        ]
        wanted = f"{WANTED[what]:,}" if what in WANTED else ""
        print(f"| {what} | " + " | ".join([*cells, wanted]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
