"""Write a file so that it is either wholly there or not there, also after a crash."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_room(folder: Path, *, size: int = 2**20) -> None:
    """Raise OSError unless `size` bytes can be written durably into `folder` now."""
    probe = folder / f".room.{secrets.token_hex(8)}"
    try:
        write_durably(probe, bytes(size))
    finally:
        probe.unlink(missing_ok=True)


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write `data` to a private temporary file, fsync it, rename it to `path`, fsync the folder."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
