"""Figures of the privacy proof suite: one row per promise, and the table that `make proof` prints.

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

    python -m tests.proof.figures FILE     prints the table of such a file, one row per test
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import pytest

PREFIX = "proof "
"""Of a JSON line's name; the promise follows."""


def tiers(name: str, *, fast: object, full: object) -> pytest.MarkDecorator:
    """Parametrize `name`: a slice for the default run, the whole under the marker `proof`."""
    whole = pytest.param(full, marks=pytest.mark.proof, id="full")
    return pytest.mark.parametrize(name, [pytest.param(fast, id="fast"), whole])


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProofRow:
    """One row of the table.

    Attributes:
        promise: id of the promise.
        what: what was put to the test.
        test: `folder/file.py::test_name`.
        power: what the test rejects, shown in the same test or named: a control that must fail.
        reached: the figure this run reached.
        limit: what the figure does not say.
    """

    promise: str
    what: str
    test: str
    power: str
    reached: str
    limit: str

    @classmethod
    def of(cls, line: dict[str, str]) -> Self:
        """From a JSON line."""
        told = {name: line[name] for name in ("what", "power", "reached", "limit")}
        return cls(promise=line["test"].removeprefix(PREFIX), test=line["node"], **told)


def read(lines: Iterable[str]) -> list[ProofRow]:
    """The rows among JSON lines; of two with the same promise, test and subject the later one."""
    found: dict[tuple[str, str, str], ProofRow] = {}
    for line in lines:
        values = json.loads(line)
        if values["test"].startswith(PREFIX):
            row = ProofRow.of(values)
            found[row.promise, row.test, row.what] = row
    return sorted(found.values(), key=lambda row: (row.promise, row.test, row.what))


def table(rows: Iterable[ProofRow]) -> str:
    """Markdown."""
    head = ["promise", "what", "test", "power", "figure reached", "limit"]
    lines = [head, ["---"] * len(head)]
    lines += [
        [row.promise, row.what, f"`{row.test}`", row.power, row.reached, row.limit] for row in rows
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1]).read_text().splitlines())))
