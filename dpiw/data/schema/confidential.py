"""Refuse confidential files where public ones are expected, by name and inode, unopened."""

import contextlib
import csv
import glob
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpiw.data.schema.declarations import NAME, folded_name
from dpiw.errors import DPIWError, SpecError

_DELIMITERS = (",", ";", "\t", "|", ":", "^", "~")
_BESIDE_COMMAS = frozenset(";\t")
"""Delimiters of tables with decimal commas, which a reader of commas takes for cells."""

_IN_CODES = frozenset("\"'_.-/()[] ")
"""Signs that codes, dates and labels have as often in each line: never taken for delimiters."""

_FIRST_LINES = 50
"""Lines searched for a header; a title or notes may stand above it."""

_FEWEST = 3
"""Fewest columns of a table recognised without its header; `code: label` has two."""

_LINES, _NEARLY = 3, 0.8
"""Fewest lines of such a table, and the share of its lines that have equally many cells."""

_LOOKED_AT = 1000
"""Lines, and characters of each, in which columns of a fixed width are looked for."""

_MARKUP = re.compile(r"</[^\W\d]|<t[dr]\b", re.IGNORECASE)

_BINARY = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


PERIOD = "{period}"
"""In a source's path: the label of each period, which has a table of its own."""


@dataclass(frozen=True, kw_only=True)
class Confidential:
    """A spec's confidential zone: the table, or one a period (`PERIOD`), state and releases."""

    source: Path
    state: Path
    releases: Path

    def refuse(self, path: Path, *, field: str, error: type[DPIWError] = SpecError) -> None:
        """Raise `error` for a path to the source or an unpublished state file. Opens nothing."""
        if is_source(path, self.source):
            message = "this is source.path, the confidential table"
            raise error(message, field=field, allowed="a public file")
        resolved, state, releases = (p.resolve() for p in (path, self.state, self.releases))
        inside = resolved.is_relative_to(releases) and not state.is_relative_to(releases)
        if inside and not resolved.is_relative_to(state / "workspace"):
            return  # published
        if resolved.is_relative_to(state) or _is_linked_from(resolved, state):
            message = "lies in the spec's state folder, the confidential workspace"
            allowed = "a public file outside that folder, or a file of a published release"
            raise error(message, field=field, allowed=allowed)


def is_source(path: Path, source: Path) -> bool:
    """Whether a path leads to a source, of any period, existing or not; opens none."""
    if PERIOD not in str(source):
        return is_same_file(path, source)
    parts = str(source.absolute()).split(PERIOD)
    every, there = NAME.join(map(re.escape, parts)), "*".join(map(glob.escape, parts))
    named = {str(path.absolute()), os.path.abspath(path), str(path.resolve())}
    return any(re.fullmatch(every, name) for name in named) or any(
        is_same_file(path, Path(file)) for file in glob.iglob(there) if re.fullmatch(every, file)
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
    """Why a text looks like rows of a table (`listed`: a line is one level); else empty."""
    if _BINARY.search(text):
        return "looks like a stored table or a compressed file: it holds control characters"
    lines = [line for line in text.splitlines() if line.strip()]
    folded = {folded_name(name) for name in names}
    for line in lines[:_FIRST_LINES]:
        held = max((len(folded & cells) for cells in _readings(line, folded)), default=0)
        if held > 1:
            return f"looks like a table: a line of it names {held} columns of this dictionary"
    if _MARKUP.search(text):
        return "looks like a table: it is written in HTML or XML"
    if _json_width(text) or _share(_json_width(line) >= _FEWEST for line in lines) >= _NEARLY:
        return "looks like a table: it is written in JSON"
    for sign in _delimiters(lines) if listed else _BESIDE_COMMAS:
        width = _width(lines, sign, columns=len(folded))
        if width:
            return (
                f"looks like a table: its lines have {width} cells each, between {sign!r} (if the"
                " levels hold this sign, write them in quotes in a .csv file, below a name)"
            )
    if listed and _is_aligned(lines[:_LOOKED_AT]):
        return "looks like a table: its lines have columns of a fixed width"
    return ""


def copy_fault(rows: list[list[str]], names: Collection[str]) -> str:
    """Why rows of a .csv file, names first, may be the table under other names; else empty."""
    first = [row[0] for row in rows[1:]]
    is_numbered = first in ([str(n + start) for n in range(len(first))] for start in (0, 1))
    if len(names) < _FEWEST or len(rows[0]) != len(names) + is_numbered:
        return ""
    return (
        "looks like a table: it has as many columns as this dictionary (if it is a public"
        " classification, keep only the column of levels, or the two of a hierarchy_file)"
    )


def _delimiters(lines: list[str]) -> list[str]:
    """Signs that nearly all of the first lines hold."""
    first = lines[:_FIRST_LINES]
    signs = [s for s in {*"".join(first)} - _IN_CODES if unicodedata.category(s)[0] not in "LNM"]
    return sorted(s for s in signs if _share(s in line for line in first) >= _NEARLY)


def _width(lines: list[str], sign: str, *, columns: int) -> int:
    """How many cells nearly all lines have between a sign; 0 if that makes no table."""
    widths = Counter(len(_split(line, sign)) for line in lines)
    width, times = widths.most_common(1)[0] if widths else (0, 0)
    if width < _FEWEST or times < _NEARLY * len(lines):
        return 0
    is_ours = width in (columns, columns + 1)  # a number of rows may stand in front
    may_be_any = len(lines) >= _LINES and sign != ":"  # a time has two of them
    return width if may_be_any or (is_ours and columns >= _FEWEST) else 0


def _json_width(text: str) -> int:
    """How many values a JSON array or object holds; 0 for any other text."""
    text = text.strip().rstrip(",")
    if text[:1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):
            return len(json.loads(text))
    return 0


def _is_aligned(lines: list[str]) -> bool:
    """Whether blanks stand below one another in two places or more, and some fill a column."""
    if len(lines) < _LINES or not any("  " in line.strip() for line in lines):
        return False
    blanks: Counter[int] = Counter()
    for line in lines:
        cells = line.rstrip()[:_LOOKED_AT]
        start = len(cells) - len(cells.lstrip())
        blanks.update(place for place in range(start, len(cells)) if cells[place] == " ")
    gaps = {place for place, times in blanks.items() if times >= _NEARLY * len(lines)}
    return sum(place + 1 not in gaps for place in gaps) >= _FEWEST - 1


def _share(answers: Iterable[bool]) -> float:
    counted = [*answers]
    return sum(counted) / max(len(counted), 1)


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
