"""Read a confidential file in batches: raw cells by declared types, never inferred.

A structural failure raises without a text or place of the file; values never raise
(tests/hostile/bad_inputs/rows.py). Only public files are read whole.
"""

import codecs
import contextlib
import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dpiw.data.cells.plain import NULLABLE, valid_text
from dpiw.data.source.copy import IngestLimits, RawSource, attempt, data_row
from dpiw.data.source.headers import UNREADABLE_HEADER, check_names, header_cells
from dpiw.errors import SourceError

TEXT = "text"
"""The physical type of every CSV column."""

_BLOCK = 1 << 22
"""Bytes of a batch of CSV, unless a row may be longer; Arrow reads up to 32 of them ahead."""

_BATCH_ROWS = 1 << 15
"""Rows of a batch of Parquet."""

_CHUNK = 1 << 20
_MAX_HEADER_BYTES = 1 << 24
_PARQUET = b"PAR1"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


_ARROW_ROW = re.compile(r"CSV parse error: Row #(\d{1,15}):")
"""Beginning of Arrow's message that names a row, counting the header; a cell may follow."""


def _each(tables: Iterator[pa.Table], failure: str) -> Iterator[pa.Table]:
    while (table := attempt(lambda: next(tables, None), failure, place=_arrow_row)) is not None:
        yield table


def _arrow_row(error: Exception) -> str:
    match = _ARROW_ROW.match(str(error))
    return data_row(int(match[1]) - 2) if match else ""


# CSV


@contextlib.contextmanager
def open_csv(
    path: Path, names: list[str], *, limits: IngestLimits, encoding: str, delimiter: str
) -> Iterator[RawSource]:
    """Open a private copy of a CSV file; every cell is text; SourceError for its header or quotes.

    A byte-order mark is dropped; invalid bytes become U+FFFD and so an unknown cell.
    """
    clean = path.with_name(path.name + ".utf8")
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
        if start == _PARQUET:
            raise SourceError("the table is a Parquet file", allowed="source.format: parquet")
        if start.startswith(_UTF_16) and not encoding.startswith("utf-16"):
            raise SourceError("the table is text in UTF-16", allowed="source.encoding: utf-16")
        text = attempt(
            lambda: _clean_text(path, clean, encoding),
            "source.encoding is no known text encoding; expected one such as utf-8 or cp1252",
        )
        line = attempt(lambda: _first_line(text), UNREADABLE_HEADER)
        header = header_cells(line, names, delimiter)
        check_names(header, names, max_columns=limits.max_columns, encoding=encoding)
        _check_quotes(text, _SWALLOWED * limits.max_cell_bytes, delimiter)
        longest_row = len(header) * (2 * limits.max_cell_bytes + 3)  # every quote in it is doubled
        yield RawSource(
            types=dict.fromkeys(header, TEXT),
            tables=lambda columns: _csv_tables(text, header, columns, longest_row, delimiter),
            to_frame=lambda table: table.to_pandas(),
            max_cell_bytes=limits.max_cell_bytes,
        )
    finally:
        clean.unlink(missing_ok=True)


def read_csv(
    path: Path, names: list[str], *, limits: IngestLimits, encoding: str, delimiter: str
) -> pd.DataFrame:
    """Read a public CSV file whole; arguments and errors as `open_csv` and `RawSource.whole`."""
    with open_csv(path, names, limits=limits, encoding=encoding, delimiter=delimiter) as raw:
        return raw.whole(most_bytes=limits.max_memory_bytes)


def _clean_text(path: Path, clean: Path, encoding: str) -> Path:
    """Return the path of UTF-8 text with LF (`path` or `clean`).

    LF alone, within quotes too: Arrow loses one of a CR and LF that a block's edge separates, and
    the edge depends on other rows.
    """
    name = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    b"a".decode(name, "replace")  # LookupError for a codec that is not of text
    if name == "utf-8-sig" and _is_clean(path):
        return path
    _transcode(path, clean, name)
    return clean


def _is_clean(path: Path) -> bool:
    decoder, chunk = codecs.getincrementaldecoder("utf-8")(), b"\n"
    with path.open("rb") as source, contextlib.suppress(UnicodeDecodeError):
        if source.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            return False
        source.seek(0)
        while further := source.read(_CHUNK):
            chunk = further
            decoder.decode(chunk)
            if b"\r" in chunk:
                return False
        decoder.decode(b"", final=True)
        return chunk.endswith(b"\n")
    return False


def _transcode(path: Path, clean: Path, name: str) -> None:
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(name)(errors="replace"), translate=True
    )
    last = ""
    descriptor = os.open(clean, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        while True:
            chunk = source.read(_CHUNK)
            text = decoder.decode(chunk, final=not chunk)
            last = text[-1:] or last
            target.write(text.encode("utf-8", "replace"))
            if not chunk:
                break
        if last not in ("", "\n"):
            target.write(b"\n")


_SWALLOWED = 4
"""Of an open quote so many cells' bytes are held; a longer cell is named by its line alone."""


def _check_quotes(clean: Path, longest_cell: int, delimiter: str) -> None:
    """Refuse a quote that is not closed, or closed inside a cell: it would swallow whole rows.

    Where Python's strict reader refuses nothing, Arrow finds the same cells (test_quotes.py).
    """
    begins = 1

    def scan() -> None:
        nonlocal begins
        before = csv.field_size_limit(longest_cell)
        try:
            with clean.open(encoding="utf-8", newline="") as stream:
                reader = csv.reader(stream, delimiter=delimiter, strict=True)
                for _ in reader:
                    begins = reader.line_num + 1
        finally:
            csv.field_size_limit(before)

    attempt(
        scan,
        "the CSV file has an unbalanced quote (within a cell, a quote is written twice), or a cell"
        " exceeds source.max_cell_bytes",
        place=lambda _: f"the row that begins in line {begins} of the file",
    )


def _first_line(clean: Path) -> str:
    with clean.open("rb") as stream:
        return stream.readline(_MAX_HEADER_BYTES).decode("utf-8")


def _csv_tables(
    clean: Path, header: list[str], columns: list[str], longest_row: int, delimiter: str
) -> Iterator[pa.Table]:
    def tables() -> Iterator[pa.Table]:
        reader = pyarrow.csv.open_csv(
            clean,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=min(max(_BLOCK, longest_row), 1 << 30)
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(header) > 1,  # in one column an empty line is a cell
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                strings_can_be_null=False,
                include_columns=columns,
            ),
        )
        with reader:
            yield reader.schema.empty_table()
            for batch in reader:
                yield pa.Table.from_batches([batch])

    ragged = "the CSV file is ragged: a row has more or fewer cells than the first line"
    return _each(tables(), f"{ragged}, or exceeds source.max_cell_bytes")


# Parquet

_AGAIN = "; write it again, without encryption"
_NO_SCHEMA = f"the Parquet file's schema is not readable{_AGAIN}"


@contextlib.contextmanager
def open_parquet(path: Path, names: list[str], *, limits: IngestLimits) -> Iterator[RawSource]:
    """Open a Parquet file; SourceError if damaged, encrypted, or with other columns than declared.

    Of embedded metadata only time zones and dictionary types count. Limits apply to the cells read.
    """
    with _parquet_file(path) as (file, schema):
        check_names(list(schema.names), names, max_columns=limits.max_columns)
        yield RawSource(
            types={field.name: _physical_type(field) for field in schema},
            tables=lambda columns: _each(
                _parquet_tables(file, schema, columns), f"the Parquet file is damaged{_AGAIN}"
            ),
            to_frame=_to_frame,
            max_cell_bytes=limits.max_cell_bytes,
        )


@contextlib.contextmanager
def _parquet_file(path: Path) -> Iterator[tuple[pq.ParquetFile, pa.Schema]]:
    with path.open("rb") as stream:
        if stream.read(4) != _PARQUET:
            allowed = "source.format: csv for a CSV file"
            raise SourceError("not a plain Parquet file", field="source", allowed=allowed)
        file = attempt(
            # Old 96-bit moments in ms: in ns, as by default, years after 2262 wrap around.
            lambda: pq.ParquetFile(stream, pre_buffer=False, coerce_int96_timestamp_unit="ms"),
            f"the Parquet file is damaged or encrypted{_AGAIN}",
        )
        schema = attempt(lambda: file.schema_arrow, _NO_SCHEMA)
        if any(pa.types.is_dictionary(kind) for kind in schema.types):
            file = attempt(lambda: _dense(stream), _NO_SCHEMA)
        yield file, schema


def _dense(stream: BinaryIO) -> pq.ParquetFile:
    """Reopen with dictionaries as values: Arrow cannot build them where a text is no UTF-8."""
    stream.seek(-8, os.SEEK_END)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(-8 - length, os.SEEK_END)
    footer = stream.read().replace(b"ARROW:schema", b"ARROW_schema")
    metadata = pq.read_metadata(io.BytesIO(_PARQUET + footer))
    return pq.ParquetFile(
        stream, metadata=metadata, pre_buffer=False, coerce_int96_timestamp_unit="ms"
    )


def is_parquet(path: Path) -> bool:
    """Whether a regular file begins as Parquet does."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as stream:
                return stream.read(4) == _PARQUET
    return False


def parquet_types(path: Path) -> list[tuple[str, str]]:
    """Return names and physical types of a Parquet file's columns; SourceError quotes nothing.

    Privacy: reads the footer's schema alone: no row, no statistic and no number of rows.
    """
    with _parquet_file(path) as (_, schema):
        return [(field.name, _physical_type(field)) for field in schema]


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
"""Types whose cells are texts; of the type null, all are missing."""


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type to read cells in: a dictionary's value type, one type for all texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.large_string() if any(is_text(kind) for is_text in _TEXTS) else kind


def _physical_type(field: pa.Field) -> str:
    kind = _plain_type(field.type)
    if isinstance(kind, pa.BaseExtensionType):
        return "extension"
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return "nested"
    if pa.types.is_timestamp(kind) and not _is_zone(kind):
        return "unzoned"
    return TEXT if pa.types.is_large_string(kind) else str(kind)


def _is_zone(kind: pa.DataType) -> bool:
    with contextlib.suppress(Exception):  # of several libraries of zones
        pa.array([], type=kind).to_pandas()
        return True
    return False


def _plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return valid_text(column).cast(kind) if pa.types.is_large_string(kind) else column.cast(kind)


def _parquet_tables(
    file: pq.ParquetFile, schema: pa.Schema, columns: list[str]
) -> Iterator[pa.Table]:
    projection = pa.schema([(name, _plain_type(schema.field(name).type)) for name in columns])
    yield projection.empty_table()
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=False):
        cells = [_plain_column(batch.column(field.name), field.type) for field in projection]
        yield pa.table(cells, schema=projection)


def _to_frame(table: pa.Table) -> pd.DataFrame:
    table.validate()
    for index, field in enumerate(table.schema):
        if field.type in (pa.string(), pa.large_string()):
            table = table.set_column(index, field.name, valid_text(table.column(index)))
    frame: pd.DataFrame = table.to_pandas(types_mapper=NULLABLE.get, date_as_object=False)
    return frame
