"""A Pydantic model, `module:Class`, by the JSON Schema that it states of itself.

The module is imported, so it is run: it must be your own.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.columns import ColumnKind
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, number, sourced, texts
from dpiw.plan.drafts.reading import mappings, text_of

_KINDS = {
    "integer": ColumnKind.INTEGER,
    "number": ColumnKind.CONTINUOUS,
    "boolean": ColumnKind.BOOLEAN,
    "string": ColumnKind.CATEGORICAL,
}
_FORMATS = {"date": ColumnKind.DATE, "date-time": ColumnKind.DATETIME}


def read_model(place: str) -> TableDraft:
    """Draft from a Pydantic model.

    Args:
        place: `module:Class`, importable from where the command is typed.

    Raises:
        SchemaError: no such model.
    """
    from pydantic import BaseModel

    module, _, name = place.partition(":")
    told = "pydantic: expected module:Class, a model that can be imported from here"
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", place):
        raise SchemaError(told)
    model = _imported(module, name)
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise SchemaError(told)
    return read_json_schema(model.model_json_schema())


def _imported(module: str, name: str) -> Any:
    """What the module calls so, as Python run in this folder would find it; else None."""
    here, path = str(Path.cwd()), sys.path
    try:
        sys.path = [here, *path]  # a console script starts without the folder it is typed in
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    finally:
        sys.path = path


def read_json_schema(schema: Mapping[str, Any]) -> TableDraft:
    """Draft from the properties of a JSON Schema object; references are followed inside it only.

    Raises:
        SchemaError: no properties, or a reference that leads out or in a circle.
    """
    named = schema.get("properties")
    if not isinstance(named, Mapping):
        raise SchemaError("JSON Schema: expected an object with properties")
    required = schema.get("required", [])
    columns = tuple(_column(name, one, schema, name in required) for name, one in named.items())
    return TableDraft(columns=columns, name=text_of(schema.get("title")))


def _resolved(one: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a `$ref` stands for, with what stands beside it; never in a circle."""
    definitions = schema.get("$defs", {})
    for _ in range(len(definitions) + 1):
        if "$ref" not in one:
            return one
        name = str(one["$ref"]).removeprefix("#/$defs/")
        beside = {key: value for key, value in one.items() if key != "$ref"}
        if not isinstance(definitions.get(name), Mapping):
            break
        one = {**definitions[name], **beside}
    raise SchemaError("JSON Schema: a $ref leads out of the document or in a circle")


def _column(
    name: str, told: Mapping[str, Any], schema: Mapping[str, Any], required: bool
) -> ColumnDraft:
    one = _resolved(told, schema)
    choices = [_resolved(choice, schema) for choice in mappings(one.get("anyOf", []))]
    nullable = any(choice.get("type") == "null" for choice in choices)
    rest = [choice for choice in choices if choice.get("type") != "null"]
    if choices:
        one = {**one, **(rest[0] if len(rest) == 1 else {})}
    listed = one.get("enum", [one["const"]] if "const" in one else [])
    kind = _FORMATS.get(one.get("format", "")) or _KINDS.get(one.get("type", ""))
    if listed and not all(isinstance(value, bool) for value in listed):
        kind = ColumnKind.CATEGORICAL
    low, high = _bound(one, "inimum", 1, kind), _bound(one, "aximum", -1, kind)
    return sourced(
        ColumnDraft(
            name=name,
            kind=kind,
            nullable=nullable or not required,
            **bounds(kind, low, high),
            levels=texts(listed) if kind is ColumnKind.CATEGORICAL else (),
            description=text_of(told.get("description")) or text_of(one.get("description")),
        ),
        "other: the Pydantic model of a row",
    ).admissible()


def _bound(one: Mapping[str, Any], word: str, inwards: int, kind: ColumnKind | None) -> Any:
    """`minimum` or `maximum`; an exclusive one of a whole number is the next number inwards."""
    stated = one.get(f"m{word}")
    beyond = number(one.get(f"exclusiveM{word}"))
    if stated is not None or beyond is None:
        return stated
    whole = kind is ColumnKind.INTEGER and float(beyond).is_integer()
    return int(beyond) + inwards if whole else beyond
