"""Exact, confidential counts of missing, unreadable, out-of-bounds and unknown cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from dpiw.data.cells.plain import cell_texts, day_number, second_number, word_form
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.encoding import exact_number, listed, plain_numbers, read_cells
from dpiw.data.schema.levels import known_texts

_FINE, _MISSING, UNREADABLE, _OUTSIDE, ROUNDED, _UNKNOWN = range(6)
"""Verdicts on a cell; from the second on in the order of the fields of `CellCounts`."""


@dataclass(frozen=True, kw_only=True)
class CellCounts:
    """Exact counts of one column's cells; each cell is in at most one of them.

    Attributes:
        unreadable: not a value of the kind in the declared format.
        outside: beyond the bounds, and so clamped.
        rounded: inside the bounds: in an integer column a number that is not whole, in one of
            listed values another one.
    """

    missing: int = 0
    unreadable: int = 0
    outside: int = 0
    rounded: int = 0
    unknown: int = 0

    def __add__(self, other: CellCounts) -> CellCounts:
        """Add the counts of two batches."""
        return CellCounts(**{name: n + getattr(other, name) for name, n in vars(self).items()})


def count_cells(
    column: Column, cells: pd.Series[Any], *, texts: pa.Array | None = None
) -> CellCounts:
    """Count a column's canonical cells. Privacy: exact counts: the run's private folder only."""
    is_text = isinstance(cells.dtype, pd.StringDtype) or column.role is ColumnRole.IDENTIFIER
    if column.is_numeric and not is_text and cells.dtype != object:
        counts = _typed_counts(column, cells)
    elif column.kind is ColumnKind.BOOLEAN and not is_text:
        counts = _typed_truths(column, cells)
    else:
        counts = _by_text(column, cell_texts(cells) if texts is None else texts)
    return CellCounts(**dict(zip(vars(CellCounts()), counts[1:].tolist(), strict=True)))


def _verdict_counts(verdicts: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(verdicts, minlength=6)


def _typed_counts(column: Column, cells: pd.Series[Any]) -> NDArray[np.int64]:
    numbers, missing = read_cells(column, cells)
    low, high = column.number(column.lower), column.number(column.upper)
    outside = ((numbers < low) | (numbers > high)) & ~missing
    rounded = np.zeros(len(cells), dtype=bool)
    if column.kind is ColumnKind.INTEGER and pd.api.types.is_float_dtype(cells.dtype):
        with np.errstate(invalid="ignore"):  # of infinite ones, which are outside
            rounded = cells.to_numpy(dtype=np.float64, na_value=np.nan) % 1 > 0
    rounded |= listed(column, numbers) != numbers
    read = np.where(outside, _OUTSIDE, np.where(rounded, ROUNDED, _FINE))
    return _verdict_counts(np.where(missing, _MISSING, read))


def _typed_truths(column: Column, cells: pd.Series[Any]) -> NDArray[np.int64]:
    missing = cells.isna().to_numpy(dtype=bool)
    _, silent = read_cells(column, cells)
    return _verdict_counts(np.where(missing, _MISSING, np.where(silent, UNREADABLE, _FINE)))


def _by_text(column: Column, texts: pa.Array) -> NDArray[np.int64]:
    judge = cell_judge(column)
    counts = _verdict_counts(np.full(texts.null_count, _MISSING))
    texts = texts.drop_null()
    if column.is_numeric and column.role is not ColumnRole.IDENTIFIER:
        numbers, plain = plain_numbers(column, texts)
        low, high = column.number(column.lower), column.number(column.upper)
        numbers = numbers[plain]
        read = np.where(listed(column, numbers) != numbers, ROUNDED, _FINE)
        outside = (numbers < low) | (numbers > high)
        counts += _verdict_counts(np.where(outside, _OUTSIDE, read))
        texts = texts.filter(pa.array(~plain))
    encoded = texts.dictionary_encode()
    verdicts = np.array([*map(judge, encoded.dictionary.to_pylist())], dtype=np.int64)
    return np.asarray(counts + _verdict_counts(verdicts[encoded.indices.to_numpy()]))


def cell_judge(column: Column) -> Callable[[str], int]:
    """Return the function that judges one canonical text of a column, e.g. as `UNREADABLE`."""
    identifier = column.role is ColumnRole.IDENTIFIER
    value = value_reader(column) if column.is_numeric and not identifier else None
    low, high = (column.number(column.lower), column.number(column.upper)) if value else (0, 0)
    words = {word_form(text) for text in column.true_values + column.false_values}
    is_known = known_texts(column)

    def judge(text: str) -> int:
        text = text.strip()
        if not text:
            return _MISSING
        if identifier:
            return _FINE
        if value is not None:
            return _numeric_verdict(column, value(text), low, high)
        if column.kind is ColumnKind.BOOLEAN:
            return _FINE if word_form(text) in words else UNREADABLE
        return _FINE if is_known(text) else _UNKNOWN

    return judge


def _numeric_verdict(column: Column, number: Any, low: Any, high: Any) -> int:
    if number is None:
        return UNREADABLE
    nearest = number
    if isinstance(number, Decimal) and number.is_finite():
        nearest = number.to_integral_value(rounding=ROUND_HALF_EVEN)
    if not low <= nearest <= high:
        return _OUTSIDE
    if column.values:
        exact = int(nearest) if column.is_whole else float(nearest)
        nearest = listed(column, np.array([exact])).item()
    return _FINE if nearest == number else ROUNDED


def value_reader(column: Column) -> Callable[[str], Any]:
    """Return the function from text to a number in own units, not clamped; None: unreadable."""
    if column.kind is ColumnKind.DATE:
        return day_number
    if column.kind is ColumnKind.DATETIME:
        return partial(second_number, zone=column.zone)
    if column.kind is ColumnKind.INTEGER:
        return exact_number

    def number(text: str) -> Any:
        exact = exact_number(text)
        return exact if exact is None or exact.is_infinite() else float(exact)

    return number
