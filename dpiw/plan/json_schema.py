"""JSON Schema of specs and data dictionaries, made of the types and their docstrings.

Relations between fields (ordered bounds, a delta that fits the rows) are left to `dpiw plan`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from pydantic import BaseModel, TypeAdapter

from dpiw.data.cell_formats import CellFormat
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.constraints import CONSTRAINT_NAME, Lookup, Never, Repair, Total
from dpiw.data.schema import PublicSchema
from dpiw.plan import sections
from dpiw.plan.spec import ReleaseSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_STANDARD = {"ge": "minimum", "le": "maximum"}
"""Names of bounds behind a validator, which pydantic does not translate."""


def spec_schema() -> dict[str, Any]:
    """Return the schema of a release spec (`dpiw.plan.spec.ReleaseSpec`)."""
    return model_schema(ReleaseSpec, sections, "dpiw release spec")


def model_schema(model: type[BaseModel], module: ModuleType, title: str) -> dict[str, Any]:
    """Return the schema of a model whose sections are in a module."""
    schema = _standard(model.model_json_schema(by_alias=True))
    kinds = {name: getattr(module, name) for name in schema["$defs"]}
    schema["$defs"] = {
        name: _with_descriptions(schema["$defs"][name], kind) for name, kind in kinds.items()
    }
    return {"$schema": DIALECT, **_with_descriptions(schema, model), "title": title}


def dictionary_schema() -> dict[str, Any]:
    """Return the schema of a data dictionary (`dpiw.data.schema.PublicSchema`)."""
    column = TypeAdapter(Column).json_schema()
    definitions = column.pop("$defs")
    definitions.pop(CellFormat.__name__)
    fields = {
        **_with_descriptions(column, Column)["properties"],
        **_with_descriptions(TypeAdapter(CellFormat).json_schema(), CellFormat)["properties"],
        **{name: {"type": "string", "description": text} for name, text in _FILES.items()},
    }
    del fields["written"]  # its fields stand among the column's own
    identifier = {"properties": {"role": {"const": "identifier"}}, "required": ["role"]}
    root = {
        "title": "dpiw data dictionary",
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
            "columns": {"type": "array", "items": {"$ref": "#/$defs/Column"}, "minItems": 1},
            "constraints": {"type": "array", "items": {"oneOf": _constraints()}},
        },
        "required": ["name", "columns"],
        "additionalProperties": False,
    }
    kinds = {kind.__name__: kind for kind in (ColumnKind, ColumnRole)}
    rest = {
        "properties": fields,
        "required": ["name"],
        "anyOf": [{"required": ["kind"]}, identifier],
        "additionalProperties": False,
    }
    schema = {
        "$schema": DIALECT,
        **_with_descriptions(root, PublicSchema),
        "$defs": {
            **{name: _with_descriptions(definitions[name], kind) for name, kind in kinds.items()},
            "Column": {**_with_descriptions(column, Column), **rest},
        },
    }
    return _standard(schema)


def _constraints() -> list[dict[str, Any]]:
    value = {"type": ["string", "number", "boolean", "null"]}
    bound = {"type": ["string", "number"]}
    interval = {"properties": {"lower": bound, "upper": bound}, "minProperties": 1}
    condition = {
        "anyOf": [
            value,
            {"type": "array", "items": value, "minItems": 1},
            {"type": "object", **interval, "additionalProperties": False},
        ]
    }
    column = {"type": "string"}
    case = {
        "type": "object",
        "properties": {"when": condition, "is": value},
        "required": ["when", "is"],
        "additionalProperties": False,
    }
    kinds: list[tuple[type, dict[str, Any]]] = [
        (
            Never,
            {"never": {"type": "object", "additionalProperties": condition, "minProperties": 1}},
        ),
        (
            Lookup,
            {
                "column": column,
                "of": column,
                "cases": {"type": "array", "items": case, "minItems": 1},
            },
        ),
        *(
            (Total, {"sum": {"type": "array", "items": column, "minItems": 1}, key: bound})
            for key in ("at_most", "equals")
        ),
    ]
    common: dict[str, dict[str, Any]] = {
        "name": {"type": "string", "pattern": CONSTRAINT_NAME},
        "repair": {"enum": [repair.value for repair in Repair]},
    }
    return [_constraint(kind, {**common, **fields}) for kind, fields in kinds]


def _constraint(kind: type, fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one kind; all of its fields except `repair` are required."""
    descriptions = _of_fields(kind)
    attributes = {"sum": "parts", "at_most": "total", "equals": "total"}
    return {
        "type": "object",
        "description": _parts(kind)[0],
        "properties": {
            name: {**field, "description": descriptions[attributes.get(name, name)]}
            for name, field in fields.items()
        },
        "required": [name for name in fields if name != "repair"],
        "additionalProperties": False,
    }


_FILES = {
    "levels_file": "a public file with one level on each line, instead of `levels`.",
    "hierarchy_file": "a public .csv file: a line of names, then each level and its group.",
}
"""Fields of a file that a `Column` lacks (`dpiw.data.dictionary`)."""


def _with_descriptions(schema: Mapping[str, Any], kind: type) -> dict[str, Any]:
    descriptions = _of_fields(kind)
    described = {**schema, "description": _parts(kind)[0]}
    if "properties" in schema:
        aliases = {
            field.alias or name: name
            for name, field in (kind.model_fields if issubclass(kind, BaseModel) else {}).items()
        }
        described["properties"] = {
            name: {**field, "description": descriptions[aliases.get(name, name)]}
            for name, field in schema["properties"].items()
        }
    return described


def _parts(kind: type) -> tuple[str, str]:
    """Return a class's docstring before `Attributes:`, and that section."""
    about, _, section = inspect.cleandoc(kind.__dict__["__doc__"]).partition("\n\nAttributes:\n")
    return about, section


def _of_fields(kind: type) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("dpiw."):
            for names, text in _ATTRIBUTE.findall(_parts(base)[1]):
                descriptions |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return descriptions


_ATTRIBUTE = re.compile(r"^    (\w[\w, ]*): (.+(?:\n {8}.*)*)", re.M)


SCHEMAS = {"spec": spec_schema, "dictionary": dictionary_schema}
"""By name on the command line."""


def _standard(schema: Mapping[str, Any]) -> dict[str, Any]:

    def said(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _standard(value)
        return [said(item) for item in value] if isinstance(value, list) else value

    return {_STANDARD.get(key, key): said(value) for key, value in schema.items()}
