"""Types of the values in a spec, and messages about values that do not fit."""

import codecs
import contextlib
import re
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
)
from pydantic.fields import FieldInfo

from dpiw.data.cells.plain import is_zone
from dpiw.data.schema.declarations import NAME
from dpiw.errors import SpecError, nearest
from dpiw.ledger.location import check_location

_CREDENTIALS = re.compile(r"://[^/\s]*:[^/\s]*@|[?&]password=")


def _exact_decimal(value: object) -> Decimal:
    if isinstance(value, bool | float):
        raise ValueError("expected an exact decimal such as 1, 0.5 or '1e-6', not a float")
    if not isinstance(value, int | str | Decimal) or not re.fullmatch(
        r"\d{1,30}(\.\d{0,40})?([eE][-+]?\d{1,3})?", str(value)
    ):
        raise ValueError("expected a plain decimal such as 1, 0.5 or 1e-6")
    return Decimal(str(value))


def _plain_text(value: str) -> str:
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("holds a NUL character or half of a surrogate pair; delete it")
    if _CREDENTIALS.search(value):
        raise ValueError("holds a password; delete it, as no spec may hold one")
    return value


def _ledger(value: str) -> str:
    try:
        check_location(value, error=SpecError)
    except SpecError as error:
        raise ValueError(error.fault) from None
    return value


def is_plain(value: str) -> bool:
    """Whether a spec may hold a text: no NUL, no lone surrogate, no password."""
    with contextlib.suppress(ValueError):
        return _plain_text(value) == value
    return False


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("expected a number")
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        raise ValueError("expected a number below 1e308") from None


def _plain_settings(value: object) -> object:
    """Turn decimals into floats at every depth: a method's settings are no promise."""
    if isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("expected numbers below 2^64")
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, dict):
        return {key: _plain_settings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_settings(item) for item in value]
    return value


def _zone(value: object) -> str:
    if isinstance(value, str) and is_zone(value):
        return value
    near = nearest(value, available_timezones()) if isinstance(value, str) else ""
    raise ValueError(f"expected the IANA name of a time zone, such as Europe/Berlin or UTC{near}")


Zone = Annotated[str, BeforeValidator(_zone)]
Flag = Annotated[bool, Strict()]
Exact = Annotated[Decimal, BeforeValidator(_exact_decimal)]
Count = Annotated[int, Strict()]
Number = Annotated[float, BeforeValidator(_number)]
Share = Annotated[Number, Field(ge=0, le=1)]
Settings = Annotated[dict[str, Any], BeforeValidator(_plain_settings)]
Label = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""Of a period: YAML reads `2026` as a number."""
Name = Annotated[str, Field(pattern=f"^{NAME}$")]
PlainText = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_plain_text)]
Location = Annotated[PlainText, AfterValidator(_ledger)]


class Section(BaseModel):
    """A mapping of a spec: every key is known, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


_Model = TypeVar("_Model", bound=BaseModel)

_MOST = 6
"""Most faults in one message."""

_KINDS: dict[Any, str] = {
    dict: "a mapping of keys",
    list: "a list",
    tuple: "a list",
    int: "a whole number",
    bool: "true or false",
}
_ITEMS = {"dict_type": "a mapping such as {step: clip, at: 3}", "string_type": "a text"}
"""Expected items of a list or mapping of settings, by pydantic's type of fault."""
_QUESTION = "one question, such as {mean: visits by coinsurance}"


def validated(model: type[_Model], mapping: dict[str, Any]) -> _Model:
    """Return a mapping as a model; SpecError, which holds no input, if a field is refused."""
    try:
        return model.model_validate(mapping)
    except ValidationError as error:
        refusal = _refused(error, model)
    raise refusal  # outside the handler: pydantic's error holds the inputs, a password perhaps


def _refused(error: ValidationError, model: type[BaseModel]) -> SpecError:
    """Return what is refused, an error a field; it never repeats a password."""
    faults = [  # what follows from another fault is left out
        item
        for item in error.errors(include_url=False)
        if item["type"] != "default_factory_not_called"
    ]
    faults.sort(key=lambda item: (item["type"] == "missing", item["type"] != "extra_forbidden"))
    several = [_fault(item, model) for item in faults]
    rest = [SpecError(f"and {len(several) - _MOST} more faults")] if len(several) > _MOST else []
    return SpecError(several=several[:_MOST] + rest)


def _fault(item: Any, model: type[BaseModel]) -> SpecError:
    keys, kind = item["loc"], item["type"]
    owner, field = _declared(model, keys)
    where = ".".join(map(_key_text, keys)) or "spec"
    allowed = _allowed(field) if field else _ITEMS.get(kind, "")
    if len(keys) == 2 and keys[0] == "questions":
        where, allowed = f"questions[{int(keys[1]) + 1}]", _QUESTION
    message = item["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        names = _fields(owner)
        known = nearest(keys[-1], names) or "; known: " + ", ".join(names)
        return SpecError(f"unknown key{known}", field=where)
    if kind == "missing":
        return SpecError("missing", field=where, allowed=allowed)
    if not allowed or (kind == "value_error" and _is_text(field)):
        return SpecError(message, field=where)  # a text may hold a password
    if kind == "value_error" and _bounds(field) == (None, None):
        allowed = message.removeprefix("expected ")
    hint = nearest(_codec(item["input"]), map(str, _choices(field)))
    return SpecError(f"found {_value_text(item['input'])}", field=where, allowed=f"{allowed}{hint}")


def _codec(value: object) -> object:
    """Return Python's name of an encoding (cp1252 for windows-1252); else the value."""
    try:
        name = codecs.lookup(str(value)).name
    except (LookupError, ValueError):
        return value
    return {"iso8859-1": "latin-1"}.get(name, name)


def _key_text(key: str | int) -> str:
    """Return a key if it looks like one: a slip may turn a whole line into a key."""
    return str(key) if re.fullmatch(r"\w{1,40}", str(key)) else "(a key that is no plain word)"


def _value_text(value: object) -> str:
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
    fields = owner.model_fields if owner else {}
    return {field.alias or name: field for name, field in fields.items()}


def _declared(
    model: type[BaseModel], keys: tuple[str | int, ...]
) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    owner: type[BaseModel] | None = model
    for key in keys[:-1]:
        owner = _section(_fields(owner).get(str(key)))
    return owner, _fields(owner).get(str(keys[-1])) if keys else None


def _section(field: FieldInfo | None) -> type[BaseModel] | None:
    kind = field.annotation if field else None
    kinds = (kind, *get_args(kind))  # a section, or one that may be missing
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _choices(field: FieldInfo | None) -> tuple[Any, ...]:
    kind = field.annotation if field else None
    return get_args(kind) if get_origin(kind) is Literal else ()


def _is_text(field: FieldInfo | None) -> bool:
    """Whether any text fits: no name (which has a form) and no choice."""
    return field is not None and "str" in str(field.annotation) and not _choices(field)


def _bounds(field: FieldInfo | None) -> tuple[Any, Any]:
    """Return the least and the most that a number may be; None: no such bound."""
    marks = field.metadata if field else []
    least = next((mark.ge for mark in marks if hasattr(mark, "ge")), None)
    return least, next((mark.le for mark in marks if hasattr(mark, "le")), None)


def _allowed(field: FieldInfo) -> str:
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
        return "1 to 63 lower-case letters, digits, - and _, beginning with a letter or digit"
    if section := _section(field):
        return f"a mapping with the keys {', '.join(_fields(section))}"
    if field.annotation is Decimal:
        return "an exact decimal such as 0.5 or 1e-6"
    kind = get_origin(field.annotation) or field.annotation
    return _KINDS.get(kind, "a text") if isinstance(kind, type) else "a text"
