"""A Pydantic model, `module:Class`, by its JSON Schema. Imports the module, so its code runs."""

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
    """Draft from a `module:Class`, importable from the current folder; else SchemaError."""
    from pydantic import BaseModel

    module, _, name = place.partition(":")
    message = "pydantic: expected module:Class, a model that can be imported from here"
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", place):
        raise SchemaError(message)
    model = _imported(module, name)
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise SchemaError(message)
    return read_json_schema(model.model_json_schema())


def _imported(module: str, name: str) -> Any:
    """Return the module's attribute, imported as Python would in this folder; else None."""
    here, path = str(Path.cwd()), sys.path
    try:
        sys.path = [here, *path]  # a console script starts without the folder it is typed in
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    except Exception as error:  # it is the person's own code
        raise SchemaError(f"{module}: importing it ended with {type(error).__name__}") from None
    finally:
        sys.path = path


def read_json_schema(schema: Mapping[str, Any]) -> TableDraft:
    """Draft from a JSON Schema object; SchemaError if a reference leads out or in a circle."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        raise SchemaError("JSON Schema: expected an object with properties")
    required = schema.get("required", [])
    columns = tuple(
        _column(name, subschema, schema, name in required) for name, subschema in properties.items()
    )
    return TableDraft(columns=columns, name=text_of(schema.get("title")))


def _resolved(subschema: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge the target of a `$ref` with its siblings; never in a circle."""
    definitions = schema.get("$defs", {})
    for _ in range(len(definitions) + 1):
        if "$ref" not in subschema:
            return subschema
        name = str(subschema["$ref"]).removeprefix("#/$defs/")
        beside = {key: value for key, value in subschema.items() if key != "$ref"}
        if not isinstance(definitions.get(name), Mapping):
            break
        subschema = {**definitions[name], **beside}
    raise SchemaError("JSON Schema: a $ref leads out of the document or in a circle")


def _column(
    name: str, subschema: Mapping[str, Any], schema: Mapping[str, Any], required: bool
) -> ColumnDraft:
    resolved = _resolved(subschema, schema)
    choices = [_resolved(choice, schema) for choice in mappings(resolved.get("anyOf", []))]
    nullable = any(choice.get("type") == "null" for choice in choices)
    rest = [choice for choice in choices if choice.get("type") != "null"]
    if choices:
        resolved = {**resolved, **(rest[0] if len(rest) == 1 else {})}
    listed = resolved.get("enum", [resolved["const"]] if "const" in resolved else [])
    kind = _FORMATS.get(resolved.get("format", "")) or _KINDS.get(resolved.get("type", ""))
    if listed and not all(isinstance(value, bool) for value in listed):
        kind = ColumnKind.CATEGORICAL
    low, high = _bound(resolved, "inimum", 1, kind), _bound(resolved, "aximum", -1, kind)
    return sourced(
        ColumnDraft(
            name=name,
            kind=kind,
            nullable=nullable or not required,
            **bounds(kind, low, high),
            levels=texts(listed) if kind is ColumnKind.CATEGORICAL else (),
            description=text_of(subschema.get("description"))
            or text_of(resolved.get("description")),
        ),
        "other: the Pydantic model of a row",
    ).admissible()


def _bound(subschema: Mapping[str, Any], word: str, inwards: int, kind: ColumnKind | None) -> Any:
    """Return `minimum` or `maximum`; an exclusive whole bound moves inwards by one."""
    limit = subschema.get(f"m{word}")
    beyond = number(subschema.get(f"exclusiveM{word}"))
    if limit is not None or beyond is None:
        return limit
    is_whole = kind is ColumnKind.INTEGER and float(beyond).is_integer()
    return int(beyond) + inwards if is_whole else beyond
