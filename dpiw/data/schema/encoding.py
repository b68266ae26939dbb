"""Convert a cell to [0, 1] or a level's index and back: row by row, total, by declared types.

No cell raises or depends on another row (docs/privacy.md section 5; tests/hostile/bad_inputs).
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpiw.data.cells.plain import (
    cell_text,
    cell_texts,
    clock_seconds,
    day_number,
    plain_signs,
    second_number,
    seconds_from_local,
    text_bytes,
    word_form,
    zone_offsets,
)
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.levels import level_reader

_INT64 = np.iinfo(np.int64)
_NUMBER = re.compile(r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?)([0-9]+))?")
_INFINITE = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_MAX_EXPONENT_DIGITS = 6


def scale_cells(column: Column, cells: pd.Series[Any]) -> NDArray[Any]:
    """Return scaled values of one column, shape (rows,), from cells of a source or a release.

    Numeric kinds: float64 in [0, 1] on the column's grid, NaN = missing. Discrete kinds: int32
    level indices, -1 = missing. Missing only if nullable. Unseen levels: texts.
    """
    if column.unseen:
        return _looked_up(cell_texts(cells), column.unlisted_level, "", object)
    if column.is_discrete:
        return _filled_codes(column, _codes(column, cells))
    numbers, missing = _whole(column, cells) if column.is_whole else _real(column, cells)
    scaled = to_unit(column, numbers)
    scaled[missing] = np.nan
    return _filled_unit(column, scaled)


def read_cells(column: Column, cells: pd.Series[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return numbers in own units (typed ones not clamped) or level indices, and missing cells."""
    if column.is_discrete:
        codes = _codes(column, cells)
        return codes, codes < 0
    return _whole(column, cells) if column.is_whole else _real(column, cells)


def project_cells(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Return the nearest admissible scaled values: in range, on the grid, missing filled."""
    if column.is_discrete:
        codes = np.clip(np.asarray(values, dtype=np.int64), -1, column.cardinality - 1)
        return _filled_codes(column, codes.astype(np.int32))
    unit = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    missing = np.isnan(unit)
    scaled = to_unit(column, from_unit(column, np.where(missing, 0.0, unit)))
    scaled[missing] = np.nan
    return _filled_unit(column, scaled)


def unscale_cells(column: Column, values: NDArray[Any]) -> pd.Series[Any]:
    """Return cells of the declared type and range, from any scaled values (projected first)."""
    projected = project_cells(column, values)
    if column.is_discrete:
        return _level_cells(column, projected)
    missing = np.isnan(projected)
    numbers = from_unit(column, np.where(missing, 0.0, projected))
    if column.kind is ColumnKind.CONTINUOUS:
        return pd.Series(np.where(missing, np.nan, numbers))
    if column.kind is ColumnKind.INTEGER:
        if not column.nullable:
            return pd.Series(numbers)
        return pd.Series(pd.arrays.IntegerArray(numbers, missing))
    seconds = numbers * 86400 if column.kind is ColumnKind.DATE else numbers
    moments = seconds.astype("datetime64[s]")
    moments[missing] = np.datetime64("NaT", "s")
    cells = pd.Series(moments)
    if column.kind is ColumnKind.DATE:
        return cells
    return cells.dt.tz_localize("UTC").dt.tz_convert(column.time_zone)


def _level_cells(column: Column, codes: NDArray[Any]) -> pd.Series[Any]:
    missing = codes < 0
    if column.kind is ColumnKind.BOOLEAN:
        truth = codes > 0
        return pd.Series(pd.arrays.BooleanArray(truth, missing) if column.nullable else truth)
    names = pa.array([*column.levels, None], type=pa.large_string())
    return pd.Series(names.take(np.where(missing, len(column.levels), codes)), dtype="str")


def to_unit(column: Column, numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Map own units to [0, 1], clamped. Whole numbers are subtracted exactly before dividing."""
    low, high = column.number(column.lower), column.number(column.upper)
    if column.is_whole:
        numbers = listed(column, np.clip(numbers, low, high))
        steps = (numbers - np.int64(low)).astype(np.float64)
        return np.asarray(steps / float(high - low))
    unit = (_rounded(column, numbers) - low) / (high - low)
    return np.asarray(np.clip(unit, 0.0, 1.0) + 0.0)  # + 0.0: no negative zero


def from_unit(column: Column, unit: NDArray[np.float64]) -> NDArray[Any]:
    """Map [0, 1] without NaN to own units: int64 for whole kinds, else float64."""
    low, high = column.number(column.lower), column.number(column.upper)
    if column.values:  # not by whole steps: half of one below a middle is nearer to the value below
        values = _values(column)
        return np.asarray(values[_nearest(values, unit * float(values[-1] - values[0]))])
    if column.is_whole:
        return np.asarray(np.int64(low) + _steps(unit, high - low))
    return _rounded(column, np.where(unit >= 1.0, high, low + unit * (high - low)))


def listed(column: Column, numbers: NDArray[Any]) -> NDArray[Any]:
    """The nearest of the listed values, the upper one of two equally near; else the numbers."""
    if not column.values:
        return numbers
    values = _values(column)
    return np.asarray(values[_nearest(values, numbers - values[0])])


def _values(column: Column) -> NDArray[Any]:
    values = np.asarray(column.values, dtype=_number_type(column))
    return np.asarray(values + 0)  # no negative zero


def _nearest(values: NDArray[Any], above: NDArray[Any]) -> NDArray[np.intp]:
    """Which value each number is nearest to; both less the least value, exact as doubles."""
    own = (values - values[0]).astype(np.float64)
    return np.asarray(np.searchsorted((own[:-1] + own[1:]) / 2, above, side="right"))


def _steps(unit: NDArray[np.float64], width: int) -> NDArray[np.int64]:
    """The k in 0..width with k/width nearest to `unit`; exact where unit is fl(k/width)."""
    steps = np.rint(unit * float(width))
    if width > 2**52:  # there the product may round to a neighbour; fl(k/width) is one-to-one
        for neighbour in (steps - 1, steps + 1):
            steps = np.where(neighbour / float(width) == unit, neighbour, steps)
    return steps.astype(np.int64)


def _rounded(column: Column, numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Clamp into the bounds and round to the decimal grid; the bounds count as on it."""
    if column.values:
        return listed(column, numbers)
    low, high = column.lower_number, column.upper_number
    rounded = np.round(np.clip(numbers, low, high), column.released_decimals)
    return np.asarray(np.clip(rounded, low, high) + 0.0)


def _filled_unit(column: Column, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    if not column.nullable:
        fill: Any = column.lower if column.fill is None else column.fill
        kind = np.int64 if column.is_whole else np.float64
        scaled[np.isnan(scaled)] = to_unit(column, np.array([column.number(fill)], dtype=kind))[0]
    return scaled


def _filled_codes(column: Column, codes: NDArray[np.int32]) -> NDArray[np.int32]:
    return codes if column.nullable else np.where(codes < 0, np.int32(column.fill_code), codes)


# Reading cells in own units


def _is_number(dtype: Any) -> bool:
    return pd.api.types.is_integer_dtype(dtype) or pd.api.types.is_float_dtype(dtype)


def _whole(column: Column, cells: pd.Series[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    dtype = cells.dtype
    timed = column.kind is not ColumnKind.INTEGER
    if timed and isinstance(dtype, (np.dtype, pd.DatetimeTZDtype)) and dtype.kind == "M":
        return _moments(column, cells)
    if timed or not _is_number(dtype):
        return _whole_from_text(column, cell_texts(cells))
    missing = cells.isna().to_numpy(dtype=bool)
    if pd.api.types.is_unsigned_integer_dtype(dtype):
        unsigned = cells.to_numpy(dtype=np.uint64, na_value=0)
        return np.minimum(unsigned, np.uint64(_INT64.max)).astype(np.int64), missing
    if pd.api.types.is_integer_dtype(dtype):
        return cells.to_numpy(dtype=np.int64, na_value=0), missing
    with np.errstate(invalid="ignore"):  # a signalling NaN; a warning would depend on the cells
        real = np.rint(cells.to_numpy(dtype=np.float64, na_value=np.nan))
    over, under = real >= 2.0**63, real < -(2.0**63)
    numbers = np.where(over | under | np.isnan(real), 0.0, real).astype(np.int64)
    numbers = np.where(over, _INT64.max, np.where(under, _INT64.min, numbers))
    return numbers, missing | np.isnan(real)


def _real(column: Column, cells: pd.Series[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if not _is_number(cells.dtype):
        low, high = column.lower_number, column.upper_number
        return _parsed(column, cell_texts(cells), lambda text: _exact_real(text, low, high))
    numbers = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    missing = np.isnan(numbers)
    return np.where(missing, column.lower_number, numbers), missing


def _moments(column: Column, cells: pd.Series[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Days or seconds of typed moments, clipped near the bounds before any calendar is asked."""
    day = 86400 if column.kind is ColumnKind.DATE else 1
    low, high = (int(column.number(bound)) * day for bound in (column.lower, column.upper))
    seconds, missing = clock_seconds(cells, low, high)
    if isinstance(cells.dtype, pd.DatetimeTZDtype):
        if column.kind is ColumnKind.DATE:  # the date as written, in the cell's own zone
            seconds = seconds + zone_offsets(seconds, cells.dtype.tz)
    elif column.kind is ColumnKind.DATETIME and column.time_zone != "UTC":
        seconds = seconds_from_local(seconds, column.zone)
    return seconds // day, missing


def _whole_from_text(column: Column, texts: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    low, high = int(column.number(column.lower)), int(column.number(column.upper))
    zone = column.zone

    def read(text: str) -> int | None:
        if column.kind is ColumnKind.DATE:
            value = day_number(text)
        elif column.kind is ColumnKind.DATETIME:
            value = second_number(text, zone)
        else:
            return _exact_whole(text, low, high)
        return None if value is None else min(max(value, low), high)

    return _parsed(column, texts, read)


def _parsed(column: Column, texts: pa.Array, read: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    values, plain = plain_numbers(column, texts)
    missing = pc.is_null(texts).to_numpy(zero_copy_only=False).copy()
    odd = ~missing & ~plain
    if odd.any():
        encoded = texts.filter(pa.array(odd)).dictionary_encode()
        readings = [read(text) for text in encoded.dictionary.to_pylist()]
        indices = encoded.indices.to_numpy()
        distinct = np.array([0 if value is None else value for value in readings], values.dtype)
        values[odd] = distinct[indices]
        missing[odd] = np.array([value is None for value in readings], bool)[indices]
    return values, missing


def exact_number(text: str) -> Decimal | None:
    """Return the exact number that a text denotes (sign, ASCII digits, `.`, exponent, `inf`)."""
    text = plain_signs(text.strip())
    infinite = _INFINITE.fullmatch(text)
    if infinite:
        return Decimal(f"{infinite[1]}Infinity")
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    exponent = (match[3] or "").lstrip("0")
    if len(exponent) > _MAX_EXPONENT_DIGITS:  # beyond what decimals hold: zero or infinite
        if match[2] == "-" or not match[1].strip("0."):
            return Decimal(0)
        return Decimal("-Infinity" if text.startswith("-") else "Infinity")
    return Decimal(text)


def _exact_whole(text: str, low: int, high: int) -> int | None:
    number = exact_number(text)
    if number is None:
        return None
    clamped = min(max(number, Decimal(low)), Decimal(high))
    return int(clamped.to_integral_value(rounding=ROUND_HALF_EVEN))


def _exact_real(text: str, low: float, high: float) -> float | None:
    number = exact_number(text)
    if number is None:
        return None
    return low if number <= Decimal(low) else high if number >= Decimal(high) else float(number)


# Reading levels


def _codes(column: Column, cells: pd.Series[Any]) -> NDArray[np.int32]:
    """Level indices; unknown cells are `other`, or missing (-1) where there is none."""
    if column.kind is ColumnKind.BOOLEAN:
        return _truths(column, cells)
    unknown = -1 if column.other is None else column.levels.index(column.other)
    level = level_reader(column)

    def read(text: str) -> int:
        code = level(text)
        return unknown if code is None else code

    return _looked_up(cell_texts(cells), read)


def _truths(column: Column, cells: pd.Series[Any]) -> NDArray[np.int32]:
    """0, 1 or missing (-1). A typed 0 or 1 is a truth, unless a declared word is a number."""
    words = {word_form(text): 0 for text in column.false_values}
    words |= {word_form(text): 1 for text in column.true_values}
    typed = {} if any(exact_number(word) is not None for word in words) else {"0": 0, "1": 1}

    def spoken(text: str) -> int:
        return words.get(word_form(text), -1)

    def counted(text: str) -> int:
        return words.get(text, typed.get(text, -1))

    def read(cell: Any) -> int:
        if isinstance(cell, (bool, np.bool_)):
            return int(cell)
        text = cell_text(cell)
        return -1 if text is None else spoken(text) if isinstance(cell, str) else counted(text)

    if pd.api.types.is_bool_dtype(cells.dtype):
        missing = cells.isna().to_numpy(dtype=bool)
        truth = cells.to_numpy(dtype=bool, na_value=False)
        return np.where(missing, np.int32(-1), truth.astype(np.int32))
    if _is_number(cells.dtype):
        return _looked_up(cell_texts(cells), counted)
    if cells.dtype == np.dtype(object):
        return np.array([read(cell) for cell in cells.tolist()], dtype=np.int32)
    return _looked_up(cell_texts(cells), spoken)


def _looked_up(texts: pa.Array, read: Any, none: Any = -1, kind: Any = np.int32) -> NDArray[Any]:
    encoded = texts.dictionary_encode()
    codes = np.array([*map(read, encoded.dictionary.to_pylist()), none], dtype=kind)
    indices: NDArray[Any] = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return np.asarray(codes[indices], dtype=kind)  # index -1: the last entry, missing


# Plain numbers and moments, read by one vectorised cast

_DAY = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_PATTERNS = {
    ColumnKind.INTEGER: r"^-?[0-9]{1,18}$",
    ColumnKind.CONTINUOUS: r"^-?[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?$",
    ColumnKind.DATE: f"^{_DAY}$",
    ColumnKind.DATETIME: f"^{_DAY}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}$",
}
_TYPES = {
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.CONTINUOUS: pa.float64(),
    ColumnKind.DATE: pa.date32(),
    ColumnKind.DATETIME: pa.timestamp("s"),
}
_LETTERS = {
    ColumnKind.INTEGER: (b"-0123456789", 1, 18),
    ColumnKind.CONTINUOUS: (b"-.0123456789", 1, 18),
    ColumnKind.DATE: (b"-0123456789", 10, 10),
    ColumnKind.DATETIME: (b"-0123456789: T", 19, 19),
}
"""Bytes of texts that the cast reads correctly or refuses; their fewest and most."""

_LEAST = {
    ColumnKind.DATE: int(np.datetime64("1000-01-01", "D").astype(np.int64)),
    ColumnKind.DATETIME: int(np.datetime64("1000-01-01", "s").astype(np.int64)),
}
_MOST = int(np.datetime64("9999-12-29", "s").astype(np.int64))


def plain_numbers(column: Column, texts: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Read large strings, shape (rows,), that a cast reads as the exact reading does.

    Returns numbers in own units, not clamped, zero where a text is not plain, and a mask of plain
    texts. For continuous, integer, date and datetime columns.
    """
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
    plain, read = np.asarray(lengths > 0), None
    if _all_letters(column, texts, lengths):
        read = _cast(column, pc.if_else(pa.array(plain), texts, pa.scalar(None, texts.type)))
    if read is None:
        texts = pc.utf8_trim_whitespace(texts)
        matches = pc.fill_null(pc.match_substring_regex(texts, _PATTERNS[column.kind]), False)
        plain = matches.to_numpy(zero_copy_only=False)
        read = _cast(column, pc.if_else(matches, texts, pa.scalar(None, texts.type)))
    if read is None:
        return np.zeros(len(texts), dtype=_number_type(column)), np.zeros(len(texts), dtype=bool)
    return read, plain


def _number_type(column: Column) -> type[np.generic]:
    return np.float64 if column.kind is ColumnKind.CONTINUOUS else np.int64


def _all_letters(column: Column, texts: pa.Array, lengths: NDArray[Any]) -> bool:
    letters, fewest, most = _LETTERS[column.kind]
    if not len(texts):
        return True
    if lengths.max(initial=0) > most or lengths[lengths > 0].min(initial=most) < fewest:
        return False
    return not text_bytes(texts).translate(None, letters)


def _cast(column: Column, texts: pa.Array) -> NDArray[Any] | None:
    """Numbers, zero where a text is null; None if a text is refused, or in an odd year."""
    try:
        cast = pc.cast(texts, _TYPES[column.kind])
    except pa.ArrowInvalid:
        return None
    if column.kind in _LEAST:
        cast = cast.cast(pa.int32() if column.kind is ColumnKind.DATE else pa.int64())
    null = cast.is_null().to_numpy(zero_copy_only=False)
    numbers: NDArray[Any] = pc.fill_null(cast, 0).to_numpy().astype(_number_type(column))
    if column.kind in _LEAST and (numbers[~null] < _LEAST[column.kind]).any():
        return None
    if column.kind is ColumnKind.DATETIME and column.time_zone != "UTC":
        if (numbers > _MOST).any():
            return None
        numbers = np.where(null, 0, seconds_from_local(numbers, column.zone))
    return numbers
