"""Folders of the confidential zone: nobody but their owner gets in."""

from __future__ import annotations

import stat
from pathlib import Path

from dpiw.errors import SpecError


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700, or accept the one that is there if it is closed to others.

    An open folder is refused and not closed: somebody may have read or planted something already,
    and its owner should know. Its parent must exist.

    Raises:
        SpecError: it cannot be made, is not a folder, or is open to group or others.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as reason:
        raise SpecError(f"state: folder {path} cannot be used: {reason.strerror}") from reason
    if mode & 0o077:
        raise SpecError(
            f"state: folder {path} has mode {stat.S_IMODE(mode):04o}, so others may see what is"
            " confidential; expected 0700 (look who could get in, then chmod 700)"
        )
    return path


def check_state_folder(path: Path) -> None:
    """Refuse a state folder in which others could put or replace anything.

    Reading its names is no harm: the ledger, keys and workspace in it are closed themselves, and
    published releases may lie in it.

    Raises:
        SpecError: it cannot be made, is not a folder, or group or others may write to it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as reason:
        raise SpecError(f"state: folder {path} cannot be used: {reason.strerror}") from reason
    if mode & 0o022:
        raise SpecError(
            f"state: folder {path} has mode {stat.S_IMODE(mode):04o}, so others may replace what"
            " lies in it; expected 0700 (chmod go-w at least)"
        )
