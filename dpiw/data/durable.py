"""Write a file so that it is either wholly there or not there, also after a crash."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from pathlib import Path

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_NO_RENAME = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)

_NOT_OURS_TO_SYNC = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, *, mode: int, parents: bool = False) -> bool:
    """Make a folder, and its missing parents if asked, and make their names durable.

    So is the name of a folder that is there already: whoever made it may have died before that.

    Args:
        path: the folder, or a link to one.
        mode: of the folder if it is made, less the umask.
        parents: whether missing parents are made, with what the umask leaves of all permissions.

    Returns:
        Whether it was made now.

    Raises:
        OSError: it cannot be made, or there is something else of that name.
    """
    if parents and not path.parent.exists():
        make_folder(path.parent, mode=0o777, parents=True)
    try:
        path.mkdir(mode=mode)
    except OSError:
        if not path.is_dir():
            raise
        _sync_if_possible(path.parent)
        return False
    sync_directory(path.parent)
    return True


def _sync_if_possible(directory: Path) -> None:
    """A folder made by somebody else may lie where this user, or anybody, cannot write."""
    try:
        sync_directory(directory)
    except OSError as reason:
        if reason.errno not in _NOT_OURS_TO_SYNC:
            raise


def rename_exclusively(source: Path, target: Path) -> bool:
    """Rename in one step unless `target` exists; False where the system has no such call.

    A plain rename replaces a file or an empty folder without a word.

    Raises:
        FileExistsError: there is something at `target`.
        OSError: it cannot be renamed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(source), os.fsencode(target)
    if not library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE):
        return True
    code = ctypes.get_errno()
    if code in _NO_RENAME:
        return False
    raise OSError(code, os.strerror(code))  # Python picks FileExistsError for EEXIST


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
