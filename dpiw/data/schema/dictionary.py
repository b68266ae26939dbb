"""Read a data dictionary: YAML, with lists of levels in files of their own; `TODO` is refused."""

import contextlib
import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.schema.confidential import Confidential, copy_fault, table_fault
from dpiw.data.schema.levels import NOISY_COUNT, unguarded
from dpiw.data.yaml import load_file
from dpiw.errors import DPIWError, Mark, SchemaError

OPEN = "TODO"
"""Value of a field that must be settled before the file can be used."""

MAX_LEVEL_BYTES = 1 << 23
"""Bytes of one file of levels."""

_ADVICE = {
    "kind": "what the cells are: continuous, integer, boolean, categorical, ordinal, date or"
    " datetime; add bounds or levels",
    "lower": "the least value that can occur, by a law, a form, a codebook or an earlier release",
    "upper": "the largest value that can occur; values beyond it are clamped",
    "levels": "every code that can occur, by a classification, a codebook or an earlier release;"
    " instead, write hierarchy_file for many codes, or hash_buckets without a public list",
    "provenance": "law, codebook, earlier release or other, then a colon and words",
    "nullable": "true if the form lets this field be empty, else false",
    "path": "the path of the table, from the spec's folder; only a release opens the table",
    "max_rows": "the most rows that one person can have, by how the table is made",
    "epsilon": "the privacy loss of this release, at most 10; the owner of the data decides it",
    "delta": "far below 1 / (number of people), such as 1e-6; 0 for a promise without delta",
    "nominal_rows": "a public guess at the number of rows, as from a census; never the true number",
}

_NEVER_OPEN = frozenset({"name", "description", "other"})
"""Fields whose text may really be TODO."""


def read_dictionary(path: Path, *, confidential: Confidential | None = None) -> Any:
    """Return the mapping for `PublicSchema.from_mapping`; SchemaError for open fields or bad files.

    Paths of files of levels start at the dictionary's folder.
    """
    mapping = load_file(path, what=path.name, error=SchemaError)
    refuse_open(mapping, what=path.name, error=SchemaError)
    columns = mapping.get("columns") if isinstance(mapping, Mapping) else None
    if not isinstance(columns, list):
        return mapping
    base = path.resolve().parent
    names = [str(column.get("name")) for column in columns if isinstance(column, Mapping)]
    return mapping | {"columns": [_with_levels(c, base, names, confidential) for c in columns]}


def refuse_open(value: Any, *, what: str, error: type[DPIWError], also: Path | None = None) -> None:
    """Raise `error` with every field that is `TODO`, in `value` and in the dictionary `also`."""
    open_in = {what: open_fields(value)}
    if not open_in[what]:
        return
    if also is not None:
        with contextlib.suppress(DPIWError):  # its other faults are reported in their turn
            open_in[also.name] = open_fields(load_file(also, what=also.name))
    lines = []
    for name, fields in open_in.items():
        if fields:
            count = "1 field is" if len(fields) == 1 else f"{len(fields)} fields are"
            file = "" if name == what else f"{name}: "
            lines += [f"{file}{count} still {OPEN}", *(f"  {field}" for field in fields)]
    names = {field.rpartition(".")[2]: None for fields in open_in.values() for field in fields}
    advice = [f"  {name}: {_ADVICE[name]}" for name in names if name in _ADVICE]
    bounds = {"kind", "lower", "upper", "levels"} & names.keys()
    caution = ["  never take these values from the confidential table"] if bounds else []
    heading = ["write instead:"] if advice else []
    raise error("\n".join([*lines, *heading, *advice, *caution]), mark=Mark(what))


def open_fields(value: Any) -> list[str]:
    """Return `TODO` fields: `source.path` of a spec, `column age.kind` of a dictionary."""
    found: list[str] = []

    def search(value: Any, place: str) -> None:
        if value == OPEN and place:
            found.append(place)
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                search(entry, f"{place}.{key}" if place else str(key)[:64])
        elif isinstance(value, list):
            for entry in value:  # a level may be called TODO; a column's field may not
                if isinstance(entry, Mapping):
                    settled = {k: v for k, v in entry.items() if k not in _NEVER_OPEN}
                    item = place.removesuffix("s") or "item"
                    search(settled, f"{item} {str(entry.get('name'))[:64]}")

    search(value, "")
    return found


def _with_levels(
    column: Any, base: Path, names: list[str], confidential: Confidential | None
) -> Any:
    fields = [key for key in LEVEL_FILES if isinstance(column, Mapping) and key in column]
    if not fields:
        return column
    key, path = fields[0], column[fields[0]]
    field = f"column {str(column.get('name'))[:64]}: {key}"
    alone = len(fields) == 1 and not {"levels", "members"} & column.keys()
    if not alone or not isinstance(path, str) or not path or "\0" in path:
        raise SchemaError(field=field, allowed="one path, and no `levels` beside it")
    place = base / path
    if confidential is not None:
        confidential.refuse(place, field=field, error=SchemaError)
    if not place.exists():
        message = "no such file; a relative path starts at the data dictionary's folder"
        raise SchemaError(message, field=field)
    text = _text(place)
    is_list = place.suffix.lower() != ".csv"
    rows = None if is_list else _rows(text)
    listed = is_list or (rows is not None and len(rows[0]) == 1)
    fault = "" if text is None else table_fault(text, names, listed=listed)
    if rows is not None:
        fault = fault or _no_names(rows) or copy_fault(rows, names)
    if fault:
        allowed = "a public list that holds the levels of this column alone"
        raise SchemaError(fault, field=field, allowed=allowed)
    read = LEVEL_FILES[key](text, is_list, column.get("other"))
    if isinstance(read, str):
        raise SchemaError(read, field=field)
    return {name: value for name, value in column.items() if name != key} | read


def _levels(text: str | None, is_list: bool, other: Any) -> dict[str, Any] | str:
    """Read a list of levels (`.csv`: first column below names; else lines), or return the fault."""
    if text is not None and is_list:
        lines = text.removesuffix("\n").split("\n")
        return _repeated(lines) or {"levels": [line.removesuffix("\r") for line in lines]}
    rows = _rows(text)
    if rows is None:
        return (
            f"expected a UTF-8 file of at most {MAX_LEVEL_BYTES} bytes, one level a line; or a .csv"
            " file: first a line of names, then lines that begin with a level"
        )
    is_found = rows[0][1:] == [NOISY_COUNT]
    levels = [unguarded(row[0]) if is_found else row[0] for row in rows[1:]]
    fault = _repeated(levels)
    if is_found and isinstance(other, str) and other not in levels:
        levels.append(other)
    return fault or {"levels": levels}


def _hierarchy(text: str | None, is_list: bool, _other: Any) -> dict[str, Any] | str:
    """Read groups (second column) and their members (first column), or return what is wrong."""
    rows = None if is_list else _rows(text)
    if rows is None or any(len(row) < 2 for row in rows):
        return (
            f"expected a .csv file in UTF-8 of at most {MAX_LEVEL_BYTES} bytes: first a line of"
            " names, then lines that begin with a code and the code of its group"
        )
    groups: dict[str, list[str]] = {}
    for member, group, *_ in rows[1:]:
        groups.setdefault(group, []).extend([member] if member != group else [])
    fault = _repeated([row[0] for row in rows[1:]])
    return fault or {"levels": list(groups), "members": list(groups.values())}


def _repeated(entries: list[str]) -> str:
    if len({entry.strip() for entry in entries}) == len(entries):
        return ""
    return "two levels are equal; expected a public list that holds each level once"


def _no_names(rows: list[list[str]]) -> str:
    if rows and len(rows[0]) > 1:
        below = zip(*rows[1:], strict=True)
        if any(cell and cell in cells for cell, cells in zip(rows[0], below, strict=False)):
            return "a cell of its first line occurs again below; put a line of names above the rows"
    return ""


LEVEL_FILES = {"levels_file": _levels, "hierarchy_file": _hierarchy}
"""Reader of the text, by the field that names the file; it also takes the column's `other`."""


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.is_file() and path.stat().st_size <= MAX_LEVEL_BYTES:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                return stream.read(MAX_LEVEL_BYTES)
    return None


def _rows(text: str | None) -> list[list[str]] | None:
    with contextlib.suppress(csv.Error):
        rows = [row for row in csv.reader(io.StringIO(text or "", newline=""), strict=True) if row]
        if len({len(row) for row in rows}) == 1 and rows[0]:
            return rows
    return None
