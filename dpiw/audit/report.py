"""`audit.json` and `audit.html`: what an audit found, for programs and for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpiw import __version__
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import Recomputed
from dpiw.audit.folders import FolderFacts
from dpiw.audit.page import author, build_page
from dpiw.audit.records import PopulationTally, RunTally, StageTally, Tally, Units, total, worth
from dpiw.audit.statements import checked, in_folders, next_steps, not_checked, unreleased
from dpiw.data.documents import document_json, plain
from dpiw.data.files import write_durably
from dpiw.errors import ReleaseError
from dpiw.privacy.event_records import events_text
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.manifest import refuse_release

FORMAT = "dpiw-audit"
FORMAT_VERSION = 1


def write_report(report: AuditReport, folder: Path) -> tuple[Path, Path]:
    """Write `audit.json` and `audit.html` into `folder`, made if missing, for its owner alone.

    Earlier reports are kept, named by their time. Raises SpecError inside a published release,
    ReleaseError if they cannot be written.
    """
    refuse_release(folder, field="out")
    paths = folder / "audit.json", folder / "audit.html"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _keep(paths)
        for path, data in zip(paths, (report_json(report), build_page(report).encode()),
                              strict=True):  # fmt: skip
            write_durably(path, data)
    except OSError as reason:
        raise ReleaseError(f"audit report {folder.name}: {reason.strerror}") from reason
    return paths


def _keep(paths: tuple[Path, Path]) -> None:
    there = [path for path in paths if path.exists()]
    if there:
        written = datetime.fromtimestamp(there[0].stat().st_mtime, UTC)
        for path in there:
            path.rename(path.with_stem(f"{path.stem}-{written:%Y%m%dT%H%M%S.%fZ}"))


def report_json(report: AuditReport) -> bytes:
    """The report as canonical JSON; the same report always gives the same bytes."""
    counted = report.counted
    value = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dpiw": __version__,
        "ledger": report.ledger,
        "made_at": report.made_at,
        "entries": report.entries,
        "head": None if report.head is None else vars(report.head),
        "ok": report.ok,
        "given_keys": list(report.given),
        "entry_signatures": None if report.signers is None else vars(report.signers),
        "findings": [
            {**vars(finding), "severity": finding.severity, "action": finding.action}
            for finding in report.findings
        ],
        "populations": []
        if counted is None
        else [
            _population(population, counted, [_run(run, report) for run in counted.runs_of(name)])
            | _spent(report, population)
            for name, population in sorted(counted.populations.items())
        ],
        "releases": [_folder(folder) for folder in report.folders],
        "checked": list(checked(report)),
        "not_checked": list(not_checked(report)),
        "next_steps": list(next_steps(report)),
    }
    return document_json(plain(value))


def _amount(units: Units) -> dict[str, str]:
    return {
        "epsilon": decimal_text(units.epsilon, EPSILON_UNIT),
        "delta": decimal_text(units.delta, DELTA_UNIT),
    }


def _population(
    population: PopulationTally, counted: Tally, runs: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": population.name,
        "relation": population.relation,
        "max_rows": population.max_rows,
        "id_column": population.id_column,
        "composition": population.composition,
        "registered_at": population.at,
        "unpaid_reads": counted.unpaid_reads(population.name),
        "max_unpaid_reads": population.max_unpaid_reads,
        "budget": _amount(population.budget),
        "spent": _amount(worth(population, population.spent)),
        "runs": runs,
    }


def _spent(report: AuditReport, population: PopulationTally) -> dict[str, Any]:
    name = population.name
    runs = total(run.held for run in report.counted.runs_of(name)) if report.counted else Units()
    return {
        "spent_in_folders": _amount(worth(population, in_folders(report, name))),
        "spent_with_no_folder": [
            {"run_key": row.run.key, "entry": row.entry, "why": row.why, **_amount(row.amount)}
            for row in unreleased(report, name)
        ],
        "spent_by_recoveries": _amount(worth(population, population.spent.beyond(runs))),
    }


def _run(run: RunTally, report: AuditReport) -> dict[str, Any]:
    return {
        "run_key": run.key,
        "plan_digest": run.plan_digest,
        "period": run.period,
        "state": run.state,
        "max_attempts": run.max_attempts,
        "held": _amount(run.held),
        "manifest_digest": run.manifest_digest,
        "published_entry": run.published,
        "last_at": run.last_at,
        "attempts": [
            {
                "attempt": attempt.number,
                "entry": attempt.seq,
                "at": attempt.at,
                "release": attempt.stated.get("release"),
                "by": author(attempt),
                "charged": _amount(attempt.cost),
                "held": _amount(attempt.held),
                "voided": attempt.voided,
                "reads": attempt.reads,
                "recomputed": None
                if (cost := report.costs.get((run.key, attempt.number))) is None
                else _recomputed(cost),
                "stages": {
                    name: {"state": stage.state, "conflicts": stage.conflicts}
                    | ({} if cost is None else _noise(stage))
                    for name, stage in attempt.stages.items()
                },
            }
            for attempt in run.attempts
        ],
    }


def _noise(stage: StageTally) -> dict[str, Any]:
    return {"mechanisms": events_text(stage.events), "events": stage.events}


def _recomputed(cost: Recomputed) -> dict[str, Any]:
    account = None
    if cost.own is not None:
        inverted = cost.own.epsilon
        account = {
            "sum": _finite(cost.own.sum),
            "epsilon": None if inverted is None else vars(inverted.bound),
            "floor": None if inverted is None else inverted.floor,
            "rdp": None if cost.own.rdp is None else vars(cost.own.rdp),
        }
    numbers = {name: _finite(value) for name, value in vars(cost.bounds).items()}
    used = cost.bounds.used  # certificates call the least sound one `pld`, by whatever road
    return {**numbers, "used": used, "pld_of_certificate": numbers[used], "own": account}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _folder(folder: FolderFacts) -> dict[str, Any]:
    release = folder.release
    return {
        "name": folder.name,
        "manifest_digest": folder.manifest_digest,
        "run_key": folder.run_key,
        "sound": release is not None,
        "release_id": None if release is None else release.certificate.release_id,
        "signed_by": folder.other_key if release is None else release.key_id,
        "key_checked": release is not None and release.pinned,
    }
