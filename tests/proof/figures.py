"""Figures of the privacy proof suite: one row per promise.

A test takes the fixture `prove` (conftest.py) and says, once it has passed its assertions,

    prove(
        "P1", "beta regression, linear map",
        power="the paper's noise breaks its epsilon on 12 of 12 pairs",
        reached="10,000 pairs, 0 above the bound, worst 0.97 of it",
        limit="neighbours searched, not all neighbours",
    )

Rows are told by tests of the marker `proof` alone; in the default run `prove` is silent, so one
test function can serve both tiers:

    @tiers("pairs", fast=200, full=10_000)
    def test_...(pairs, prove, rng):      # rng: fixed seed when fast, a fresh one when full

The first argument is an id of the promise (P1 sensitivity, S1 samplers, E1 hockey-stick, ...).
`reached` is measured by the test, never written by hand; the test's own name is added. A row is one
JSON line of the fixture `figures` (tests/conftest.py), so it is printed, and kept with `--figures`.

`make proof` runs the suite part by part (tests/suite.sh) and ends with the table of all rows:
`python -m tests.proof.figures FOLDER` prints the rows of all `*.jsonl` files there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

PREFIX = "proof "
"""Of a JSON line's name; the promise follows."""

HEAD = ("promise", "test", "power", "figure reached", "limit")


def tiers(name: str, *, fast: object, full: object) -> pytest.MarkDecorator:
    """Parametrize `name`: a slice for the default run, the whole under the marker `proof`."""
    whole = pytest.param(full, marks=pytest.mark.proof, id="full")
    return pytest.mark.parametrize(name, [pytest.param(fast, id="fast"), whole])


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Cells of a row that `prove` (conftest.py) or `figures` (tests/conftest.py) wrote."""
    name = line["test"]
    if name.startswith(PREFIX):
        promise = f"{name.removeprefix(PREFIX)}: {line['what']}"
        return (promise, f"`{line['node']}`", line["power"], line["reached"], line["limit"])
    numbers = "; ".join(f"{key} {value}" for key, value in line.items() if key != "test")
    return (name, "", "", numbers, "")


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
