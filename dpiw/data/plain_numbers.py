"""Texts of numbers and moments as most files have them, read by one vectorised cast.

A text is plain where the cast cannot mean anything else than the exact reading of
`dpiw.data.encoding` does; all others are left to that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpiw.data.cells import text_bytes
from dpiw.data.columns import Column, ColumnKind
from dpiw.data.dates import seconds_from_local

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
"""Bytes of texts that the cast either reads rightly or refuses, and their fewest and most."""

_LEAST = {
    ColumnKind.DATE: int(np.datetime64("1000-01-01", "D").astype(np.int64)),
    ColumnKind.DATETIME: int(np.datetime64("1000-01-01", "s").astype(np.int64)),
}
_MOST = int(np.datetime64("9999-12-29", "s").astype(np.int64))


def plain_numbers(column: Column, texts: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Numbers of the plain texts of a numeric column.

    Args:
        column: continuous, integer, date or datetime.
        texts: of its cells, large strings, shape (rows,).

    Returns:
        Numbers in own units (float64 or int64; days or seconds since the epoch), not clamped, zero
        where a text is not plain; and which texts are plain. Each shape (rows,).
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
    """Whether all texts that are not empty are of the kind's letters and lengths."""
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
