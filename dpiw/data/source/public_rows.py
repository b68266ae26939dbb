"""Rows of public files: a free beta calibration, and rows that another tool made.

The curator declares them public; nothing can check it, so the certificate states the SHA-256.
Messages hold no cell, name or digest of the file: it may be another one than its owner thinks.
"""

import contextlib
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dpiw.data.cells.counts import count_cells
from dpiw.data.schema.columns import Column
from dpiw.data.schema.confidential import is_same_file
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.source.batches import open_parquet, read_csv
from dpiw.data.source.copy import IngestLimits, copy_source
from dpiw.data.source.validation import types_fault
from dpiw.errors import SourceError, SpecError

FIELD = "weights.post_processing: beta_calibrate.rows"


def named_file(step: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a `beta_calibrate` step with its public file's absolute path and SHA-256.

    A file with a stated digest is not read, and a missing file leaves it open.
    """
    digest = step.get("sha256")
    if digest is None:
        with contextlib.suppress(SpecError):
            digest = _digest(path, FIELD)
    return {**step, "rows": str(path), "sha256": digest}


def check_digest(path: Path, sha256: str, *, field: str) -> None:
    """Raise SpecError, which names `field`, unless this is a regular file of that SHA-256."""
    if _digest(path, field) != sha256:
        fault = "the file's SHA-256 is not the one that `sha256` states"
        raise SpecError(f"{fault}; put the right file there, or correct `sha256`", field=field)


def _digest(path: Path, field: str) -> str:
    with contextlib.suppress(OSError):
        if path.is_file():  # no pipe or device, which would not end
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
    raise SpecError("the file cannot be read", field=field, allowed="a file that you may read")


def read_public_rows(
    path: Path, *, sha256: str, schema: PublicSchema, directory: Path, limits: IngestLimits
) -> ScaledTable:
    """Read a public CSV file of the released columns; SpecError if it is changed or unfit."""
    copy = directory / f".public-{secrets.token_hex(8)}"
    names = [column.name for column in schema.released]
    reason = ""
    try:
        copy_source(path, copy)
        if _digest(copy, FIELD) != sha256:
            repair = "put the planned file back, and start the run again"
            raise SpecError(f"the file has changed since the plan was made; {repair}", field=FIELD)
        frame = read_csv(copy, names, limits=limits, encoding="utf-8", delimiter=",")
    except SourceError as error:
        reason = error.found
    finally:
        copy.unlink(missing_ok=True)
    if reason:
        raise SpecError(field=FIELD, allowed=f"a CSV file of the released columns: {reason}")
    if frame.empty:
        raise SpecError(field=FIELD, allowed="at least one row")
    return schema.scale(frame)


# Rows that another tool made

ROWS_FIELD = "generator.settings.rows"

_LIMITS = IngestLimits(max_memory_bytes=1 << 30)
"""A gibibyte in memory: some 10 million rows of a dozen columns."""


def check_rows_file(path: Path, *, sha256: str, source: Path) -> None:
    """Raise SpecError for another SHA-256, no regular file, or the (unopened) source."""
    if is_same_file(path, source):
        what = "this is source.path, the confidential table"
        raise SpecError(what, field=ROWS_FIELD, allowed="a file of rows that another tool made")
    check_digest(path, sha256, field=ROWS_FIELD)


def read_rows_file(path: Path, *, sha256: str, schema: PublicSchema) -> ScaledTable:
    """Read a Parquet file of the released columns; SpecError for an inadmissible cell or row."""
    check_digest(path, sha256, field=ROWS_FIELD)
    frame, reason = None, ""
    names = [column.name for column in schema.released]
    try:
        with open_parquet(path, names, limits=_LIMITS) as opened:
            reason = types_fault(opened.types, schema.released, file_format="parquet")
            frame = None if reason else opened.whole(most_bytes=_LIMITS.max_memory_bytes)
    except SourceError as error:
        reason = error.found
    if frame is None:  # raised outside the handler: nothing of the file hangs on it
        expected = f"released columns ({', '.join(names)})"
        raise SpecError(field=ROWS_FIELD, allowed=f"a Parquet file of the {expected}: {reason}")
    if frame.empty:
        raise SpecError(field=ROWS_FIELD, allowed="at least one row")
    for column in schema.released:
        _check_column(column, frame[column.name])
    scaled = schema.scale(frame)
    broken = {} if schema.rules is None else schema.rules.broken(scaled)
    for name, rows in broken.items():
        if rows.any():  # a file has no further rows to draw instead of these
            fault = f"has rows that break constraint {name}; correct these rows in the file"
            raise SpecError(fault, field=ROWS_FIELD)
    return scaled


def _check_column(column: Column, cells: pd.Series) -> None:
    counts = count_cells(column, cells)
    faults = {
        "missing cells, and is not nullable": counts.missing and not column.nullable,
        f"cells that are no {column.kind.value}": counts.unreadable,
        f"cells outside [{column.lower}, {column.upper}]": counts.outside,
        f"numbers that are not {'listed' if column.values else 'whole'}": counts.rounded,
        f"cells that are none of its {len(column.levels)} levels": counts.unknown,
    }
    for fault, count in faults.items():
        if count:
            raise SpecError(
                f"column {column.name}: has {fault}; correct the file", field=ROWS_FIELD
            )
