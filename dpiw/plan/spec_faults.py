"""What pydantic finds in a spec, told to a person: field, what stands there, what is allowed."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dpiw.errors import nearest

_MOST = 6
"""Faults that are told at once: a file of another kind has many, and the first say enough."""

_KINDS: dict[Any, str] = {dict: "a mapping of keys", list: "a list", tuple: "a list"}
_ITEMS = {"dict_type": "a mapping such as {step: clip, at: 3}", "string_type": "a text"}
"""Of things in a list or a mapping of settings, by pydantic's type of fault."""


def told(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for each fault, which begins with the field; a password is never repeated."""
    faults = [  # what follows from another fault is left out
        item
        for item in error.errors(include_url=False)
        if item["type"] != "default_factory_not_called"
    ]
    faults.sort(key=lambda item: (item["type"] == "missing", item["type"] != "extra_forbidden"))
    lines = [line for item in faults for line in _lines(item, model)]
    rest = [f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return "\n".join(lines[:_MOST] + rest)


def _lines(item: Any, model: type[BaseModel]) -> Iterator[str]:
    keys, kind = item["loc"], item["type"]
    owner, field = _declared(model, keys)
    where = ".".join(map(_key_text, keys)) or "spec"
    allowed = _allowed(field) if field else _ITEMS.get(kind, "")
    message = item["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        names = _fields(owner)
        yield f"{where}: unknown key{nearest(keys[-1], names) or '; known: ' + ', '.join(names)}"
    elif kind == "missing":
        yield f"{where}: missing; expected {allowed}"
    elif not allowed or (kind == "value_error" and _is_text(field)):
        yield f"{where}: {message}"  # a text may hold a password
    else:
        if kind == "value_error" and _bounds(field) == (None, None):
            allowed = message.removeprefix("expected ")
        hint = nearest(_codec(item["input"]), map(str, _choices(field)))
        yield f"{where}: found {_value_text(item['input'])}; expected {allowed}{hint}"


def _codec(value: object) -> object:
    """An encoding by Python's own name of it, such as cp1252 of windows-1252; else the value."""
    try:
        name = codecs.lookup(str(value)).name
    except (LookupError, ValueError):
        return value
    return {"iso8859-1": "latin-1"}.get(name, name)


def _key_text(key: str | int) -> str:
    """A key as it was written, if it looks like one: a slip may turn a whole line into a key."""
    return str(key) if re.fullmatch(r"\w{1,40}", str(key)) else "(a key that is no plain word)"


def _value_text(value: object) -> str:
    """What stands in the spec, if it is short and plain."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal):
        return str(value) if len(str(value)) <= 40 else "a long number"
    if isinstance(value, str):
        return repr(value) if re.fullmatch(r"[\w.,:;|+\- ]{0,40}", value) else "another text"
    return _KINDS.get(type(value), "something else")


def _fields(owner: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """The fields of a section, by the names that a spec uses."""
    fields = owner.model_fields if owner else {}
    return {field.alias or name: field for name, field in fields.items()}


def _declared(
    model: type[BaseModel], keys: tuple[str | int, ...]
) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """The section that holds the last of the keys, and its field if there is one."""
    owner: type[BaseModel] | None = model
    for key in keys[:-1]:
        owner = _section(_fields(owner).get(str(key)))
    return owner, _fields(owner).get(str(keys[-1])) if keys else None


def _section(field: FieldInfo | None) -> type[BaseModel] | None:
    kind = field.annotation if field else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _choices(field: FieldInfo | None) -> tuple[Any, ...]:
    kind = field.annotation if field else None
    return get_args(kind) if get_origin(kind) is Literal else ()


def _is_text(field: FieldInfo | None) -> bool:
    """A text of any form; names have a form of their own, and choices are known."""
    return field is not None and "str" in str(field.annotation) and not _choices(field)


def _bounds(field: FieldInfo | None) -> tuple[Any, Any]:
    """The least and the most that a number may be; None: there is no such bound."""
    marks = field.metadata if field else []
    least = next((mark.ge for mark in marks if hasattr(mark, "ge")), None)
    return least, next((mark.le for mark in marks if hasattr(mark, "le")), None)


def _allowed(field: FieldInfo) -> str:
    """What may stand in a field, for people."""
    if choices := _choices(field):
        words = [
            choice if re.fullmatch(r"[\w-]+", str(choice)) else repr(choice) for choice in choices
        ]
        return " or ".join(filter(None, (", ".join(map(str, words[:-1])), str(words[-1]))))
    least, most = _bounds(field)
    if most is not None:
        whole = "whole " if field.annotation is int else ""
        return f"a {whole}number from {least:,} to {most:,}"
    if any(getattr(mark, "pattern", None) for mark in field.metadata):
        return "1 to 63 lower-case letters, digits, - and _, the first no sign"
    if section := _section(field):
        return f"a mapping with the keys {', '.join(_fields(section))}"
    if field.annotation is Decimal:
        return "an exact decimal such as 0.5 or 1e-6"
    kind = get_origin(field.annotation) or field.annotation
    return _KINDS.get(kind, "a text") if isinstance(kind, type) else "a text"
