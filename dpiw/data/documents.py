"""Canonical JSON documents, and typed records (frozen dataclasses) of public values in them.

Two different files never mean the same: reading writes again and compares. `Annotated[X, check]` is
an X that `check(value, what=...)` accepts. Errors hold no value.
"""

import dataclasses
import enum
import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from dpiw.errors import ManifestError, ReleaseError, SpecError, is_plain

_T = TypeVar("_T")
_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,63})(\.[0-9]{1,64})?(E[+-]?[0-9]{1,3})?")
"""Of bounded length: an exponent may be too large for a Decimal, or its whole number for memory."""

_HEX = re.compile(r"[0-9a-f]+")


def plain(value: Any) -> Any:
    """Return `value` as plain JSON types, the same everywhere; ReleaseError if it has none."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(vars(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in value]
    allowed = "text, numbers, truth values, None, or lists and mappings of them, for a JSON file"
    raise ReleaseError(f"a value of type {type(value).__name__}", allowed=allowed)


def document_json(value: Any) -> bytes:
    """Write plain JSON types as their only valid sequence of bytes."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def parse_canonical(data: bytes, *, what: str) -> Any:
    """Read what `document_json` wrote; raise ManifestError for a key twice or any other bytes."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=_no_constant)
        same = document_json(value) == data
    except (ValueError, RecursionError) as reason:
        raise ManifestError("not valid JSON, so dpiw did not write it", field=what) from reason
    if not same:
        raise ManifestError("somebody changed it, or dpiw did not write it", field=what)
    return value


def record(value: Any, keys: Sequence[str], *, what: str) -> Any:
    """Return `value` if it is a JSON object with exactly `keys`; refuse it otherwise."""
    if not isinstance(value, dict):
        raise ManifestError(f"found {_in_words(value)}", field=what, allowed="a JSON object")
    unknown = sorted(set(value) - set(keys))
    if unknown:
        raise ManifestError(f"unknown key {unknown[0]!r}; {_NOT_OURS}", field=what)
    missing = sorted(set(keys) - set(value))
    if missing:
        raise ManifestError(f"key {missing[0]!r} is missing; {_NOT_OURS}", field=what)
    return value


def typed(value: Any, kind: type[_T], *, what: str) -> _T:
    """Return `value` if it is of `kind`; a truth value is not a number here."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        allowed = _KINDS.get(kind, kind.__name__)
        raise ManifestError(f"found {_in_words(value)}", field=what, allowed=allowed)
    return value


_KINDS = {
    str: "text", bool: "true or false", int: "a whole number", float: "a decimal number",
    list: "a list", dict: "a JSON object", Mapping: "a JSON object", type(None): "null",
}  # fmt: skip
_NOT_OURS = (
    "another version of dpiw wrote this file, or somebody changed it; do not use it: ask its"
    " publisher for it again, and which version wrote it"
)


def _in_words(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def decimal_of(text: Any, *, what: str) -> Decimal:
    """Read a number >= 0 written as decimal text: `1.2`, `1E-6`, `0`."""
    if not isinstance(text, str) or _DECIMAL.fullmatch(text) is None:
        allowed = "a number >= 0 as decimal text such as '1.2' or '1E-6'"
        raise ManifestError(field=what, allowed=allowed)
    return Decimal(text)


def hexadecimal(text: Any, *, digits: int, what: str) -> str:
    """Return `text` if it is exactly `digits` lower-case hexadecimal digits."""
    if not isinstance(text, str) or len(text) != digits or _HEX.fullmatch(text) is None:
        raise ManifestError(field=what, allowed=f"{digits} lower-case hexadecimal digits")
    return text


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's pairs, for `object_pairs_hook`; ValueError for a key twice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key appears twice")
    return mapping


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Records

_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,199}")


def _count(value: int, *, what: str) -> None:
    if value < 0:
        raise ManifestError(field=what, allowed="a whole number >= 0")


DecimalText = Annotated[str, decimal_of]
"""A number >= 0, as decimal text."""

Sha256 = Annotated[str, functools.partial(hexadecimal, digits=64)]
"""64 lower-case hexadecimal digits."""


def _label(text: str, *, what: str) -> None:
    if _LABEL.fullmatch(text) is None:
        raise ManifestError(field=what, allowed="1 to 200 of A-Z, a-z, 0-9 and `_.:+-`")


Label = Annotated[str, _label]
"""A short name without spaces, so that it cannot hold a sentence."""

Count = Annotated[int, _count]
"""A whole number >= 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A record that is one canonical JSON file: its fields, and what else the file `states`."""

    name = ""  # of the file; no field, as it has no annotation
    states = tuple[tuple[str, Any], ...]()

    def to_json(self) -> bytes:
        """Write canonical JSON; the same record always gives the same bytes."""
        fields = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return document_json(fields | dict(self.states))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_json` wrote; raises ManifestError if anything else."""
        value = parse_canonical(data, what=cls.name)
        names = [field.name for field in dataclasses.fields(cls)]
        record(value, [*names, *dict(cls.states)], what=cls.name)
        for key, known in cls.states:
            if value.pop(key) != known:
                found = f"another one than {known}, the only one that this version of dpiw reads"
                raise ManifestError(found, field=f"{cls.name} {key}")
        return cls(**value)

    @property
    def digest(self) -> str:
        """SHA-256 of `to_json()`, hexadecimal."""
        return hashlib.sha256(self.to_json()).hexdigest()


def settle(made: Any, *, what: str) -> None:
    """Convert fields to their hints' types, in `__post_init__`, or raise ManifestError."""
    for name, value in _settled_fields(type(made), vars(made), f"{what} ").items():
        object.__setattr__(made, name, value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _settled_fields(kind: type, values: Mapping[str, Any], inside: str) -> dict[str, Any]:
    return {
        name: _settled(values[name], hint, f"{inside}{name}") for name, hint in _hints(kind).items()
    }


def _settled(value: Any, hint: Any, what: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _plain_texts(plain(value), what)
    if origin is Annotated:
        settled = _settled(value, arguments[0], what)
        arguments[1](settled, what=what)
        return settled
    if type(None) in arguments:
        return None if value is None else _settled(value, arguments[0], what)
    if origin is tuple:
        items = typed([*value] if isinstance(value, tuple) else value, list, what=what)
        return tuple(_settled(item, arguments[0], what) for item in items)
    if origin is not None:
        pairs = typed(value, origin, what=what).items()
        of = arguments[1]
        return {
            _plain_texts(str(key), what): _settled(item, of, f"{what} {key!r}")
            for key, item in pairs
        }
    if dataclasses.is_dataclass(hint):
        return _settled_record(value, hint, what)
    if issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            allowed = f"one of {', '.join(str(member.value) for member in hint)}"
            raise ManifestError(field=what, allowed=allowed) from None
    return _plain_texts(typed(value, hint, what=what), what)


def _plain_texts(value: Any, what: str) -> Any:
    """Refuse text, at any depth, with a character that could steer a terminal."""
    if isinstance(value, str) and not is_plain(value):
        raise ManifestError("control or invisible characters", field=what, allowed="plain text")
    inside = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    for item in inside if isinstance(inside, list) else ():
        _plain_texts(item, what)
    return value


def _settled_record(value: Any, kind: Any, what: str) -> Any:
    values = vars(value) if isinstance(value, kind) else value
    record(values, list(_hints(kind)), what=what)
    fields = _settled_fields(kind, values, f"{what}.")
    try:
        return kind(**fields)
    except SpecError as reason:
        raise ManifestError(f"its values do not fit together; {_NOT_OURS}", field=what) from reason
