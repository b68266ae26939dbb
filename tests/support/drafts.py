"""A person who settles every open field of a draft, without much thought."""

from collections.abc import Mapping
from typing import Any

from dpiw.data.yaml import load_text
from dpiw.errors import SchemaError

_DATES = ("1700-01-01", "2200-01-01")


def settled(text: str) -> dict[str, Any]:
    """The mapping of a drafted dictionary, with values for `TODO`."""
    mapping: dict[str, Any] = load_text(text, what="draft", error=SchemaError)
    return {**mapping, "columns": [_settled(column) for column in mapping["columns"]]}


def _settled(column: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(column)
    if values.get("kind") == "TODO":
        values = {k: v for k, v in values.items() if k not in ("lower", "upper", "levels")}
        values["kind"] = "boolean"
    low, high = values.get("lower"), values.get("upper")
    if "TODO" in (low, high):
        values["lower"], values["upper"] = _bounds(values["kind"], low, high)
    choices = {"levels": ["a", "b"], "nullable": False, "provenance": "law: of large numbers"}
    open_fields = {key: choices[key] for key, value in values.items() if value == "TODO"
                   and key in choices}  # fmt: skip
    return values | open_fields


def _bounds(kind: str, low: Any, high: Any) -> tuple[Any, Any]:
    if kind in ("date", "datetime"):
        return tuple(bound if bound != "TODO" else _DATES[n] for n, bound in enumerate((low, high)))
    if low == high:
        return 0, 1
    if low == "TODO":
        return high - max(1, abs(high) if kind == "continuous" else 1), high
    return low, low + max(1, abs(low) if kind == "continuous" else 1)
