"""Refuse confidential files where public ones are expected, by name and inode, unopened."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpiw.data.declarations import folded_name
from dpiw.errors import DPIWError, SpecError

_DELIMITERS = (",", ";", "\t", "|", ":", "^", "~")
_FIRST_LINES = 50
"""Lines searched for a header; a title or notes may stand above it."""

_FEWEST = 3
"""Fewest columns of a table recognised without its header; `code: label` has two."""

_BINARY = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Confidential:
    """A spec's confidential zone: the table, the state folder, and the published releases."""

    source: Path
    state: Path
    releases: Path

    def refuse(self, path: Path, *, field: str, error: type[DPIWError] = SpecError) -> None:
        """Raise `error` for a path to the source or an unpublished state file. Opens nothing."""
        if is_same_file(path, self.source):
            raise error(
                f"{field}: this is source.path, the confidential table; expected a public file"
            )
        resolved, state = path.resolve(), self.state.resolve()
        if self._is_published(resolved):
            return
        if resolved.is_relative_to(state) or _is_linked_from(resolved, state):
            raise error(
                f"{field}: lies in the spec's state folder, the confidential workspace; expected a"
                " public file outside it, or one of a published release"
            )

    def _is_published(self, resolved: Path) -> bool:
        releases, state = self.releases.resolve(), self.state.resolve()
        holds_state = state.is_relative_to(releases)
        return (
            resolved.is_relative_to(releases)
            and not holds_state
            and not resolved.is_relative_to(state / "workspace")
        )


def is_same_file(path: Path, other: Path) -> bool:
    """Whether both paths lead to one file, existing or not; opens none."""
    with contextlib.suppress(OSError):
        return os.path.samefile(path, other)
    return path.resolve() == other.resolve()


def _is_linked_from(path: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        status = path.stat()
        if status.st_nlink > 1 and path.is_file():
            inside = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
            return any(is_same_file(path, file) for file in inside if not file.is_symlink())
    return False


def table_fault(text: str, names: Collection[str], *, listed: bool) -> str:
    """Why a text looks like rows of a table (`listed`: several cells a line); else empty."""
    if _BINARY.search(text):
        return "looks like a stored table or a compressed file: it holds control characters"
    lines = [line for line in text.splitlines() if line.strip()]
    folded = {folded_name(name) for name in names}
    for line in lines[:_FIRST_LINES]:
        held = max((len(folded & cells) for cells in _readings(line, folded)), default=0)
        if held > 1:
            return f"looks like a table: a line of it names {held} columns of this dictionary"
    if listed and len(folded) >= _FEWEST and lines:
        for delimiter in _DELIMITERS:
            widths = {len(_split(line, delimiter)) for line in lines}
            if widths in ({len(folded)}, {len(folded) + 1}):  # a number of rows may stand in front
                return (
                    "looks like a table: every line of it has as many cells as this dictionary has"
                    " columns, or one more"
                )
    return ""


def _readings(line: str, names: set[str]) -> Iterator[set[str]]:
    """A line's cells, folded, for every way in which a header might be written."""
    signs = {sign for sign in line if not sign.isalnum() and sign not in "\"'_ "}
    for delimiter in sorted(signs.union(_DELIMITERS)):
        yield {folded_name(cell) for cell in _split(line, delimiter)}
    yield {folded_name(cell) for cell in re.findall(r"[\"']([^\"']*)[\"']", line)}  # JSON
    words = {folded_name(word) for word in line.split()}
    if words <= names:
        yield words


def _split(line: str, delimiter: str) -> list[str]:
    with contextlib.suppress(csv.Error):
        return next(csv.reader([line], delimiter=delimiter), [])
    return line.split(delimiter)
