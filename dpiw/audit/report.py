"""`audit.json` and `audit.html`: what an audit found, for programs and for people."""

import math
from bisect import bisect_left
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpiw import __version__
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import Recomputed, delta_of, epsilon_of
from dpiw.audit.findings import Severity
from dpiw.audit.folders import FolderFacts
from dpiw.audit.records import (
    AttemptTally,
    PopulationTally,
    RunTally,
    StageTally,
    Tally,
    Units,
    fits,
    total,
    worth,
)
from dpiw.audit.statements import (
    UNPINNED,
    Unreleased,
    checked,
    in_folders,
    next_steps,
    not_checked,
    total_text,
    unreleased,
)
from dpiw.data.documents import document_json, plain
from dpiw.data.files import write_durably
from dpiw.errors import ReleaseError
from dpiw.ledger.accounts import MOST_ADMITTED, told_column
from dpiw.ledger.entries import Author
from dpiw.ledger.history import count_text
from dpiw.privacy.event_records import events_text
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.manifest import refuse_release
from dpiw.release.report import pages
from dpiw.release.report.plots import Budget, budget_bar


def build_page(report: AuditReport) -> str:
    """The report as one HTML document; the same report gives the same text."""
    counted = Tally() if report.counted is None else report.counted
    withdrawn = sum(folder.tombstone is not None for folder in report.folders)
    whole = sum(folder.release is not None for folder in report.folders) - withdrawn
    return pages.render(
        "audit/audit.html.j2",
        version=__version__,
        report=report,
        grave=tuple(f for f in report.findings if f.severity is not Severity.NOTE),
        follow=tuple((f.subject, f.text) for f in report.findings if f.follows),
        notes=tuple(
            (f.subject, f.text, f.action)
            for f in report.findings
            if f.severity is Severity.NOTE and not f.follows
        ),
        errors=report.number(Severity.ERROR),
        warnings=report.number(Severity.WARNING),
        runs=len(counted.runs),
        published=sum(run.manifest_digest is not None for run in counted.runs.values()),
        sound=f"{whole} whole{' and signed' if report.pinned else f'; {UNPINNED}' * bool(whole)}"
        + f"; {withdrawn} withdrawn" * bool(withdrawn),
        populations=tuple(
            _population_view(population, counted, report)
            for _, population in sorted(counted.populations.items())
        ),
        folders=tuple(
            _folder_row(folder, counted.runs.get(folder.run_key or ""), pinned=report.pinned)
            for folder in report.folders
        ),
        checked=checked(report),
        not_checked=not_checked(report),
        next_steps=next_steps(report),
    )


def _population_view(
    population: PopulationTally, counted: Tally, report: AuditReport
) -> dict[str, Any]:
    """One population, as the template shows it: a row for each attempt or charge."""
    runs = counted.runs_of(population.name)
    attempts = [(run, attempt) for run in runs for attempt in run.attempts]
    folder_units = in_folders(report, population.name)
    return {
        "terms": population,
        "unit": told_column(population.id_column or "no column: each row is a person"),
        "unpaid_reads": counted.unpaid_reads(population.name),
        "budgets": {
            letter: _budget(population, folder_units, letter, name, _rest(population, counted))
            for letter, name in (("ε", "epsilon"), ("δ", "delta"))
        },
        "charges": tuple(_charge(run, attempt) for run, attempt in attempts),
        "costs": tuple(_cost(run, attempt, report) for run, attempt in attempts),
        "unreleased": _unreleased(unreleased(report, population.name), population),
        "forecast": _forecast(population, counted),
    }


def _unreleased(rows: list[Unreleased], population: PopulationTally) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [
        (str(row.entry), f"{row.run.key[:12]} · {row.run.period}", row.why, f"{row.amount}")
        for row in rows
    ]
    return lines + [("", "", "spent with no folder", total_text(rows, population))] * bool(rows)


def _forecast(population: PopulationTally, counted: Tally) -> str:
    name = population.name
    if not (runs := counted.runs_of(name)):
        return ""
    cost = runs[-1].attempts[0].cost
    count = 0
    if counted.unpaid_reads(name) < population.max_unpaid_reads:
        count = bisect_left(
            range(1, MOST_ADMITTED + 1), True,
            key=lambda n: not fits(population, population.spent.plus(cost.times(n))),
        )  # fmt: skip
    return f"{count_text(count)}, such as {_release(runs[-1], runs[-1].attempts[0])}"


def _rest(population: PopulationTally, counted: Tally) -> str:
    name = population.name
    recovered = any(release.population == name for release in counted.recovered.values())
    has_losses = any(owner == name for _, owner, _ in counted.losses)
    return "with no folder" + ", or recovered" * (recovered or has_losses)


def _budget(
    population: PopulationTally, folder_units: Units, letter: str, name: str, rest: str
) -> Budget | None:
    if name == "delta" and population.composition == "renyi":
        return None
    exact = {"epsilon": epsilon_of, "delta": delta_of}[name]
    totals = (population.budget, *(worth(population, u) for u in (population.spent, folder_units)))
    budget, spent, out = (exact(total) for total in totals)
    return budget_bar(
        letter, budget, spent, {"in these folders": out, rest: spent - out},
        title=f"Lifetime {name} of population {population.name}",
    )  # fmt: skip


def _charge(run: RunTally, attempt: AttemptTally) -> tuple[str, ...]:
    return (
        f"{attempt.seq} · {attempt.at[:16].replace('T', ' ')}",
        _release(run, attempt),
        run.key[:12],
        author(attempt),
        run.attempt_state(attempt),
        f"{attempt.number} (at most {run.max_attempts} paid)",
        decimal_text(attempt.cost.epsilon, EPSILON_UNIT) + _times(attempt),
        pages.plain(decimal_text(attempt.cost.delta, DELTA_UNIT)) + _times(attempt),
    )


def _cost(run: RunTally, attempt: AttemptTally, report: AuditReport) -> tuple[str, ...]:
    cost = report.costs.get((run.key, attempt.number))
    stages = "; ".join(
        f"{name} {stage.state}" + f" + {stage.conflicts} conflict" * bool(stage.conflicts)
        + f": {events_text(stage.events)}" * (cost is not None)
        for name, stage in attempt.stages.items()
    )  # fmt: skip
    figures = ("–", "–", "–")
    if cost is not None:
        figures = (_figure(cost.bounds.pld), _figure(cost.bounds.rdp), _own(cost))
    charged = decimal_text(attempt.cost.epsilon, EPSILON_UNIT)
    return (str(attempt.seq), charged, *figures, run.key[:12], run.plan_digest[:12], stages)


def _figure(epsilon: float) -> str:
    return f"{epsilon:.6g}" if math.isfinite(epsilon) else "–"


def _release(run: RunTally, attempt: AttemptTally) -> str:
    return f"{attempt.stated.get('release', '')} {run.period}".strip()


def author(attempt: AttemptTally) -> str:
    """Who reserved it, by the entry's statement, and the key that signed it."""
    try:
        return str(Author.from_json(attempt.stated.get("by")))
    except ValueError:  # of earlier versions, or forged: a finding of its own
        return "not stated"


def _own(cost: Recomputed) -> str:
    if cost.own is None or cost.own.epsilon is None:
        return "–" if cost.own is None else f"{cost.own.sum:.6g}"
    low, high = (f"{end:.4g}" for end in vars(cost.own.epsilon.bound).values())
    return low if low == high else f"{low} to {high}"


def _times(attempt: AttemptTally) -> str:
    times = f" × {1 + attempt.conflicts}" * bool(attempt.conflicts)
    return " (voided)" if attempt.voided else times


def _folder_row(folder: FolderFacts, run: RunTally | None, *, pinned: bool) -> tuple[str, ...]:
    release = folder.release
    soundness = "whole, signed" if pinned else f"whole, {UNPINNED}"
    if folder.tombstone is not None:
        soundness = f"withdrawn: {folder.tombstone.tombstone.statement.reason}"
    fault = "NOT SOUND" if folder.other_key is None else f"SIGNED BY {folder.other_key}"
    return (
        folder.name,
        fault if release is None else soundness,
        "–" if release is None else release.key_id,
        (folder.manifest_digest or "–")[:12],
        "–" if run is None else ", ".join(str(attempt.seq) for attempt in run.attempts),
        "–" if run is None else str(run.published),
        "–" if release is None else release.certificate.ledger_head[:12],
    )


FORMAT = "dpiw-audit"
FORMAT_VERSION = 1


def write_report(report: AuditReport, folder: Path) -> tuple[Path, Path]:
    """Write `audit.json` and `audit.html` into `folder`, made if missing, for its owner alone.

    Earlier reports are kept, named by their time. Raises SpecError inside a published release,
    ReleaseError if they cannot be written.
    """
    refuse_release(folder)
    paths = folder / "audit.json", folder / "audit.html"
    texts = report_json(report), build_page(report).encode()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _keep(paths)
        for path, data in zip(paths, texts, strict=True):
            write_durably(path, data)
    except OSError as reason:
        found = f"{reason.strerror}: name a folder that you can write, with --out"
        raise ReleaseError(found, field=f"audit report {folder.name}") from reason
    return paths


def _keep(paths: tuple[Path, Path]) -> None:
    there = [path for path in paths if path.exists()]
    if there:
        written = datetime.fromtimestamp(there[0].stat().st_mtime, UTC)
        for path in there:
            path.rename(path.with_stem(f"{path.stem}-{written:%Y%m%dT%H%M%S.%fZ}"))


def report_json(report: AuditReport) -> bytes:
    """The report as canonical JSON; the same report always gives the same bytes."""
    counted = Tally() if report.counted is None else report.counted
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
        "populations": [
            _population(population, counted, report)
            for _, population in sorted(counted.populations.items())
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


def _population(population: PopulationTally, counted: Tally, report: AuditReport) -> dict[str, Any]:
    same = ("name", "relation", "max_rows", "id_column", "composition", "max_unpaid_reads")
    name, runs = population.name, counted.runs_of(population.name)
    by_recoveries = population.spent.beyond(total(run.held for run in runs))
    return {
        **{field: getattr(population, field) for field in same},
        "registered_at": population.at,
        "unpaid_reads": counted.unpaid_reads(name),
        "budget": _amount(population.budget),
        "spent": _amount(worth(population, population.spent)),
        "runs": [_run(run, report) for run in runs],
        "spent_in_folders": _amount(worth(population, in_folders(report, name))),
        "spent_with_no_folder": [
            {"run_key": row.run.key, "entry": row.entry, "why": row.why, **_amount(row.amount)}
            for row in unreleased(report, name)
        ],
        "spent_by_recoveries": _amount(worth(population, by_recoveries)),
    }


def _run(run: RunTally, report: AuditReport) -> dict[str, Any]:
    same = ("plan_digest", "period", "state", "max_attempts", "manifest_digest", "last_at")
    return {
        **{name: getattr(run, name) for name in same},
        "run_key": run.key,
        "held": _amount(run.held),
        "published_entry": run.published,
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
    used = cost.bounds.used  # certificates call the smallest valid one `pld`, whatever its method
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
        "withdrawn": None
        if folder.tombstone is None
        else folder.tombstone.tombstone.statement.reason,
        "release_id": None if release is None else release.certificate.release_id,
        "signed_by": folder.other_key if release is None else release.key_id,
        "key_checked": release is not None and release.pinned,
    }
