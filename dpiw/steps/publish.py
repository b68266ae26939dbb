"""Build the release folder once, sign it, and publish those very bytes."""

from __future__ import annotations

import datetime
import secrets
from pathlib import Path

import numpy as np

from dpiw.contents import CatalogueEntry, ReleaseContents, release_contents
from dpiw.ledger import EntryKind, Ledger
from dpiw.publication import build_folder, clean_staging, publish_built
from dpiw.runs import ReleaseRun
from dpiw.signing import PrivateKey, load_private_key
from dpiw.steps.certify import certify
from dpiw.steps.postprocessing import PUBLISHED_ROWS, read_rows
from dpiw.truth import PublicTruth


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
    root = Path(run.spec.publish_to)
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    for folder in (root, run.directory):
        clean_staging(folder)
    key = load_private_key(Path(run.spec.signing_key))
    ledger = run.open_ledger()
    publication = publish_built(
        _built(run, ledger, key),
        destination=root / run.release_id,
        key=key.public,
        commit=lambda digest: _record(ledger, run.key, digest),
    )
    return publication.folder


def _record(ledger: Ledger, run_key: str, manifest_digest: str) -> None:
    ledger.publish(run_key, manifest_digest)


def _built(run: ReleaseRun, ledger: Ledger, key: PrivateKey) -> Path:
    """The finished, signed folder, made once."""
    built = run.directory / "built"
    if not built.exists():
        contents = _contents(run, ledger)
        build_folder(built, files=contents.files, facts=contents.facts, key=key)
    return built


def _contents(run: ReleaseRun, ledger: Ledger) -> ReleaseContents:
    plan, spec = run.plan, run.spec
    with np.load(run.directory / "weights.npz", allow_pickle=False) as stored:
        log_weights, noise = stored["log_weights"], stored["noise"]
    truth = spec.public_truth
    return release_contents(
        certify(run, ledger),
        frame=read_rows(run, PUBLISHED_ROWS).frame(),
        log_weights=log_weights,
        log_weight_noise_sd=noise if plan.weights is not None else None,
        schema=plan.schema,
        catalogue=CatalogueEntry(**spec.catalogue.model_dump()),
        published_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        previous=_previous_manifest(run, ledger),
        workspace=run.directory,
        rng=np.random.default_rng(secrets.randbits(128)),
        truth=None if truth is None else PublicTruth.read(Path(truth)),
    )


def _previous_manifest(run: ReleaseRun, ledger: Ledger) -> str | None:
    """Digest of the population's latest manifest, so that releases form a chain."""
    published = [
        entry
        for entry in ledger.entries(population=run.spec.population)
        if entry.kind is EntryKind.PUBLISH and entry.run_key != run.key
    ]
    return str(published[-1].payload["manifest_digest"]) if published else None
