"""Build the release folder once, sign it, and publish those very bytes."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpiw import accounting
from dpiw.canonical import canonical_json, plain
from dpiw.certificate import Certificate, StageRecord
from dpiw.croissant import croissant_json
from dpiw.durable import sync_directory, write_durably
from dpiw.ledger import EntryKind, Ledger
from dpiw.manifest import (
    CERTIFICATE,
    CROISSANT,
    REPORT,
    SCHEMA,
    SYNTHETIC,
    FileEntry,
    ManifestFacts,
)
from dpiw.parquet import arrow_fields, arrow_schema, footer_facts, write_synthetic
from dpiw.plan import WEIGHTS_STAGE, Plan, StagePlan
from dpiw.privacy import DELTA_UNIT, EPSILON_UNIT, PrivacyCost, decimal_text
from dpiw.promise import assumptions, caveats
from dpiw.publication import clean_staging, publish_folder
from dpiw.runs import ReleaseRun
from dpiw.signing import load_private_key
from dpiw.steps.postprocessing import PUBLISHED_ROWS, committed_measurement, read_rows

_PACKAGES = (
    "dpiw", "dp-accounting", "great-expectations", "numpy", "opendp", "pandas", "prefect",
    "pyarrow", "scipy",
)  # fmt: skip


def publish(run: ReleaseRun) -> Path:
    """Publish the run's release and return its folder.

    The folder is built once and kept, so that a publication interrupted anywhere ends with the
    same bytes. The ledger records the manifest's digest before the folder becomes visible.

    Raises:
        ReleaseError: something could not be written, or the name is taken by another release.
        NotPublishableError: a measurement's noise was seeded.
        LedgerError: a stage is not committed.
    """
    root = Path(run.spec.publish_to)
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    clean_staging(root)
    key = load_private_key(Path(run.spec.signing_key))
    ledger = run.open_ledger()
    built = _built(run, ledger)
    facts = _facts(run, built)
    publication = publish_folder(
        {path.name: path.read_bytes() for path in sorted((built / "files").iterdir())},
        destination=root / run.release_id,
        facts=facts,
        key=key,
        commit=lambda digest: _record(ledger, run.key, digest),
    )
    return publication.folder


def _record(ledger: Ledger, run_key: str, manifest_digest: str) -> None:
    ledger.publish(run_key, manifest_digest)


def _built(run: ReleaseRun, ledger: Ledger) -> Path:
    """The finished files of the release, made once."""
    built = run.directory / "built"
    if built.exists():
        return built
    temporary = run.directory / f".built.{secrets.token_hex(8)}"
    (temporary / "files").mkdir(mode=0o700, parents=True)
    _build(run, ledger, temporary)
    sync_directory(temporary)
    temporary.rename(built)
    sync_directory(run.directory)
    for leftover in run.directory.glob(".built.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    return built


def _build(run: ReleaseRun, ledger: Ledger, folder: Path) -> None:
    from dpiw.report import build_report

    files, plan = folder / "files", run.plan
    certificate = _certificate(run, ledger)
    frame = read_rows(run, PUBLISHED_ROWS).frame()
    with np.load(run.directory / "weights.npz", allow_pickle=False) as stored:
        log_weights, noise = stored["log_weights"], stored["noise"]
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_synthetic(
        files / SYNTHETIC,
        frame=frame,
        log_weights=log_weights,
        schema=plan.schema,
        facts=footer_facts(certificate),
        rng=np.random.default_rng(secrets.randbits(128)),
    )
    catalogue = run.spec.catalogue
    report = build_report(
        certificate,
        frame=frame,
        log_weights=log_weights,
        log_weight_noise_sd=noise if plan.weights is not None else None,
        schema=plan.schema,
        truth_margins=None,
    )
    written = {
        CERTIFICATE: certificate.to_json(),
        SCHEMA: canonical_json(plain(plan.schema.to_mapping())),
        REPORT: report.encode(),
        CROISSANT: croissant_json(
            certificate,
            schema=plan.schema,
            synthetic=FileEntry.of((files / SYNTHETIC).read_bytes()),
            published_at=moment,
            licence=catalogue.licence,
            url=catalogue.url,
            creator=catalogue.creator,
        ),
    }
    for name, data in written.items():
        write_durably(files / name, data)
    record = {"published_at": moment, "previous": _previous_manifest(run, ledger)}
    write_durably(folder / "facts.json", canonical_json(record))


def _public_truth(run: ReleaseRun) -> Mapping[str, Any] | None:
    path = run.spec.public_truth
    if path is None:
        return None
    found: dict[str, Any] = json.loads(Path(path).read_bytes())
    return found


def _facts(run: ReleaseRun, built: Path) -> ManifestFacts:
    record = json.loads((built / "facts.json").read_bytes())
    certificate = Certificate.from_json((built / "files" / CERTIFICATE).read_bytes())
    return ManifestFacts.of_certificate(
        certificate,
        rows=run.spec.synthetic_rows,
        columns=arrow_fields(arrow_schema(run.plan.schema)),
        constraints_digest=FileEntry.of((built / "files" / SCHEMA).read_bytes()).sha256,
        previous=record["previous"],
        published_at=record["published_at"],
    )


def _previous_manifest(run: ReleaseRun, ledger: Ledger) -> str | None:
    """Digest of the population's latest manifest, so that releases form a chain."""
    published = [
        entry for entry in ledger.entries(population=run.spec.population)
        if entry.kind is EntryKind.PUBLISH and entry.run_key != run.key
    ]
    return str(published[-1].payload["manifest_digest"]) if published else None


def _decimals(cost: PrivacyCost) -> tuple[str, str]:
    return (
        decimal_text(cost.epsilon_units, EPSILON_UNIT),
        decimal_text(cost.delta_units, DELTA_UNIT),
    )


def _stage_record(run: ReleaseRun, stage: StagePlan) -> StageRecord:
    plan = run.plan
    laws = committed_measurement(run, stage.name).facts.get("laws", [])
    return StageRecord(
        stage=stage.name,
        method=stage.method,
        events=tuple(accounting.event_to_json(event) for event in stage.events),
        parameters=stage.parameters,
        noise=tuple(laws),
        standalone_epsilon=plan.stage_cost(frozenset({stage.name})).epsilon,
    )


def _certificate(run: ReleaseRun, ledger: Ledger) -> Certificate:
    plan, spec = run.plan, run.spec
    weights = json.loads((run.directory / "weights.json").read_bytes())
    diagnostics = json.loads((run.directory / "diagnostics.json").read_bytes())
    epsilon, delta = _decimals(ledger.run(run.key).held)
    spent_epsilon, spent_delta = _decimals(ledger.spent(spec.population))
    budget = ledger.population(spec.population).budget
    head = ledger.head()
    return Certificate(
        release_id=run.release_id,
        population=spec.population,
        period=run.period,
        unit=spec.privacy_unit,
        epsilon=epsilon,
        delta=delta,
        spent_epsilon=spent_epsilon,
        spent_delta=spent_delta,
        budget_epsilon=decimal_text(budget.epsilon_units, EPSILON_UNIT),
        budget_delta=decimal_text(budget.delta_units, DELTA_UNIT),
        accountants=_accountants(plan),
        plan_digest=plan.digest,
        nominal_rows=spec.nominal_rows,
        stages=tuple(_stage_record(run, stage) for stage in plan.stages),
        generator=spec.generator.model_dump(mode="json"),
        weights=_weights_facts(plan),
        post_processing=tuple(weights["steps"]),
        diagnostics=diagnostics,
        verdict=diagnostics["verdict"],
        verdict_rule=diagnostics["rule"],
        assumptions=assumptions(plan),
        caveats=caveats(plan, weighted=plan.weights is not None),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        ledger_sequence=head.seq,
        ledger_head=head.hash,
    )


def _accountants(plan: Plan) -> dict[str, float]:
    found = {"pld": plan.epsilon_pld}
    return found if plan.epsilon_rdp is None else found | {"rdp": plan.epsilon_rdp}


def _weights_facts(plan: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = plan.spec.weights.model_dump(mode="json")
    facts["published"] = plan.weights is not None
    facts["forecast"] = None if plan.forecast is None else vars(plan.forecast)
    facts["stage"] = WEIGHTS_STAGE if plan.weights is not None else None
    return facts
