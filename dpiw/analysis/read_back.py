"""Exported files, read back; `changed_...` returns the columns that differ from the rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.levels import is_formula
from dpiw.errors import optional

_CHUNK = 100_000

LARGEST_WHOLE = 2**53
"""Up to here a double holds every whole number."""

_STATA_EPOCH, _SPSS_EPOCH = dt.date(1960, 1, 1), dt.date(1582, 10, 14)
_STATA_FIRST, _SPSS_FIRST = dt.date(100, 1, 1), dt.date(1582, 10, 15)
"""Day zero of each format, and the first day that its package accepts."""

Cells = tuple[NDArray[Any], NDArray[np.bool_]]
"""Values that compare exactly, and which are missing."""


def changed_csv(path: Path, table: pd.DataFrame, columns: Sequence[Column]) -> list[str]:
    """Return the columns of a CSV file whose text, read as text, is not the table's values."""
    with pd.read_csv(
        path, dtype=str, na_filter=False, encoding="utf-8", chunksize=_CHUNK
    ) as chunks:
        return _changed(chunks, table, columns, _from_csv)


def changed_stata(
    path: Path, table: pd.DataFrame, columns: Sequence[Column], texts: Mapping[str, str]
) -> list[str]:
    """Return the columns of a Stata file whose values, levels or labels (`texts`) differ."""
    with pd.io.stata.StataReader(
        path, chunksize=_CHUNK, convert_dates=False, convert_categoricals=False
    ) as reader:
        clock = {ColumnKind.DATE: 1 / 86400, ColumnKind.DATETIME: 1000.0}
        decode = _numeric(clock, epoch=_STATA_EPOCH, first=_STATA_FIRST)
        changed = _changed(reader, table, columns, decode)
        labels = {
            name: {float(code): text for code, text in named.items()}
            for name, named in reader.value_labels().items()
        }
        return _with_labels(changed, columns, labels, reader.variable_labels(), texts)


def changed_spss(
    path: Path, table: pd.DataFrame, columns: Sequence[Column], texts: Mapping[str, str]
) -> list[str]:
    """Return the columns of an SPSS file that differ; arguments as `changed_stata`."""
    library = optional("pyreadstat", extra="export")
    frame, about = library.read_sav(str(path), disable_datetime_conversion=True)
    clock = {ColumnKind.DATE: 1.0, ColumnKind.DATETIME: 1.0}
    decode = _numeric(clock, epoch=_SPSS_EPOCH, first=_SPSS_FIRST)
    changed = _changed([frame], table, columns, decode)
    labels = about.variable_value_labels
    return _with_labels(changed, columns, labels, about.column_names_to_labels, texts)


def _changed(
    chunks: Iterable[pd.DataFrame], table: pd.DataFrame, columns: Sequence[Column], decode: Any
) -> list[str]:
    """Columns that differ, in order; all columns if row counts or names differ."""
    kinds: dict[str, Column | None] = {str(name): None for name in table.columns}
    kinds |= {column.name: column for column in columns}
    changed, start = set[str](), 0
    for chunk in chunks:
        part = table.iloc[start : start + len(chunk)]
        start += len(chunk)
        if list(chunk.columns) != list(kinds) or len(part) != len(chunk):
            return list(kinds)
        for name, column in kinds.items():
            if name not in changed:
                meant = _meant(part[name], column, decode)
                if not _equal(decode(chunk[name], column), meant):
                    changed.add(name)
    return [name for name in kinds if name in changed] if start == len(table) else list(kinds)


def _equal(found: Cells | None, meant: Cells) -> bool:
    if found is None or not np.array_equal(found[1], meant[1]):
        return False
    held = found[0][~found[1]].astype(meant[0].dtype, copy=False)  # replicates are narrower
    return bool(np.array_equal(held, meant[0][~meant[1]]))


def _meant(values: pd.Series, column: Column | None, decode: Any) -> Cells:
    """The table's own cells: levels as text or codes, moments in UTC or on the local clock."""
    missing = values.isna().to_numpy(dtype=bool)
    if column is None or column.kind is ColumnKind.CONTINUOUS:
        return values.to_numpy(), missing
    if column.kind is ColumnKind.BOOLEAN:
        return values.fillna(False).to_numpy(dtype=bool), missing
    if column.kind is ColumnKind.INTEGER:
        return values.fillna(0).to_numpy(dtype=np.int64), missing
    if column.kind is ColumnKind.DATETIME and decode is not _from_csv:
        values = values.dt.tz_convert(column.time_zone).dt.tz_localize(None)
    if column.kind in (ColumnKind.DATE, ColumnKind.DATETIME):
        return values.to_numpy(dtype="datetime64[s]").astype(np.int64), missing
    return values.to_numpy(dtype=object), missing


def _from_csv(cells: pd.Series, column: Column | None) -> Cells | None:
    missing = (cells == "").to_numpy(dtype=bool)
    held = cells[~missing]
    values: NDArray[Any]
    try:
        if column is None or column.kind is ColumnKind.CONTINUOUS:
            values = held.to_numpy(dtype=object).astype(np.float64)
        elif column.kind is ColumnKind.BOOLEAN:
            values = held.map({"TRUE": True, "FALSE": False}).to_numpy(dtype=bool, na_value=False)
            if not held.isin(["TRUE", "FALSE"]).all():
                return None
        elif column.kind is ColumnKind.INTEGER:
            values = np.array([int(cell) for cell in held], dtype=np.int64)
        elif column.kind is ColumnKind.DATE:
            days = [dt.date.fromisoformat(cell) - dt.date(1970, 1, 1) for cell in held]
            values = np.array([day.days * 86400 for day in days], dtype=np.int64)
        elif column.kind is ColumnKind.DATETIME:
            values = np.array([_seconds(cell) for cell in held], dtype=np.int64)
        else:
            values = held.to_numpy(dtype=object)
    except (ValueError, OverflowError):
        return None
    full: NDArray[Any] = np.empty(len(cells), dtype=values.dtype)
    full[~missing] = values
    return full, missing


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _seconds(cell: str) -> int:
    moment = dt.datetime.fromisoformat(cell)
    if moment.tzinfo is None:
        raise ValueError
    return round((moment - _EPOCH) / dt.timedelta(seconds=1))


def _numeric(clock: Mapping[ColumnKind, float], *, epoch: dt.date, first: dt.date) -> Any:
    """Return a decoder for a file of doubles; `clock`: ticks per second of dates and of moments."""
    offset = (epoch - dt.date(1970, 1, 1)).days * 86400
    earliest = (first - dt.date(1970, 1, 1)).days * 86400

    def decode(cells: pd.Series, column: Column | None) -> Cells | None:
        try:
            numbers = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            return None
        missing = np.isnan(numbers)
        if column is None or column.kind is ColumnKind.CONTINUOUS:
            return numbers, missing
        if column.kind in clock:
            numbers = numbers / clock[column.kind] + offset
            if (numbers[~missing] < earliest).any():
                return None
        held = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
        whole = np.where(held, numbers, 0).astype(np.int64)
        if not (whole[~missing] == numbers[~missing]).all():
            return None
        if column.kind in clock or column.kind is ColumnKind.INTEGER:
            return whole, missing
        if column.kind is ColumnKind.BOOLEAN:
            return (whole.astype(bool), missing) if np.isin(whole, (0, 1)).all() else None
        names = np.array(["", *column.level_names], dtype=object)
        return (names[whole], missing) if ((whole >= 0) & (whole < names.size)).all() else None

    return decode


def value_labels(columns: Iterable[Column]) -> dict[str, dict[float, str]]:
    """Labels by column and code: levels count from 1, truth values from 0."""
    return {
        column.name: {
            float(code): text
            for code, text in enumerate(
                column.level_names, start=column.kind is not ColumnKind.BOOLEAN
            )
        }
        for column in columns
        if column.is_discrete
    }


def _with_labels(
    changed: list[str],
    columns: Sequence[Column],
    labels: Mapping[str, Mapping[float, str]],
    texts: Mapping[str, str | None],
    meant: Mapping[str, str],
) -> list[str]:
    wrong = {name for name, named in value_labels(columns).items() if labels.get(name) != named}
    wrong |= {name for name, text in meant.items() if texts.get(name) != text}
    return changed + [name for name in texts if name in wrong - {*changed}]


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
