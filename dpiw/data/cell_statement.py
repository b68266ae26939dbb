"""What became of a source's cells: the custodian's statement, exact and confidential.

One table and plain sentences in the run's private folder. It is written after the snapshot, decides
nothing, and nobody but the custodian is told of it: not the release, not Prefect, no worker's log.
That it could not be made changes nothing either.
"""

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

from dpiw.data.cell_counts import UNREADABLE, CellCounts, cell_judge, count_cells
from dpiw.data.cell_formats import CANONICAL, CellFormat
from dpiw.data.cell_reading import canonical_cells
from dpiw.data.cells import cell_texts, text_bytes
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.files import write_durably
from dpiw.data.schema import PublicSchema

STATEMENT = "cells.txt"

_SOME = 0.01
"""Share of cells from which clamped, filled and unknown ones are worth a sentence."""

_NO_TEXT = "\ufffd"
"""What stands for bytes that are no text in the declared encoding (`dpiw.data.sources`)."""

_MAX_TEXTS, _MAX_BYTES = 10_000, 1 << 22
_FEW_TEXTS = 3
_HEADER = ("column", "kind", "missing", "unreadable", "out of bounds", "rounded", "no level")
_OPENING = """\
How the cells of the source were read. Exact counts: confidential, for the custodian alone.
Missing and unreadable cells became missing, or the fill of a column that is not nullable. Cells out
of bounds were clamped to the nearer bound. Cells that are no level became `other`, or as
missing ones.
"""
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
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d")
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")


class CellTally:
    """What became of the cells read so far, and the first different texts of each column.

    Privacy:
        Exact counts and cells: they are shown in the run's private folder only.
    """

    def __init__(self, schema: PublicSchema) -> None:
        """Take the columns that will be counted, identifiers included."""
        self._columns = schema.columns
        self._whole = True
        self._texts = {column.name: _FirstTexts() for column in schema.columns}
        self.rows = 0
        self.undecoded = dict.fromkeys(self._texts, 0)
        self.counts = {column.name: CellCounts() for column in schema.columns}

    def add(self, raw: pd.DataFrame, frame: pd.DataFrame) -> None:
        """Count a batch; if that raises, the tally is of no use any more, and decides nothing.

        Args:
            raw: the cells as they were read from the source.
            frame: the same rows with canonical cells.
        """
        whole, self._whole = self._whole, False
        self.rows += len(frame)
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
        """Of the raw cells of a column that could be unreadable."""
        return self._texts[column.name]


class _FirstTexts:
    """The first different texts of a column of texts; how many batches there are is all one."""

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
) -> None:
    """Write the statement into the run's private folder; never raises.

    Args:
        directory: the run's private folder.
        tally: of all cells.
        schema: the public schema.
        formats: how each column is declared to be written.
        kept: rows within the unit.

    Privacy:
        Exact counts of confidential cells. They stay in that folder, and whether the file could
        be made changes no outcome.
    """
    with contextlib.suppress(Exception):
        text = statement(tally, schema, formats, kept)
        write_durably(directory / STATEMENT, text.encode())


def statement(
    tally: CellTally, schema: PublicSchema, formats: Mapping[str, CellFormat], kept: int
) -> str:
    """The statement's text. As confidential as the cells it counts.

    Raises:
        ValueError: not all cells were counted.
    """
    tally.check_whole()
    rows: list[tuple[str, ...]] = [_HEADER]
    notes = _rows_told(tally.rows, kept)
    for column in schema.columns:
        counts = tally.counts[column.name]
        identifier = column.role is ColumnRole.IDENTIFIER
        figures = (
            counts.missing, counts.unreadable, counts.outside, counts.rounded, counts.unknown,
        )  # fmt: skip
        kind = column.role.value if identifier else column.kind.value
        rows.append((column.name, kind, *(f"{figure:,}" for figure in figures)))
        notes += _column_notes(column, tally, formats[column.name])
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    table = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    closing = ["Look at:", *(f"- {note}" for note in notes)] if notes else ["Nothing stands out."]
    read = f"rows read: {tally.rows:,}; within max_rows, and so kept: {kept:,}"
    return "\n".join([_OPENING, read, "", *table, "", *closing, ""])


def _rows_told(read: int, kept: int) -> list[str]:
    """A sentence where there is no row, or the unit left out more than some."""
    if not read:
        return ["the source has no rows below its header"]
    if read - kept <= _SOME * read:
        return []
    return [
        f"{read - kept:,} of {read:,} rows were beyond `max_rows` of their id, and are left out: a"
        " random choice of each id's rows stays; is it the id of a person, as declared?"
    ]


def _column_notes(column: Column, tally: CellTally, written: CellFormat) -> list[str]:
    """A sentence for each count that a custodian should look into."""
    rows, counts, notes = tally.rows, tally.counts[column.name], list[str]()

    def say(count: int, what: str) -> None:
        notes.append(f"column {column.name}: {count:,} of {rows:,} cells {what}")

    if tally.undecoded[column.name]:
        what = "hold bytes that are no text in the declared encoding; is `source.encoding` right?"
        say(tally.undecoded[column.name], what)
    if counts.unreadable:
        what = f"could not be read as {column.kind.value} and {_fate(column)}"
        hint = _hint(column, counts.unreadable, tally.first_texts(column), written)
        say(counts.unreadable, what + hint)
    if counts.outside > _SOME * rows:
        say(counts.outside, "lay out of bounds and were clamped; are the bounds in the same unit?")
    if counts.rounded:
        say(counts.rounded, "were not whole and were rounded; see also `thousands`")
    if counts.unknown > (0.5 if column.other else _SOME) * rows:
        fate = f"became {column.other!r} (`other`)" if column.other else _fate(column)
        say(counts.unknown, f"were none of the levels and {fate}; see also `normaliser`")
    filled = not column.nullable and column.role is not ColumnRole.IDENTIFIER
    if filled and counts.missing > _SOME * rows:
        say(counts.missing, f"were missing and {_fate(column)}; `nullable: true` keeps them so")
    elif rows and counts.missing == rows:
        say(counts.missing, "were missing")
    return notes


def _fate(column: Column) -> str:
    """What became of a cell that says nothing; the value is the data dictionary's."""
    if column.nullable:
        return "became missing"
    if column.fill is not None:
        return f"became {column.fill!r}, the `fill`"
    if column.is_numeric:
        return f"became {column.lower!r}, the lower bound, as no `fill` is declared"
    if column.kind is ColumnKind.BOOLEAN:
        return "became false, as no `fill` is declared"
    if column.other is not None:
        return f"became {column.other!r} (`other`)"
    return f"became {column.level_names[0]!r}, the first level, as no `fill` is declared"


# Hints


def _hint(column: Column, count: int, texts: _FirstTexts, written: CellFormat) -> str:
    """What might be declared instead; quotes no cell."""
    distinct = texts.series()
    if distinct.empty:
        return ""
    unreadable = distinct[_unreadable(column, distinct, written)]
    forms = _other_forms(column)
    read = {
        words: int((~_unreadable(column, unreadable, form.over(written))).sum())
        for words, form in forms.items()
    }
    most = max(read.values(), default=0)
    if most > len(unreadable) / 2:
        best = [words for words in forms if read[words] == most]
        least = min(_settings(forms[words]) for words in best)
        return "; " + ", or ".join(words for words in best if _settings(forms[words]) == least)
    if len(unreadable) <= _FEW_TEXTS < count and not texts.full:
        boolean = column.kind is ColumnKind.BOOLEAN
        fields = "true_values, false_values or missing" if boolean else "missing, if they mean that"
        return f"; they are few different texts: declare them in {fields}"
    return ""


def _unreadable(column: Column, texts: pd.Series[Any], written: CellFormat) -> NDArray[np.bool_]:
    judge = cell_judge(column)
    canonical = cell_texts(canonical_cells(column, texts, written)).to_pylist()
    return np.array([t is not None and judge(t) == UNREADABLE for t in canonical], dtype=bool)


def _settings(form: CellFormat) -> int:
    """How many settings a form asks for."""
    return sum(value != getattr(CANONICAL, name) for name, value in form.stated().items())


def _other_forms(column: Column) -> dict[str, CellFormat]:
    """Forms that cells of a kind are often written in, by the words that suggest them."""
    if column.kind in (ColumnKind.CONTINUOUS, ColumnKind.INTEGER):
        return {
            f"if numbers are written {example}, declare decimal: {form.decimal!r} and"
            f" thousands: {form.thousands!r}": form
            for example, form in _NUMBERS.items()
        }
    name = {ColumnKind.DATE: "date_format", ColumnKind.DATETIME: "datetime_format"}
    if column.kind not in name:
        return {}
    field, times = name[column.kind], _TIMES if column.kind is ColumnKind.DATETIME else ("",)
    patterns = ("iso", *(day + time for time in times for day in _DATES))
    return {
        f"if they are written so, declare {field}: {pattern!r}": CellFormat.taken_from(
            {field: pattern}
        )
        for pattern in patterns
    }
