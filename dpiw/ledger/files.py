"""The ledger's file on disk: where it may lie, what it must look like before SQLite sees it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from dpiw.errors import LedgerError

APPLICATION_ID = 0x44504C31
"""SQLite's header field that says whose file this is: `DPL1`."""

# WAL shares memory between the processes of one host; over a network it silently corrupts.
_NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|smb3|ncpfs|afs|ceph|glusterfs|lustre|gpfs|beegfs|pvfs2|orangefs"
    r"|gfs2|ocfs2|davfs|coda|fuse\.(sshfs|s3fs|rclone|gcsfuse|glusterfs|ceph.*|davfs.*|.*nfs.*)"
)


def check_file(path: Path) -> None:
    """Raise LedgerError unless `path` is a ledger's file, on a local disk, closed to others."""
    try:
        status = path.stat()
    except OSError as error:
        raise LedgerError(
            f"ledger {path}: no such file; a ledger is never created by opening it"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise LedgerError(f"ledger {path}: not a regular file")
    if status.st_mode & 0o022:
        raise LedgerError(f"ledger {path}: others may write to it; expected file mode 0600")
    check_directory(path)
    # Before connecting: a connection turns on WAL, and must not do so to somebody else's file.
    with path.open("rb") as file:
        header = file.read(100)
    if header[:16] != b"SQLite format 3\0":
        raise LedgerError(f"ledger {path}: not a database, or corrupt")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise LedgerError(f"ledger {path}: this file is not a dpiw ledger")


def check_directory(path: Path) -> None:
    """Raise LedgerError if `path` lies on a network file system."""
    kind = filesystem_type(path.resolve().parent, _mounts())
    if kind is not None and _NETWORK_FILE_SYSTEMS.fullmatch(kind):
        raise LedgerError(f"ledger {path}: on a network file system ({kind}); use a local disk")


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # not Linux: nothing to check against


def filesystem_type(directory: Path, mounts: str) -> str | None:
    """The file system type `directory` lies on, by a text like /proc/mounts; None if unknown."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1]))
        if directory == point or point in directory.parents:
            depth = len(point.parts)
            if best is None or depth >= best[0]:  # a later mount covers an earlier one
                best = (depth, fields[2])
    return None if best is None else best[1]


def check_no_remains(path: Path) -> None:
    """Raise LedgerError if a removed ledger left its log behind at `path`."""
    for suffix in ("-wal", "-shm"):
        # SQLite would replay the old log into the new ledger.
        if os.path.lexists(f"{path}{suffix}"):
            raise LedgerError(f"ledger {path}: remains of a removed ledger ({suffix}) beside it")


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
