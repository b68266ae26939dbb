"""Exported files, read back, and what readers of CSV make of text."""

import re
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.levels import is_formula

CHUNK = 100_000
"""Rows that are read back at a time."""

LARGEST_WHOLE = 2**53
"""Up to here a double holds every whole number."""


def different(chunks: Iterable[pd.DataFrame], written: pd.DataFrame) -> list[str]:
    """Return the columns that were not read as written; all if row counts or names differ."""
    names = list(map(str, written.columns))
    changed, start = set[str](), 0
    for chunk in chunks:
        part = written.iloc[start : start + len(chunk)]
        start += len(chunk)
        if list(chunk.columns) != names or len(part) != len(chunk):
            return names
        changed |= {n for n in names if n not in changed and not _is_same(chunk[n], part[n])}
    return [name for name in names if name in changed] if start == len(written) else names


def _is_same(cells: pd.Series, values: pd.Series) -> bool:
    """Whether cells, which may be texts of a file, are the values that were written."""
    try:
        if values.dtype.kind == "M":
            held, meant = (one.astype("datetime64[s]").to_numpy() for one in (cells, values))
            return np.array_equal(held, meant, equal_nan=True)
        if values.dtype.kind == "f":
            numbers = values.to_numpy()
            held = cells.replace("", "nan").to_numpy(object).astype(numbers.dtype)
            return np.array_equal(held, numbers, equal_nan=True)
    except (TypeError, ValueError):
        return False
    texts = values.astype("string").fillna("")
    return np.array_equal(cells.to_numpy(object), texts.to_numpy(object))


def value_labels(columns: Iterable[Column]) -> dict[str, dict[float, str]]:
    """Labels by column and code: levels count from 1, truth values from 0."""
    return {
        column.name: dict(enumerate(column.level_names, column.kind is not ColumnKind.BOOLEAN))
        for column in columns
        if column.is_discrete
    }


# --- what readers of CSV make of text -----------------------------------------------------------

_MISSING = frozenset(
    {"#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "1.#ind", "1.#qnan"}
    | {"-nan", "nan", "<na>", "n/a", "na", "null", "none", "\\n", "."}
)
_TRUTH = frozenset({"true", "false", "t", "f", "yes", "no"})
_NUMBER = re.compile(
    r"[(]?[+-]?[$\u00a2-\u00a5\u20a0-\u20cf]? ?"
    r"([0-9][0-9 ,._']{0,60}|\.[0-9]{1,60})(e[+-]?[0-9]{1,9})?[%$\u00a2-\u00a5\u20a0-\u20cf]?[)]?"
    r"|0x[0-9a-f]+|[+-]?inf(inity)?",
    re.I,
)
_DAY = re.compile(
    r"[0-9]{1,4}[-/. ][0-9]{1,2}([-/. ][0-9]{1,4})?([ T].{0,30})?"
    r"|[0-9]{1,2}(:[0-9]{2}){1,2}( ?[ap]m)?"
    r"|([0-9]{1,4}[-/. ]?)?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}[-/. ]?"
    r"[0-9]{0,4}",
    re.I,
)


def plain_reading(text: str) -> str | None:
    """Return how a reader of CSV or a spreadsheet takes a text by default; None: as text."""
    word = text.casefold()
    if word in _MISSING:
        return "a missing value"
    if word in _TRUTH:
        return "a truth value"
    if _DAY.fullmatch(text):
        return "a date"
    return "a number" if _NUMBER.fullmatch(text) else None


def plain_readings(table: pd.DataFrame, columns: Iterable[Column]) -> Iterator[tuple[Column, str]]:
    """Columns whose cells a reader of CSV changes by default, and how; of levels with rows."""
    for column in columns:
        values = table[column.name].dropna()
        if column.kind is ColumnKind.INTEGER and len(values):
            if max(abs(int(values.min())), abs(int(values.max()))) > LARGEST_WHOLE:
                yield column, "whole numbers beyond 2^53 as doubles"
        elif column.is_discrete and column.kind is not ColumnKind.BOOLEAN:
            for text in values.unique():
                if (reading := plain_reading(text)) is not None:
                    yield column, f"{text!r} as {reading}"
                    break


def formulas(table: pd.DataFrame, columns: Iterable[Column]) -> list[str]:
    """Columns with a level that a spreadsheet would compute."""
    return [
        column.name
        for column in columns
        if column.is_discrete and any(map(is_formula, map(str, table[column.name].unique())))
    ]
