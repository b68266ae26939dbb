"""What a ledger restored from an old copy forgot: heads of releases, and draws on disk.

Source: docs/operations.md, "A ledger that lost entries".
"""

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dpiw.errors import LedgerTamperedError, ReleaseError
from dpiw.ledger import AttemptRecord, Ledger, PublishedHead, RunRecord
from dpiw.plan.spec import ReleaseSpec
from dpiw.privacy.measurement import Measurement
from dpiw.release.manifest import Manifest, release_folders
from dpiw.release.verification import read_signed_manifest
from dpiw.run.checkpoints import check_checkpoints
from dpiw.run.run import measurement_file, workspace_folder

_RELEASE = (
    "get the folder again from a backup or a reader. If it is no release, or if `dpiw ledger show`"
    " has its run as published, you may move it out of the folder of releases instead (if its run"
    " is in this workspace, its own command then publishes the same bytes again, at no cost)"
)
_BUILT = (
    "copy over it the folder that this run has published, or get it again from a backup; never"
    " remove the run's folder, as its draws are in it"
)
_RUN = (
    "get that file again from a backup, and leave the run's folder where it lies: its draws are in"
    " it"
)
"""Advice for a folder that cannot be read and may hide a release, by its place."""


def check_heads(spec: ReleaseSpec, ledger: Ledger) -> None:
    """Refuse a ledger that lacks the head of a release of any population registered in it.

    Looks where this spec and the runs of its workspace publish, and at what they built. Raises
    LedgerTamperedError (an old copy or a new ledger: recover before spending) or ReleaseError (a
    folder there cannot be read as a release).
    """
    try:
        heads = [*_heads(spec, ledger)]
    except ReleaseError as error:
        raise type(error)(f"{error}; nothing is released until that is done") from error
    ledger.check_heads(heads)


def _heads(spec: ReleaseSpec, ledger: Ledger) -> Iterator[PublishedHead]:
    registered = {population.name for population in ledger.populations()}
    for _, manifest in manifests_in_sight(spec):
        facts = manifest.facts
        digest = facts.rows_of or manifest.digest  # more rows carry the head of what paid for them
        if facts.population in registered:
            yield PublishedHead(hash=facts.ledger_head, manifest_digest=digest)


def manifests_in_sight(spec: ReleaseSpec) -> Iterator[tuple[Path, Manifest]]:
    """Yield folder and manifest of releases in sight, of any population; raises ReleaseError."""
    workspace = workspace_folder(Path(spec.state))
    folders = sorted(workspace.glob("*/*/")) if _is_there(workspace) else []
    roots = {Path(spec.publish_to), *filter(None, map(_publishes_to, folders))}
    built = [folder / "built" for folder in folders if (folder / "built").exists()]
    published = [
        folder for root in sorted(roots) if _is_there(root) for folder in release_folders(root)
    ]
    for folder in (*built, *published):
        try:
            manifest = read_signed_manifest(folder)
        except ReleaseError as error:
            remedy = _BUILT if folder in built else _RELEASE
            text = f"{folder.parent.name}/{folder.name}: {error}; {remedy}"
            raise type(error)(text) from error
        yield folder, manifest


def _is_there(root: Path) -> bool:
    """Whether the folder exists; one that may not be seen is not taken for absent."""
    try:
        os.scandir(root).close()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as reason:
        raise ReleaseError(
            f"{reason.strerror}; type this command as a user who may read it",
            field=f"folder {root.name}",
        ) from None
    return True


def _publishes_to(folder: Path) -> Path | None:
    """Where a run of the workspace publishes; None: it was never fully prepared."""
    try:
        return Path(json.loads((folder / "run.json").read_bytes())["spec"]["publish_to"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(
            f"its run.json cannot be read, so it is not known where it published; {_RUN}",
            field=f"run {folder.name}",
        ) from None


def check_undrawn(folder: Path, run: RunRecord, attempt: AttemptRecord) -> None:
    """Raise LedgerTamperedError if an attempt to give back has a draw on disk: it pays for it."""
    for name in attempt.stages:
        check_checkpoints(folder, name, run)
        if measurement_file(folder, name).exists():
            raise LedgerTamperedError(
                "the workspace holds this stage's output, but the ledger has no entry that it was"
                " drawn: the ledger was restored from an old copy. The reservation is not given"
                " back, as it pays for that draw",
                field=f"stage {name}",
            )


def drawn_under(data: bytes) -> str | None:
    """Return the arm that a measurement's bytes were drawn under; None: they name none."""
    try:
        return Measurement.from_bytes(data).grant
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, zipfile.BadZipFile):
        return None
