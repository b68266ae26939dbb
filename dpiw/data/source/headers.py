"""Compare a confidential file's header with the declared names.

The first line may be a row: messages hold none of it unless it is nearly the declared names.
"""

import contextlib
import csv
import difflib
import os
import shlex
from collections.abc import Sequence
from functools import partial

from dpiw.data.schema.declarations import folded_name
from dpiw.errors import Command, Next, SchemaError, SourceError

_DELIMITERS = (",", ";", "\t", "|")
_SHOWN, _COMPARED = 8, 80
"""Names that one message lists; characters by which two names are compared."""

_LINE = "the first line must hold the declared names"
UNREADABLE_HEADER = f"the CSV header is not readable: {_LINE}, with every quote closed"


def typed_line(text: str, *, encoding: str) -> str:
    """Return a typed header line (surrogates: other bytes); SchemaError if unreadable.

    Raises SourceError for a file's name or several lines.
    """
    if breaks := text.strip("\r\n").count("\n"):
        allowed = 'one line of names: --header "$(head -n 1 FILE)"'
        raise SourceError(f"{breaks + 1} lines", field="header", allowed=allowed)
    if os.path.splitext(text)[1] and os.path.isfile(text):
        first = f'--header "$(head -n 1 {shlex.quote(text)})"'
        allowed = f"a line of names, such as its first: {first}"
        raise SourceError(f"{text} is a file", field="header", allowed=allowed)
    is_bytes = any("\udc80" <= letter <= "\udcff" for letter in text)
    return decoded(os.fsencode(text), encoding) if is_bytes else text.removeprefix("\ufeff")


def decoded(line: bytes, encoding: str) -> str:
    """Return a header's text without a byte-order mark; raise SchemaError, quoting nothing."""
    try:
        return line.decode(encoding).removeprefix("\ufeff")
    except ValueError:
        where = "--encoding of dpiw init, source.encoding of a spec"
        fault = f"not text in {encoding}; state the encoding that it has, such as cp1252: {where}"
        raise SchemaError(fault, field="header") from None


def header_cells(line: str, names: Sequence[str], delimiter: str) -> list[str]:
    """Return the cells of a CSV's first line, confidential; SourceError quotes nothing of it."""
    line, header = line.rstrip("\r\n"), None
    with contextlib.suppress(csv.Error):  # quotes are not where another delimiter puts them
        header = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    if header is None or not {*names} <= {*header}:
        fault = other_delimiter(line, names, delimiter)
        if fault or header is None:
            raise SourceError(fault or UNREADABLE_HEADER)
    return header


def check_names(
    header: Sequence[str],
    names: Sequence[str],
    *,
    max_columns: int,
    encoding: str | None = None,
    typed: bool = False,
) -> None:
    """Raise SourceError, which names declared columns only, unless the columns are `names`.

    A `header` not `typed` by a person is confidential. If typed and mostly right, the message lists
    undeclared names too. `encoding` None: the file states its own.
    """
    if fault := _names_fault(header, names, max_columns, encoding, typed):
        raise SourceError(fault, next=() if typed else [free_check(encoding)])


def free_check(encoding: str | None) -> Next:
    """Return the command that checks names for free; `encoding` None means a Parquet file."""
    what, line = ("names", '"$(head -n 1 FILE)"') if encoding else ("names and types", "FILE")
    why = f"to check its {what} without a read that counts"
    return Next(why, Command.PLAN, f" --header {line}")


def _names_fault(
    header: Sequence[str], names: Sequence[str], max_columns: int, encoding: str | None, typed: bool
) -> str:
    if len(header) > max_columns:
        return f"the file has more columns than source.max_columns={max_columns}; raise that number"
    others = [name for name in header if name not in names]
    undeclared = _listed([name or "one without a name" for name in dict.fromkeys(others)])
    if missing := [name for name in names if name not in header]:
        quotable = typed and len(names) > 2 * len(missing)  # else the line may be a row
        return (
            f"columns missing in the file: {_listed(missing)}{_hint(others, missing)}"
            + _encoding_hint(missing, encoding)
            + (f"; not declared: {undeclared}" if quotable and others else "")
        )
    if doubled := [name for name in names if header.count(name) > 1]:
        return f"columns that occur more than once in the file: {_listed(doubled)}; rename them"
    if others:
        return (
            "the file has columns that the data dictionary does not declare"
            + (f" ({undeclared})" if typed else "")
            + "; declare them or leave them out of the file"
        )
    return ""


def other_delimiter(line: str, names: Sequence[str], delimiter: str) -> str:
    """Return the message if a line holds most declared names under another delimiter."""
    for char in _DELIMITERS:
        cells = {cell.strip().strip('"') for cell in line.split(char)}
        held = len(cells & set(names))
        if char != delimiter and len(names) > 1 and 2 * held > len(names):
            some = "" if held == len(names) else f"{held} of "
            return (
                f"the file's first line holds {some}the declared names between {char!r}; write"
                f" source.delimiter: {char!r} (now {delimiter!r}) in the spec"
            )
    return ""


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def _hint(others: Sequence[str], missing: Sequence[str]) -> str:
    folded = {folded_name(name.strip()) for name in others}
    if alike := [name for name in missing if folded_name(name) in folded]:
        return f"; the file writes {_listed(alike)} in other case, form or spacing: copy its names"
    short = [name[:_COMPARED] for name in folded]
    like = partial(difflib.get_close_matches, possibilities=short, n=1, cutoff=0.8)
    if near := [name for name in missing[:_SHOWN] if like(folded_name(name)[:_COMPARED])]:
        return f"; the file writes {_listed(near)} with another letter or two: copy its names"
    return f"; {_LINE}"


def _encoding_hint(missing: Sequence[str], encoding: str | None) -> str:
    """Hint at another encoding for names beyond ASCII; uses public names only."""
    wide = [name for name in missing[:_SHOWN] if not name.isascii()]
    if encoding is None or not wide:
        return ""
    return f"; {_listed(wide)} may be there in another encoding than source.encoding: {encoding}"
