"""Figures of the long suites: what `prove` (conftest.py) told, one JSON line each, as a table.

`make proof` ends with `python -m tests.proof.figures FOLDER`: the rows of all `*.jsonl` there.
What each test is known to find, and its limit: docs/proof.md.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

PREFIX = "proof "
"""Of a JSON line's name; the promise follows."""

HEAD = ("promise", "test", "figure reached")


def tiers(name: str, *, fast: object, full: object) -> pytest.MarkDecorator:
    """Parametrize `name`: a slice for the default run, the whole under the marker `proof`."""
    whole = pytest.param(full, marks=pytest.mark.proof, id="full")
    return pytest.mark.parametrize(name, [pytest.param(fast, id="fast"), whole])


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    name = line["test"]
    if name.startswith(PREFIX):
        return (name.removeprefix(PREFIX), f"`{line['node']}`", line["reached"])
    return (name, "", "; ".join(f"{key} {value}" for key, value in line.items() if key != "test"))


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table, one row a figure; empty if there is no figure."""
    rows = sorted(_row(line) for line in lines)
    cells = [HEAD, ("---",) * len(HEAD), *rows] if rows else []
    texts = [[" ".join(text.split()).replace("|", "\\|") for text in row] for row in cells]
    return "".join("| " + " | ".join(row) + " |\n" for row in texts)


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    sys.stdout.write(table(lines))
