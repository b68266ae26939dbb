"""The custodian's exact, confidential statement of how cells were read. It decides nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpiw.data.cell_counts import ROUNDED, UNREADABLE, CellCounts, cell_judge, count_cells
from dpiw.data.cell_formats import CANONICAL, CellFormat
from dpiw.data.cell_reading import WHITE_SPACE, canonical_cells
from dpiw.data.cells import MINUS_SIGNS, cell_texts, text_bytes
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.encoding import exact_number
from dpiw.data.files import write_durably
from dpiw.data.schema import PublicSchema

STATEMENT = "cells.txt"

_NO_TEXT = "\ufffd"
"""Replaces bytes that are not text in the declared encoding (`dpiw.data.sources`)."""

_MAX_TEXTS, _MAX_BYTES = 10_000, 1 << 22
_LONGEST_NOTATION = 40
"""Characters of a text whose notation is named; patterns take long on longer ones."""

_HEADER = ("column", "kind", "missing", "unreadable", "out of bounds", "rounded", "no level")
_OPENING = (
    "How the cells of the source were read. Exact counts: confidential, for the custodian alone."
)
_CLOSING = """\
Cells out of bounds were clamped to the nearer bound. What a cell means and what the data dictionary
says of it, decide by the codebook: a dictionary made by these counts publishes them.
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

_ONLY_NEGATIVE = "; the numbers lost are the negative ones, not a random part"
_ODD_SIGNS = "\u2014\u2015\u02d7\u207b\u208b\u2796"
_DASHES = MINUS_SIGNS + _ODD_SIGNS
_OTHER_MARKS = "other marks than the digits and signs of a plain value"
_NUMBER_NOTATIONS = {
    f"a sign behind the number{_ONLY_NEGATIVE}": re.compile(rf"[^()]*\d[^()\w.,]*[-{_DASHES}]"),
    f"a sign apart from the number, or an unusual one{_ONLY_NEGATIVE}": re.compile(
        rf"[-{_DASHES}][\s{_DASHES}-]+\d.*|[^\w()]*[{_ODD_SIGNS}][^\w()]*\d.*"
    ),
    f"brackets around the number{_ONLY_NEGATIVE}": re.compile(r"[^\w]*\(.*\d.*\)[^\w]*"),
    "a percent sign": re.compile(r".*[%\u2030\u066a\ufe6a\uff05].*"),
    "a currency sign": re.compile(
        r".*[$\u00a2-\u00a5\u058f\u060b\u09f2\u09f3\u0e3f\u20a0-\u20cf\ufdfc\ufe69\uff04"
        r"\uffe0\uffe1\uffe5\uffe6].*"
    ),
    "letters before or behind the number": re.compile(
        r"[^\W\d_]+[^\w]*\d.*|.*\d[^\w]*[^\W\d_]+\.?"
    ),
    (_SCRIPT := "digits of another script"): re.compile(r".*(?![0-9])\d.*"),
}
_ZONED = r"[\dT:., /-]*:\d\d([.,]\d+)? ?[A-Za-z][A-Za-z_/+]{2,}"
_DATE_NOTATIONS = {
    "the serial number of a spreadsheet": re.compile(r"[1-9]\d{4}([.,]\d*)?"),
    "a month's name": re.compile(rf"(?=.*\d)(?!{_ZONED}).*[^\W\d_]{{3,}}.*"),
    "the name of a time zone": re.compile(_ZONED),
    "a year of two digits": re.compile(r"\d{1,2}([./ -])\d{1,2}\1\d{2}(\D.*)?|\d{6}"),
    "a clock of twelve hours": re.compile(r".*\d\s*[ap]\.?m\.?", re.IGNORECASE),
    "seconds or milliseconds since 1970": re.compile(r"\d{9,13}"),
    "a year, or a year and a month, without a day": re.compile(
        r"\d{4}([-/.]\d{2})?|\d{2}[/.]\d{4}"
    ),
    _SCRIPT: _NUMBER_NOTATIONS[_SCRIPT],
}
"""Notations that no setting declares, by the words that name them."""


class CellTally:
    """Counts of cells, and first distinct texts. Privacy: exact: the run's private folder only."""

    def __init__(self, schema: PublicSchema) -> None:
        """Count all columns of the schema, identifiers included."""
        self._columns = schema.columns
        self._whole = True
        self._texts = {column.name: _FirstTexts() for column in schema.columns}
        self.rows = self.empty = 0
        self.undecoded = dict.fromkeys(self._texts, 0)
        self.counts = {column.name: CellCounts() for column in schema.columns}

    def add(self, raw: pd.DataFrame, frame: pd.DataFrame) -> None:
        """Count raw cells and their canonical cells; after an error, do not use the tally."""
        whole, self._whole = self._whole, False
        self.rows += len(frame)
        self.empty += _rows_without_cell(frame)
        for column in self._columns:
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
                self._texts[column.name].add(texts)
        self._whole = whole

    def check_whole(self) -> None:
        """Raise ValueError if a batch could not be counted."""
        if not self._whole:
            raise ValueError("a batch could not be counted")

    def first_texts(self, column: Column) -> _FirstTexts:
        """Return the first distinct raw texts of a column."""
        return self._texts[column.name]


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


def leave_statement(
    directory: Path,
    *,
    tally: CellTally,
    schema: PublicSchema,
    formats: Mapping[str, CellFormat],
    kept: int,
    file_format: str = "csv",
) -> None:
    """Write the statement; never raises. Privacy: exact counts: the run's private folder only."""
    with contextlib.suppress(Exception):
        text = statement(tally, schema, formats, kept, file_format=file_format)
        write_durably(directory / STATEMENT, text.encode())


def statement(
    tally: CellTally,
    schema: PublicSchema,
    formats: Mapping[str, CellFormat],
    kept: int,
    *,
    file_format: str = "csv",
) -> str:
    """Return the statement's text, as confidential as the cells; ValueError before all are counted.

    Advice names how the file is written, never a field of the published data dictionary. Its words
    are the same at every count: advice that appears at a threshold, once followed, would publish on
    which side the count lies.
    """
    tally.check_whole()
    rows: list[tuple[str, ...]] = [_HEADER]
    fates, notes, unread = list[str](), list[str](), list[str]()
    for column in schema.columns:
        counts = tally.counts[column.name]
        identifier = column.role is ColumnRole.IDENTIFIER
        figures = (
            counts.missing, counts.unreadable, counts.outside, counts.rounded, counts.unknown,
        )  # fmt: skip
        kind = column.role.value if identifier else column.kind.value
        rows.append((column.name, kind, *(f"{figure:,}" for figure in figures)))
        if not identifier:
            fates.append(f"- column {column.name}: {_became(column, counts, tally.rows)}")
        if tally.rows and counts.missing + counts.unreadable + counts.unknown == tally.rows:
            unread.append(column.name)
        notes += _column_notes(column, tally, formats[column.name], file_format)
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    table = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    beginning = [
        _OPENING,
        f"rows that hold no cell: {tally.empty:,}",
        f"columns of which no cell could be read: {', '.join(unread) or 'none'}",
        f"rows read: {tally.rows:,}; within max_rows, and so kept: {kept:,}",
    ]
    written = ["How the file is written:", *(f"- {note}" for note in notes)]
    closing = [_CLOSING, *fates, "", *(written if notes else [_AS_DECLARED]), ""]
    return "\n".join([*beginning, "", *table, "", *closing])


def _column_notes(
    column: Column, tally: CellTally, written: CellFormat, file_format: str
) -> list[str]:
    """How the column's cells are written, where that is not as declared; quotes no cell."""
    notes = []
    if undecoded := tally.undecoded[column.name]:
        notes.append(
            f"{undecoded:,} cells hold bytes that are no text in the declared encoding; is"
            " `source.encoding` right?"
        )
    distinct = tally.first_texts(column).series()
    if column.is_numeric and not distinct.empty:
        unread = distinct[_unread(column, distinct, written)]
        of = f"of {len(unread):,} different texts that are not read as {column.kind.value},"
        notes += [f"{of} {told}" for told in _told(column, unread, written, file_format)]
    return [f"column {column.name}: {note}" for note in notes]


def _became(column: Column, counts: CellCounts, rows: int) -> str:
    """How many cells were not read, and what they became: the same words at every count."""
    fate = _fate(column)
    if column.is_numeric or column.kind is ColumnKind.BOOLEAN:
        count, what = counts.unreadable, f"could not be read as {column.kind.value}"
        became = fate
    else:
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
    told = [
        f"{len(read):,} are read {words}{parquet}"
        for words, read in reads.items()
        if read and not any(_better(words, other, reads, forms) for other in forms)
    ]
    rest = unread.drop(unread.index[sorted(frozenset().union(*reads.values()))])
    texts = [text.strip() for text in rest.tolist() if len(text) <= _LONGEST_NOTATION]
    dated = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
    patterns = _DATE_NOTATIONS if dated else _NUMBER_NOTATIONS
    counted = {
        notation: sum(pattern.fullmatch(text) is not None for text in texts)
        for notation, pattern in patterns.items()
    }
    counted[_OTHER_MARKS] = sum(
        any(map(str.isnumeric, text))
        and (dated or exact_number(text) is None)
        and not any(pattern.fullmatch(text) for pattern in patterns.values())
        for text in texts
    )
    for notation, count in counted.items():
        if count:
            told.append(
                f"{count:,} have {notation}; no setting reads it: write"
                f" {'ISO dates' if dated else 'plain numbers'} in the file"
            )
    return told


def _better(
    words: str, other: str, reads: Mapping[str, frozenset[int]], forms: Mapping[str, CellFormat]
) -> bool:
    if reads[words] == reads[other]:
        return _settings(forms[other]) < _settings(forms[words])
    return reads[words] < reads[other]


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
        f"if they are written so: declare {field}: {pattern!r}": CellFormat.taken_from(
            {field: pattern}
        )
        for pattern in patterns
    }
