"""A private copy of a file, its raw cells in batches, and limits on its size.

Errors of libraries quote cells: raise ours after their handler has ended, never chained.
"""

import csv
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpiw.errors import SourceError

T = TypeVar("T")

MAX_BYTES = 1 << 42
"""Most bytes of a file that is copied: far more than a machine copies in a day."""
_TOO_LARGE = f"the source file is larger than {MAX_BYTES} bytes, the most that dpiw copies"

NO_MEMORY = (
    "reading the file takes more memory than source.max_memory_bytes allows, or than there is; for"
    " a wide CSV file lower source.max_cell_bytes, so that dpiw reads smaller blocks"
)
"""The same message whatever was read."""
_UNREAD = "the file's cells cannot be read as its columns' types; it may be damaged: write it again"

_CHUNK = 1 << 20
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_FAILURES = (
    pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError,
    csv.Error,
)  # fmt: skip


def attempt(
    action: Callable[[], T], failure: str, *, place: Callable[[Exception], str] = lambda _: ""
) -> T:
    """Run `action`; any failure of a library becomes a SourceError `failure` that quotes nothing.

    A failing disk stays an OSError. `place` extracts a number, no text, from the library's error.
    """
    location = ""
    try:
        return action()
    except MemoryError:
        failure = NO_MEMORY
    except _FAILURES as error:
        if getattr(error, "errno", None) in _DISK_FAILURES:
            raise
        location = place(error)
    raise SourceError(failure, place=location)


def copy_source(source: Path, target: Path) -> None:
    """Copy a regular file (no link), mode 0600; SourceError if changed, packed or too large."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = attempt(
        lambda: os.open(source, flags),
        "the source file cannot be opened by the user who runs dpiw, or is a symbolic link",
    )
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        os.close(descriptor)
        raise SourceError("the source is a folder, pipe or device", allowed="a regular file")
    with os.fdopen(descriptor, "rb") as stream:
        if before.st_size > MAX_BYTES:
            raise SourceError(_TOO_LARGE)
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
        raise SourceError("the source file changed while it was read; wait until nobody writes it")


def _digest(stream: Any, write: Callable[[bytes], object]) -> bytes:
    """Return the SHA-256 of a stream while passing it on; kept in memory only."""
    digest, size = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:  # it grew
            raise SourceError(_TOO_LARGE)
        digest.update(chunk)
        write(chunk)
    return digest.digest()


@dataclass(frozen=True, kw_only=True)
class IngestLimits:
    """Public limits on a file, part of a run's identity; `max_memory_bytes` is for public tables.

    No limit on rows, nor on bytes except of the copy: a failure would reveal the number.
    """

    max_columns: int = 1_000
    max_cell_bytes: int = 10_000
    max_memory_bytes: int = 16 << 30


@dataclass(frozen=True, kw_only=True)
class RawSource:
    """An open file of raw cells that can be read several times. Confidential.

    `types` by column, in file order: `text` or the Arrow type's name.
    """

    types: dict[str, str]
    tables: Callable[[list[str]], Iterator[pa.Table]]
    to_frame: Callable[[pa.Table], pd.DataFrame]
    max_cell_bytes: int

    def __repr__(self) -> str:
        return "RawSource"

    def frames(self, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """Yield rows of some columns (None: all), one batch or more. SourceError: no place."""
        for table in self._checked(columns):
            yield attempt(partial(self.to_frame, table), _UNREAD)

    def whole(self, *, most_bytes: int) -> pd.DataFrame:
        """Return all rows of a public file; SourceError if damaged or too large for memory."""
        tables, size = [], 0
        for table in self._checked(None):
            tables.append(table)
            size += table.nbytes
            if size > most_bytes:
                raise SourceError(
                    f"the table exceeds max_memory_bytes={most_bytes}; use fewer rows"
                )
        return attempt(lambda: self.to_frame(pa.concat_tables(tables)), _UNREAD)

    def _checked(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        names = [name for name in self.types if columns is None or name in columns]
        first, rows = dict[str, int](), 0
        for table in self.tables(names):
            for name in names:
                at = _first_longer(table.column(name), self.max_cell_bytes)
                if at is not None:
                    first.setdefault(name, rows + at)
            rows += table.num_rows
            yield table
        for name in names:
            if name in first:
                limit = f"max_cell_bytes={self.max_cell_bytes}"
                message = f"a cell exceeds {limit}; shorten it, or raise source.max_cell_bytes"
                raise SourceError(message, field=f"column {name}", place=data_row(first[name]))


def data_row(index: int) -> str:
    """Name a row for `SourceError.place`; index 0 is the first row below the header."""
    return f"row {index + 1} of the data (the header, and empty lines, are not counted)"


def _first_longer(column: pa.ChunkedArray, most: int) -> int | None:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    lengths = pc.binary_length(column)
    if (pc.max(lengths).as_py() or 0) <= most:
        return None
    return int(pc.index(pc.greater(lengths, most), True).as_py())
