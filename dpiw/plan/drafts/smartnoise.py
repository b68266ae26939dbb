"""Metadata of SmartNoise SQL, in YAML.

Source: https://github.com/opendp/smartnoise-sdk, datasets/PUMS.yaml. `rows` is not taken: the size
of a confidential table is confidential.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpiw.data.columns import ColumnKind, ColumnRole
from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, sourced
from dpiw.plan.drafts.reading import one_of, read_text, text_of

_WHAT = "SmartNoise metadata"
_KINDS = {
    "int": ColumnKind.INTEGER,
    "float": ColumnKind.CONTINUOUS,
    "string": ColumnKind.CATEGORICAL,
    "boolean": ColumnKind.BOOLEAN,
    "datetime": ColumnKind.DATETIME,
}
_MAX_DEPTH = 4


def read_smartnoise(path: Path, *, table: str | None = None) -> TableDraft:
    """Draft from one table of SmartNoise's YAML; raises SchemaError if there is none."""
    text = read_text(path, suffixes=(".yaml", ".yml"), what=_WHAT)
    document = load_text(text, what=_WHAT, error=SchemaError)
    name, chosen = one_of(dict(_tables("", document, _MAX_DEPTH)), table, what=_WHAT)
    columns = {str(key): column for key, column in chosen.items() if isinstance(column, Mapping)}
    rows = chosen.get("max_ids", chosen.get("max_contributions"))
    return TableDraft(
        columns=tuple(_column(key, column) for key, column in columns.items()),
        name=name,
        max_rows=rows if isinstance(rows, int) and rows >= 1 else None,
    )


def _tables(name: str, value: Any, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping that has a column (a mapping with `type` or `private_id`)."""
    if not isinstance(value, Mapping) or depth == 0:
        return
    inner = [child for child in value.values() if isinstance(child, Mapping)]
    if any(isinstance(child.get("type"), str) or "private_id" in child for child in inner):
        yield name, value
        return
    for key, child in value.items():
        yield from _tables(str(key), child, depth - 1)


def _column(name: str, column: Mapping[str, Any]) -> ColumnDraft:
    kind = _KINDS.get(text_of(column.get("type")))
    person, nullable = (_truth(column.get(field)) for field in ("private_id", "nullable"))
    return sourced(
        ColumnDraft(
            name=text_of(column.get("name")) or name,
            kind=kind,
            role=ColumnRole.IDENTIFIER if person else ColumnRole.FEATURE,
            nullable=nullable,
            **bounds(kind, column.get("lower"), column.get("upper")),
        ),
        "other: the table's SmartNoise metadata",
    ).admissible()


def _truth(value: object) -> bool | None:
    """Read True and False in any case: our YAML leaves `True` as text."""
    return {"true": True, "false": False}.get(str(value).casefold())
