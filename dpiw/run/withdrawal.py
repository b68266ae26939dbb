"""Withdraw a published release, and name the release that another one revises.

The order of a withdrawal: the ledger's entry, the tombstone, the removal of the other files. A
crash between two of them leaves a folder that the same command finishes.
"""

from contextlib import suppress
from pathlib import Path

from dpiw.data.files import sync_directory
from dpiw.errors import (
    Command,
    LedgerConflictError,
    Next,
    ReleaseError,
    SignatureError,
    SpecError,
    one_of,
)
from dpiw.ledger import Ledger
from dpiw.ledger.reading import label, utc_now
from dpiw.ledger.recovery import recovered
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.manifest import Manifest, release_folders
from dpiw.release.publication import clean_staging, place_file, writing
from dpiw.release.signing import PrivateKey
from dpiw.release.verification import read_signed_manifest
from dpiw.release.withdrawal import KEPT, WITHDRAWN, ReleaseName, Withdrawal, read_tombstone
from dpiw.release.withdrawn import WithdrawnRelease, kept, verify_withdrawn


def withdraw(
    folder: Path, ledger: Ledger, key: PrivateKey, *, reason: str, replaced_by: str | None = None
) -> WithdrawnRelease:
    """Withdraw a release, or more rows of one; again: finish what was begun.

    The release need not be whole: only its manifest, which this ledger has published, and its
    certificate are read.

    Args:
        folder: the release's folder.
        ledger: that paid for it; `key` signs its entry.
        key: signs the tombstone; need not be the key that signed the release.
        reason: of `dpiw.errors.REASONS`.
        replaced_by: the name of the release to use instead, of the same population.

    Raises:
        SpecError: `superseded` without a replacement; an unknown or withdrawn one.
        LedgerConflictError: the ledger has not published it, or withdrew it for another reason.
        SignatureError: an unrecorded tombstone that another key signed.
        ReleaseError: the folder cannot be read or written, or is a link.

    Privacy: reads and removes published files alone; its cost stays charged.
    """
    if folder.is_symlink():
        raise ReleaseError("a link", field=folder.name, allowed="the release's own folder")
    manifest, _ = kept(folder, then="")
    facts, replacement = manifest.facts, None
    if replaced_by is not None:
        names = (ledger, replaced_by, facts.population)
        replacement = named_release(*names, field="--replaced-by")
    elif reason == "superseded":
        allowed = "the name of the release that replaces it"
        raise SpecError("missing for this reason", field="--replaced-by", allowed=allowed)
    withdrawals = ledger.withdrawals()
    recorded, tombstone = withdrawals.get(manifest.digest), read_tombstone(folder, None)
    if recorded is None and tombstone is not None and tombstone.signer != key.public:
        raise SignatureError(
            f"the ledger has no entry of it, and key id {tombstone.signer.key_id} signed it",
            field=WITHDRAWN,
            allowed=f"that key to record it, or no such file; yours is {key.public.key_id}",
        )
    begun = recorded if tombstone is None else tombstone.statement
    if begun is None and replacement is not None and replacement.manifest in withdrawals:
        allowed = "a release that is not withdrawn"
        raise SpecError(f"{replaced_by} is withdrawn", field="--replaced-by", allowed=allowed)
    stated = Withdrawal(
        release_id=facts.release_id, manifest=manifest.digest, rows_of=facts.rows_of,
        reason=reason, replaced_by=replacement,
        withdrawn_at=label(utc_now) if begun is None else begun.withdrawn_at,
    )  # fmt: skip
    if begun is not None:
        _check_same(begun, stated)
    _check_same(ledger.withdraw(facts.population, stated), stated)
    clean_staging(folder.parent)
    _bury(folder, manifest, None if tombstone else stated.signed(key).to_json())
    return verify_withdrawn(folder, then="")


def _check_same(before: Withdrawal, stated: Withdrawal) -> None:
    if before != stated:
        raise LedgerConflictError(
            f"withdrawn before with reason {before.reason}, replaced by"
            f" {before.replacement or 'nothing'}; nothing was changed",
            field=f"release {stated.release_id}",
            allowed="the same words, which finish what was begun",
        )


def _bury(folder: Path, manifest: Manifest, tombstone: bytes | None) -> None:
    """Replace a release by its tombstone, durably; None: it is there.

    The file `withdrawn.json` appears whole, in one step, while every other file is still there;
    from then on no reader accepts the folder, whatever a crash leaves in it. Done again, this
    finishes. Raises ReleaseError if the folder cannot be written.
    """
    if tombstone is not None:
        place_file(folder / WITHDRAWN, tombstone)
    with writing(f"release folder {folder.name}"):
        sync_directory(folder)  # also what an earlier process placed
        for name in sorted(manifest.files.keys() - KEPT):
            (folder / name).unlink(missing_ok=True)
        sync_directory(folder)


def further_rows(folder: Path, ledger: Ledger) -> list[Path]:
    """Return folders beside a release that share its draws, and are not withdrawn."""
    manifest = read_signed_manifest(folder)
    first, withdrawn = manifest.facts.rows_of or manifest.digest, ledger.withdrawals()
    found = []
    for path in release_folders(folder.parent):
        with suppress(ReleaseError):
            other = read_signed_manifest(path)
            if first in (other.digest, other.facts.rows_of) and other.digest not in withdrawn:
                found.append(path)
    return found


def named_release(ledger: Ledger, name: str, population: str, *, field: str) -> ReleaseName:
    """Return a release that this population has published, by its name; SpecError if it has not.

    A recovery keeps the period and the run of a release, and not the rest of its name.
    """
    known = {
        run.release_id or "": run.manifest_digest
        for run in ledger.runs(population)
        if run.manifest_digest is not None
    }
    for release in recovered(ledger.recoveries(population)):
        if name.endswith(f"-{release.period}-{release.run}"):
            known.setdefault(name, release.manifest_digest)
    if name not in known:
        raise SpecError(
            f"population {population} has published no such release",
            field=f"{field} {name}",
            allowed=one_of(name, filter(None, known)) if any(known) else "a published release",
            next=[Next("the runs and their states", Command.SHOW)],
        )
    return ReleaseName(release_id=name, manifest=known[name])


def revised(spec: ReleaseSpec, ledger: Ledger, *, own: str) -> ReleaseName | None:
    """Return what a spec's release revises, or None; `own`: the release's own name.

    Raises SpecError if its population has published no release of that name, or it is its own.
    """
    if spec.revises is None:
        return None
    if spec.revises == own:
        raise SpecError(
            "is the release of this very spec: a revision has another source.snapshot or setting",
            field="revises",
        )
    return named_release(ledger, spec.revises, spec.population, field="revises")
