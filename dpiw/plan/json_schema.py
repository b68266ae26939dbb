"""JSON Schema of specs and data dictionaries, made of the types and their docstrings.

Relations between fields (ordered bounds, a delta that fits the rows) are left to `dpiw plan`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from pydantic import BaseModel, TypeAdapter

from dpiw.data.cells.formats import CellFormat
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.constraints import Lookup, Never, Repair, Total
from dpiw.data.schema.declarations import NAME
from dpiw.data.schema.schema import PublicSchema
from dpiw.plan import sections
from dpiw.plan.spec import ReleaseSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_STANDARD = {"ge": "minimum", "le": "maximum"}
"""Names of bounds behind a validator, which pydantic does not translate."""


def model_schema(model: type[BaseModel], module: ModuleType, title: str) -> dict[str, Any]:
    """Return the schema of a model whose sections are in a module."""
    schema = _standard(model.model_json_schema(by_alias=True))
    kinds = {name: getattr(module, name) for name in schema["$defs"]}
    schema["$defs"] = {
        name: _with_descriptions(schema["$defs"][name], kind) for name, kind in kinds.items()
    }
    return {"$schema": DIALECT, **_with_descriptions(schema, model), "title": title}


def dictionary_schema() -> dict[str, Any]:
    """Return the schema of a data dictionary (`dpiw.data.schema.schema.PublicSchema`)."""
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
    one_of_two = [{"required": ["kind"]}, identifier]
    constraints = [_constraint(kind, own) for kind, own in _CONSTRAINTS]
    root = _object(
        {
            "name": {"type": "string", "pattern": f"^{NAME}$"},
            "columns": _list({"$ref": "#/$defs/Column"}),
            "constraints": {"type": "array", "items": {"oneOf": constraints}},
        },
        title="dpiw data dictionary",
        required=["name", "columns"],
    )
    definitions = {
        kind.__name__: _with_descriptions(definitions[kind.__name__], kind)
        for kind in (ColumnKind, ColumnRole)
    }
    definitions["Column"] = {
        **_with_descriptions(column, Column),
        **_object(fields, required=["name"], anyOf=one_of_two),
    }
    described = _with_descriptions(root, PublicSchema)
    return _standard({"$schema": DIALECT, **described, "$defs": definitions})


_VALUE = {"type": ["string", "number", "boolean", "null"]}
_BOUND = {"type": ["string", "number"]}
_TEXT = {"type": "string"}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


def _object(properties: dict[str, Any], **further: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **further}


_INTERVAL = _object({"lower": _BOUND, "upper": _BOUND}, minProperties=1)
_CONDITION = {"anyOf": [_VALUE, _list(_VALUE), _INTERVAL]}
_CASE = _object({"when": _CONDITION, "is": _VALUE}, required=["when", "is"])
_NEVER = {"type": "object", "additionalProperties": _CONDITION, "minProperties": 1}

_CONSTRAINTS: tuple[tuple[type, dict[str, Any]], ...] = (
    (Never, {"never": _NEVER}),
    (Lookup, {"column": _TEXT, "of": _TEXT, "cases": _list(_CASE)}),
    (Total, {"sum": _list(_TEXT), "at_most": _BOUND}),
    (Total, {"sum": _list(_TEXT), "equals": _BOUND}),
)
_OF_EVERY_CONSTRAINT = {
    "name": {"type": "string", "pattern": f"^{NAME}$"},
    "repair": {"enum": [repair.value for repair in Repair]},
}
_ATTRIBUTES = {"sum": "parts", "at_most": "total", "equals": "total"}
"""Keys of a constraint whose attribute has another name."""


def _constraint(kind: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one kind; all of its fields except `repair` are required."""
    descriptions = _of_fields(kind)
    described = {
        name: {**field, "description": descriptions[_ATTRIBUTES.get(name, name)]}
        for name, field in {**_OF_EVERY_CONSTRAINT, **fields}.items()
    }
    required = [name for name in described if name != "repair"]
    return _object(described, description=_parts(kind)[0], required=required)


_FILES = {
    "levels_file": "a public file with one level on each line, instead of `levels`.",
    "hierarchy_file": "a public .csv file: a line of names, then each level and its group.",
}
"""Fields of a file that a `Column` lacks (`dpiw.data.schema.dictionary`)."""


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


SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "spec": partial(model_schema, ReleaseSpec, sections, "dpiw release spec"),
    "dictionary": dictionary_schema,
}
"""By name on the command line."""


def _standard(schema: Mapping[str, Any]) -> dict[str, Any]:
    def said(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _standard(value)
        return [said(item) for item in value] if isinstance(value, list) else value

    return {_STANDARD.get(key, key): said(value) for key, value in schema.items()}
