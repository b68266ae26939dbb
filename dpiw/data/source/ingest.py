"""Turn a confidential file into a scaled snapshot: the first confidential stage.

Every step is row-local or structural, except the bound on rows per person, which enters the
privacy unit. Nothing leaves the run's private directory; a failed read leaves nothing in it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpiw.data.cells.formats import CANONICAL, CellFormat
from dpiw.data.cells.plain import cell_texts, in_one_form
from dpiw.data.cells.reading import WHITE_SPACE, canonical_cells, canonical_frame, settled_formats
from dpiw.data.cells.statement import CellTally, leave_statement
from dpiw.data.files import write_durably
from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.snapshots import snapshot_writer
from dpiw.data.source.batches import open_csv, open_parquet
from dpiw.data.source.copy import IngestLimits, RawSource, copy_source, data_row
from dpiw.data.source.validation import (
    Results,
    ScaledFacts,
    judge_expectations,
    validate_scaled,
    validate_structure,
    validate_values,
)
from dpiw.data.threads import prefetched
from dpiw.errors import SourceError
from dpiw.privacy.units import PrivacyUnit

Records = NDArray[np.void]

_HASH = np.dtype([("one", "u8"), ("two", "u8")])
_ROW = np.dtype([*_HASH.descr, ("key", "u8"), ("row", "i8")])

RANGE_ROWS = 1 << 22
"""Approximate rows of one range of hashes."""

_CHUNK = 1 << 20
_ALONE = np.uint64(0)
"""First half of the hash of a row that is a person of its own."""


def rows_within_unit(
    cells: Iterable[pd.Series[Any]], person: Column, unit: PrivacyUnit, *, directory: Path
) -> NDArray[np.bool_]:
    """Return a mask, shape (rows,) in file order, of at most `unit.max_rows` rows of each person.

    A person keeps the rows of the smallest of independent random keys from the operating system: no
    person's rows depend on another's, and file order decides nothing. `directory` is the run's
    private folder. Raises SourceError for a row without id, unless `null_is_own_person`.

    Privacy: afterwards adding or removing a person adds or removes at most `max_rows` rows.
    """
    with tempfile.TemporaryFile(dir=directory) as file:
        rows, alone = _hashed(cells, file)
        if alone is not None and not person.null_is_own_person:
            message = "an id is missing and null_is_own_person is false: enter ids, or set true"
            raise SourceError(message, field=f"column {person.name}", place=data_row(alone))
        mask = np.zeros(rows, dtype=np.bool_)
        ranges = max(1, -(-rows // RANGE_ROWS))
        for number in range(ranges):
            _keep(mask, _in_range(file, number, ranges), most=unit.max_rows)
        for start, hashes in _chunks(file):
            mask[start : start + len(hashes)] |= hashes["one"] == _ALONE
    return mask


def _hashed(cells: Iterable[pd.Series[Any]], file: IO[bytes]) -> tuple[int, int | None]:
    """Write a hash for each row; return the number of rows and the first whose id is missing."""
    keys, rows = (secrets.token_hex(8), secrets.token_hex(8)), 0
    alone: int | None = None
    for batch in cells:
        texts = pc.utf8_trim(in_one_form(cell_texts(batch)), characters=WHITE_SPACE)
        missing = pc.fill_null(pc.equal(texts, ""), True).to_numpy(zero_copy_only=False)
        hashes = np.zeros(len(texts), dtype=_HASH)
        for name, key in zip(_HASH.names or (), keys, strict=True):
            hashes[name] = _keyed(texts, key)
        hashes["one"][missing] = _ALONE
        file.write(hashes.tobytes())
        if alone is None and missing.any():
            alone = rows + int(missing.argmax())
        rows += len(hashes)
    return rows, alone


def _keyed(texts: pa.Array, key: str) -> NDArray[np.uint64]:
    """SipHash-2-4 of each text; never the value of `_ALONE`."""
    words = pc.fill_null(texts, "").to_numpy(zero_copy_only=False).astype(object)
    if not len(words):
        return np.empty(0, dtype=np.uint64)
    hashes: NDArray[np.uint64] = pd.util.hash_array(words, hash_key=key)
    return np.maximum(hashes, np.uint64(1), dtype=np.uint64)


def _chunks(file: IO[bytes]) -> Iterator[tuple[int, Records]]:
    file.seek(0)
    start = 0
    while data := file.read(_HASH.itemsize * _CHUNK):
        hashes = np.frombuffer(data, dtype=_HASH)
        yield start, hashes
        start += len(hashes)


def _in_range(file: IO[bytes], number: int, ranges: int) -> Iterator[Records]:
    for start, hashes in _chunks(file):
        first = hashes["one"]
        places = np.flatnonzero((first % np.uint64(ranges) == number) & (first != _ALONE))
        rows = np.empty(len(places), dtype=_ROW)
        for name in _HASH.names or ():
            rows[name] = hashes[name][places]
        rows["row"] = places + start
        keys = np.frombuffer(secrets.token_bytes(8 * len(hashes)), dtype=np.uint64)
        rows["key"] = keys[places]
        yield rows


def _keep(mask: NDArray[np.bool_], parts: Iterable[Records], *, most: int) -> None:
    """Mark the kept rows of one range; a person of very many rows is bounded on the way."""
    waiting: list[Records] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) > 2 * RANGE_ROWS:
            waiting = [_first_of_each(np.concatenate(waiting), most)]
    for rows in waiting[:1]:
        mask[_first_of_each(np.concatenate([rows, *waiting[1:]]), most)["row"]] = True


def _first_of_each(rows: Records, most: int) -> Records:
    rows = rows[np.lexsort((rows["key"], rows["two"], rows["one"]))]
    hashes = rows[["one", "two"]]
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]][: len(rows)])
    lengths = np.diff(np.r_[starts, len(rows)])
    return rows[np.arange(len(rows)) - np.repeat(starts, lengths) < most]


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
    be met. `written` states every field. The settings fit, as `dpiw.plan.spec.check_fit` checks.
    Raises SourceError, whose message holds no cell, count or row number.

    Privacy: at most `unit.max_rows` rows per id remain; all else is row-local. Releases nothing,
        but a structural failure is visible.
    """
    person = None if unit.id_column is None else schema.column(unit.id_column)
    formats = settled_formats(schema, written, file_format=file_format)
    names = [column.name for column in schema.columns]
    snapshot, tally, facts, rows = directory / SNAPSHOT, CellTally(schema), ScaledFacts(schema), 0
    with contextlib.ExitStack() as stack:
        copy = directory / f".source-{secrets.token_hex(8)}"
        stack.callback(copy.unlink, missing_ok=True)
        copy_source(source, copy)
        raw = stack.enter_context(
            open_csv(copy, names, limits=limits, encoding=encoding, delimiter=delimiter)
            if file_format == "csv"
            else open_parquet(copy, names, limits=limits)
        )
        structure = validate_structure(raw.types, schema, file_format=file_format)
        append = stack.enter_context(snapshot_writer(snapshot))
        within = None
        if person is not None:
            cells = (frame[person.name] for frame in raw.frames([person.name]))
            ids = (canonical_cells(person, batch, formats[person.name]) for batch in cells)
            within = rows_within_unit(ids, person, unit, directory=directory)
        bounded = prefetched(_bounded(raw, within, schema, formats, tally))
        for frame in stack.enter_context(contextlib.closing(bounded)):
            scaled = schema.scale(frame)
            facts.add(scaled)
            append(scaled)
            rows += scaled.rows
        if public_rows is not None and rows != public_rows:
            message = "the number of rows is not nominal_rows, as relation: replace_one needs"
            raise SourceError(message)
        encoded = validate_scaled(facts.extremes, schema)
        values: Results | None = None
        with contextlib.suppress(Exception):  # verdicts on values and constraints decide nothing
            tally.check_whole()
            values = validate_values(tally.counts, schema) | facts.constraints()
        verdicts = {"structure": structure, "values": values, "scaled": encoded}
        write_durably(directory / VERDICTS, json.dumps(verdicts, indent=1, sort_keys=True).encode())
        leave_statement(directory, tally, formats=formats, kept=rows, file_format=file_format)
    return snapshot


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
            for column in schema.columns:
                tally.expected[column.name] += judge_expectations(column, frame[column.name])
            stop = start + len(frame)
            yield frame if within is None else frame.take(np.flatnonzero(within[start:stop]))
            start = stop
