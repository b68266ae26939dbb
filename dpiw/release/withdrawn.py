"""Withdrawn folders: the whole check, and the step that makes a release one of them."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpiw.data.files import sync_directory
from dpiw.errors import ManifestError, ReleaseError, WithdrawnError
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import CERTIFICATE, Manifest
from dpiw.release.publication import place_file, writing
from dpiw.release.signing import load_public_keys
from dpiw.release.verification import (
    GET_AGAIN,
    VerifiedRelease,
    check_facts,
    signed_bytes,
    signed_manifest,
    verify,
)
from dpiw.release.withdrawal import KEPT, WITHDRAWN, Tombstone, Withdrawal, read_tombstone


@dataclass(frozen=True, kw_only=True)
class WithdrawnRelease:
    """A withdrawn folder that passed every check.

    Attributes:
        release: its manifest and certificate, as they were published.
        left: names of files that the withdrawal must still remove; a crash left them.
    """

    release: VerifiedRelease
    tombstone: Tombstone
    left: tuple[str, ...]


def verify_withdrawn(
    folder: Path, *, public_key: Path | Sequence[Path] | None = None, then: str = GET_AGAIN
) -> WithdrawnRelease:
    """Check a tombstone, and the manifest and certificate that it keeps.

    `public_key`: as of `dpiw.release.verification.verify`; tombstone and manifest may be signed by
    two of the keys. Raises SignatureError, ManifestError or ChecksumError.
    """
    expected = load_public_keys(public_key)
    tombstone = read_tombstone(folder, expected)
    if tombstone is None:
        raise ManifestError("is not withdrawn", field=folder.name, allowed=f"a {WITHDRAWN} in it")
    manifest, certificate = kept(folder, public_key=public_key, then=then)
    left = []
    with os.scandir(folder) as entries:
        there = sorted(entries, key=lambda entry: entry.name)
    for entry in there:
        if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            raise ManifestError("a link, folder, pipe or device", field=entry.name)
        if entry.name not in KEPT:
            if entry.name not in manifest.files:
                raise ManifestError("in the folder of a withdrawn release", field=f"{entry.name!r}")
            left.append(entry.name)
    stated = tombstone.statement
    meant = Withdrawal.of(
        manifest, certificate, reason=stated.reason, replaced_by=stated.replaced_by,
        withdrawn_at=stated.withdrawn_at,
    )  # fmt: skip
    if stated != meant:
        raise ManifestError("states another release than the certificate", field=WITHDRAWN)
    release = VerifiedRelease(
        folder=folder, manifest=manifest, certificate=certificate,
        key_id=manifest.signer.key_id, pinned=public_key is not None,
    )  # fmt: skip
    return WithdrawnRelease(release=release, tombstone=tombstone, left=tuple(left))


def kept(
    folder: Path, *, public_key: Path | Sequence[Path] | None = None, then: str = GET_AGAIN
) -> tuple[Manifest, Certificate]:
    """Return the manifest and the certificate of a release, whether or not it is withdrawn.

    Reads no other file. Raises as `verify`.
    """
    expected = load_public_keys(public_key)
    manifest = signed_manifest(folder, kind=Manifest, expected=expected, then=then)
    if CERTIFICATE not in manifest.files:
        raise ManifestError("not listed in the manifest", field=CERTIFICATE)
    file = signed_bytes(folder, manifest, CERTIFICATE, then=then)
    certificate = Certificate.from_json(file.data)
    check_facts(manifest, certificate)
    return manifest, certificate


def verify_charged(
    folder: Path, *, public_key: Path | Sequence[Path] | None = None, then: str = GET_AGAIN
) -> VerifiedRelease:
    """Verify a release, or what a tombstone keeps of one: both were paid for, and stay charged."""
    with suppress(WithdrawnError):
        return verify(folder, public_key=public_key, then=then)
    return verify_withdrawn(folder, public_key=public_key, then=then).release


def bury(folder: Path, tombstone: Tombstone) -> None:
    """Replace a release by its tombstone, durably.

    The file `withdrawn.json` appears whole, in one step, while every other file is still there;
    from then on no reader accepts the folder, whatever a crash leaves in it. Done again, this
    finishes. Raises ReleaseError if the folder cannot be written, or is a link.
    """
    if folder.is_symlink():
        raise ReleaseError("a link", field=folder.name, allowed="the release's own folder")
    manifest = signed_manifest(folder, kind=Manifest, expected=None)
    if read_tombstone(folder, None) is None:
        place_file(folder / WITHDRAWN, tombstone.to_json())
    with writing(f"release folder {folder.name}"):
        sync_directory(folder)  # also what an earlier process placed
        for name in sorted(manifest.files.keys() - KEPT):
            (folder / name).unlink(missing_ok=True)
        sync_directory(folder)
