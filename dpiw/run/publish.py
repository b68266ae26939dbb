"""Build the release folder once, sign it, and publish those very bytes."""

import contextlib
import datetime
import json
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpiw.analysis.questions import answers, asked_of, pair_support
from dpiw.analysis.release import ReleasedRows
from dpiw.data.files import make_folder, sync_directory
from dpiw.data.row_weights import ReplicateWeights, mean_one_weights
from dpiw.data.scaled import regrouped
from dpiw.data.tables import SyntheticTable
from dpiw.data.threads import prefetched
from dpiw.errors import Command, LedgerTamperedError, Next, ReleaseError, SignatureError
from dpiw.ledger import EntryKind, Ledger, PublishedHead, RunRecord, RunState
from dpiw.methods.generators.base import FindsLevels
from dpiw.plan.assumptions import caveats
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE, StagePlan
from dpiw.privacy.units import PrivacyBudget
from dpiw.release.certificate import Certificate, CertifiedStage
from dpiw.release.croissant import CatalogueEntry
from dpiw.release.files import release_contents
from dpiw.release.parquet import PART_ROWS
from dpiw.release.publication import build_folder, clean_staging, publish_built
from dpiw.release.report.figures import Answers, answers_of
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import read_signed_manifest, verify
from dpiw.release.withdrawal import ReleaseName
from dpiw.run.certifiable import decimals, planned_facts, stage_record, versions_of
from dpiw.run.draw import check_drawn
from dpiw.run.locks import working
from dpiw.run.reserve import reserve
from dpiw.run.run import ReleaseRun
from dpiw.run.weigh import (
    PUBLISHED_ROWS,
    admission_of,
    check_output,
    committed_measurement,
    read_rows,
)
from dpiw.run.withdrawal import revised

MOST_ANSWERED = 10_000
"""Most published rows whose report shows answers: it needs every feature of every row at once."""


def certify(run: ReleaseRun, ledger: Ledger) -> Certificate:
    """Return the certificate of a run whose draws are committed and whose weights are diagnosed.

    Costs are what all attempts hold, lost draws included. Raises LedgerConflictError if a stage was
    drawn with other events or settings than the plan's.
    """
    check_drawn(run, ledger)
    plan, spec = run.plan, run.spec
    weighed = _weighed(run)
    revision = revised(spec, ledger, own=run.release_id)
    head = ledger.certify(run.key)  # first: later reads can only find more
    record = ledger.run(run.key)
    epsilon, delta = decimals(record.held.cost)
    account = ledger.account(spec.population)
    spent_epsilon, spent_delta = decimals(account.spent)
    budget_epsilon, budget_delta = decimals(account.population.budget)
    most_reads, read_before = account.population.max_unpaid_reads, _read_before(ledger, record)
    planned = planned_facts(
        plan, run.generator, max_unpaid_reads=most_reads, read_before=read_before
    )
    return Certificate(
        release_id=run.release_id,
        period=run.period,
        epsilon=epsilon,
        delta=delta,
        attempts=_attempts(record),
        spent_epsilon=spent_epsilon,
        spent_delta=spent_delta,
        account={
            "composition": account.population.composition.value,
            "held": account.held.to_payload(),
            "drawn": account.drawn.to_payload(),
            "max_unpaid_reads": most_reads,
        },
        budget_epsilon=budget_epsilon,
        budget_delta=budget_delta,
        accountants=plan.composed,
        stages=tuple(_certified(run, stage) for stage in plan.stages),
        versions=versions_of(plan),
        ledger_head=head,
        **weighed,
        **_revising(
            planned | {"caveats": (*planned["caveats"], *_constraint_caveats(run))}, revision
        ),
    )


def _revising(facts: dict[str, Any], revision: ReleaseName | None) -> dict[str, Any]:
    """Facts of a certificate, with the release that it revises, if there is one."""
    if revision is None:
        return facts
    says = f"This release revises {revision.release_id} (manifest {revision.manifest}): use this."
    generator = {**facts["generator"], "revises": dict(vars(revision))}
    return facts | {"generator": generator, "caveats": (*facts["caveats"], says)}


def certify_more_rows(run: ReleaseRun, ledger: Ledger, first: Certificate) -> Certificate:
    """Return the certificate of more rows from a published release's draws; charges nothing.

    Promise and cost are those of the certificate `first`, rows and weights these. Raises
    LedgerConflictError as `certify`.
    """
    check_drawn(run, ledger)
    plan = run.plan
    named = {"release_id": first.release_id, "manifest": ledger.run(run.key).manifest_digest}
    again = (
        f"These are more rows from the draws of release {first.release_id}, at no further cost: the"
        " weights of both carry the same privacy noise, so both together are no second look."
    )
    return replace(
        first,
        release_id=run.release_id,
        generator={**first.generator, "more_rows_of": named},
        caveats=(
            *caveats(plan, weighted=plan.weights is not None), *_constraint_caveats(run), again,
        ),
        versions=versions_of(plan),
        **_weighed(run),
    )  # fmt: skip


def _weighed(run: ReleaseRun) -> dict[str, Any]:
    """A certificate's facts of the weights."""
    weights = json.loads((run.directory / "weights.json").read_bytes())
    diagnostics = json.loads((run.directory / "diagnostics.json").read_bytes())
    return {
        "post_processing": tuple(weights["steps"]),
        "diagnostics": diagnostics,
        "verdict": diagnostics["verdict"],
        "verdict_rule": diagnostics["rule"],
    }


def _certified(run: ReleaseRun, stage: StagePlan) -> CertifiedStage:
    measurement = committed_measurement(run, stage.name)
    return stage_record(
        stage,
        measurement.stated_noise,
        threshold=measurement.threshold,
        alone=run.plan.stage_cost(frozenset({stage.name})).epsilon,
    )


def _read_before(ledger: Ledger, record: RunRecord) -> bool:
    """Whether the table was read under another plan before this run's first draw, and never drawn.

    This run's settings could depend on that read. A read stated in a recovery was under an unknown
    plan, so it counts.
    """
    plans = {run.run_key: run for run in ledger.runs(record.population)}
    for entry in ledger.entries(population=record.population):
        if entry.kind is EntryKind.ARM and entry.run_key == record.run_key:
            return False
        if entry.kind is EntryKind.RECOVER and entry.payload["reads"]:
            return True
        if entry.kind is EntryKind.READ and entry.run_key and entry.attempt:
            other = plans[entry.run_key]
            drawn = other.attempts[entry.attempt - 1].committed
            if other.plan_digest != record.plan_digest and not drawn:
                return True
    return False


def _attempts(record: RunRecord) -> tuple[dict[str, Any], ...]:
    """What each reservation held, and for which stages; lost draws are paid too.

    Voided attempts are left out and nothing is numbered: a failed read is not published.
    """
    attempts = []
    for attempt in (attempt for attempt in record.attempts if not attempt.voided):
        epsilon, delta = decimals(attempt.held.cost)
        stages = sorted(attempt.stages.items())
        states = {name: stage.state.value for name, stage in stages}
        facts: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "stages": states}
        resumed = {n: len(stage.earlier_tokens) for n, stage in stages if stage.earlier_tokens}
        attempts.append(facts | {"resumed": resumed} if resumed else facts)
    return tuple(attempts)


def _constraint_caveats(run: ReleaseRun) -> tuple[str, ...]:
    admission = admission_of(run)
    return () if admission is None else admission.caveats


def publish(run: ReleaseRun) -> Path:
    """Publish the run's release and return its folder.

    The folder is built and signed once and kept: an interrupted publication ends with the same
    bytes. The ledger records the manifest's digest before the folder becomes visible. Raises
    ReleaseError, NotPublishableError (seeded noise) or LedgerError (a stage is not committed).
    """
    with working(run):
        clean(run)
        key = load_private_key(Path(run.spec.signing_key))
        ledger = run.open_ledger(key=key)
        built = _built(run, ledger, key)
        return make_visible(run, built, ledger, key, record=partial(ledger.publish, run.key))


def published(run: ReleaseRun) -> Path | None:
    """Return the folder of a published run after the checks of its steps; None: a step is left.

    Ledger heads, committed outputs, folder and signature are checked; no stage starts and nothing
    is spent. Raises as `reserve` and `publish`.
    """
    ledger = run.open_ledger()
    record = ledger.find_run(run.key)
    ledger.check_not_withdrawn(record)
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
    record: Callable[[str], object],
) -> Path:
    """Publish a built, signed folder, and return the published one.

    `record` puts the manifest's digest on record before the folder is visible, again without error.
    Raises SignatureError (another key), LedgerTamperedError (the entry it was built on is missing)
    or ReleaseError, WithdrawnError among them.
    """
    manifest = verify(built, then="").manifest  # our own folder: nobody else has it
    if manifest.signer != key.public:
        raise SignatureError(
            f"it was signed by key id {manifest.signer.key_id}, and signing_key is key id "
            f"{key.public.key_id} now; a release keeps the signature that it was published"
            " with: put the old key back, or name it in signing_key; the new one signs"
            " what is published from here on (another period or source.snapshot)",
            field=f"release {run.release_id}",
        )
    head = PublishedHead(hash=manifest.facts.ledger_head, manifest_digest=manifest.digest)
    if not ledger.knows(head):
        raise LedgerTamperedError(
            "the release was built on an entry that the ledger lacks: the ledger was restored from"
            " an old copy. Nothing is published until it is recovered",
            field=f"release {run.release_id}",
            next=[Next("to recover it", Command.RECOVER)],
        )
    destination = _destination(run)
    publish_built(built, destination=destination, key=key.public, commit=record)
    record(manifest.digest)  # also where it was visible before
    return destination


def make_root(root: Path) -> None:
    """Make the folder of releases, open to all; an existing one, perhaps a home, keeps its mode."""
    try:
        if make_folder(root, mode=0o755, parents=True):
            _open_to_readers(root)
    except OSError as reason:
        raise ReleaseError(
            f"{root} cannot be used: {reason.strerror}",
            field="publish_to",
            allowed="a folder that you may write to",
        ) from reason


def _open_to_readers(root: Path) -> None:
    """Open a new root whatever the umask, or do not make it: the next run would keep its mode."""
    try:
        root.chmod(0o755)
        sync_directory(root)
    except OSError:
        with contextlib.suppress(OSError):
            root.rmdir()
        raise


def _built(run: ReleaseRun, ledger: Ledger, key: PrivateKey) -> Path:
    """The finished, signed folder, made once.

    Again only before publication, after a new key or a conflicting output that was charged since.
    """
    built = run.directory / "built"
    if built.exists():
        manifest, record = read_signed_manifest(built), ledger.run(run.key)
        facts = manifest.facts
        cost = PrivacyBudget.of(Decimal(facts.epsilon), Decimal(facts.delta), facts.unit.relation)
        on_record = record.manifest_digest is not None or ledger.recovery_of_run(
            run.key, run.plan.digest, run.period
        )
        if on_record or (manifest.signer == key.public and cost.covers(record.held.cost)):
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
        with np.load(run.directory / "weights.npz", allow_pickle=False) as stored:
            log_weights, noise, chosen = stored["log_weights"], stored["noise"], stored["chosen"]
        rows = read_rows(run, PUBLISHED_ROWS).chosen(chosen)
        files, facts = release_contents(
            certificate,
            frames=prefetched(map(rows.schema.unscale, regrouped(rows.batches(), PART_ROWS))),
            log_weights=log_weights,
            log_weight_noise_sd=noise if run.plan.weights is not None else None,
            schema=rows.schema,
            catalogue=CatalogueEntry(**run.spec.catalogue.model_dump()),
            published_at=today(),
            previous=previous,
            workspace=workspace,
            rng=np.random.default_rng(secrets.randbits(128)),
            replicates=_replicates(run, rows, log_weights),
            lists=_lists(run),
            answers=_answers(rows, log_weights, certificate),
        )
        build_folder(built, files=files, facts=facts, key=key)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _answers(
    rows: SyntheticTable, log_weights: NDArray[np.float64], certificate: Certificate
) -> Answers | None:
    """What analysts will find in the release; None for many rows, without a known law, or a fault.

    A fault is not told here: the page says that it shows no answers.
    """
    if rows.rows > MOST_ANSWERED:
        return None
    # What was paid for is published, with or without these figures of public values.
    with contextlib.suppress(Exception), threadpool_limits(limits=1), np.errstate(all="ignore"):
        release = ReleasedRows(
            _table=rows.frame(),
            weights=mean_one_weights(log_weights),
            log_weights=log_weights,
            certificate=certificate,
            schema=rows.schema.published_mapping(),
        )
        if release.sample.law is not None:
            return answers_of(answers(release, asked_of(release)), pair_support(release))
    return None


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
