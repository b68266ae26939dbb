"""The kinds of values that a spec holds, and how each is read: exact numbers, plain texts."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from dpiw.errors import nearest
from dpiw.ledger.location import check_location

NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
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
        raise ValueError("holds a NUL or half of a character")
    if _CREDENTIALS.search(value):
        raise ValueError("holds a password; put it in the environment or in a file of its own")
    return value


def _ledger(value: str) -> str:
    check_location(value, error=lambda message: ValueError(message.removeprefix("ledger: ")))
    return value


def is_plain(value: str) -> bool:
    """Whether a text may stand in a spec: no NUL, no half of a character, no password."""
    with contextlib.suppress(ValueError):
        return _plain_text(value) == value
    return False


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("expected a number")
    return _float(value)


def _float(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        raise ValueError("expected a number that a float can hold") from None


def _plain_settings(value: object) -> object:
    """Decimals of a YAML file as floats, all the way down: a method's settings are no promise."""
    if isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("expected numbers below 2^64")
    if isinstance(value, Decimal):
        return _float(value)
    if isinstance(value, dict):
        return {key: _plain_settings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_settings(item) for item in value]
    return value


def _zone(value: object) -> str:
    if isinstance(value, str) and _ZONE.fullmatch(value) and value not in _LOCAL_ZONES:
        with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(value).key
    near = nearest(value, available_timezones()) if isinstance(value, str) else ""
    raise ValueError(f"expected the IANA name of a time zone, such as Europe/Berlin or UTC{near}")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


_ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
_LOCAL_ZONES = ("Factory",)
"""Names that are no place; `localtime` and the like, another zone on each machine, begin small."""

Zone = Annotated[str, BeforeValidator(_zone)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Exact = Annotated[Decimal, BeforeValidator(_exact_decimal)]
Count = Annotated[int, BeforeValidator(_count)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Settings = Annotated[dict[str, Any], BeforeValidator(_plain_settings)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
PlainText = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_plain_text)]
Location = Annotated[PlainText, AfterValidator(_ledger)]


class Section(BaseModel):
    """A mapping of a spec: every key is known, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)
