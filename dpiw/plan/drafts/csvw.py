"""CSVW, metadata of CSV files on the web (https://www.w3.org/TR/tabular-metadata/).

A `tableSchema` file is read only at or below the metadata's folder; the table is never opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.columns import ColumnKind
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, cell_format, sourced
from dpiw.plan.drafts.reading import mappings, one_of, parse_json, read_text, text_of

_WHAT, _SUFFIXES = "CSVW", (".json", ".jsonld")
_KINDS = {
    "boolean": ColumnKind.BOOLEAN,
    "date": ColumnKind.DATE,
    **dict.fromkeys(("dateTime", "datetime", "dateTimeStamp"), ColumnKind.DATETIME),
    **dict.fromkeys(("decimal", "double", "float", "number"), ColumnKind.CONTINUOUS),
    **dict.fromkeys(
        (
            "integer", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger",
            "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte", "nonPositiveInteger",
            "negativeInteger", "gYear",
        ),
        ColumnKind.INTEGER,
    ),
    **dict.fromkeys(("string", "normalizedString", "token", "any"), ColumnKind.CATEGORICAL),
}  # fmt: skip
_DATE_SIGNS = (
    ("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"),
)  # fmt: skip
"""Unicode date patterns in CSVW that have an equivalent here."""


def read_csvw(path: Path, *, table: str | None = None) -> TableDraft:
    """Draft from a CSVW file (`table`: a `url`); SchemaError for others and distant schemas."""
    document = parse_json(read_text(path, suffixes=_SUFFIXES, what=_WHAT), what=_WHAT)
    tables = {
        text_of(entry.get("url")) or "table": entry for entry in mappings(document.get("tables"))
    }
    url, chosen = one_of(tables or {"": document}, table if tables else None, what=_WHAT)
    schema = chosen.get("tableSchema", document.get("tableSchema"))
    if isinstance(schema, str):
        schema = _schema_beside(path, schema)
    if not isinstance(schema, Mapping):
        raise SchemaError(field="CSVW", allowed="a table with a tableSchema")
    keys = schema.get("primaryKey", ())
    columns = [
        column for column in mappings(schema.get("columns")) if column.get("virtual") is not True
    ]
    drafted = tuple(_column(column) for column in columns)
    name = text_of(url or chosen.get("url")).rpartition("/")[2].partition(".")[0]
    draft_names = {
        text_of(column.get("name")): draft.name
        for column, draft in zip(columns, drafted, strict=True)
    }
    key_names = [draft_names.get(key, "") for key in ([keys] if isinstance(keys, str) else keys)]
    return TableDraft(columns=drafted, name=name).with_key(key_names)


def _schema_beside(path: Path, address: str) -> Any:
    """Read a schema file at or below the metadata's folder; a schema there leads no further."""
    folder = path.resolve().parent
    if ":" not in address and "\0" not in address and not address.startswith(("/", "\\")):
        target = (folder / address).resolve()
        if target.is_relative_to(folder):
            text = read_text(target, suffixes=_SUFFIXES, what="CSVW tableSchema")
            return parse_json(text, what="CSVW tableSchema")
    raise SchemaError(
        "tableSchema: expected a file in the metadata's folder; no URL is read", field="CSVW"
    )


def _cell_format(kind: ColumnKind | None, style: object, null: object) -> dict[str, Any]:
    numbers = style if isinstance(style, Mapping) else {}
    dates = style if isinstance(style, str) else ""
    for sign, directive in _DATE_SIGNS:
        dates = dates.replace(sign, directive)
    return cell_format(
        kind,
        null if isinstance(null, list) else [null],
        decimal=numbers.get("decimalChar"),
        thousands=numbers.get("groupChar"),
        style=dates,
    )


def _column(column: Mapping[str, Any]) -> ColumnDraft:
    datatype = column.get("datatype", {})
    described = datatype if isinstance(datatype, Mapping) else {"base": datatype}
    base = described.get("base", "string")
    kind = _KINDS.get(base) if isinstance(base, str) else None
    lower = described.get("minimum", described.get("minInclusive"))
    upper = described.get("maximum", described.get("maxInclusive"))
    required = column.get("required")
    words = str(described.get("format")).split("|")
    return sourced(
        ColumnDraft(
            name=text_of(column.get("titles")) or text_of(column.get("name")),
            kind=kind,
            nullable=None if not isinstance(required, bool) else not required,
            **bounds(kind, lower, upper),
            words=((words[0],), (words[1],)) if len(words) == 2 else None,
            written=_cell_format(kind, described.get("format"), column.get("null", [])),
            description=text_of(column.get("dc:description", column.get("description"))),
        ),
        "codebook: the table's CSVW metadata",
    ).admissible()
