"""JSON Schema of release specs and data dictionaries, for editors; made of the types themselves.

A schema knows fields, types and ranges, and refuses a field that there is not. What one field means
for another (bounds in order, a delta that fits the rows) is for `dpiw plan` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from dpiw.data.cell_formats import CellFormat
from dpiw.data.columns import Column
from dpiw.data.dictionary import LEVEL_FILES
from dpiw.plan.spec import ReleaseSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_STANDARD = {"ge": "minimum", "le": "maximum"}
"""Bounds that stand behind a validator keep pydantic's own names."""


def spec_schema() -> dict[str, Any]:
    """Of a release spec (`dpiw.plan.spec.ReleaseSpec`)."""
    made = _standard(ReleaseSpec.model_json_schema(by_alias=True))
    return {"$schema": DIALECT, **made, "title": "dpiw release spec"}


def dictionary_schema() -> dict[str, Any]:
    """Of a data dictionary (`dpiw.data.schema.PublicSchema`)."""
    column = TypeAdapter(Column).json_schema()
    definitions = column.pop("$defs")
    definitions.pop(CellFormat.__name__)
    fields = {**column["properties"], **TypeAdapter(CellFormat).json_schema()["properties"]}
    del fields["written"]  # its fields stand among the column's own
    fields |= {name: {"type": "string"} for name in LEVEL_FILES}
    identifier = {"properties": {"role": {"const": "identifier"}}, "required": ["role"]}
    made = {
        "$schema": DIALECT,
        "title": "dpiw data dictionary",
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
            "columns": {"type": "array", "items": {"$ref": "#/$defs/Column"}, "minItems": 1},
        },
        "required": ["name", "columns"],
        "additionalProperties": False,
        "$defs": {
            **definitions,
            "Column": {
                **column,
                "properties": fields,
                "required": ["name"],
                "anyOf": [{"required": ["kind"]}, identifier],
                "additionalProperties": False,
            },
        },
    }
    return _standard(made)


SCHEMAS = {"spec": spec_schema, "dictionary": dictionary_schema}
"""By the name that the command line knows them under."""


def _standard(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same in the words of the standard."""

    def said(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _standard(value)
        return [said(one) for one in value] if isinstance(value, list) else value

    return {_STANDARD.get(key, key): said(value) for key, value in schema.items()}
