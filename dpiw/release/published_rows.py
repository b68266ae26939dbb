"""Published rows, read back: as pandas columns, and what a file's footer says."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpiw.errors import ManifestError, shown
from dpiw.release.manifest import SYNTHETIC, ArrowField, Facts, FileBytes
from dpiw.release.parquet import FACTS, LOG_WEIGHT, WEIGHT, arrow_fields

_ARROW_SCHEMA = "ARROW:schema"

_FIELD_KEYS = {b"description", b"role", b"PARQUET:field_id"}
"""What a column's metadata may hold: ours, and a number of the format."""


@dataclass(frozen=True, kw_only=True)
class Footer:
    """What a Parquet file says about itself: rows, columns and the DP facts; and its table."""

    rows: int
    columns: tuple[ArrowField, ...]
    facts: Mapping[str, str]
    table: Any = None


def read_footer(file: FileBytes) -> Footer:
    """Read rows, columns and facts of a file that `write_synthetic` wrote.

    Raises:
        ManifestError: not a Parquet file, or a footer or a column with a key beside the allow-list.
    """
    try:
        with pq.ParquetFile(file.stream()) as parquet:
            rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
            metadata = dict(parquet.metadata.metadata or {})
        facts = {key.decode(): value.decode() for key, value in metadata.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as reason:
        raise ManifestError(f"{file.name}: not readable as Parquet") from reason
    facts.pop(_ARROW_SCHEMA, None)
    for name in sorted(set(facts) - set(FACTS)):
        raise ManifestError(f"{file.name}: unknown footer key {name!r}")
    for field in schema:
        if not set(field.metadata or {}) <= _FIELD_KEYS:
            raise ManifestError(
                f"{file.name}: column {shown(field.name)}: unknown key in its metadata"
            )
    return Footer(rows=rows, columns=arrow_fields(schema), facts=facts)


_FREE_CELLS, _CELLS_A_BYTE, _CELL = 2**24, 128, 8
"""How many cells a file may hold that nobody vouches for: so many, and more for each of its bytes.
A cell is 8 bytes. Rows of columns that hardly vary take 1/50 of a byte each; a file made to fill
the memory takes 1/5,000."""


class RowReader:
    """Reads files of rows, as many cells in all as the manifest states and a limit allows.

    Args:
        facts: of the signed manifest.
        size: bytes of all files of rows, by which their cells are limited; None: whoever signed is
            trusted, and the manifest is the limit.
    """

    def __init__(self, facts: Facts, *, size: int | None) -> None:
        self._lock = threading.Lock()
        self._columns = facts.columns
        self._cells = facts.rows * len(facts.columns)
        self._room = None if size is None else _FREE_CELLS + _CELLS_A_BYTE * size
        if self._room is not None and self._cells > self._room:
            raise ManifestError(_too_many(facts.rows, len(facts.columns)))

    def __call__(self, file: FileBytes) -> Footer:
        """Read a file's footer and rows.

        Raises:
            ManifestError: as `read_footer`; or it holds other rows or columns than the manifest
                states, or more than the limit. Nothing was decoded then, but for lists of texts.
        """
        footer = read_footer(file)
        if footer.columns != self._columns:
            raise ManifestError("Arrow schema: manifest, certificate and Parquet file disagree")
        self._take(footer.rows * len(footer.columns))
        texts = [field.name for field in footer.columns if field.type == "string"]
        try:
            with pq.ParquetFile(pa.BufferReader(file.data), read_dictionary=texts) as parquet:
                table = parquet.read(use_threads=False)
            if table.num_rows != footer.rows:
                raise ManifestError(f"{file.name}: holds other rows than its footer states")
            for name in texts:
                self._take(0, more=_text_bytes(table.column(name)) // _CELL)
            for place, name in enumerate(table.column_names):
                if name in texts:
                    field = pa.field(name, pa.string(), nullable=table.schema.field(name).nullable)
                    table = table.set_column(place, field, table.column(name).cast(pa.string()))
        except (pa.ArrowException, OSError) as reason:
            raise ManifestError(f"{file.name}: not readable as Parquet") from reason
        return Footer(rows=footer.rows, columns=footer.columns, facts=footer.facts, table=table)

    def _take(self, cells: int, *, more: int = 0) -> None:
        """Count cells before they are decoded; `more`: what long texts need beside."""
        with self._lock:
            self._cells -= cells
            if self._cells < 0:
                raise ManifestError("row count: manifest, certificate and Parquet file disagree")
            if self._room is not None:
                self._room -= cells + more
                if self._room < 0:
                    raise ManifestError(_too_many(None, len(self._columns)))


def _too_many(rows: int | None, columns: int) -> str:
    found = f"{rows:,} rows of {columns:,} columns" if rows else "texts of more bytes"
    return (
        f"{SYNTHETIC}: {found} than a file of this size may hold of which nobody vouches; name the"
        " curator's public key, or do not read it"
    )


def _text_bytes(column: Any) -> int:
    """Bytes of a column's texts, each as often as it occurs."""
    total = 0
    for chunk in column.chunks:
        lengths = np.asarray(pc.binary_length(chunk.dictionary).fill_null(0), dtype=np.int64)
        codes = np.asarray(chunk.indices.fill_null(-1), dtype=np.int64)
        total += int(lengths[codes[codes >= 0]].sum())
    return total


def as_frame(
    tables: Sequence[Any],
) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64]]:
    """Return rows, weights and log weights of the tables that a release's files hold, in order.

    Returns:
        The rows in pandas types (text as `str`; whole numbers `int64`, truth values `bool`, or
        `Int64` and `boolean` where nullable; dates `datetime64[s]`; moments `datetime64[s, ZONE]`),
        the weights as published and the log weights, both of shape (rows,).
    """
    table = pa.concat_tables(tables)
    weights, logs = (
        np.array(table.column(name).to_numpy(), dtype=np.float64) for name in (WEIGHT, LOG_WEIGHT)
    )
    frame = pd.DataFrame(
        {
            field.name: _series(table.column(field.name), field)
            for field in table.schema
            if field.name not in {WEIGHT, LOG_WEIGHT}
        }
    )
    return frame, weights, logs


def _series(values: Any, field: Any) -> Any:
    if pa.types.is_date32(field.type):
        return values.cast(pa.timestamp("s")).to_pandas()
    if pa.types.is_timestamp(field.type):
        return values.cast(pa.timestamp("s", tz=field.type.tz)).to_pandas()
    if field.nullable and pa.types.is_integer(field.type):
        return values.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    if field.nullable and pa.types.is_boolean(field.type):
        return values.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    return values.to_pandas()
