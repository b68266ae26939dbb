"""The formats that `dpiw init` drafts from."""

import csv
from pathlib import Path

from dpiw.data.schema.columns import ColumnRole
from dpiw.data.source.headers import typed_line
from dpiw.errors import SchemaError
from dpiw.plan.drafts.ddi import read_ddi
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft
from dpiw.plan.drafts.table_schema import read_table_schema

_IDENTIFYING = frozenset({"id", "person_id", "patient_id", "pid", "uuid"})
_PADDED = "the header has white space at its ends: names are exact, so take it out of the table too"


def read_header(line: str, *, delimiter: str = ",") -> TableDraft:
    """Draft the columns that a CSV header names.

    Raises SchemaError, without quoting, also for a number as a name: it may be a row of the table.
    """
    try:
        rows = list(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        rows = []
    cells = rows[0] if len(rows) == 1 else []
    names = [cell.strip() for cell in cells]
    separator = next(
        (sign for sign in ";\t|" if delimiter == "," and len(names) == 1 and sign in line), ""
    )
    if separator:
        quoted = "$'\\t'" if separator == "\t" else f"'{separator}'"
        raise SchemaError(
            f"found {quoted} between the names, expected ','; add --delimiter {quoted}",
            field="header",
        )
    if not names or any("\n" in name for name in names):
        raise SchemaError(field="header", allowed="one line with the names of the columns")
    if len(names) == 1 and delimiter == "," and "\\t" in line:
        raise SchemaError(
            "found a backslash and a t, expected a tab; in bash write a tab as $'\\t', as"
            " in --header $'a\\tb' --delimiter $'\\t'",
            field="header",
        )
    for place, name in enumerate(names, start=1):
        where = f"header: name {place} of {len(names)}"
        if _is_number(name):
            raise SchemaError("found a number", field=where, allowed="the column names, not a row")
    return TableDraft(columns=tuple(map(_column, cells)))


def _column(cell: str) -> ColumnDraft:
    name = cell.strip()
    notes = () if cell == name else (_PADDED,)
    if name.casefold() in _IDENTIFYING:
        note = "taken for the column that names the person, by its name alone: check it"
        return ColumnDraft(name=name, role=ColumnRole.IDENTIFIER, notes=(*notes, note))
    return ColumnDraft(name=name, notes=notes)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def draft_table(
    source: str,
    place: str,
    *,
    table: str | None = None,
    dialect: str = "",
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> TableDraft:
    """Draft a table from metadata at `place`: a path, or the text of a header.

    `source`: an option of `dpiw init`. Raises SourceError for a file's name in place of a header;
    SchemaError for other texts: it quotes at most names of columns and tables.
    """
    try:
        if source == "header":
            return read_header(typed_line(place, encoding=encoding), delimiter=delimiter)
        if source == "sql":
            from dpiw.plan.drafts.sql import read_sql  # sqlglot is slow to import

            return read_sql(Path(place), table=table, dialect=dialect)
        read = {"table-schema": read_table_schema, "ddi": read_ddi}[source]
        return read(Path(place), table=table)
    except (TypeError, AttributeError, ValueError, LookupError, RecursionError):
        pass  # a shape that no reader expects; what it says may quote the file
    raise SchemaError("is not as its standard describes; try --header NAMES", field=f"--{source}")
