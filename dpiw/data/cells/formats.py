"""How a source writes its cells, as public settings that `dpiw.data.cells.reading` applies."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.data.schema.declarations import Fault

DECIMALS = (".", ",")
THOUSANDS = {"none": "", ",": ",", ".": ".", "space": " \u00a0\u2009\u202f", "'": "'\u2019"}
"""Signs between groups of three digits; `space` includes no-break, `'` the typographic form."""

ISO = "iso"
MAX_TOKENS, MAX_TOKEN_LENGTH = 100, 64

_DATE_PARTS = {"%d": "day", "%m": "month", "%Y": "year"}
_PARTS = _DATE_PARTS | {"%H": "hour", "%M": "minute", "%S": "second"}
_LITERALS = ".-/: T"
_PATTERN = re.compile(r"%.|.", re.DOTALL)
_EXPECTED = (
    "expected iso, or %d, %m and %Y (four digits), each once, then perhaps %H, %M and %S, with"
    ' only . - / : T and spaces between them, such as "%d.%m.%Y" (in quotes) for 31.12.2027'
)


# `dpiw.plan.json_schema` shows the docstring of this class to users, field by field.
@dataclass(frozen=True, kw_only=True)
class CellFormat:
    """How text cells are written. None: not stated here.

    Attributes:
        decimal: the decimal mark, `.` or `,`.
        thousands: what stands between groups of three digits: `none`, `,`, `.`, `space` or `'`.
        date_format, datetime_format: `iso`, or a pattern such as `%d.%m.%Y` or
            `%m/%d/%Y %H:%M`. No names of months, no two-digit years, no other directives.
        missing: tokens that mean missing, compared after stripping white space, case and all.
            Empty cells are missing in any case.
    """

    decimal: str | None = None
    thousands: str | None = None
    date_format: str | None = None
    datetime_format: str | None = None
    missing: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.missing, list):
            object.__setattr__(self, "missing", tuple(self.missing))

    def fault(self) -> Fault | None:
        """The first field that is not admissible, or None."""
        for field, allowed in (("decimal", DECIMALS), ("thousands", tuple(THOUSANDS))):
            value = getattr(self, field)
            if value is not None and not (isinstance(value, str) and value in allowed):
                signs = ", ".join(f'"{sign}"' for sign in allowed)
                return field, f"expected one of {signs}, in quotes"
        if self.decimal is not None and self.decimal == self.thousands:
            return "thousands", f"expected another sign than decimal, which is {self.decimal!r}"
        for field in ("date_format", "datetime_format"):
            value = getattr(self, field)
            if value is not None and not _is_date_format(value):
                return field, _EXPECTED
        return None if self.missing is None else _tokens_fault(self.missing)

    def over(self, other: CellFormat) -> CellFormat:
        """Fill fields that are not stated from `other`."""
        return dataclasses.replace(other, **self.stated())

    def stated(self) -> dict[str, Any]:
        """Return the fields that are stated."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def to_mapping(self) -> dict[str, Any]:
        """Return the stated fields as JSON values."""
        return {n: list(v) if isinstance(v, tuple) else v for n, v in self.stated().items()}

    @classmethod
    def taken_from(cls, values: dict[str, Any]) -> CellFormat:
        """Take the format's fields out of a column's settings."""
        return cls(**{name: values.pop(name) for name in FORMAT_FIELDS if name in values})


FORMAT_FIELDS = tuple(field.name for field in dataclasses.fields(CellFormat))
CANONICAL = CellFormat(
    decimal=".", thousands="none", date_format=ISO, datetime_format=ISO, missing=()
)
"""What `dpiw.data.schema.encoding` reads: the default of a source."""

_OF_TEXT = tuple(name for name in FORMAT_FIELDS if name != "missing")
ONLY_CSV = "expected only for a CSV source; Parquet stores the value itself, so remove it"


def _tokens_fault(tokens: object) -> Fault | None:
    if not isinstance(tokens, tuple) or not all(isinstance(token, str) for token in tokens):
        return "missing", 'expected a list of texts in quotes, such as ["NA", "-99"]'
    if len(tokens) > MAX_TOKENS or len(set(tokens)) < len(tokens):
        return "missing", f"expected at most {MAX_TOKENS} texts, each once"
    for token in tokens:
        if not token or token != token.strip() or not token.isprintable():
            fault = "a text is empty, or has blanks at its ends or unprintable characters"
            return "missing", f"{fault}; an empty cell is missing in any case"
        if len(token) > MAX_TOKEN_LENGTH:
            return "missing", f"expected texts of at most {MAX_TOKEN_LENGTH} characters"
    return None


# Dates


def _is_date_format(text: object) -> bool:
    if text == ISO:
        return True
    if not isinstance(text, str) or len(text) > MAX_TOKEN_LENGTH or text != text.strip():
        return False
    pieces = _PATTERN.findall(text)
    parts = [piece for piece in pieces if len(piece) == 2]
    dated, timed = parts[:3], parts[3:]
    literal = all(piece in _LITERALS for piece in pieces if len(piece) == 1)
    return literal and set(dated) == set(_DATE_PARTS) and timed in ([], *_TIMES)


_TIMES = (["%H", "%M"], ["%H", "%M", "%S"])


def date_pattern(date_format: str) -> re.Pattern[str]:
    """Return the pattern of a checked date format, with groups `year`, `month`, `day`, ..."""
    pieces = _PATTERN.findall(date_format)
    pattern = ""
    for place, piece in enumerate(pieces):
        if piece not in _PARTS:
            pattern += re.escape(piece)
            continue
        beside = pieces[max(place - 1, 0) : place] + pieces[place + 1 : place + 2]
        touching = not _PARTS.keys().isdisjoint(beside)
        digits = "{4}" if piece == "%Y" else "{2}" if touching else "{1,2}"
        pattern += f"(?P<{_PARTS[piece]}>[0-9]{digits})"
    return re.compile(pattern)


# Formats of a whole source


def source_fault(written: CellFormat, *, file_format: str) -> Fault | None:
    """What is wrong with the format of a whole source, or None."""
    if fault := written.fault():
        return fault
    typed = [name for name in _OF_TEXT if getattr(written, name) != getattr(CANONICAL, name)]
    return (typed[0], ONLY_CSV) if file_format == "parquet" and typed else None


def without_defaults(source: Mapping[str, Any]) -> dict[str, Any]:
    """Drop formats at their canonical value, so that digests of older specs stay the same."""
    plain = CANONICAL.to_mapping()
    return {n: v for n, v in source.items() if n not in plain or v != plain[n]}
