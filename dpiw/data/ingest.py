"""From a confidential file to a scaled snapshot: the first confidential stage.

Copy, read, validate the structure, read cells by their declared format, bound the rows per person,
scale, validate, write; then leave the custodian's statement of what became of cells. Every step
is row-local or structural, except the bound on rows per person, which enters the privacy unit.
Nothing leaves the run's private directory.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.cell_formats import CANONICAL, CellFormat, settled_formats
from dpiw.data.cell_reading import canonical_frame
from dpiw.data.cell_statement import leave_statement
from dpiw.data.cells import cell_texts
from dpiw.data.columns import Column, ColumnRole
from dpiw.data.files import write_durably
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.snapshots import write_snapshot
from dpiw.data.sources import IngestLimits, RawTable, copy_source, read_csv, read_parquet
from dpiw.data.validation import (
    validate_constraints,
    validate_scaled,
    validate_structure,
    validate_values,
)
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

__all__ = ["IngestLimits", "ingest"]

SNAPSHOT = "scaled.parquet"
VERDICTS = "validation.json"


def ingest(
    source: Path,
    *,
    file_format: str,
    schema: PublicSchema,
    unit: PrivacyUnit,
    directory: Path,
    limits: IngestLimits,
    public_rows: int | None = None,
    encoding: str = "utf-8",
    delimiter: str = ",",
    written: CellFormat = CANONICAL,
) -> Path:
    """Read a confidential file and write its scaled snapshot.

    Under add/remove any number of rows is admissible, none included: it is private, and refusing
    would reveal it. Under replace-one the number of rows is public and must be the declared one.

    Args:
        source: the confidential file.
        file_format: `csv` or `parquet`.
        schema: the public schema.
        unit: relation and rows per person.
        directory: the run's private directory, where everything is written.
        limits: what the file may be at most.
        public_rows: replace-one only: rows that remain after bounding rows per person.
        encoding: of a CSV file, declared.
        delimiter: of a CSV file, declared.
        written: how cells are written, unless a column says otherwise; states every field.

    Returns:
        The snapshot's path, `directory/scaled.parquet`; `validation.json` and the custodian's
        `cells.txt` lie beside it.

    Privacy:
        Unit: at most `unit.max_rows` rows per id remain; all else is row-local. Releases nothing,
        but that it failed for a structural reason is visible.

    Raises:
        SpecError, SchemaError: settings that do not fit each other; nothing was read.
        SourceError: the file's structure is not as declared. Holds no cell, count or row number.
    """
    person = _check_settings(file_format, schema, unit, public_rows)
    formats = settled_formats(schema, written, file_format=file_format)
    raw = _read(source, file_format, schema, directory, limits, encoding, delimiter)
    structure = validate_structure(raw.types, schema, file_format=file_format)
    canonical = frame = canonical_frame(raw.frame, schema, formats)
    if person is not None:
        frame = frame.take(rows_within_unit(frame, person, unit))
    if public_rows is not None and len(frame) != public_rows:
        raise SourceError("the number of rows is not the one declared for the replace-one relation")
    scaled = schema.scale(frame)
    values = _value_verdicts(frame, scaled, schema)
    encoded = validate_scaled(scaled_extremes(scaled, schema), schema)
    verdicts = {"structure": structure, "values": values, "scaled": encoded}
    write_durably(directory / VERDICTS, json.dumps(verdicts, indent=1, sort_keys=True).encode())
    snapshot = directory / SNAPSHOT
    write_snapshot(scaled, snapshot)
    leave_statement(directory, raw=raw.frame, frame=canonical, schema=schema, formats=formats)
    return snapshot


def _check_settings(
    file_format: str, schema: PublicSchema, unit: PrivacyUnit, public_rows: int | None
) -> Column | None:
    """The identifier by which rows are bounded, or None where each row is a unit."""
    if file_format not in ("csv", "parquet"):
        raise SpecError("source.format: expected csv or parquet")
    replace_one = unit.relation is NeighbouringRelation.REPLACE_ONE
    if replace_one and (public_rows is None or public_rows < 1):
        raise SpecError("replace-one: the public number of rows (>= 1) must be declared")
    if not replace_one and public_rows is not None:
        raise SpecError("add/remove: the number of rows is private and cannot be declared")
    if unit.id_column is None:
        return None
    person = schema.column(unit.id_column)
    if person.role is not ColumnRole.IDENTIFIER:
        raise SchemaError(f"column {person.name}: the unit's id_column must be an identifier")
    return person


def _read(
    source: Path,
    file_format: str,
    schema: PublicSchema,
    directory: Path,
    limits: IngestLimits,
    encoding: str,
    delimiter: str,
) -> RawTable:
    """Read a private copy, which is removed again whatever happens."""
    names = [column.name for column in schema.columns]
    copy = directory / f".source-{secrets.token_hex(8)}"
    try:
        copy_source(source, copy)
        if file_format == "csv":
            return read_csv(copy, names, limits=limits, encoding=encoding, delimiter=delimiter)
        return read_parquet(copy, names, limits=limits)
    finally:
        copy.unlink(missing_ok=True)


def rows_within_unit(frame: pd.DataFrame, person: Column, unit: PrivacyUnit) -> NDArray[np.int64]:
    """Indices of the rows kept: at most `unit.max_rows` of each person, in file order.

    Each row gets an independent random key from the operating system and a person keeps the rows
    of the smallest keys, so no person's rows bear on another's, and file order decides nothing.

    Privacy:
        Unit: afterwards adding or removing a person adds or removes at most `max_rows` rows.

    Raises:
        SourceError: a row without id, unless the identifier declares `null_is_own_person`.
    """
    ids, _ = pd.factorize(np.array(_person_ids(frame[person.name]), dtype=object))
    alone = ids < 0
    if alone.any() and not person.null_is_own_person:
        raise SourceError(
            f"column {person.name}: an id is missing and null_is_own_person is not set"
        )
    keys = np.frombuffer(secrets.token_bytes(8 * len(ids)), dtype=np.uint64)
    order = np.lexsort((keys, ids))
    sorted_ids = ids[order]
    starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]][: len(ids)])
    lengths = np.diff(np.r_[starts, len(ids)])
    rank = np.empty(len(ids), dtype=np.int64)
    rank[order] = np.arange(len(ids)) - np.repeat(starts, lengths)
    return np.flatnonzero(alone | (rank < unit.max_rows))


def _person_ids(cells: pd.Series[Any]) -> list[str | None]:
    stripped = (None if text is None else text.strip() for text in cell_texts(cells).to_pylist())
    return [text or None for text in stripped]


def _value_verdicts(
    frame: pd.DataFrame, scaled: ScaledTable, schema: PublicSchema
) -> dict[str, bool] | None:
    """Verdicts on raw values and on constraints, None where they could not be had.

    They never decide anything.
    """
    try:
        return validate_values(frame, schema) | validate_constraints(scaled, schema)
    except Exception:
        return None


def scaled_extremes(scaled: ScaledTable, schema: PublicSchema) -> pd.DataFrame:
    """Minimum and maximum of every scaled column, as two rows.

    A missing number that may be there is left out; one that may not passes through as NaN. Of a
    column without values: zeros, which are admissible.

    Privacy:
        Exact extremes: validated and dropped inside the stage.
    """
    extremes = {}
    for column in schema.released:
        values = scaled.columns[column.name]
        if column.unseen:  # texts, which have no least one
            values = values[:0]
        if column.is_numeric and column.nullable:
            values = values[~np.isnan(values)]
        extremes[column.name] = [values.min(), values.max()] if values.size else [0.0, 0.0]
    return pd.DataFrame(extremes, dtype=np.float64)
