"""The custodian's exact, confidential statement of how cells were read. It decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpiw.data.cells.counts import ROUNDED, UNREADABLE, CellCounts, cell_judge, count_cells
from dpiw.data.cells.formats import CANONICAL, CellFormat
from dpiw.data.cells.plain import cell_texts, text_bytes
from dpiw.data.cells.reading import WHITE_SPACE, canonical_cells
from dpiw.data.files import write_durably
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.encoding import exact_number
from dpiw.data.schema.schema import PublicSchema

STATEMENT = "cells.txt"

_NO_TEXT = "\ufffd"
"""Replaces bytes that are not text in the declared encoding (`dpiw.data.source.batches`)."""

_MAX_TEXTS, _MAX_BYTES = 10_000, 1 << 22

_HEADER = ("column", "kind", "missing", "unreadable", "out of bounds", "rounded", "no level")
_OPENING = (
    "How the cells of the source were read. Exact counts: confidential, for the custodian alone."
)
_CLOSING = """\
Cells out of bounds were clamped to the nearer bound. Decide by the codebook what a cell means and
what the data dictionary says: a dictionary made from these counts would publish them.
"""
_AS_DECLARED = "No text looks as if the file were written otherwise than declared."
_NUMBERS = {
    "1669,78": CellFormat(decimal=",", thousands="none"),
    "1,669.78": CellFormat(decimal=".", thousands=","),
    "1 669.78": CellFormat(decimal=".", thousands="space"),
    "1'669.78": CellFormat(decimal=".", thousands="'"),
    "1.669,78": CellFormat(decimal=",", thousands="."),
    "1 669,78": CellFormat(decimal=",", thousands="space"),
    "1'669,78": CellFormat(decimal=",", thousands="'"),
    "1669.78": CellFormat(decimal=".", thousands="none"),
}
_DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d",
    "%Y%m%d",
)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")

_NO_SETTING = {
    "plain numbers": "not read: a sign after the number or apart from it, and brackets (so only"
    " negative numbers are lost), percent and currency signs, letters, other digits",
    "ISO dates": "not read: names of months and time zones, years of two digits, clocks of twelve"
    " hours, numbers of spreadsheets, and dates without a day",
}
"""What no setting reads, by what to write instead."""


class CellTally:
    """Counts of cells, and first distinct texts. Privacy: exact: the run's private folder only."""

    def __init__(self, schema: PublicSchema) -> None:
        """Count all columns of the schema, identifiers included."""
        self.schema = schema
        self._whole = True
        self.texts = {column.name: _FirstTexts() for column in schema.columns}
        self.rows = self.empty = 0
        self.undecoded = dict.fromkeys(self.texts, 0)
        self.counts = {column.name: CellCounts() for column in schema.columns}
        self.expected = {c.name: np.zeros((len(c.expectations), 3), int) for c in schema.columns}

    def add(self, raw: pd.DataFrame, frame: pd.DataFrame) -> None:
        """Count raw cells and their canonical cells; after an error, do not use the tally."""
        whole, self._whole = self._whole, False
        self.rows += len(frame)
        self.empty += _rows_without_cell(frame)
        for column in self.schema.columns:
            cells = raw[column.name]
            texts = cell_texts(cells) if isinstance(cells.dtype, pd.StringDtype) else None
            same = texts if frame is raw else None
            self.counts[column.name] += count_cells(column, frame[column.name], texts=same)
            if texts is None:
                continue
            if _NO_TEXT.encode() in text_bytes(texts):
                marked = pc.match_substring(texts, _NO_TEXT)
                self.undecoded[column.name] += pc.sum(marked).as_py() or 0
            if column.role is not ColumnRole.IDENTIFIER and not column.levels:
                self.texts[column.name].add(texts)
        self._whole = whole

    def check_whole(self) -> None:
        """Raise ValueError if a batch could not be counted."""
        if not self._whole:
            raise ValueError("a batch could not be counted")


def _rows_without_cell(frame: pd.DataFrame) -> int:
    rows = np.arange(len(frame))
    for name in frame.columns:
        if not rows.size:
            break
        cells = frame[name].iloc[rows]
        if isinstance(cells.dtype, pd.StringDtype):
            blank = pc.equal(pc.utf8_trim(cell_texts(cells), characters=WHITE_SPACE), "")
            rows = rows[pc.fill_null(blank, True).to_numpy(zero_copy_only=False)]
        else:
            rows = rows[cells.isna().to_numpy(dtype=bool)]
    return len(rows)


class _FirstTexts:
    """The first distinct raw texts of a column."""

    def __init__(self) -> None:
        self._texts: Any = pa.array([], type=pa.large_string())
        self.full = False

    def add(self, texts: pa.Array) -> None:
        if self.full:
            return
        texts = pc.unique(texts).drop_null()
        texts = pc.unique(pa.concat_arrays([self._texts, texts]))[:_MAX_TEXTS]
        sizes = np.cumsum(pc.binary_length(texts).to_numpy())
        self._texts = texts[: np.searchsorted(sizes, _MAX_BYTES, side="right")]
        self.full = len(self._texts) < len(texts) or len(texts) == _MAX_TEXTS

    def series(self) -> pd.Series[Any]:
        return pd.Series(self._texts, dtype="str")


def leave_statement(directory: Path, tally: CellTally, **facts: Any) -> None:
    """Write `statement(tally, ...)`; never raises. Privacy: exact: the run's private folder."""
    with contextlib.suppress(Exception):
        write_durably(directory / STATEMENT, statement(tally, **facts).encode())


def statement(
    tally: CellTally, *, formats: Mapping[str, CellFormat], kept: int, file_format: str = "csv"
) -> str:
    """Return the statement's text, as confidential as the cells; ValueError before all are counted.

    Advice names how the file is written, never a field of the published data dictionary. Its words
    are the same at every count: advice that appears at a threshold, once followed, would publish on
    which side the count lies.
    """
    tally.check_whole()
    rows: list[tuple[str, ...]] = [_HEADER]
    fates, expected, notes, unread = list[str](), list[str](), list[str](), list[str]()
    for column in tally.schema.columns:
        counts = tally.counts[column.name]
        identifier = column.role is ColumnRole.IDENTIFIER
        kind = column.role.value if identifier else column.kind.value
        rows.append((column.name, kind, *(f"{count:,}" for count in vars(counts).values())))
        if not identifier:
            fates.append(f"- column {column.name}: {_became(column, counts, tally.rows)}")
        if tally.rows and counts.missing + counts.unreadable + counts.unknown == tally.rows:
            unread.append(column.name)
        for declared, counted in zip(column.expectations, tally.expected[column.name], strict=True):
            told = "{:,} cells judged, {:,} failed, {:,} cannot be judged".format(*counted)
            expected.append(f"- column {column.name}: {told}: {dict(declared)!r:.200}")
        notes += _column_notes(column, tally, formats[column.name], file_format)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    table = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    beginning = [
        _OPENING,
        f"rows that hold no cell: {tally.empty:,}",
        f"columns of which no cell could be read: {', '.join(unread) or 'none'}",
        f"rows read: {tally.rows:,}; within max_rows, and so kept: {kept:,}",
    ]
    written = ["How the file is written:", *(f"- {note}" for note in notes)]
    fates += ["", "Expectations of cells, before clamping:", *expected] if expected else []
    closing = [_CLOSING, *fates, "", *(written if notes else [_AS_DECLARED]), ""]
    return "\n".join([*beginning, "", *table, "", *closing])


def _column_notes(
    column: Column, tally: CellTally, written: CellFormat, file_format: str
) -> list[str]:
    """How the column's cells are written, where that is not as declared; quotes no cell."""
    notes = []
    if undecoded := tally.undecoded[column.name]:
        fault = "cells hold bytes that are no text in the declared encoding"
        notes.append(f"{undecoded:,} {fault}; is `source.encoding` right?")
    distinct = tally.texts[column.name].series()
    if column.is_numeric and not distinct.empty:
        unread = distinct[_unread(column, distinct, written)]
        of = f"of {len(unread):,} different texts that are not read as {column.kind.value},"
        notes += [f"{of} {told}" for told in _told(column, unread, written, file_format)]
    return [f"column {column.name}: {note}" for note in notes]


def _became(column: Column, counts: CellCounts, rows: int) -> str:
    """How many cells were not read, and what they became: the same words at every count."""
    became = fate = _fate(column)
    count, what = counts.unreadable, f"could not be read as {column.kind.value}"
    if column.is_discrete and column.kind is not ColumnKind.BOOLEAN:
        count, what = counts.unknown, "were none of the levels"
        became = fate if column.other is None else repr(column.other)
    return (
        f"{count:,} of {rows:,} cells {what} and became {became}, {counts.missing:,} were missing"
        f" and became {fate}; decide by the codebook"
    )


def _fate(column: Column) -> str:
    """What a cell without a value became; the value is the data dictionary's."""
    if column.nullable:
        return "missing"
    if column.fill is not None:
        return f"{column.fill!r}, as declared"
    if column.is_numeric:
        return f"{column.lower!r}, the lower bound"
    if column.kind is ColumnKind.BOOLEAN:
        return "false"
    if column.other is not None:
        return repr(column.other)
    return f"{column.level_names[0]!r}, the first level" if column.level_names else "left out"


# How texts are written that are not read


def _told(
    column: Column, unread: pd.Series[Any], written: CellFormat, file_format: str
) -> list[str]:
    """Other formats and undeclared notations that some of the texts have."""
    forms = _other_forms(column)
    reads = {
        words: frozenset(np.flatnonzero(~_unread(column, unread, form.over(written))).tolist())
        for words, form in forms.items()
    }
    parquet = "" if file_format == "csv" else " (in a CSV file; in Parquet, store the values)"
    stated = {words: _settings(form) for words, form in forms.items()}

    def is_beaten(words: str, read: frozenset[int]) -> bool:
        return any(
            read < more or (read == more and stated[other] < stated[words])
            for other, more in reads.items()
        )

    told = [
        f"{len(read):,} are read {words}{parquet}"
        for words, read in reads.items()
        if read and not is_beaten(words, read)
    ]
    rest = unread.drop(unread.index[sorted(frozenset().union(*reads.values()))])
    dated = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
    lost = sum(
        any(map(str.isnumeric, text)) and (dated or exact_number(text) is None)
        for text in rest.tolist()
    )
    plain = "ISO dates" if dated else "plain numbers"
    no_setting = f"no setting reads {lost:,} that hold digits: write {plain} in the file"
    return [*told, f"{no_setting} ({_NO_SETTING[plain]})"] if lost else told


def _unread(column: Column, texts: pd.Series[Any], written: CellFormat) -> NDArray[np.bool_]:
    judge = cell_judge(column)
    canonical = cell_texts(canonical_cells(column, texts, written)).to_pylist()
    unread = (UNREADABLE, ROUNDED)
    return np.array([t is not None and judge(t) in unread for t in canonical], dtype=bool)


def _settings(form: CellFormat) -> int:
    return sum(value != getattr(CANONICAL, name) for name, value in form.stated().items())


def _other_forms(column: Column) -> dict[str, CellFormat]:
    if column.kind in (ColumnKind.CONTINUOUS, ColumnKind.INTEGER):
        return {
            f"if numbers are written {example}: declare decimal: {form.decimal!r} and"
            f" thousands: {form.thousands!r}": form
            for example, form in _NUMBERS.items()
        }
    field = "date_format" if column.kind is ColumnKind.DATE else "datetime_format"
    patterns = ("iso", *(day + time for time in _TIMES for day in _DATES))
    return {
        f"if dates are written so: declare {field}: {p!r}": CellFormat.taken_from({field: p})
        for p in patterns
    }
