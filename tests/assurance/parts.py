"""Parts of a suite, and how a finished one is kept: one JSON file, named by its key."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

GREEN, RED = "green", "red"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A long suite.

    Attributes:
        name: the target of `make`.
        marker: the tests of this marker expression.
        jobs: parts at once, if nobody says otherwise; crash tests use two processes each.
    """

    name: str
    marker: str
    jobs: int


SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(name="proof", marker="proof", jobs=2),
        Suite(name="test-crash", marker="crash", jobs=1),
        Suite(name="nightly", marker="crash or nightly", jobs=1),
    )
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """How one part ended.

    Attributes:
        key: what could change it (`closure.py`).
        node: pytest's id of the test.
        outcome: `GREEN` or `RED`.
        why: of a red one, in a few words.
        seconds: wall clock, start-up included.
        cpu_seconds: of its processes.
        passed, skipped: how many tests.
        figures: the JSON lines it told.
        commit: what it ran at; `dirty` if files differed from it.
        date: when it ended, UTC.
        machine: platform and cores.
    """

    key: str
    node: str
    outcome: str
    why: str = ""
    seconds: float
    cpu_seconds: float
    passed: int
    skipped: int
    figures: tuple[Mapping[str, Any], ...]
    commit: str
    dirty: bool
    date: str
    machine: str

    @property
    def green(self) -> bool:
        return self.outcome == GREEN

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """From a kept file."""
        return cls(**(told | {"figures": tuple(told["figures"])}))


class Kept:
    """The folder of finished parts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Part | None:
        """The part of this key, green or red."""
        path = self._folder / f"{key}.json"
        return self._read(path) if path.exists() else None

    def keep(self, part: Part) -> None:
        """Write a part; a reader sees all of it or nothing."""
        text = json.dumps(dataclasses.asdict(part), indent=1)
        write(self._folder / f"{part.key}.json", text + "\n")

    def seconds(self, nodes: Iterable[str]) -> dict[str, float]:
        """How long each took when it was green last, under whatever key; not all are known."""
        wanted, durations = set(nodes), {}
        parts = filter(None, map(self._read, self._folder.glob("*.json")))
        for part in sorted(parts, key=lambda record: record.date):
            if part.node in wanted and part.green:
                durations[part.node] = part.seconds
        return durations

    @staticmethod
    def _read(path: Path) -> Part | None:
        """A file that cannot be read is as good as none: its part runs again."""
        try:
            return Part.of(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return None


def write(path: Path, text: str) -> None:
    """Write a file as a whole: to another name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
