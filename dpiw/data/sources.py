"""Reading a confidential file: a private copy, then raw cells by declared types, never inferred.

Structure may fail, loudly and with a message that holds nothing of the file; values never do
(tests/hostile/bad_inputs/rows.py, rows 13-16, 23, 24, 26-32). Errors of the libraries below quote
cells, so they are dropped, not chained: our error is raised after their handler has ended.
"""

from __future__ import annotations

import codecs
import csv
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dpiw.data.cells import NULLABLE, valid_text
from dpiw.data.headers import check_names, header_cells
from dpiw.errors import SourceError, SpecError

T = TypeVar("T")

TEXT = "text"
"""The physical type of every CSV column."""

MAX_BYTES = 1 << 42
"""Bytes of a file that is copied at all: far more than a stage could hold in memory."""

_CHUNK = 1 << 20
_BATCH_ROWS = 1 << 16
_MAX_HEADER_BYTES = 1 << 24
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
_PARQUET = b"PAR1"
_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_FAILURES = (
    pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError,
    MemoryError, csv.Error,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class IngestLimits:
    """What a file may be at most. All public settings of the spec, and part of a run's identity.

    There is no limit on rows, nor on bytes but `MAX_BYTES`: what fails at one tells their number.

    Attributes:
        max_columns: columns in it.
        max_cell_bytes: bytes of one text cell.
        max_memory_bytes: bytes of the table in memory. The stage process has its own limit besides.
    """

    max_columns: int = 1_000
    max_cell_bytes: int = 10_000
    max_memory_bytes: int = 16 << 30

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise SpecError(f"source.{name}: expected a whole number >= 1")


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """Raw cells and the physical types they were stored in. Confidential.

    Attributes:
        frame: one column per file column, in file order; `str` for text.
        types: physical type by column: `text` or the Arrow type's name.
    """

    frame: pd.DataFrame
    types: dict[str, str]

    def __repr__(self) -> str:
        return "RawTable"


def attempt(action: Callable[[], T], failure: str) -> T:
    """Do `action`; whatever a library says of it becomes a SourceError that quotes nothing.

    A full, read-only or damaged disk is no fault of the source, and stays an OSError.
    """
    try:
        return action()
    except _FAILURES as error:
        if getattr(error, "errno", None) in _DISK_FAILURES:
            raise
    raise SourceError(failure)


# A private copy


def copy_source(source: Path, target: Path) -> None:
    """Copy a regular file, and refuse it if it changed meanwhile.

    Args:
        source: a regular file; its last path component may not be a symbolic link.
        target: a new file, created with mode 0600.

    Raises:
        SourceError: not there, not regular, too large, packed, or changed while it was read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = attempt(
        lambda: os.open(source, flags), "the source file cannot be opened, or is a symbolic link"
    )
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        os.close(descriptor)
        raise SourceError("the source is not a regular file")
    with os.fdopen(descriptor, "rb") as stream:
        if before.st_size > MAX_BYTES:
            raise SourceError(f"the source file is larger than {MAX_BYTES} bytes")
        if stream.read(8).startswith(_PACKED):
            raise SourceError(
                "the source file is compressed or an archive (as workbooks are); unpack it, or save"
                " it as CSV"
            )
        stream.seek(0)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            copied = _digest(stream, copy.write)
        stream.seek(0)
        again = _digest(stream, lambda chunk: None)
        after = os.fstat(descriptor)
    unchanged = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    if copied != again or not unchanged:
        raise SourceError("the source file changed while it was read")


def _digest(stream: Any, write: Callable[[bytes], object]) -> bytes:
    """SHA-256 of a stream, passed on chunk by chunk; kept in memory only."""
    digest, size = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:  # it grew
            raise SourceError(f"the source file is larger than {MAX_BYTES} bytes")
        digest.update(chunk)
        write(chunk)
    return digest.digest()


# CSV


def read_csv(
    path: Path, names: list[str], *, limits: IngestLimits, encoding: str, delimiter: str
) -> RawTable:
    """Read a CSV file, every cell as text.

    Args:
        path: the private copy.
        names: the declared column names; the header must hold exactly these, in any order.
        limits: column, cell and memory limits.
        encoding: declared text encoding; a byte-order mark is dropped, invalid bytes become
            U+FFFD (and thereby an unknown cell).
        delimiter: one character.

    Raises:
        SourceError: no header as declared, a ragged row, an unbalanced quote, a limit exceeded.
    """
    clean = path.with_name(path.name + ".utf8")
    try:
        with path.open("rb") as stream:
            if stream.read(4) == _PARQUET:
                raise SourceError("the source is a Parquet file; expected source.format: parquet")
        quoted = attempt(
            lambda: _transcode(path, clean, encoding), "the encoding is not a known text encoding"
        )
        header = header_cells(_first_line(clean), names, delimiter)
        check_names(header, names, max_columns=limits.max_columns)
        if quoted:
            _check_quotes(clean, limits, delimiter)
        return _read_clean_csv(clean, header, limits, delimiter)
    finally:
        clean.unlink(missing_ok=True)


def _transcode(path: Path, clean: Path, encoding: str) -> bool:
    """Write the text as UTF-8, ended by a newline; whether it holds quotes."""
    name = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    b"a".decode(name, "replace")  # LookupError for a codec that is not of text
    decoder = codecs.getincrementaldecoder(name)(errors="replace")
    quoted, last = False, ""
    descriptor = os.open(clean, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        while True:
            chunk = source.read(_CHUNK)
            text = decoder.decode(chunk, final=not chunk)
            quoted = quoted or '"' in text
            last = text[-1:] or last
            target.write(text.encode("utf-8", "replace"))
            if not chunk:
                break
        if last not in ("", "\n", "\r"):
            target.write(b"\n")
    return quoted


def _check_quotes(clean: Path, limits: IngestLimits, delimiter: str) -> None:
    """Refuse a quote that is not closed, or closed inside a cell: it would swallow whole rows."""

    def scan() -> None:
        before = csv.field_size_limit(limits.max_cell_bytes)
        try:
            with clean.open(encoding="utf-8", newline="") as stream:
                for _ in csv.reader(stream, delimiter=delimiter, strict=True):
                    pass
        finally:
            csv.field_size_limit(before)

    attempt(scan, "the CSV file has an unbalanced quote, or a cell exceeds max_cell_bytes")


def _first_line(clean: Path) -> str:
    def read() -> str:
        with clean.open("rb") as stream:
            return stream.readline(_MAX_HEADER_BYTES).decode("utf-8")

    return attempt(read, "the CSV header is not readable")


def _read_clean_csv(
    clean: Path, header: list[str], limits: IngestLimits, delimiter: str
) -> RawTable:
    longest_row = len(header) * (2 * limits.max_cell_bytes + 3)  # every quote in a cell is doubled

    def read() -> pa.Table:
        return pyarrow.csv.read_csv(
            clean,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=min(max(_CHUNK, longest_row), 1 << 30)
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(header) > 1,  # in one column an empty line is a cell
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )

    table = attempt(read, "the CSV file is ragged, or a row exceeds the declared cell sizes")
    _check_size(table, limits)
    types = dict.fromkeys(header, TEXT)
    frame = attempt(lambda: table.to_pandas(), "the CSV file could not be read")
    return RawTable(frame=frame, types=types)


def _check_size(table: pa.Table, limits: IngestLimits) -> None:
    if table.nbytes > limits.max_memory_bytes:
        raise SourceError(f"the table exceeds max_memory_bytes={limits.max_memory_bytes}")
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            longest = pc.max(pc.binary_length(column)).as_py()
            if longest is not None and longest > limits.max_cell_bytes:
                raise SourceError(
                    f"column {name}: a cell exceeds max_cell_bytes={limits.max_cell_bytes}"
                )


# Parquet


def read_parquet(path: Path, names: list[str], *, limits: IngestLimits) -> RawTable:
    """Read a Parquet file in bounded batches.

    Embedded Arrow and pandas metadata decide nothing but the time zone of timestamps. Footers are
    not believed: limits are applied to what was read.

    Raises:
        SourceError: damaged, encrypted, other columns than declared, or a limit exceeded.
    """
    with path.open("rb") as stream:
        if stream.read(4) != _PARQUET:
            raise SourceError("the source is not a plain Parquet file; is source.format csv?")
        file = attempt(
            # Old 96-bit moments in ms: in ns, as by default, years after 2262 wrap around.
            lambda: pq.ParquetFile(stream, pre_buffer=False, coerce_int96_timestamp_unit="ms"),
            "the Parquet file is damaged or encrypted",
        )
        schema = attempt(lambda: file.schema_arrow, "the Parquet file's schema is not readable")
        check_names(list(schema.names), names, max_columns=limits.max_columns)
        types = {field.name: _physical_type(field) for field in schema}
        table = attempt(lambda: _bounded(file, schema, limits), "the Parquet file is damaged")
    _check_size(table, limits)
    frame = attempt(lambda: _to_frame(table), "the Parquet file could not be read")
    return RawTable(frame=frame, types=types)


def _physical_type(field: pa.Field) -> str:
    kind = field.type
    if (
        pa.types.is_nested(kind)
        or pa.types.is_dictionary(kind)
        or isinstance(kind, pa.ExtensionType)
    ):
        raise SourceError(
            "the Parquet file has a nested, dictionary or extension column; store plain values"
        )
    return TEXT if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def _bounded(file: pq.ParquetFile, schema: pa.Schema, limits: IngestLimits) -> pa.Table:
    batches, size = [], 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        batches.append(batch.replace_schema_metadata(None))
        size += batch.nbytes
        if size > limits.max_memory_bytes:
            raise SourceError(f"the table exceeds max_memory_bytes={limits.max_memory_bytes}")
    return pa.Table.from_batches(batches, schema=schema.remove_metadata())


def _to_frame(table: pa.Table) -> pd.DataFrame:
    table.validate()
    for index, field in enumerate(table.schema):
        if field.type in (pa.string(), pa.large_string()):
            table = table.set_column(index, field.name, valid_text(table.column(index)))
    frame: pd.DataFrame = table.to_pandas(types_mapper=NULLABLE.get, date_as_object=False)
    return frame
