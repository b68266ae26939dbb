"""A private copy of a file that may change: whole, of one moment, and no longer than it is needed.

Errors of the libraries below quote cells, so they are dropped, not chained: ours is raised after
their handler has ended.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from dpiw.errors import SourceError

T = TypeVar("T")

MAX_BYTES = 1 << 42
"""Bytes of a file that is copied at all: far more than a machine copies in a day."""

NO_MEMORY = (
    "reading it takes more memory than source.max_memory_bytes admits, or than there is; a smaller"
    " source.max_cell_bytes reads a wide CSV file in smaller blocks"
)
"""The same whatever was being read."""

_CHUNK = 1 << 20
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_FAILURES = (
    pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, RuntimeError,
    csv.Error,
)  # fmt: skip


def _nowhere(error: Exception) -> str:
    """Nothing is known of the place of a failure."""
    return ""


def attempt(
    action: Callable[[], T], failure: str, *, place: Callable[[Exception], str] = _nowhere
) -> T:
    """Do `action`; whatever a library says of it becomes a SourceError that quotes nothing.

    A full, read-only or damaged disk is no fault of the source, and stays an OSError. Want of
    memory is told as such: what was read may be as it should.

    Args:
        action: what a library does.
        failure: the message, the same wherever it fails.
        place: of a library's error, the `SourceError.place`: a number, and no more of its text.
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
