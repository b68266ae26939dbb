"""The formats that `dpiw init` drafts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpiw.data.headers import typed_line
from dpiw.errors import SchemaError
from dpiw.plan.drafts.csvw import read_csvw
from dpiw.plan.drafts.ddi import read_ddi
from dpiw.plan.drafts.draft import TableDraft
from dpiw.plan.drafts.header import read_header
from dpiw.plan.drafts.reading import read_only_line
from dpiw.plan.drafts.sql import read_sql
from dpiw.plan.drafts.table_schema import read_table_schema


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Where a draft comes from: `place` is a path, or the text of a header."""

    place: str
    table: str | None = None
    dialect: str = ""
    delimiter: str = ","
    encoding: str = "utf-8"


FORMATS: Mapping[str, Callable[[Metadata], TableDraft]] = {
    "header": lambda metadata: read_header(
        typed_line(metadata.place, encoding=metadata.encoding), delimiter=metadata.delimiter
    ),
    "header-file": lambda metadata: read_header(
        read_only_line(Path(metadata.place), encoding=metadata.encoding),
        delimiter=metadata.delimiter,
    ),
    "csvw": lambda metadata: read_csvw(Path(metadata.place), table=metadata.table),
    "table-schema": lambda metadata: read_table_schema(Path(metadata.place), table=metadata.table),
    "ddi": lambda metadata: read_ddi(Path(metadata.place), table=metadata.table),
    "sql": lambda metadata: read_sql(
        Path(metadata.place), table=metadata.table, dialect=metadata.dialect
    ),
}
"""Option of `dpiw init`: its reader."""


def draft_table(name: str, metadata: Metadata) -> TableDraft:
    """Draft a table from metadata of the format `name`; SourceError: a file's name for a header.

    Raises SchemaError for other texts; it quotes at most names of columns and tables.
    """
    try:
        return FORMATS[name](metadata)
    except (TypeError, AttributeError, ValueError, LookupError, RecursionError):
        pass  # a shape that no reader expects; what it says may quote the file
    raise SchemaError(f"{name}: the metadata is not of the form that its standard describes")
