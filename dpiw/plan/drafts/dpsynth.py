"""Domains of Google's DPSynth, as its `to_yaml_file` writes them.

Source: https://github.com/google/dpsynth, dpsynth/domain.py. Its
`possible_values[out_of_domain_index]` becomes `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.columns import ColumnKind
from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, sourced, texts
from dpiw.plan.drafts.reading import read_text, text_of

_WHAT = "DPSynth domain"
_FROM = "other: the domain that was stated for DPSynth"
_OPEN_SET = frozenset({"type", "default_value", "public_possible_values", "description"})


def read_dpsynth(path: Path, *, table: str | None = None) -> TableDraft:
    """Draft from DPSynth's YAML; raises SchemaError if it is none or a table is asked for."""
    text = read_text(path, suffixes=(".yaml", ".yml"), what=_WHAT)
    document = load_text(text, what=_WHAT, error=SchemaError)
    attributes = document.get("attributes", document) if isinstance(document, Mapping) else None
    if not isinstance(attributes, Mapping) or table is not None:
        raise SchemaError(f"{_WHAT}: expected one mapping from columns to attributes")
    return TableDraft(
        columns=tuple(_column(str(k), attribute) for k, attribute in attributes.items())
    )


def _column(name: str, attribute: Any) -> ColumnDraft:
    if attribute is not None and not isinstance(attribute, Mapping):
        raise SchemaError(f"{_WHAT}: expected a mapping for each column")
    attribute = attribute or {}
    description = text_of(attribute.get("description"))
    if isinstance(attribute.get("possible_values"), list):
        draft = _categorical(
            name, attribute["possible_values"], attribute.get("out_of_domain_index", 0)
        )
    elif "min_value" in attribute:
        kind = ColumnKind.INTEGER if attribute.get("dtype") == "int" else ColumnKind.CONTINUOUS
        limits = bounds(kind, attribute["min_value"], attribute.get("max_value"))
        clipped = attribute.get("clip_to_range", True) is not False
        draft = ColumnDraft(name=name, kind=kind, nullable=not clipped, **limits)
    elif "max_tokens" in attribute:
        draft = ColumnDraft(name=name, notes=("free text there: it cannot be released here",))
    elif attribute.keys() - _OPEN_SET:
        raise SchemaError(f"{_WHAT}: expected the fields of an attribute for each column")
    else:
        draft = ColumnDraft(
            name=name,
            kind=ColumnKind.CATEGORICAL,
            notes=("an open set of values there; here every level is stated, with an `other`",),
        )
    values = {key: getattr(draft, key) for key in vars(draft)} | {"description": description}
    return sourced(ColumnDraft(**values), _FROM).admissible()


def _categorical(name: str, values: list[Any], outside: Any) -> ColumnDraft:
    if all(isinstance(value, bool) for value in values):
        return ColumnDraft(name=name, kind=ColumnKind.BOOLEAN, nullable=False)
    levels = texts(values)
    in_range = isinstance(outside, int) and 0 <= outside < len(levels)
    return ColumnDraft(
        name=name,
        kind=ColumnKind.CATEGORICAL,
        nullable=False,
        levels=levels,
        other=levels[outside] if in_range else None,
    )
