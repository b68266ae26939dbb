"""Rows that another tool made, in a public Parquet file that a spec names by its SHA-256.

They are public by declaration. Messages name columns, kinds and public ranges all the same, and
never a cell, a name or a digest of the file: it may be another one than its owner thinks.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dpiw.data.cell_counts import count_cells
from dpiw.data.columns import Column
from dpiw.data.confidential import is_same_file
from dpiw.data.headers import free_check
from dpiw.data.public_rows import check_digest
from dpiw.data.raw_source import IngestLimits
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.sources import open_parquet
from dpiw.data.validation import types_fault
from dpiw.errors import SourceError, SpecError

FIELD = "generator.settings.rows"

_LIMITS = IngestLimits(max_memory_bytes=1 << 30)
"""A gibibyte in memory: some 10 million rows of a dozen columns."""


def check_rows_file(path: Path, *, sha256: str, source: Path) -> None:
    """Refuse a file that is not the one meant, or that is the confidential table. Reads no row.

    Args:
        path: the file.
        sha256: that its bytes must have.
        source: the confidential file, which is compared by name and by inode, and never opened.

    Raises:
        SpecError: the confidential file, no readable regular file, or other bytes.
    """
    if is_same_file(path, source):
        raise SpecError(f"{FIELD}: this is source.path, the confidential table")
    check_digest(path, sha256, field=FIELD)


def read_rows_file(path: Path, *, sha256: str, schema: PublicSchema) -> ScaledTable:
    """Read a Parquet file of exactly the schema's released columns, each cell as declared.

    Nothing is clamped or filled: what the data dictionary does not admit is refused.

    Raises:
        SpecError: other bytes than stated, other columns or types, a cell that is missing,
            unreadable, out of bounds or no level where the dictionary has it otherwise, no rows, or
            a row that breaks a constraint of the dictionary.
    """
    check_digest(path, sha256, field=FIELD)
    raw, reason = None, ""
    names = [column.name for column in schema.released]
    try:
        with open_parquet(path, names, limits=_LIMITS) as opened:
            reason = types_fault(opened.types, schema.released, file_format="parquet")
            raw = None if reason else opened.whole(most_bytes=_LIMITS.max_memory_bytes)
    except SourceError as error:
        reason = str(error)
    if raw is None:  # raised outside the handler: nothing of the file hangs on it
        reason = reason.replace("the source is", "it is").replace("; is source.format csv?", "")
        reason = reason.replace(free_check(None), "")
        expected = f"released columns ({', '.join(names)})"
        raise SpecError(f"{FIELD}: expected a Parquet file of the {expected}: {reason}")
    if len(raw.frame) == 0:
        raise SpecError(f"{FIELD}: expected at least one row")
    for column in schema.released:
        _check_column(column, raw.frame[column.name])
    scaled = schema.scale(raw.frame)
    broken = {} if schema.rules is None else schema.rules.broken(scaled)
    for name, rows in broken.items():
        if rows.any():  # a file has no further rows to draw in the place of these
            raise SpecError(f"{FIELD}: has rows that break constraint {name}; mend them before")
    return scaled


def _check_column(column: Column, cells: pd.Series) -> None:
    counts = count_cells(column, cells)
    faults = {
        "missing cells, and is not nullable": counts.missing and not column.nullable,
        f"cells that are no {column.kind.value}": counts.unreadable,
        f"cells outside [{column.lower}, {column.upper}]": counts.outside,
        "numbers that are not whole": counts.rounded,
        f"cells that are none of its {len(column.levels)} levels": counts.unknown,
    }
    for fault, count in faults.items():
        if count:
            raise SpecError(f"{FIELD}: column {column.name}: has {fault}")
