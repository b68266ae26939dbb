"""The ledger's file on disk: where it may lie, and checks before SQLite opens it.

Processes find each other's locks and log by the file's name (`NAME-shm`, `NAME-wal`). So a ledger
has one name (symbolic links are resolved) in a folder that only its owner can write, on a disk of
this host, whose kernel all processes share.
"""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from sys import platform
from time import sleep
from urllib.parse import quote

from dpiw.data import files
from dpiw.data.files import folder_fault, names_in, owner_fault
from dpiw.errors import nearest
from dpiw.ledger.location import Faults, no_ledger, unusable

APPLICATION_ID = 0x44504C31
"""SQLite's header field that marks a dpiw ledger: `DPL1`."""

DRAFT_PREFIX = ".{name}."
"""Prefix of files that will become the ledger `name`."""

# WAL shares memory between the processes of one host; over a network it silently corrupts.
_NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|smb3|ncpfs|afs|ceph|glusterfs|lustre|gpfs|beegfs|pvfs2|orangefs"
    r"|gfs2|ocfs2|davfs|coda|fuse\.(sshfs|s3fs|rclone|gcsfuse|glusterfs|ceph.*|davfs.*|.*nfs.*)"
)

_LOCAL_FILE_SYSTEMS = {
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "nilfs2",
    "ntfs3", "overlay", "tmpfs", "apfs", "hfs", "ufs",
}  # fmt: skip

_PATIENCE = 100
"""How long, in units of 10 ms, a creation that is ending may show a second name."""


def check_file(path: Path, *, local_file_system: str | None = None) -> None:
    """Raise LedgerError unless `path` is a ledger's file, its only name, and closed to others."""
    try:
        status = path.stat()
    except OSError as error:
        near = nearest(path.name, names_in(path.parent, path.suffix, ".sqlite"))
        found = f"ledger {path}: no such file, so no ledger is there{near}"
        raise no_ledger(found, begin=not near) from error
    if stat.S_ISDIR(status.st_mode):
        inside = [name for name in names_in(path, ".sqlite") if (path / name).is_file()]
        such_as = f", such as {path / min(inside)}" if inside else ""
        raise unusable(path, "found a folder", allowed=f"the ledger's own file{such_as}")
    if not stat.S_ISREG(status.st_mode):
        raise unusable(path, "not a regular file", allowed="the ledger's own file")
    if status.st_mode & 0o022:
        raise unusable(path, "other users may write to it", allowed="mode 0600 (chmod 600)")
    if fault := owner_fault(status):
        raise unusable(path, fault)
    _check_one_name(path)
    check_directory(path, local_file_system=local_file_system)
    # Before connecting: a connection turns on WAL, and must not do so to somebody else's file.
    if status.st_size == 0:
        raise unusable(path, Faults.DAMAGED)
    if _application_id(path) != APPLICATION_ID:
        raise unusable(path, "this database is not a dpiw ledger", allowed="the ledger's own file")


def _application_id(path: Path) -> int:
    """The header's field, read through SQLite without taking a lock or making a log.

    Never use `open`: closing any descriptor of a file drops all locks that this process holds on it
    (POSIX), so another process could take the log from a thread of ours that is writing.
    """
    location = f"file:{quote(str(path))}?immutable=1&mode=ro"
    try:
        with closing(sqlite3.connect(location, uri=True)) as connection:
            return int(connection.execute("PRAGMA application_id").fetchone()[0])
    except sqlite3.OperationalError as error:
        raise unusable(path, "cannot be read: check its permissions") from error
    except sqlite3.DatabaseError as error:
        raise unusable(path, Faults.DAMAGED) from error


def _check_one_name(path: Path) -> None:
    real = path.resolve()
    if is_mount_point(real, _mounts()):
        raise unusable(
            path,
            "this file is mounted alone, so it has another name elsewhere; mount its folder"
            " instead",
        )
    for _ in range(_PATIENCE):
        drafts = list(drafts_of(real))
        names = real.stat().st_nlink  # after them: a draft that is gone by now is not counted
        if names == 1:
            return
        if not drafts:
            break
        sleep(0.01)
    remedy = " and ".join(f"remove {draft.name}" for draft in drafts) or "remove the other one"
    note = ", left by a creation that was killed" if drafts else ""
    raise unusable(
        path,
        f"this file has {names} names (hard links){note}, and processes that use different names"
        f" do not see each other's entries: {remedy}",
    )


def drafts_of(path: Path) -> Iterator[Path]:
    """Other names of the file, from its creation."""
    status, prefix = path.stat(), DRAFT_PREFIX.format(name=path.name)
    for sibling in path.parent.iterdir():
        with suppress(FileNotFoundError):
            if sibling.name.startswith(prefix) and os.path.samestat(sibling.lstat(), status):
                yield sibling


def check_directory(path: Path, *, local_file_system: str | None = None) -> None:
    """Raise LedgerError unless the folder of `path` is safe, and on a disk of this host.

    `local_file_system`: a type, as the kernel names it, for which the custodian vouches that all
    who open the ledger share one kernel. No known network file system is accepted.
    """
    folder = path.resolve().parent
    try:
        status = folder.stat()
    except OSError as error:
        raise unusable(path, "its folder cannot be reached: check its permissions") from error
    if fault := folder_fault(status):  # others could plant a log, which SQLite would replay
        raise unusable(path, f"its folder {fault}")
    _check_file_system(path, folder, local_file_system)


def make_directory(path: Path, *, local_file_system: str | None = None) -> None:
    """Make the missing folder of a new ledger, mode 0700 under any umask; else LedgerError.

    Makes one folder only: a ledger must not appear below a disk that is not mounted today. The file
    system is checked first, so that a refusal leaves nothing behind.
    """
    folder = path.parent
    if folder.is_dir():
        return
    _check_file_system(path, folder.resolve(), local_file_system)
    try:
        if files.make_folder(folder, mode=0o700):
            folder.chmod(0o700)  # the umask may have taken more
    except FileNotFoundError as error:
        found = f"its folder is in one that does not exist; make {folder.parent} first, or mount it"
        raise unusable(path, found) from error
    except OSError as error:
        a_file = f"{folder.name} is a file; expected a folder"
        reason = a_file if folder.is_file() else error.strerror
        raise unusable(path, f"its folder cannot be made: {reason}") from error


def _check_file_system(path: Path, folder: Path, local_file_system: str | None) -> None:
    kind = filesystem_type(folder, _mounts()) or ("unknown" if platform == "linux" else None)
    if kind is None:
        return  # nothing here tells
    if _NETWORK_FILE_SYSTEMS.fullmatch(kind):
        raise unusable(path, f"found a network file system ({kind})", allowed="a local disk")
    if kind not in _LOCAL_FILE_SYSTEMS and kind != local_file_system:
        raise unusable(
            path,
            f"found a file system that dpiw does not know as local ({kind})",
            allowed="a local disk. If every process that opens the ledger runs on this host,"
            f" write in the spec or command: sqlite:///PATH?local_file_system={kind}",
        )


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # another system than Linux, or one without /proc


def _mounted(mounts: str) -> list[tuple[Path, str]]:
    lines = (line.split() for line in mounts.splitlines())
    return [
        (Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1])), fields[2])
        for fields in lines
        if len(fields) >= 3
    ]


def is_mount_point(path: Path, mounts: str) -> bool:
    """Whether something is mounted at exactly `path`, by a text like /proc/mounts."""
    return any(point == path for point, _ in _mounted(mounts))


def filesystem_type(directory: Path, mounts: str) -> str | None:
    """The file system type of `directory`, by a text like /proc/mounts; None if unknown."""
    above = [
        (len(point.parts), place, kind)  # a later mount covers an earlier one
        for place, (point, kind) in enumerate(_mounted(mounts))
        if point in (directory, *directory.parents)
    ]
    return max(above)[2] if above else None


def check_no_remains(path: Path) -> None:
    """Raise LedgerError if `path` has a log and no ledger (another creator may be faster)."""
    for suffix in ("-wal", "-shm"):
        # SQLite would replay the old log into the new ledger.
        if os.path.lexists(f"{path}{suffix}") and not os.path.lexists(path):
            found = f"remains of a removed ledger ({path.name}{suffix}) are in its folder"
            raise unusable(path, f"{found}: restore that ledger's file, or move the remains away")
