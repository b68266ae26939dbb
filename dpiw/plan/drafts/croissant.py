"""Croissant metadata (http://mlcommons.org/croissant/1.0); reads rows of enumerations only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.columns import ColumnKind
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, sourced, texts
from dpiw.plan.drafts.reading import mappings, one_of, parse_json, read_text, text_of

_WHAT = "Croissant"
_KINDS = {
    "Text": ColumnKind.CATEGORICAL,
    "Enumeration": ColumnKind.CATEGORICAL,
    "Boolean": ColumnKind.BOOLEAN,
    "Integer": ColumnKind.INTEGER,
    "Int64": ColumnKind.INTEGER,
    "Int32": ColumnKind.INTEGER,
    "Float": ColumnKind.CONTINUOUS,
    "Number": ColumnKind.CONTINUOUS,
    "Float64": ColumnKind.CONTINUOUS,
    "Float32": ColumnKind.CONTINUOUS,
    "Date": ColumnKind.DATE,
    "DateTime": ColumnKind.DATETIME,
}


def read_croissant(path: Path, *, table: str | None = None) -> TableDraft:
    """Draft from one record set (`table`: its `@id` or `name`); raises SchemaError if none."""
    text = read_text(path, suffixes=(".json", ".jsonld"), what=_WHAT)
    document = parse_json(text, what=_WHAT)
    sets = {_id(record_set): record_set for record_set in mappings(document.get("recordSet"))}
    tables = {
        name: record_set for name, record_set in sets.items() if not _is_enumeration(record_set)
    }
    name, chosen = one_of(tables, table, what=_WHAT)
    codes = {
        name: _codes(record_set) for name, record_set in sets.items() if _is_enumeration(record_set)
    }
    columns = tuple(_column(field, codes) for field in mappings(chosen.get("field")))
    keys = [_id(key).rpartition("/")[2] for key in mappings(chosen.get("key"))]
    return TableDraft(columns=columns, name=name).with_key(keys)


def _id(node: Mapping[str, Any]) -> str:
    return text_of(node.get("@id")) or text_of(node.get("name"))


def _types(node: Mapping[str, Any]) -> list[str]:
    data_type = node.get("dataType", [])
    data_types = data_type if isinstance(data_type, list) else [data_type]
    return [str(name).rpartition(":")[2].rpartition("/")[2] for name in data_types]


def _is_enumeration(record_set: Mapping[str, Any]) -> bool:
    return "Enumeration" in _types(record_set)


def _codes(record_set: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the levels in an enumeration's own rows, by the place `set/field`."""
    rows = mappings(record_set.get("data"))
    fields = [_id(field) for field in mappings(record_set.get("field"))]
    names = {place: place.rpartition("/")[2] for place in fields}
    return {
        place: texts(row.get(place, row.get(name)) for row in rows) for place, name in names.items()
    }


def _column(
    field: Mapping[str, Any], codes: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> ColumnDraft:
    kind = next((_KINDS[name] for name in _types(field) if name in _KINDS), None)
    place = next((_id(target) for target in _referred(field)), "")
    levels = codes.get(place.rpartition("/")[0], {}).get(place, ())
    name = text_of(field.get("name")) or _id(field)
    return sourced(
        ColumnDraft(
            name=_source_column(field) or name.rpartition("/")[2],
            kind=ColumnKind.CATEGORICAL if levels else kind,
            levels=levels,
            description=text_of(field.get("description")),
        ),
        "codebook: an enumeration of the table's Croissant metadata",
    ).admissible()


def _referred(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the field of another record set that this one refers to; no further step."""
    return [
        target
        for reference in mappings(field.get("references"))
        for target in (*mappings(reference.get("field")), reference)
        if _id(target)
    ]


def _source_column(field: Mapping[str, Any]) -> str:
    for source in mappings(field.get("source")):
        for extract in mappings(source.get("extract")):
            return text_of(extract.get("column"))
    return ""
