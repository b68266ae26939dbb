"""The one table at a suite's end: promise, test, power, figure reached, limit, commit."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A suite in counts; written beside the table, for those who do not read tables.

    Attributes:
        suite: its name.
        date: UTC.
        total: parts that were collected.
        green, failed: how the parts ended.
        kept: of the parts, those kept from earlier.
        cpu_minutes: of all parts, whenever they ran.
        commits: at which they ran; a plus where files differed from the commit.
        failures: ids of the parts that failed.
    """

    suite: str
    date: str
    total: int
    green: int
    failed: int
    kept: int
    cpu_minutes: float
    commits: tuple[str, ...]
    failures: tuple[str, ...]

    @classmethod
    def of(cls, suite: str, parts: Sequence[Part], *, total: int, now: int) -> Self:
        """Of the parts that ended; `now` of them were run now."""
        red = tuple(part.node for part in parts if not part.green)
        return cls(
            suite=suite, date=datetime.datetime.now(datetime.UTC).date().isoformat(), total=total,
            green=len(parts) - len(red), failed=len(red), kept=len(parts) - now,
            cpu_minutes=round(sum(part.cpu_seconds for part in parts) / 60, 1),
            commits=tuple(sorted({commit(part) for part in parts})), failures=red,
        )  # fmt: skip

    @property
    def missing(self) -> int:
        return self.total - self.green - self.failed

    @property
    def ok(self) -> bool:
        return self.total > 0 and self.green == self.total

    def line(self) -> str:
        """One line of counts."""
        return (
            f"{self.suite}, {self.date}: {self.total} parts: {self.green} green, {self.failed}"
            f" failed, {self.missing} missing; {self.kept} kept from earlier,"
            f" {self.total - self.missing - self.kept} run now; {self.cpu_minutes} CPU minutes;"
            f" commits {', '.join(self.commits) or 'none'}"
        )

    def text(self) -> str:
        """JSON."""
        facts = dataclasses.asdict(self) | {"missing": self.missing, "ok": self.ok}
        return json.dumps(facts, indent=1) + "\n"
