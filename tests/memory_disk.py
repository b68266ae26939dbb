"""Where the tests' temporary files lie: in memory, where there is plenty.

Ledgers and releases are synced to the disk many thousand times in a run of the suite. What is
called stays the same, the disk's latency does not: processes are killed here, no machine is.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

DISK = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free on it, many times what a run writes; in the memory twice as many."""


def memory_disk(disk: Path = DISK, *, room: int = ROOM) -> Path | None:
    """The disk, if it has room and its files may be run; else None: the usual folder will do."""
    if not (disk.is_dir() and os.access(disk, os.W_OK)):
        return None
    status = os.statvfs(disk)
    if status.f_flag & os.ST_NOEXEC or status.f_bavail * status.f_frsize < room:
        return None
    return disk if psutil.virtual_memory().available >= 2 * room else None
