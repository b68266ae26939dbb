"""Whether a confidential file's first line holds the declared names, and what else may be wrong.

The names are declared, so they are public; the line is not: where there is no header it is a row.
So what is told names declared columns and spec settings alone, and anything more is told only where
the line holds declared names under another delimiter, case, or surrounding white space. The texts
stay in the confidential workspace, for the custodian's own screen; others see one code.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpiw.data.names import folded_name
from dpiw.errors import SourceError

_DELIMITERS = (",", ";", "\t", "|")
_LINE = "the first line must hold the declared names"


def check_names(header: Sequence[str], names: Sequence[str], *, max_columns: int) -> None:
    """Refuse a file whose columns are not the declared ones, in any order.

    Args:
        header: the file's own names. Confidential.
        names: the declared ones.
        max_columns: of the spec.

    Raises:
        SourceError: names declared columns only, never a name of the file.
    """
    if len(header) > max_columns:
        raise SourceError(f"the file has more than max_columns={max_columns} columns")
    missing = [name for name in names if name not in header]
    if missing:
        raise SourceError(
            f"columns missing in the file: {_listed(missing)}{_hint(header, missing)}"
        )
    doubled = [name for name in names if header.count(name) > 1]
    if doubled:
        raise SourceError(f"columns that occur more than once in the file: {_listed(doubled)}")
    if len(header) > len(names):
        raise SourceError(
            "the file has columns that the data dictionary does not declare; declare them or leave"
            " them out of the file"
        )


def other_delimiter(line: str, names: Sequence[str], delimiter: str) -> str:
    """What is told of a line that holds the declared names, but under another delimiter."""
    for other in _DELIMITERS:
        cells = {cell.strip().strip('"') for cell in line.split(other)}
        if other != delimiter and len(names) > 1 and cells >= set(names):
            return (
                f"the file's first line holds the declared names between {other!r}; the spec says"
                f" source.delimiter: {delimiter!r}"
            )
    return ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _hint(header: Sequence[str], missing: Sequence[str]) -> str:
    folded = {folded_name(name.strip()) for name in header}
    alike = [name for name in missing if folded_name(name) in folded]
    if alike:
        return f"; {_listed(alike)} stands there in other case, form or spacing: names are exact"
    return f"; {_LINE}"
