"""Bounded reading of metadata files: never a table, never the network."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dpiw.data.documents import unique
from dpiw.data.files import names_in
from dpiw.errors import SchemaError, nearest

_T = TypeVar("_T")

MAX_METADATA_BYTES = 1 << 23


def read_text(path: Path, *, suffixes: Sequence[str], what: str) -> str:
    """Return the text of a metadata file; check the suffix first, so that no table is opened.

    Raises SchemaError, which never quotes the file: not regular, too large, or not UTF-8.
    """
    if path.suffix.lower() not in suffixes:
        raise SchemaError(field=what, allowed=f"a file named *{' or *'.join(suffixes)}")
    with contextlib.suppress(OSError, ValueError):  # a UnicodeDecodeError is a ValueError
        if not path.exists():
            near = nearest(path.name, names_in(path.parent, *suffixes))
            raise SchemaError(f"no such file: {path}{near}", field=what)
        if path.is_file():
            with path.open("rb") as stream:
                data = stream.read(MAX_METADATA_BYTES + 1)
            if len(data) <= MAX_METADATA_BYTES:
                return data.decode("utf-8-sig")
    raise SchemaError(field=what, allowed=f"a UTF-8 file of at most {MAX_METADATA_BYTES >> 20} MiB")


def parse_json(text: str, *, what: str) -> dict[str, Any]:
    """Return a JSON object without duplicate keys; else SchemaError, never with the file's text."""
    place = ""
    try:
        value = json.loads(text, object_pairs_hook=unique)
        if isinstance(value, dict):
            return value
    except json.JSONDecodeError as fault:  # its words are the parser's own
        place = f"line {fault.lineno}, column {fault.colno}: not valid JSON ({fault.msg}); "
    except (ValueError, RecursionError):
        pass
    raise SchemaError(f"{place}expected a JSON object with unique keys", field=what)


def one_of(tables: Mapping[str, _T], wanted: str | None, *, what: str) -> tuple[str, _T]:
    """Return the wanted table or the only one; raises SchemaError if neither exists."""
    if wanted is None and len(tables) == 1:
        return next(iter(tables.items()))
    if wanted is not None and wanted in tables:
        return wanted, tables[wanted]
    names = ", ".join(name[:64] for name in list(tables)[:20] if name.isprintable())
    found = "it describes several tables"
    if wanted is not None:
        found = f"it describes no table {wanted!r:.80}{nearest(wanted, tables)}"
    raise SchemaError(
        found if tables else "it describes no table",
        field=what,
        allowed=f"--table with one of {names}" if tables else "a file that describes one",
    )
