"""Folders of the confidential zone: nobody but their owner gets in."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dpiw.data.durable import make_folder
from dpiw.data.ownership import owner_fault
from dpiw.errors import SpecError


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700, or accept the one that is there if it is closed to others.

    An open folder is refused and not closed: somebody may have read or planted something already,
    and its owner should know. So are another user's, and a link: what it leads to lies in other
    people's folders, is missed by a purge, and may be changed for something else at any time. Its
    parent must exist. Its name is durable when this returns.

    Raises:
        SpecError: it cannot be made, is not a folder, is open to group or others, or is not this
            user's.
    """
    try:
        make_folder(path, mode=0o700)
        status = path.lstat()
    except OSError as reason:
        raise _unusable(path, reason) from reason
    check_private(path, status)
    return path


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise SpecError unless `status`, of `path` itself, is that of a closed folder of ours."""
    if stat.S_ISLNK(status.st_mode):
        raise SpecError(
            f"state: {path} is a link; expected a folder (to keep it on another disk, mount that"
            " there, or let `state` itself lie on it)"
        )
    if not stat.S_ISDIR(status.st_mode):
        raise SpecError(f"state: {path} is not a folder")
    if status.st_mode & 0o077:
        raise SpecError(
            f"state: folder {path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may see"
            " what is confidential; expected 0700 (look who could get in, then chmod 700)"
        )
    if fault := owner_fault(status):
        raise SpecError(f"state: folder {path} {fault}")


def check_state_folder(path: Path) -> None:
    """Refuse a state folder in which others could put or replace anything.

    Reading its names is no harm: the ledger, keys and workspace in it are closed themselves, and
    published releases may lie in it.

    Raises:
        SpecError: it cannot be made, is not a folder, group or others may write to it, or it is
            another user's.
    """
    try:
        make_folder(path, mode=0o700, parents=True)
        status = path.stat()
    except OSError as reason:
        raise _unusable(path, reason) from reason
    if status.st_mode & 0o022:
        raise SpecError(
            f"state: folder {path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may"
            " replace what lies in it; expected 0700 (chmod go-w at least)"
        )
    if fault := owner_fault(status):
        raise SpecError(f"state: folder {path} {fault}")


def _unusable(path: Path, reason: OSError) -> SpecError:
    return SpecError(f"state: folder {path} cannot be used: {reason.strerror}")
