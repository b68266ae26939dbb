"""Withdrawn folders: the whole check of what is kept of a release."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpiw.errors import REASONS, ManifestError, WithdrawnError
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import CERTIFICATE, Manifest
from dpiw.release.signing import Keys, load_public_keys
from dpiw.release.statements import Signed
from dpiw.release.verification import (
    GET_AGAIN,
    VerifiedRelease,
    check_facts,
    signed_bytes,
    signed_manifest,
    verify,
)
from dpiw.release.withdrawal import KEPT, WITHDRAWN, Withdrawal, read_tombstone


@dataclass(frozen=True, kw_only=True)
class WithdrawnRelease:
    """A withdrawn folder that passed every check.

    Attributes:
        release: its manifest and certificate, as they were published.
        left: names of files that the withdrawal must still remove; a crash left them.
    """

    release: VerifiedRelease
    tombstone: Signed[Withdrawal]
    left: tuple[str, ...]

    def described(self) -> list[str]:
        """Return lines for people."""
        stated, certificate = self.tombstone.statement, self.release.certificate
        return [
            f"release {stated.release_id}: WITHDRAWN on {stated.withdrawn_at}",
            f"reason {stated.reason}: {REASONS[stated.reason]}",
            f"replaced by: {stated.replacement or 'nothing'}",
            f"population {certificate.population}, period {certificate.period}",
            f"spent, and still charged: epsilon={certificate.epsilon}, delta={certificate.delta}",
            f"manifest {stated.manifest}, ledger head {certificate.ledger_head}",
        ]


def kept(
    folder: Path, *, public_key: Keys = None, then: str = GET_AGAIN
) -> tuple[Manifest, Certificate]:
    """Return the manifest and the certificate of a release, whether or not it is withdrawn.

    Reads no other file. Raises as `verify`.
    """
    expected = load_public_keys(public_key)
    manifest = signed_manifest(folder, kind=Manifest, expected=expected, then=then)
    if CERTIFICATE not in manifest.files:
        raise ManifestError("not listed in the manifest", field=CERTIFICATE)
    certificate = Certificate.from_json(signed_bytes(folder, manifest, CERTIFICATE, then=then).data)
    check_facts(manifest, certificate)
    return manifest, certificate


def verify_withdrawn(
    folder: Path, *, public_key: Keys = None, then: str = GET_AGAIN
) -> WithdrawnRelease:
    """Check a tombstone, and the manifest and certificate that it keeps.

    `public_key`: as of `dpiw.release.verification.verify`; tombstone and manifest may be signed by
    two of the keys. Raises SignatureError, ManifestError or ChecksumError.
    """
    tombstone = read_tombstone(folder, load_public_keys(public_key))
    if tombstone is None:
        raise ManifestError("is not withdrawn", field=folder.name, allowed=f"a {WITHDRAWN} in it")
    manifest, certificate = kept(folder, public_key=public_key, then=then)
    stated, facts = tombstone.statement, manifest.facts
    if (stated.release_id, stated.rows_of) != (facts.release_id, facts.rows_of):
        raise ManifestError("states another release than the manifest", field=WITHDRAWN)
    with os.scandir(folder) as entries:
        there = sorted(entries, key=lambda entry: entry.name)
    for entry in there:
        if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            raise ManifestError("a link, folder, pipe or device", field=entry.name)
        if entry.name not in KEPT | manifest.files.keys():
            raise ManifestError("in the folder of a withdrawn release", field=f"{entry.name!r}")
    release = VerifiedRelease(
        folder=folder, manifest=manifest, certificate=certificate,
        key_id=manifest.signer.key_id, pinned=public_key is not None,
    )  # fmt: skip
    left = tuple(entry.name for entry in there if entry.name not in KEPT)
    return WithdrawnRelease(release=release, tombstone=tombstone, left=left)


def verify_charged(
    folder: Path, *, public_key: Keys = None, then: str = GET_AGAIN
) -> tuple[VerifiedRelease, WithdrawnRelease | None]:
    """Verify a release, or what a tombstone keeps of one: both were paid for, and stay charged.

    Returns the release as it was published, and its withdrawal, if there is one.
    """
    with suppress(WithdrawnError):
        return verify(folder, public_key=public_key, then=then), None
    withdrawn = verify_withdrawn(folder, public_key=public_key, then=then)
    return withdrawn.release, withdrawn
