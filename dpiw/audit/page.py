"""`audit.html`: the audit for people; the template `audit.html.j2` escapes every text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from dpiw import __version__
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import Recomputed, delta_of, epsilon_of
from dpiw.audit.findings import Finding, Severity
from dpiw.audit.folders import FolderFacts
from dpiw.audit.records import (
    AttemptTally,
    PopulationTally,
    RunTally,
    Tally,
    Units,
    fits,
    worth,
)
from dpiw.audit.statements import (
    UNPINNED,
    Unreleased,
    alone,
    checked,
    in_folders,
    next_steps,
    not_checked,
    total_text,
    unreleased,
)
from dpiw.ledger.accounts import MOST_ADMITTED, told_column
from dpiw.ledger.entries import Author
from dpiw.ledger.history import count_text
from dpiw.privacy.event_records import events_text
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.report.pages import plain, render
from dpiw.release.report.plots import Budget, budget_bar


@dataclass(frozen=True, kw_only=True)
class PopulationView:
    """One population, as the audit's template shows it: a row for each attempt or charge."""

    terms: PopulationTally
    unit: str
    unpaid_reads: int
    budgets: Mapping[str, Budget | None]
    charges: tuple[tuple[str, ...], ...]
    costs: tuple[tuple[str, ...], ...]
    unreleased: tuple[tuple[str, ...], ...]
    forecast: str


@dataclass(frozen=True, kw_only=True)
class AuditView:
    """The names that the audit's template may use.

    `grave`: errors and warnings. `follow`: findings that a broken chain may have caused.
    """

    report: AuditReport
    grave: tuple[Finding, ...]
    follow: tuple[tuple[str, ...], ...]
    notes: tuple[tuple[str, ...], ...]
    errors: int
    warnings: int
    runs: int
    published: int
    sound: str
    populations: tuple[PopulationView, ...]
    folders: tuple[tuple[str, ...], ...]
    checked: tuple[str, ...]
    not_checked: tuple[str, ...]
    next_steps: tuple[str, ...]
    version: str = __version__


def build_page(report: AuditReport) -> str:
    """The report as one HTML document; the same report gives the same text."""
    counted = Tally() if report.counted is None else report.counted
    view = AuditView(
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
        sound=_sound(report),
        populations=tuple(
            _population(population, counted, report)
            for _, population in sorted(counted.populations.items())
        ),
        folders=tuple(
            _folder(folder, counted.runs.get(folder.run_key or ""), pinned=report.pinned)
            for folder in report.folders
        ),
        checked=checked(report),
        not_checked=not_checked(report),
        next_steps=next_steps(report),
    )
    return render("audit/audit.html.j2", view)


def _sound(report: AuditReport) -> str:
    count = sum(folder.release is not None for folder in report.folders)
    return f"{count} whole{' and signed' if report.pinned else f'; {UNPINNED}' * bool(count)}"


def _population(population: PopulationTally, counted: Tally, report: AuditReport) -> PopulationView:
    runs = counted.runs_of(population.name)
    attempts = [(run, attempt) for run in runs for attempt in run.attempts]
    folder_units = in_folders(report, population.name)
    return PopulationView(
        terms=population,
        unit=told_column(population.id_column or "no column: each row is a person"),
        unpaid_reads=counted.unpaid_reads(population.name),
        budgets={
            letter: _budget(population, folder_units, letter, name, _rest(population, counted))
            for letter, name in (("ε", "epsilon"), ("δ", "delta"))
        },
        charges=tuple(_charge(run, attempt) for run, attempt in attempts),
        costs=tuple(_cost(run, attempt, report) for run, attempt in attempts),
        unreleased=_unreleased(unreleased(report, population.name), population),
        forecast=_forecast(population, counted),
    )


def _unreleased(rows: list[Unreleased], population: PopulationTally) -> tuple[tuple[str, ...], ...]:
    lines = [
        (str(row.entry), f"{row.run.key[:12]} · {row.run.period}", row.why, total_text([row]))
        for row in rows
    ]
    total = total_text(rows) + alone(population)
    return (*lines, *[("", "", "spent with no folder", total)] * bool(rows))


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
        plain(decimal_text(attempt.cost.delta, DELTA_UNIT)) + _times(attempt),
    )


def _cost(run: RunTally, attempt: AttemptTally, report: AuditReport) -> tuple[str, ...]:
    cost = report.costs.get((run.key, attempt.number))
    stages = "; ".join(
        f"{name} {stage.state}" + f" + {stage.conflicts} conflict" * bool(stage.conflicts)
        + f": {events_text(stage.events)}" * (cost is not None)
        for name, stage in attempt.stages.items()
    )  # fmt: skip
    return (
        str(attempt.seq),
        decimal_text(attempt.cost.epsilon, EPSILON_UNIT),
        "–" if cost is None or cost.pld is None else f"{cost.pld:.6g}",
        "–" if cost is None or cost.rdp is None else f"{cost.rdp:.6g}",
        "–" if cost is None else _own(cost),
        run.key[:12],
        run.plan_digest[:12],
        stages,
    )


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
    conflicts = sum(stage.conflicts for stage in attempt.stages.values())
    return " (voided)" if attempt.voided else f" × {1 + conflicts}" * bool(conflicts)


def _folder(folder: FolderFacts, run: RunTally | None, *, pinned: bool) -> tuple[str, ...]:
    release = folder.release
    soundness = "whole, signed" if pinned else f"whole, {UNPINNED}"
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
