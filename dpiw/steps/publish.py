"""Build the release folder once, sign it, and publish those very bytes."""

from __future__ import annotations

import datetime
import secrets
import shutil
from pathlib import Path

import numpy as np

from dpiw.contents import CatalogueEntry, ReleaseContents, release_contents
from dpiw.errors import LedgerTamperedError
from dpiw.ledger import EntryKind, Ledger
from dpiw.publication import build_folder, clean_staging, publish_built
from dpiw.runs import ReleaseRun
from dpiw.signing import PrivateKey, load_private_key
from dpiw.steps.certify import certify
from dpiw.steps.locks import working
from dpiw.steps.postprocessing import PUBLISHED_ROWS, read_rows
from dpiw.truth import PublicTruth
from dpiw.verification import read_signed_manifest, verify


def publish(run: ReleaseRun) -> Path:
    """Publish the run's release and return its folder.

    The folder is built and signed once and kept in the workspace, so that a publication
    interrupted anywhere ends with the same bytes. The ledger records the manifest's digest before
    the folder becomes visible.

    Raises:
        ReleaseError: something could not be written, or the name is taken by another release.
        NotPublishableError: a measurement's noise was seeded.
        LedgerError: a stage is not committed.
    """
    with working(run):
        return _publish(run)


def _publish(run: ReleaseRun) -> Path:
    root = Path(run.spec.publish_to)
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    for folder in (root, run.directory):
        clean_staging(folder)
    key = load_private_key(Path(run.spec.signing_key))
    ledger = run.open_ledger()
    built = _built(run, ledger, key)
    head = verify(built).certificate
    if not ledger.contains_head(head.ledger_sequence, head.ledger_head):
        raise LedgerTamperedError(
            "the release was built on a ledger entry that this ledger does not hold; it was"
            " restored from an old copy and must be recovered first"
        )
    publication = publish_built(
        built,
        destination=root / run.release_id,
        key=key.public,
        commit=lambda digest: _record(ledger, run.key, digest),
    )
    _record(ledger, run.key, publication.manifest_digest)  # also where it was visible before
    return publication.folder


def _record(ledger: Ledger, run_key: str, manifest_digest: str) -> None:
    ledger.publish(run_key, manifest_digest)


def _built(run: ReleaseRun, ledger: Ledger, key: PrivateKey) -> Path:
    """The finished, signed folder, made once; anew only if its key was replaced in the meantime."""
    built = run.directory / "built"
    if built.exists():
        signer = read_signed_manifest(built, expected=None).signer
        if signer == key.public or ledger.run(run.key).manifest_digest is not None:
            return built
        shutil.rmtree(built)
    workspace = run.directory / f".building-{secrets.token_hex(8)}"
    workspace.mkdir(mode=0o700)
    try:
        contents = _contents(run, ledger, workspace)
        build_folder(built, files=contents.files, facts=contents.facts, key=key)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return built


def _contents(run: ReleaseRun, ledger: Ledger, workspace: Path) -> ReleaseContents:
    plan, spec = run.plan, run.spec
    with np.load(run.directory / "weights.npz", allow_pickle=False) as stored:
        log_weights, noise, chosen = stored["log_weights"], stored["noise"], stored["chosen"]
    truth = spec.public_truth
    return release_contents(
        certify(run, ledger),
        frame=plan.schema.unscale(read_rows(run, PUBLISHED_ROWS).scaled.take(chosen)),
        log_weights=log_weights,
        log_weight_noise_sd=noise if plan.weights is not None else None,
        schema=plan.schema,
        catalogue=CatalogueEntry(**spec.catalogue.model_dump()),
        published_at=_today(),
        previous=_previous_manifest(run, ledger),
        workspace=workspace,
        rng=np.random.default_rng(secrets.randbits(128)),
        truth=None if truth is None else PublicTruth.read(Path(truth)),
    )


def _today() -> str:
    """The day alone: the minute would tell how long the confidential stages took."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT00:00:00Z")


def _previous_manifest(run: ReleaseRun, ledger: Ledger) -> str | None:
    """Digest of the population's latest manifest, so that releases form a chain."""
    published = [
        entry
        for entry in ledger.entries(population=run.spec.population)
        if entry.kind is EntryKind.PUBLISH and entry.run_key != run.key
    ]
    return str(published[-1].payload["manifest_digest"]) if published else None
