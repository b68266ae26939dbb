"""Build the release folder once, sign it, and publish those very bytes."""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import shutil
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpiw.data.files import make_folder, sync_directory
from dpiw.data.row_weights import ReplicateWeights
from dpiw.data.scaled import regrouped
from dpiw.data.tables import SyntheticTable
from dpiw.data.threads import prefetched
from dpiw.errors import LedgerTamperedError, ReleaseError, SignatureError
from dpiw.ledger import EntryKind, Ledger, PublishedHead, RunState
from dpiw.methods.generators.base import FindsLevels
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.privacy.units import PrivacyBudget
from dpiw.release.certificate import Certificate
from dpiw.release.files import CatalogueEntry, ReleaseContents, release_contents
from dpiw.release.manifest import Manifest
from dpiw.release.parquet import PART_ROWS
from dpiw.release.publication import build_folder, clean_staging, publish_built
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import read_signed_manifest, verify
from dpiw.run.certify import certify
from dpiw.run.locks import working
from dpiw.run.reserve import reserve
from dpiw.run.run import ReleaseRun
from dpiw.run.weigh import PUBLISHED_ROWS, check_output, committed_measurement, read_rows


def publish(run: ReleaseRun) -> Path:
    """Publish the run's release and return its folder.

    The folder is built and signed once and kept: an interrupted publication ends with the same
    bytes. The ledger records the manifest's digest before the folder becomes visible. Raises
    ReleaseError, NotPublishableError (seeded noise) or LedgerError (a stage is not committed).
    """
    with working(run):
        return _publish(run)


def published(run: ReleaseRun) -> Path | None:
    """Return the folder of a published run after the checks of its steps; None: a step is left.

    Ledger heads, committed outputs, folder and signature are checked; no stage starts and nothing
    is spent. Raises as `reserve` and `publish`.

    Raises:
        ReleaseError, LedgerError, PrivacyError, SpecError: as `reserve` and `publish`.
    """
    record = run.open_ledger().find_run(run.key)
    if record is None or record.state is not RunState.PUBLISHED:
        return None
    if not ((run.directory / "built").is_dir() and _destination(run).is_dir()):
        return None
    reserve(run)
    for stage in record.stages.values():
        check_output(run.measurement(stage.stage), stage)
    return publish(run)


def _destination(run: ReleaseRun) -> Path:
    return Path(run.spec.publish_to) / run.release_id


def _publish(run: ReleaseRun) -> Path:
    clean(run)
    key = load_private_key(Path(run.spec.signing_key))
    ledger = run.open_ledger(key=key)
    built = _built(run, ledger, key)
    return make_visible(
        run, built, ledger, key, record=lambda digest: _record(ledger, run.key, digest)
    )


def clean(run: ReleaseRun) -> None:
    """Make the folder of releases, and remove what killed publications of the run left."""
    root = Path(run.spec.publish_to)
    make_root(root)
    for folder in (root, run.directory):
        clean_staging(folder)
    for path in (*run.directory.glob(".building-*"), *run.directory.glob(".*_rows.parquet.*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()  # the caller holds the lock


def make_visible(
    run: ReleaseRun,
    built: Path,
    ledger: Ledger,
    key: PrivateKey,
    *,
    record: Callable[[str], None],
) -> Path:
    """Publish a built, signed folder, and return the published one.

    `record` puts the manifest's digest on record before the folder is visible, again without error.
    Raises SignatureError (another key), LedgerTamperedError (the entry it was built on is missing)
    or ReleaseError.
    """
    manifest = verify(built, then="").manifest  # our own folder: nobody else has it
    if manifest.signer != key.public:
        raise SignatureError(
            f"release {run.release_id}: it was signed by key id {manifest.signer.key_id}, and"
            f" signing_key is key id {key.public.key_id} now; a release keeps the signature that it"
            " was published with: put the old key back, or name it in signing_key; the new one"
            " signs what is published from here on (another period or source.snapshot)"
        )
    head = PublishedHead(hash=manifest.facts.ledger_head, manifest_digest=manifest.digest)
    if not ledger.knows(head):
        raise LedgerTamperedError(
            "the release was built on a ledger entry that this ledger does not hold; it was"
            " restored from an old copy and must be recovered first"
        )
    publication = publish_built(
        built,
        destination=_destination(run),
        key=key.public,
        commit=record,
    )
    record(publication.manifest_digest)  # also where it was visible before
    return publication.folder


def make_root(root: Path) -> None:
    """Make the folder of releases, open to all; an existing one, perhaps a home, keeps its mode."""
    try:
        if make_folder(root, mode=0o755, parents=True):
            _open_to_readers(root)
    except OSError as reason:
        raise ReleaseError(f"publish_to: {root} cannot be used: {reason.strerror}") from reason


def _open_to_readers(root: Path) -> None:
    """Open a new root whatever the umask, or do not make it: the next run would keep its mode."""
    try:
        root.chmod(0o755)
        sync_directory(root)
    except OSError:
        with contextlib.suppress(OSError):
            root.rmdir()
        raise


def _record(ledger: Ledger, run_key: str, manifest_digest: str) -> None:
    ledger.publish(run_key, manifest_digest)


def _built(run: ReleaseRun, ledger: Ledger, key: PrivateKey) -> Path:
    """The finished, signed folder, made once.

    Again only before publication, after a new key or a conflicting output that was charged since.
    """
    built = run.directory / "built"
    if built.exists():
        manifest, record = read_signed_manifest(built, expected=None), ledger.run(run.key)
        on_record = record.manifest_digest is not None or ledger.recovery_of_run(
            run.key, run.plan.digest, run.period
        )
        if on_record or (manifest.signer == key.public and _cost_of(manifest).covers(record.held)):
            sync_directory(run.directory)  # its builder may have died before this
            return built
        shutil.rmtree(built)
    build(run, certify(run, ledger), key, previous=_previous_manifest(run, ledger))
    return built


def build(
    run: ReleaseRun, certificate: Certificate, key: PrivateKey, *, previous: str | None
) -> None:
    """Build and sign the run's folder `built`, which must not exist, from its weighted rows."""
    built = run.directory / "built"
    workspace = run.directory / f".building-{secrets.token_hex(8)}"
    workspace.mkdir(mode=0o700)
    try:
        contents = _contents(run, certificate, workspace, previous=previous)
        build_folder(built, files=contents.files, facts=contents.facts, key=key)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _cost_of(manifest: Manifest) -> PrivacyBudget:
    facts = manifest.facts
    return PrivacyBudget.of(Decimal(facts.epsilon), Decimal(facts.delta), facts.unit.relation)


def _contents(
    run: ReleaseRun, certificate: Certificate, workspace: Path, *, previous: str | None
) -> ReleaseContents:
    plan, spec = run.plan, run.spec
    with np.load(run.directory / "weights.npz", allow_pickle=False) as stored:
        log_weights, noise, chosen = stored["log_weights"], stored["noise"], stored["chosen"]
    rows = read_rows(run, PUBLISHED_ROWS).chosen(chosen)
    return release_contents(
        certificate,
        frames=prefetched(map(rows.schema.unscale, regrouped(rows.batches(), PART_ROWS))),
        log_weights=log_weights,
        log_weight_noise_sd=noise if plan.weights is not None else None,
        schema=rows.schema,
        catalogue=CatalogueEntry(**spec.catalogue.model_dump()),
        published_at=today(),
        previous=previous,
        workspace=workspace,
        rng=np.random.default_rng(secrets.randbits(128)),
        replicates=_replicates(run, rows, log_weights),
        lists=_lists(run),
    )


def _lists(run: ReleaseRun) -> Mapping[str, bytes]:
    generator = run.generator
    if not isinstance(generator, FindsLevels):
        return {}
    return generator.level_files(committed_measurement(run, GENERATOR_STAGE))


def _replicates(
    run: ReleaseRun, rows: SyntheticTable, log_weights: NDArray[np.float64]
) -> ReplicateWeights | None:
    weights = run.plan.weights
    if weights is None or not run.draws(WEIGHTS_STAGE):
        return None
    fitted = json.loads((run.directory / "weights.json").read_bytes())["diagnostics"]
    measurement = committed_measurement(run, WEIGHTS_STAGE)
    return weights.replicates_of(measurement, rows, log_weights, fitted)


def today() -> str:
    """Return today's date without a time, which would reveal how long confidential stages took."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT00:00:00Z")


def _previous_manifest(run: ReleaseRun, ledger: Ledger) -> str | None:
    """Digest of the population's latest manifest, recovered or not: releases form a chain."""
    latest = None
    for entry in ledger.entries(population=run.spec.population):
        adds_rows = "rows_of" in entry.payload  # its release is in the chain itself
        if entry.kind is EntryKind.PUBLISH and entry.run_key != run.key and not adds_rows:
            latest = str(entry.payload["manifest_digest"])
        if entry.kind is EntryKind.RECOVER and entry.payload["releases"]:
            latest = str(entry.payload["releases"][-1]["manifest_digest"])
    return latest
