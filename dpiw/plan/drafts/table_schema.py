"""Frictionless Table Schema, alone or in a data package (https://specs.frictionlessdata.io)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.schema.columns import ColumnKind
from dpiw.errors import SchemaError, nearest
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, texts
from dpiw.plan.drafts.reading import one_of, parse_json, read_text

_WHAT = "Table Schema"
_KINDS = {
    "string": ColumnKind.CATEGORICAL,
    "number": ColumnKind.CONTINUOUS,
    "integer": ColumnKind.INTEGER,
    "year": ColumnKind.INTEGER,
    "boolean": ColumnKind.BOOLEAN,
    "date": ColumnKind.DATE,
    "datetime": ColumnKind.DATETIME,
}
_GROUPS = {",": ",", ".": ".", "'": "'", " ": "space"}
_STYLES = {ColumnKind.DATE: "date_format", ColumnKind.DATETIME: "datetime_format"}


def read_table_schema(path: Path, *, table: str | None = None) -> TableDraft:
    """Draft from a Table Schema, or a package's resource `table`; SchemaError for others."""
    document = parse_json(read_text(path, suffixes=(".json",), what=_WHAT), what=_WHAT)
    resources = {_text(entry.get("name")): entry for entry in _list(document.get("resources"))}
    alone: Mapping[str, Any] = {"schema": document}
    name, resource = one_of(resources, table, what=_WHAT) if resources else ("", alone)
    schema = resource.get("schema")
    if not isinstance(schema, Mapping):
        raise SchemaError("has no `fields`, and no schema elsewhere is read", field=_WHAT)
    keys = schema.get("primaryKey", ())
    missing = schema.get("missingValues", [""])
    columns = tuple(_column(field, missing) for field in _list(schema.get("fields")))
    draft = TableDraft(columns=columns, name=name)
    return draft.with_key([keys] if isinstance(keys, str) else keys)


def _column(field: Mapping[str, Any], missing: Any) -> ColumnDraft:
    rules = field.get("constraints", {})
    rules = rules if isinstance(rules, Mapping) else {}
    kind = _KINDS.get(field.get("type", "string"))
    listed = rules.get("enum", field.get("categories", []))
    if listed and kind in (None, ColumnKind.INTEGER, ColumnKind.CONTINUOUS):
        kind = ColumnKind.CATEGORICAL
    if field.get("categoriesOrdered") is True and kind is ColumnKind.CATEGORICAL:
        kind = ColumnKind.ORDINAL
    codes = [code.get("value") if isinstance(code, Mapping) else code for code in _list(listed)]
    required = rules.get("required")
    words = tuple(_list(field.get("trueValues"))), tuple(_list(field.get("falseValues")))
    limits = bounds(kind, rules.get("minimum"), rules.get("maximum"))
    notes = limits.pop("notes")
    if kind is None:
        hint = nearest(field.get("type"), _KINDS)
        notes = (*notes, f"its type settles no kind; these do: {', '.join(_KINDS)}{hint}")
    return ColumnDraft(
        name=_text(field.get("name")),
        kind=kind,
        nullable=None if not isinstance(required, bool) else not required,
        **limits,
        notes=notes,
        levels=texts(codes) if kind in (ColumnKind.CATEGORICAL, ColumnKind.ORDINAL) else (),
        words=words if all(words) else None,
        written=_cell_format(field, missing, kind),
        description=_text(field.get("description")) or _text(field.get("title")),
        provenance="codebook: the table's Table Schema",
    ).admissible()


def _cell_format(field: Mapping[str, Any], missing: Any, kind: ColumnKind | None) -> dict[str, Any]:
    """Return what a field states of its cells, by the names of a data dictionary."""
    tokens = [
        token.get("value") if isinstance(token, Mapping) else token
        for token in _list(field.get("missingValues", missing))
    ]
    stated: dict[str, Any] = {"missing": [token for token in tokens if token]}
    if kind in (ColumnKind.INTEGER, ColumnKind.CONTINUOUS):
        stated["decimal"] = field.get("decimalChar")
        stated["thousands"] = _GROUPS.get(field.get("groupChar", ""))
    style = field.get("format")
    if kind in _STYLES and isinstance(style, str) and "%" in style:
        stated[_STYLES[kind]] = style
    return {name: value for name, value in stated.items() if value}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
