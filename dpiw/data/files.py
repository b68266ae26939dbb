"""Files and folders that exist whole or not at all, and that only their owner can open."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from dpiw.errors import SourceError, SpecError

_IS_THERE = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
"""Errors of renaming a folder onto a file or onto a folder that is not empty."""

_NO_LINK = (
    errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP,
)  # fmt: skip
"""No hard links here: another file system, no support, or no permission."""

_NOT_OURS_TO_SYNC = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, *, mode: int, parents: bool = False) -> bool:
    """Make a folder and, if asked, its parents, durably; return whether it was made now."""
    if parents and not path.parent.exists():
        make_folder(path.parent, mode=0o777, parents=True)
    try:
        path.mkdir(mode=mode)
    except OSError:
        if not path.is_dir():
            raise
        try:
            sync_directory(path.parent)
        except OSError as reason:  # somebody else's, in which this user cannot write
            if reason.errno not in _NOT_OURS_TO_SYNC:
                raise
        return False
    sync_directory(path.parent)
    return True


def name_exclusively(draft: Path, target: Path) -> None:
    """Rename a finished draft in one step; FileExistsError if something is at `target`.

    A link replaces nothing, even with other processes in the folder, but after a crash the file may
    have both names. Raises OSError where the file system has no hard links.
    """
    os.link(draft, target)
    draft.unlink(missing_ok=True)  # where another process went on after what looked like a crash


def move_exclusively(folder: Path, target: Path) -> None:
    """Rename a folder that is not empty, in one step; FileExistsError if something is at `target`.

    The system's rename would replace an empty folder, so that is checked first; if one appears
    between the two calls, nothing is lost.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    try:
        os.rename(folder, target)
    except OSError as reason:
        if reason.errno in _IS_THERE:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from reason
        raise


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file; neither follows a link nor waits for a pipe's writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_room(folder: Path, *, size: int = 2**20) -> None:
    """Raise OSError unless `size` bytes can be written durably into `folder` now."""
    probe = folder / f".room.{secrets.token_hex(8)}"
    try:
        write_durably(probe, bytes(size))
    finally:
        probe.unlink(missing_ok=True)


@contextlib.contextmanager
def durable_file(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Yield a private temporary file that is durably at `path` once the block succeeds."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write `data` to a private temporary file, fsync it, rename it to `path`, fsync the folder."""
    with durable_file(path, mode=mode) as file:
        file.write(data)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file to a path that does not exist yet."""
    with source.open("rb") as reader, target.open("xb") as writer:
        shutil.copyfileobj(reader, writer)


def link_file(source: Path, target: Path) -> None:
    """Add a name for a file that is never written again; copy it where links are impossible."""
    try:
        os.link(source, target)
    except OSError as reason:
        if reason.errno not in _NO_LINK:
            raise
        copy_file(source, target)


def owner_fault(status: os.stat_result) -> str | None:
    """What is wrong with an owner, or None: only this user and root are trusted."""
    me = os.geteuid()
    if status.st_uid in (me, 0):
        return None
    return (
        f"belongs to user id {status.st_uid}, who may read or replace it; expected user id {me},"
        " who runs dpiw, or root (chown changes the owner)"
    )


def folder_fault(status: os.stat_result) -> str | None:
    """What lets others replace what lies in a folder, or None."""
    if not status.st_mode & 0o022:
        return owner_fault(status)
    return (
        f"has mode {stat.S_IMODE(status.st_mode):04o}, so other users may replace its files;"
        " expected 0700 (chmod 700, or at least chmod go-w)"
    )


def names_in(folder: Path, *suffixes: str) -> list[str]:
    """Names of files with one of these suffixes; none where the folder cannot be read."""
    with contextlib.suppress(OSError):
        return [file.name for file in folder.iterdir() if file.suffix in suffixes]
    return []


_OR_ANOTHER = "; before the first run, `state` may name another folder instead"
"""Way out of a state folder that others can change; a later run finds its draws only there."""


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700 durably, or accept this user's own that is closed to others.

    Raises SpecError for a link, and for an open folder, which it does not close: somebody may have
    read or planted something.
    """
    check_private(path, _made(path, is_link_followed=False))
    return path


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise SpecError unless `status`, of `path` itself, is that of a closed folder of ours."""
    if stat.S_ISLNK(status.st_mode):
        other = "to use another disk, mount the disk there, or write its path as `state`"
        raise SpecError(f"{path} is a link", field="state", allowed=f"a folder ({other})")
    if not stat.S_ISDIR(status.st_mode):
        raise SpecError(f"{path} is not a folder", field="state", allowed="a folder, or a new path")
    if status.st_mode & 0o077:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        message = f"folder {path} has mode {mode}, so other users may read confidential files"
        allowed = "0700 (find out who had access, then chmod 700)"
        raise SpecError(message, field="state", allowed=allowed)
    if fault := owner_fault(status):
        raise SpecError(f"folder {path} {fault}{_OR_ANOTHER}", field="state")


def check_state_folder(path: Path) -> None:
    """Raise SpecError for a state folder, made if missing, that others own or may write to."""
    if fault := folder_fault(_made(path, parents=True)):
        raise SpecError(f"folder {path} {fault}{_OR_ANOTHER}", field="state")


def _made(path: Path, *, parents: bool = False, is_link_followed: bool = True) -> os.stat_result:
    """Make a folder of mode 0700 if it is missing; SpecError where it cannot be used."""
    try:
        make_folder(path, mode=0o700, parents=parents)
        return path.stat(follow_symlinks=is_link_followed)
    except OSError as reason:
        message = f"folder {path} cannot be used: {reason.strerror}"
        allowed = "a folder in which you may write"
        raise SpecError(message, field="state", allowed=allowed) from reason


def check_is_file(source: Path) -> None:
    """Raise SourceError, without the path, unless a source is a regular file. Reads no byte."""
    try:
        mode = source.lstat().st_mode
    except OSError:
        mode = 0
    if mode == 0:  # outside the handler: what the system says holds the path
        missing = "no such file, or you may not enter a folder above it"
        start = "a relative path starts at the spec's folder"
        raise SourceError(f"{missing}; {start}", field="source.path")
    if not stat.S_ISREG(mode):
        link = "a symbolic link" if stat.S_ISLNK(mode) else "a folder, pipe or device"
        raise SourceError(link, field="source.path", allowed="the table itself, a regular file")
