"""Convert cells of a source to canonical cells, row by row, by declared formats only. Total."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpiw.data.cells.formats import CANONICAL, ISO, ONLY_CSV, THOUSANDS, CellFormat, date_pattern
from dpiw.data.cells.plain import (
    MINUS_SIGNS,
    cell_texts,
    in_one_form,
    one_form,
    plain_signs,
    text_bytes,
)
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SchemaError

UNREADABLE = "\ufffd"
WHITE_SPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.strip` strips; Arrow's definition of white space differs."""

_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_EXPONENT = r"(?:[eE][+-]?[0-9]+)?"


def settled_formats(
    schema: PublicSchema, source: CellFormat, *, file_format: str
) -> dict[str, CellFormat]:
    """Return each column's format, its own or the source's; SchemaError names column and field."""
    settled = {}
    for column in schema.columns:
        merged = column.written.over(source)
        fault = column.format_fault(merged)
        typed = [field for field in column.written.stated() if field != "missing"]
        if fault is None and file_format == "parquet" and typed:
            fault = typed[0], ONLY_CSV
        if fault is not None:
            raise SchemaError(fault[1], field=f"column {column.name}: {fault[0]}")
        fields = {name: getattr(merged, name) for name in column.format_fields}
        settled[column.name] = dataclasses.replace(CANONICAL, **fields)
    return settled


def canonical_frame(
    frame: pd.DataFrame, schema: PublicSchema, formats: Mapping[str, CellFormat]
) -> pd.DataFrame:
    """Return the same rows with canonical cells; `frame` itself if no format is declared."""
    changed = {
        column.name: canonical_cells(column, frame[column.name], formats[column.name])
        for column in schema.columns
        if formats[column.name] != CANONICAL
    }
    return frame.assign(**changed) if changed else frame


def canonical_cells(column: Column, cells: pd.Series[Any], written: CellFormat) -> pd.Series[Any]:
    """Return one column's canonical cells. Never raises on a value."""
    if isinstance(cells.dtype, pd.StringDtype):
        texts = _without_tokens(column, cell_texts(cells), written.missing or ())
        canonical = _read_text(column, texts, written)
        return pd.Series(canonical, dtype="str").set_axis(cells.index)
    if not written.missing or pd.api.types.is_bool_dtype(cells.dtype):
        return cells
    if cells.dtype == object:
        return _objects_without(cells, written.missing)
    if not pd.api.types.is_numeric_dtype(cells.dtype):
        return cells
    numbers = _exact_numbers(written.missing)
    if not numbers:
        return cells
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "iu":  # whole numbers stay whole
        nullable: Any = cells.dtype.name.replace("uint", "UInt").replace("int", "Int")
        cells = cells.astype(nullable)
    return cells.mask(_equal_to_any(cells, numbers))


def _without_tokens(column: Column, texts: pa.Array, tokens: tuple[str, ...]) -> pa.Array:
    if not tokens:
        return texts
    stripped = pc.utf8_trim(in_one_form(texts), characters=WHITE_SPACE)
    tokens = tuple(map(one_form, tokens))
    if column.is_numeric:
        stripped, tokens = _with_plain_signs(stripped), tuple(map(plain_signs, tokens))
    meant = pc.is_in(stripped, value_set=pa.array(tokens, type=texts.type))
    return pc.if_else(meant, pa.scalar(None, type=texts.type), texts)


def _read_text(column: Column, texts: pa.Array, written: CellFormat) -> pa.Array:
    if column.role is ColumnRole.IDENTIFIER:
        return texts
    if column.kind in (ColumnKind.CONTINUOUS, ColumnKind.INTEGER):
        plain = (written.decimal, written.thousands) == (CANONICAL.decimal, CANONICAL.thousands)
        return texts if plain else _numbers(texts, written)
    if column.kind not in (ColumnKind.DATE, ColumnKind.DATETIME):
        return texts
    dated = column.kind is ColumnKind.DATE
    pattern = written.date_format if dated else written.datetime_format
    return texts if pattern in (None, ISO) else _dates(texts, date_pattern(str(pattern)))


# Numbers


def number_pattern(written: CellFormat) -> str:
    """Return the declared form of a number, as an expression for Python and RE2 alike."""
    decimal, between = re.escape(written.decimal or "."), THOUSANDS[written.thousands or "none"]
    grouped = f"[0-9]{{1,3}}(?:[{between}][0-9]{{3}})+|" if between else ""
    return f"^[+-]?(?:{grouped}[0-9]*)(?:{decimal}[0-9]*)?{_EXPONENT}$"


def _with_plain_signs(texts: pa.Array) -> pa.Array:
    if text_bytes(texts).isascii():
        return texts
    return pc.replace_substring_regex(texts, pattern=f"[{MINUS_SIGNS}]", replacement="-")


def _numbers(texts: pa.Array, written: CellFormat) -> pa.Array:
    texts = _with_plain_signs(pc.utf8_trim(texts, characters=WHITE_SPACE))
    between = THOUSANDS[written.thousands or "none"]
    read = texts
    if between:
        read = pc.replace_substring_regex(read, pattern=f"[{between}]", replacement="")
    read = pc.replace_substring(read, pattern=written.decimal or ".", replacement=".")
    as_declared = pc.or_(
        pc.match_substring_regex(texts, number_pattern(written)),
        pc.match_substring_regex(texts, _INFINITE),
    )
    return pc.if_else(as_declared, read, pa.scalar(UNREADABLE, type=texts.type))


# Dates and times


def _dates(texts: pa.Array, pattern: re.Pattern[str]) -> pa.Array:
    def read(text: str) -> str:
        stripped = text.strip()
        match = pattern.fullmatch(stripped)
        if match is None:
            return UNREADABLE if stripped else ""
        parts: dict[str, Any] = {name: int(digits) for name, digits in match.groupdict().items()}
        try:
            return dt.datetime(**parts).isoformat()
        except ValueError:
            return UNREADABLE

    encoded = texts.dictionary_encode()
    read_once = pa.array([*map(read, encoded.dictionary.to_pylist())], type=texts.type)
    return read_once.take(encoded.indices)


# Tokens among typed numbers


def _exact_numbers(tokens: tuple[str, ...]) -> set[Decimal]:
    """The numbers that some of the tokens spell, of a size that floats have."""
    numbers = set()
    for token in tokens:
        with contextlib.suppress(InvalidOperation):
            number = Decimal(plain_signs(token))
            if number.is_finite() and abs(number.adjusted()) < 400:
                numbers.add(number)
    return numbers


def _equal_to_any(cells: pd.Series[Any], numbers: set[Decimal]) -> pd.Series[Any]:
    """Where a typed number equals one of `numbers` in its own precision, 32-bit for example."""
    equal = np.zeros(len(cells), dtype=bool)
    pandas_dtype: Any = cells.dtype
    dtype: np.dtype[Any] = getattr(pandas_dtype, "numpy_dtype", pandas_dtype)
    for number in numbers:
        with np.errstate(over="ignore"):
            value = dtype.type(float(number)) if dtype.kind == "f" else _whole(number, dtype)
        if value is not None and np.isfinite(value):
            equal |= (cells == value).fillna(False).to_numpy(dtype=bool)
    return pd.Series(equal, index=cells.index)


def _whole(number: Decimal, dtype: np.dtype[Any]) -> Any:
    span = np.iinfo(dtype)
    fits = int(span.min) <= number <= int(span.max) and number == number.to_integral_value()
    return dtype.type(int(number)) if fits else None


def _objects_without(cells: pd.Series[Any], tokens: tuple[str, ...]) -> pd.Series[Any]:
    """Decimals of Parquet, cell by cell: those that equal a token become missing."""
    numbers = _exact_numbers(tokens)
    values = [
        None if isinstance(cell, Decimal) and cell.is_finite() and cell in numbers else cell
        for cell in cells.tolist()
    ]
    return pd.Series(values, index=cells.index, dtype=object)
