"""`audit.html`: the audit for people. One page without scripts or outside resources.

Its words are in `audit.html.j2`, which escapes every text; its numbers are made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpiw import __version__
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import Recomputed, delta_of, epsilon_of
from dpiw.audit.findings import Finding, Severity
from dpiw.audit.folders import FolderFacts
from dpiw.audit.records import AttemptTally, PopulationTally, RunTally, Tally, Units, worth
from dpiw.audit.scope import checked, not_checked
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.report.plots import Drawing, budget_bar
from dpiw.release.report.template import render


@dataclass(frozen=True, kw_only=True)
class PopulationView:
    """One population: its terms, its budgets by their letters, a row per attempt of its runs."""

    terms: PopulationTally
    unpaid_reads: int
    budgets: Mapping[str, Drawing | None]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class AuditView:
    """What the audit's template may name.

    `grave` are errors and warnings, `notes` a row for each other finding; `runs`, `published` and
    `sound` (folders) are numbers; `folders` has a row for each.
    """

    report: AuditReport
    grave: tuple[Finding, ...]
    notes: tuple[tuple[str, ...], ...]
    errors: int
    warnings: int
    runs: int
    published: int
    sound: int
    populations: tuple[PopulationView, ...]
    folders: tuple[tuple[str, ...], ...]
    checked: tuple[str, ...]
    not_checked: tuple[str, ...]
    version: str = __version__


def build_page(report: AuditReport) -> str:
    """The report as one HTML document; the same report gives the same text."""
    counted = Tally() if report.counted is None else report.counted
    view = AuditView(
        report=report,
        grave=tuple(f for f in report.findings if f.severity is not Severity.NOTE),
        notes=tuple(
            (f.subject, f.text, f.action) for f in report.findings if f.severity is Severity.NOTE
        ),
        errors=report.number(Severity.ERROR),
        warnings=report.number(Severity.WARNING),
        runs=len(counted.runs),
        published=sum(run.manifest_digest is not None for run in counted.runs.values()),
        sound=sum(folder.release is not None for folder in report.folders),
        populations=tuple(
            _population(population, counted, report)
            for _, population in sorted(counted.populations.items())
        ),
        folders=tuple(
            _folder(folder, counted.runs.get(folder.run_key or "")) for folder in report.folders
        ),
        checked=checked(report),
        not_checked=not_checked(),
    )
    return render("audit/audit.html.j2", view)


def _population(population: PopulationTally, counted: Tally, report: AuditReport) -> PopulationView:
    runs = counted.runs_of(population.name)
    released = Units()
    for run in runs:
        if run.manifest_digest is not None:
            released = released.plus(run.held)
    return PopulationView(
        terms=population,
        unpaid_reads=counted.unpaid_reads(population.name),
        budgets={
            "ε": _budget(population, released, "epsilon"),
            "δ": _budget(population, released, "delta"),
        },
        rows=tuple(_row(run, attempt, report) for run in runs for attempt in run.attempts),
    )


def _budget(population: PopulationTally, released: Units, name: str) -> Drawing | None:
    if name == "delta" and population.composition == "renyi":
        return None
    exact = {"epsilon": epsilon_of, "delta": delta_of}[name]
    totals = (population.budget, *(worth(population, u) for u in (population.spent, released)))
    budget, spent, out = (exact(total) for total in totals)
    return budget_bar(
        budget, spent, {"released": out, "lost, drawn, reserved or recovered": spent - out},
        title=f"Lifetime {name} of population {population.name}",
    )  # fmt: skip


def _row(run: RunTally, attempt: AttemptTally, report: AuditReport) -> tuple[str, ...]:
    cost = report.costs.get((run.key, attempt.number))
    stages = ", ".join(
        f"{name} {stage.state}" + f" + {stage.conflicts} conflict" * bool(stage.conflicts)
        for name, stage in attempt.stages.items()
    )
    return (
        run.period,
        run.state,
        f"{attempt.number} (at most {run.max_attempts} paid)",
        decimal_text(attempt.cost.epsilon, EPSILON_UNIT) + _times(attempt),
        decimal_text(attempt.cost.delta, DELTA_UNIT),
        "–" if cost is None or cost.pld is None else f"{cost.pld:.6g}",
        "–" if cost is None or cost.rdp is None else f"{cost.rdp:.6g}",
        "–" if cost is None else _own(cost),
        f"{attempt.seq} · {attempt.at[:16].replace('T', ' ')}",
        run.key[:12],
        run.plan_digest[:12],
        stages,
    )


def _own(cost: Recomputed) -> str:
    """The audit's own epsilon, as a range where its ends differ."""
    if cost.own is None or cost.own.epsilon is None:
        return "–" if cost.own is None else f"{cost.own.sum:.6g}"
    low, high = (f"{end:.4g}" for end in vars(cost.own.epsilon.bound).values())
    return low if low == high else f"{low} to {high}"


def _times(attempt: AttemptTally) -> str:
    """How often its cost is held, unless once."""
    conflicts = sum(stage.conflicts for stage in attempt.stages.values())
    return " (voided)" if attempt.voided else f" × {1 + conflicts}" * bool(conflicts)


def _folder(folder: FolderFacts, run: RunTally | None) -> tuple[str, ...]:
    release = folder.release
    return (
        folder.name,
        "whole, signed" if release is not None else "NOT SOUND",
        "–" if release is None else release.key_id,
        (folder.manifest_digest or "–")[:12],
        "–" if run is None else str(run.published),
        "–" if release is None else release.certificate.ledger_head[:12],
    )
