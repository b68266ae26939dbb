"""Turn a confidential file into a scaled snapshot: the first confidential stage.

Every step is row-local or structural, except the bound on rows per person, which enters the
privacy unit. Nothing leaves the run's private directory; a failed read leaves nothing in it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.cell_formats import CANONICAL, CellFormat
from dpiw.data.cell_reading import canonical_cells, canonical_frame, settled_formats
from dpiw.data.cell_statement import CellTally, leave_statement
from dpiw.data.columns import Column, ColumnRole
from dpiw.data.files import write_durably
from dpiw.data.person_bound import rows_within_unit
from dpiw.data.raw_source import IngestLimits, RawSource, copy_source
from dpiw.data.schema import PublicSchema
from dpiw.data.snapshots import snapshot_writer
from dpiw.data.sources import open_csv, open_parquet
from dpiw.data.threads import prefetched
from dpiw.data.validation import (
    Results,
    ScaledFacts,
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
    """Read a confidential file and write its scaled snapshot; return the snapshot's path.

    Under add/remove any number of rows is admissible, none included: it is private, and refusing
    would reveal it. Under replace-one the number after bounding, `public_rows`, is public and must
    be met. `written` states every field. Raises SpecError or SchemaError for settings that do not
    fit, before reading; SourceError, whose message holds no cell, count or row number.

    Privacy: at most `unit.max_rows` rows per id remain; all else is row-local. Releases nothing,
        but a structural failure is visible.
    """
    person = _check_settings(file_format, schema, unit, public_rows)
    formats = settled_formats(schema, written, file_format=file_format)
    names = [column.name for column in schema.columns]
    snapshot, tally, facts, rows = directory / SNAPSHOT, CellTally(schema), ScaledFacts(), 0
    with contextlib.ExitStack() as stack:
        copy = stack.enter_context(_copied(source, directory))
        raw = stack.enter_context(
            open_csv(copy, names, limits=limits, encoding=encoding, delimiter=delimiter)
            if file_format == "csv"
            else open_parquet(copy, names, limits=limits)
        )
        structure = validate_structure(raw.types, schema, file_format=file_format)
        append = stack.enter_context(snapshot_writer(snapshot))
        within = None if person is None else _within_unit(raw, person, unit, formats, directory)
        bounded = prefetched(_bounded(raw, within, schema, formats, tally))
        for frame in stack.enter_context(contextlib.closing(bounded)):
            scaled = schema.scale(frame)
            facts, rows = facts.and_of(scaled, schema), rows + scaled.rows
            append(scaled)
        if public_rows is not None and rows != public_rows:
            raise SourceError(
                "the number of rows is not the one declared for the replace-one relation"
            )
        encoded = validate_scaled(facts.extremes, schema)
        values = _value_verdicts(tally, facts, schema)
        verdicts = {"structure": structure, "values": values, "scaled": encoded}
        write_durably(directory / VERDICTS, json.dumps(verdicts, indent=1, sort_keys=True).encode())
    leave_statement(
        directory, tally=tally, schema=schema, formats=formats, kept=rows, file_format=file_format
    )
    return snapshot


def _check_settings(
    file_format: str, schema: PublicSchema, unit: PrivacyUnit, public_rows: int | None
) -> Column | None:
    """Return the identifier by which rows are bounded, or None where each row is a unit."""
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


@contextlib.contextmanager
def _copied(source: Path, directory: Path) -> Iterator[Path]:
    """A private copy, always removed at the end."""
    copy = directory / f".source-{secrets.token_hex(8)}"
    try:
        copy_source(source, copy)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _within_unit(
    raw: RawSource,
    person: Column,
    unit: PrivacyUnit,
    formats: Mapping[str, CellFormat],
    directory: Path,
) -> NDArray[np.bool_]:
    cells = (frame[person.name] for frame in raw.frames([person.name]))
    ids = (canonical_cells(person, batch, formats[person.name]) for batch in cells)
    return rows_within_unit(ids, person, unit, directory=directory)


def _bounded(
    raw: RawSource,
    within: NDArray[np.bool_] | None,
    schema: PublicSchema,
    formats: Mapping[str, CellFormat],
    tally: CellTally,
) -> Iterator[pd.DataFrame]:
    """Yield canonical cells of rows within the unit, in batches; tally all cells read."""
    start = 0
    with contextlib.closing(prefetched(raw.frames())) as frames:
        for cells_read in frames:
            frame = canonical_frame(cells_read, schema, formats)
            with contextlib.suppress(Exception):
                tally.add(cells_read, frame)
            stop = start + len(frame)
            yield frame if within is None else frame.take(np.flatnonzero(within[start:stop]))
            start = stop


def _value_verdicts(tally: CellTally, facts: ScaledFacts, schema: PublicSchema) -> Results | None:
    """Verdicts on raw values and constraints, or None; they decide nothing."""
    try:
        tally.check_whole()
        return validate_values(tally.counts, schema) | facts.constraints()
    except Exception:
        return None
