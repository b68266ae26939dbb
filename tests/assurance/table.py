"""The one table at a suite's end: promise, test, power, figure reached, limit, commit."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.assurance.parts import Part
from tests.proof.figures import PREFIX

HEAD = ("promise", "test", "power", "figure reached", "limit", "commit")


def table(parts: Iterable[Part]) -> str:
    """Markdown: a row for each figure told, one for a part that told none."""
    rows = [row for part in parts for row in _rows(part)]
    lines = [HEAD, ["---"] * len(HEAD), *sorted(rows)]
    return "\n".join("| " + " | ".join(map(_cell, cells)) + " |" for cells in lines)


def _cell(text: str) -> str:
    """Safe inside a table; test ids may hold bars."""
    return " ".join(text.split()).replace("|", "\\|")


def _rows(part: Part) -> list[Sequence[str]]:
    test, at = f"`{_short(part.node)}`", commit(part)
    if not part.green:
        return [("", test, "", f"**FAILED**: {part.why}", "", at)]
    if not part.figures:
        skipped = f", {part.skipped} skipped" if part.skipped else ""
        return [("", test, "", f"{part.passed} passed{skipped}, {part.seconds:.0f} s", "", at)]
    return [_told(line, test, at) for line in part.figures]


def _told(line: Mapping[str, Any], test: str, at: str) -> Sequence[str]:
    """A row of `prove` (tests/proof/figures.py), or of `figures` (tests/conftest.py)."""
    name = line["test"]
    if name.startswith(PREFIX):
        promise = f"{name.removeprefix(PREFIX)}: {line['what']}"
        return (promise, f"`{line['node']}`", line["power"], line["reached"], line["limit"], at)
    numbers = "; ".join(f"{key} {value}" for key, value in line.items() if key != "test")
    return (name, test, "", numbers, "", at)


def _short(node: str) -> str:
    return node.removeprefix("tests/")


def commit(part: Part) -> str:
    """The commit a part ran at, with a plus where files differed from it."""
    return part.commit[:9] + ("+" if part.dirty else "")


def summary(suite: str, parts: Sequence[Part], *, total: int, now: int) -> str:
    """One line of counts."""
    green = sum(part.green for part in parts)
    minutes = sum(part.cpu_seconds for part in parts) / 60
    commits = ", ".join(sorted({commit(part) for part in parts})) or "none"
    day = datetime.datetime.now(datetime.UTC).date()
    return (
        f"{suite}, {day}: {total} parts: {green} green, {len(parts) - green} failed,"
        f" {total - len(parts)} missing; {len(parts) - now} kept from earlier, {now} run now;"
        f" {minutes:.1f} CPU minutes; commits {commits}"
    )
