"""Publication of a release folder: whole, once, or not at all.

The folder is built under a name that readers refuse, made durable, signed, committed in the ledger,
and renamed. After a crash the destination is absent or whole; a rerun gives the same bytes.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from dpiw.data.files import copy_file, move_exclusively, sync_directory
from dpiw.errors import ManifestError, ReleaseError
from dpiw.release.manifest import (
    MANIFEST,
    SIGNATURE,
    Facts,
    FileEntry,
    Manifest,
    SignedManifest,
    check_file_name,
    publish_anew,
)
from dpiw.release.signing import PrivateKey, PublicKey
from dpiw.release.verification import (
    STAGING_PREFIX,
    check_files,
    file_digest,
    manifest_digest,
    read_signed,
)

FileSource = bytes | Callable[[Path], None]
"""A file's bytes, or a function that creates the file at the path it is given."""


def build_folder(
    folder: Path,
    *,
    files: Mapping[str, FileSource],
    facts: Facts,
    key: PrivateKey,
    kind: type[SignedManifest] = Manifest,
) -> SignedManifest:
    """Build and sign a new release folder for `publish_built`, whole or not at all.

    Keep it for every attempt: a second build would have another ledger head and moment. Raises
    ReleaseError if `folder` exists, or cannot be written; then it is gone.
    """
    for name in files:
        check_file_name(name)
    with _staging(folder.parent) as staging:
        entries = {name: _write(staging / name, source) for name, source in sorted(files.items())}
        manifest = kind(facts=facts, files=entries, public_key=key.public.raw.hex())
        data = manifest.to_bytes()
        if kind.from_bytes(data) != manifest:
            raise ManifestError("dpiw cannot read it back; tell the maintainers", field=MANIFEST)
        _write(staging / MANIFEST, data)
        _write(staging / SIGNATURE, key.sign(data))
        _make_readable(staging)
        with writing(f"folder {folder.name}"):
            move_exclusively(staging, folder)
            sync_directory(folder.parent)
        return manifest


def publish_built(
    built: Path, *, destination: Path, key: PublicKey, commit: Callable[[str], object]
) -> bool:
    """Commit and publish a copy of a folder that `build_folder` made; False: it was there before.

    `commit` is called with the manifest's digest when the copy is durable and before it is visible;
    it must accept the same digest again, since a crash may follow. Raises ReleaseError if the
    destination holds something else, a write failed, or `built` is not whole or not signed by
    `key`. Then, as after an error of `commit`, nothing is visible.
    """
    manifest = read_signed(built, kind=Manifest, expected=[key])
    with _staging(destination.parent) as folder:
        for name in (*sorted(manifest.files), MANIFEST, SIGNATURE):
            _create(folder / name, partial(copy_file, built / name))
        with writing(f"release folder {destination.name}"):
            check_files(folder, manifest)
            if read_signed(folder, kind=Manifest, expected=[key]) != manifest:
                raise ReleaseError("its copy differs from the file; check the disk", field=MANIFEST)
        _make_durable(folder)
        return _install(folder, destination, manifest, key, commit)


def _install(
    folder: Path,
    destination: Path,
    manifest: Manifest,
    key: PublicKey,
    commit: Callable[[str], object],
) -> bool:
    if destination.name.startswith("."):
        raise ReleaseError(
            "a release folder's name must not start with a dot", field=destination.name
        )
    if os.path.lexists(destination):
        _check_published(destination, manifest, key)
        return False
    commit(manifest.digest)
    _make_readable(folder)  # until now nobody but us could look into it
    with writing(f"release folder {destination.name}"):
        try:
            move_exclusively(folder, destination)
        except FileExistsError:  # another process was faster
            _check_published(destination, manifest, key)
            return False
    _make_durable(destination.parent)
    return True


def place_file(path: Path, data: bytes) -> None:
    """Put a whole, durable file into a published folder, in one step; it replaces what is there."""
    with _staging(path.parent.parent) as staging:
        _create(staging / path.name, data)
        with writing(path.name):
            os.rename(staging / path.name, path)
            sync_directory(path.parent)


def clean_staging(root: Path) -> None:
    """Remove staging folders under `root` that no process has locked."""
    for folder in sorted(root.glob(f"{STAGING_PREFIX}*/")):
        if not folder.with_name(f"{folder.name}.lock").exists():
            # The lock is made before the folder and removed after it: nobody works here.
            shutil.rmtree(folder, ignore_errors=True)
    for lock_path in sorted(root.glob(f"{STAGING_PREFIX}*.lock")):
        with contextlib.suppress(BlockingIOError, FileNotFoundError), _lock(lock_path):
            folder = lock_path.with_suffix("")
            if folder.is_dir():
                shutil.rmtree(folder)
            lock_path.unlink(missing_ok=True)


@contextlib.contextmanager
def _staging(root: Path) -> Iterator[Path]:
    """A private, locked folder inside `root`, removed at the end unless renamed."""
    folder, lock = _create_lock(root)
    try:
        with writing(f"staging folder in {root.name}"):
            folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
        os.close(lock)


def _create_lock(root: Path) -> tuple[Path, int]:
    """A new staging name with its lock held; the lock exists before the folder."""
    while True:
        folder = root / f"{STAGING_PREFIX}{secrets.token_hex(16)}"
        path = folder.with_name(f"{folder.name}.lock")
        with writing(f"staging folder in {root.name}"):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # else a cleaner took the file between the two calls
            return folder, lock
        os.close(lock)


def _make_readable(folder: Path) -> None:
    with writing("staging folder"):
        folder.chmod(0o755)
    _make_durable(folder)


def _make_durable(folder: Path) -> None:
    with writing(f"folder {folder.name}"):
        sync_directory(folder)


def _write(path: Path, source: FileSource) -> FileEntry:
    size = _create(path, source)
    with writing(path.name):
        return FileEntry(size=size, sha256=file_digest(path))


def _create(path: Path, source: FileSource) -> int:
    with writing(path.name):
        if callable(source):
            source(path)
        else:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as to:
                to.write(source)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ReleaseError(
                    "a folder, pipe or device has this name",
                    field=path.name,
                    allowed="a regular file that only dpiw writes",
                )
            os.fchmod(descriptor, 0o644)  # whatever the umask of a confidential stage is
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    if isinstance(source, bytes) and status.st_size != len(source):
        raise ReleaseError("written in part only; make room on the disk", field=path.name)
    return status.st_size


def _check_published(destination: Path, manifest: Manifest, key: PublicKey) -> None:
    """Accept a destination that holds this very release; refuse links, whose target may change."""
    if manifest_digest(destination) != manifest.digest:
        raise ReleaseError(
            f"release folder {destination.name} exists and holds something else: a release is never"
            " replaced. Publish a correction as a new release, or move other files away"
        )
    then = publish_anew(destination)
    read = read_signed(destination, kind=Manifest, expected=[key], then=then)
    check_files(destination, read, then=then)
    _make_durable(destination.parent)  # the run that renamed it may have ended before this


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise ReleaseError, which names `what`, for an OSError inside."""
    try:
        yield
    except OSError as reason:
        cause = os.strerror(reason.errno) if reason.errno else type(reason).__name__
        raise ReleaseError(f"{what} could not be written: {cause}") from reason
