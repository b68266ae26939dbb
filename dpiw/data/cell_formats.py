"""How a source writes its cells: decimal mark, thousands, dates, and tokens for missing.

Public settings, stated before data is read: by the spec for a whole file, by the data dictionary
for one column, where the column wins. They say what text means and nothing about a release, whose
tables are always canonical: `dpiw.data.cell_reading` puts them to work while a source is ingested,
and nothing else does. A number that is written otherwise than declared is unreadable, not guessed
at.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpiw.data.cells import word_form
from dpiw.data.levels import level_codes
from dpiw.errors import SchemaError

if TYPE_CHECKING:
    from dpiw.data.columns import Column
    from dpiw.data.schema import PublicSchema

DECIMALS = (".", ",")
THOUSANDS = {"none": "", ",": ",", ".": ".", "space": " \u00a0\u2009\u202f", "'": "'\u2019"}
"""What may stand between groups of three digits, by the word that declares it.

`space` is also a no-break, thin or narrow no-break space; the apostrophe also its typographic form.
"""

ISO = "iso"
MAX_TOKENS, MAX_TOKEN_LENGTH = 100, 64

_DATE_PARTS = {"%d": "day", "%m": "month", "%Y": "year"}
_TIME_PARTS = {"%H": "hour", "%M": "minute", "%S": "second"}
_PARTS = _DATE_PARTS | _TIME_PARTS
_LITERALS = ".-/: T"
_PATTERN = re.compile(r"%.|.", re.DOTALL)
_EXPECTED = (
    "expected iso, or %d, %m and %Y (four digits), each once, then perhaps %H, %M and %S, with"
    ' only . - / : T and spaces between them, such as "%d.%m.%Y" (in quotes) for 31.12.2027'
)

Fault = tuple[str, str]
"""A field, and what was expected of it."""


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
        """The first field that is not admissible, or None. Names allowed values, no others."""
        for field, allowed in (("decimal", DECIMALS), ("thousands", tuple(THOUSANDS))):
            value = getattr(self, field)
            if value is not None and not (isinstance(value, str) and value in allowed):
                return field, f"expected one of {' '.join(allowed)} (in quotes)"
        if self.decimal is not None and self.decimal == self.thousands:
            return "thousands", f"expected another sign than decimal, which is {self.decimal!r}"
        for field in ("date_format", "datetime_format"):
            value = getattr(self, field)
            if value is not None and not _is_date_format(value):
                return field, _EXPECTED
        return None if self.missing is None else _tokens_fault(self.missing)

    def over(self, other: CellFormat) -> CellFormat:
        """What is stated here, else what `other` states."""
        return dataclasses.replace(other, **self.stated())

    def stated(self) -> dict[str, Any]:
        """The fields that are stated here."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def to_mapping(self) -> dict[str, Any]:
        """JSON values of what is stated."""
        return {n: list(v) if isinstance(v, tuple) else v for n, v in self.stated().items()}

    @classmethod
    def taken_from(cls, values: dict[str, Any]) -> CellFormat:
        """The format among a column's settings, which are removed from `values`."""
        return cls(**{name: values.pop(name) for name in FORMAT_FIELDS if name in values})


FORMAT_FIELDS = tuple(field.name for field in dataclasses.fields(CellFormat))
CANONICAL = CellFormat(
    decimal=".", thousands="none", date_format=ISO, datetime_format=ISO, missing=()
)
"""What `dpiw.data.encoding` reads, and what a source that declares nothing is taken for."""

_OF_TEXT = tuple(name for name in FORMAT_FIELDS if name != "missing")
_ONLY_CSV = "expected only for a CSV source; Parquet stores the value itself"


def _tokens_fault(tokens: object) -> Fault | None:
    if not isinstance(tokens, tuple) or not all(isinstance(token, str) for token in tokens):
        return "missing", "expected a list of texts (write numbers in quotes)"
    if len(tokens) > MAX_TOKENS or len(set(tokens)) < len(tokens):
        return "missing", f"expected at most {MAX_TOKENS} tokens, each once"
    for token in tokens:
        if not token or token != token.strip() or not token.isprintable():
            return "missing", "a token is empty, padded or unprintable; empty cells are missing"
        if len(token) > MAX_TOKEN_LENGTH:
            return "missing", f"expected tokens of at most {MAX_TOKEN_LENGTH} characters"
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
    """The pattern of a checked date format, with groups `year`, `month`, `day`, ...

    A day, month or hour may be written with one digit, unless it touches another number.
    """
    pieces = _PATTERN.findall(date_format)
    pattern = ""
    for place, piece in enumerate(pieces):
        if piece not in _PARTS:
            pattern += re.escape(piece)
            continue
        touching = any(
            0 <= neighbour < len(pieces) and pieces[neighbour] in _PARTS
            for neighbour in (place - 1, place + 1)
        )
        digits = "{4}" if piece == "%Y" else "{2}" if touching else "{1,2}"
        pattern += f"(?P<{_PARTS[piece]}>[0-9]{digits})"
    return re.compile(pattern)


# Formats and columns


def meaningful_fields(column: Column) -> frozenset[str]:
    """The settings that mean something for a column's cells.

    None for an identifier: a token there could name one person, and a row without an identifier may
    end a read, or count as a person of its own.
    """
    from dpiw.data.columns import ColumnKind, ColumnRole

    if column.role is ColumnRole.IDENTIFIER:
        return frozenset()
    by_kind = {
        ColumnKind.CONTINUOUS: {"decimal", "thousands"},
        ColumnKind.INTEGER: {"decimal", "thousands"},
        ColumnKind.DATE: {"date_format"},
        ColumnKind.DATETIME: {"datetime_format"},
    }
    return frozenset({"missing"} | by_kind.get(column.kind, set()))


def column_fault(column: Column, written: CellFormat) -> Fault | None:
    """What is wrong with a format for this column, or None."""
    if fault := written.fault():
        return fault
    from dpiw.data.columns import ColumnKind, ColumnRole

    tokens = written.missing or ()
    if column.role is ColumnRole.IDENTIFIER:
        return None
    if column.kind is ColumnKind.BOOLEAN:
        meant = {word_form(value) for value in column.true_values + column.false_values}
        clash = any(word_form(token) in meant for token in tokens)
    else:
        levels = level_codes(column)
        clash = any(column.normalised(token) in levels for token in tokens)
    if clash:
        return "missing", "a token is one of the column's own values; expected others, or []"
    return None


def source_fault(written: CellFormat, *, file_format: str) -> Fault | None:
    """What is wrong with the format of a whole source, or None."""
    if fault := written.fault():
        return fault
    typed = [name for name in _OF_TEXT if getattr(written, name) != getattr(CANONICAL, name)]
    return (typed[0], _ONLY_CSV) if file_format == "parquet" and typed else None


def settled_formats(
    schema: PublicSchema, source: CellFormat, *, file_format: str
) -> dict[str, CellFormat]:
    """How each column of a source is written: as the column says, else as the source does.

    Args:
        schema: the public schema, identifiers included.
        source: of the whole file; states every field.
        file_format: `csv` or `parquet`.

    Returns:
        By column name, with what means nothing for a column at its canonical value.

    Raises:
        SchemaError: naming column and field, where the two do not fit together.
    """
    settled = {}
    for column in schema.columns:
        merged = column.written.over(source)
        fault = column_fault(column, merged)
        typed = [field for field in column.written.stated() if field != "missing"]
        if fault is None and file_format == "parquet" and typed:
            fault = typed[0], _ONLY_CSV
        if fault is not None:
            raise SchemaError(f"column {column.name}: {fault[0]}: {fault[1]}")
        fields = {name: getattr(merged, name) for name in meaningful_fields(column)}
        settled[column.name] = dataclasses.replace(CANONICAL, **fields)
    return settled


def without_defaults(source: Mapping[str, Any]) -> dict[str, Any]:
    """A source's settings without formats at their canonical value, as before there were any."""
    plain = CANONICAL.to_mapping()
    return {n: v for n, v in source.items() if n not in plain or v != plain[n]}
