"""Records: frozen dataclasses of public values, checked in writing and in reading by their hints.

A field's type hint says what it holds: text, number, truth value, enum, another record, `X | None`,
`tuple[X, ...]` (a list in JSON), `Mapping[str, X]`; `Any` is any JSON value. `Annotated[X, check]`
is an X that `check(value, what=..., error=...)` lets pass. Errors name field and kind, no value.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from dpiw.data.documents import decimal_of, hexadecimal, plain, record, typed
from dpiw.errors import ReleaseError, SpecError, is_plain

__all__ = ["Count", "DecimalText", "Label", "Sha256", "settle"]

_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,199}")


def _count(value: int, *, what: str, error: type[ReleaseError]) -> None:
    if value < 0:
        raise error(f"{what}: expected a whole number >= 0")


DecimalText = Annotated[str, decimal_of]
"""A number >= 0, as decimal text."""

Sha256 = Annotated[str, functools.partial(hexadecimal, digits=64)]
"""64 lower-case hexadecimal digits."""


def _label(text: str, *, what: str, error: type[ReleaseError]) -> None:
    if _LABEL.fullmatch(text) is None:
        raise error(f"{what}: expected up to 200 letters of ASCII, digits and `_.:+-`")


Label = Annotated[str, _label]
"""A short name without spaces, so that no sentence can be made of it."""

Count = Annotated[int, _count]
"""A whole number >= 0."""


def settle(made: Any, *, what: str, error: type[ReleaseError]) -> None:
    """Give every field of a record the form that its hint says; for `__post_init__`.

    Fields may hold JSON values, then, as a file has them: this is all of its reading but the names.

    Args:
        made: the record.
        what: the file's name, for messages.
        error: the class to raise.

    Raises:
        ReleaseError: (as `error`) a field is not as its hint says, or a record in it has an unknown
            or a missing field.
    """
    for name, value in _settled_fields(type(made), vars(made), f"{what} ", error).items():
        object.__setattr__(made, name, value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _settled_fields(
    kind: type, values: Mapping[str, Any], inside: str, error: type[ReleaseError]
) -> dict[str, Any]:
    return {
        name: _settled(values[name], hint, f"{inside}{name}", error)
        for name, hint in _hints(kind).items()
    }


def _settled(value: Any, hint: Any, what: str, error: type[ReleaseError]) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _plain_texts(plain(value), what, error)
    if origin is Annotated:
        settled = _settled(value, arguments[0], what, error)
        arguments[1](settled, what=what, error=error)
        return settled
    if type(None) in arguments:
        return None if value is None else _settled(value, arguments[0], what, error)
    if origin is tuple:
        items = typed([*value] if isinstance(value, tuple) else value, list, what=what, error=error)
        return tuple(_settled(item, arguments[0], what, error) for item in items)
    if origin is not None:
        pairs = typed(value, origin, what=what, error=error).items()
        of = arguments[1]
        return {
            _plain_texts(str(key), what, error): _settled(item, of, f"{what} {key!r}", error)
            for key, item in pairs
        }
    if dataclasses.is_dataclass(hint):
        return _settled_record(value, hint, what, error)
    if issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            raise error(f"{what}: not a {hint.__name__} that dpiw knows") from None
    return _plain_texts(typed(value, hint, what=what, error=error), what, error)


def _plain_texts(value: Any, what: str, error: type[ReleaseError]) -> Any:
    """The value, if no text in it, of any depth, has a character that could steer a terminal."""
    if isinstance(value, str):
        if not is_plain(value):
            raise error(f"{what}: text with control or invisible characters, or line ends")
    elif isinstance(value, dict):
        for key, item in value.items():
            _plain_texts(key, what, error)
            _plain_texts(item, what, error)
    elif isinstance(value, list):
        for item in value:
            _plain_texts(item, what, error)
    return value


def _settled_record(value: Any, kind: Any, what: str, error: type[ReleaseError]) -> Any:
    values = vars(value) if isinstance(value, kind) else value
    record(values, list(_hints(kind)), what=what, error=error)
    fields = _settled_fields(kind, values, f"{what}.", error)
    try:
        return kind(**fields)
    except SpecError as reason:
        raise error(f"{what}: not a {kind.__name__} that dpiw knows") from reason
