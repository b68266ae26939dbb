"""`audit.html`: the audit for people. One page without scripts or outside resources."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from html import escape

from dpiw import __version__
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import Recomputed, delta_of, epsilon_of
from dpiw.audit.findings import Finding, Severity
from dpiw.audit.records import AttemptTally, PopulationTally, RunTally, Tally, Units, worth
from dpiw.audit.scope import checked, not_checked
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.report import plots
from dpiw.release.report.markup import (
    bullets,
    details,
    figure,
    number,
    page,
    paragraph,
    section,
    table,
    tiles,
)

_STYLES = {Severity.ERROR: "bad", Severity.WARNING: "warn"}


def build_page(report: AuditReport) -> str:
    """The report as one HTML document; the same report gives the same text."""
    parts = [_header(report), _findings(report.findings)]
    if report.counted is not None:
        parts += [
            _population(population, report.counted, report)
            for _, population in sorted(report.counted.populations.items())
        ]
    parts += [_releases(report), _scope(report), _footer(report)]
    return page("Ledger audit", parts)


def _header(report: AuditReport) -> str:
    errors, warnings = (report.number(s) for s in (Severity.ERROR, Severity.WARNING))
    runs = [] if report.counted is None else list(report.counted.runs.values())
    published = sum(run.manifest_digest is not None for run in runs)
    sound = sum(folder.release is not None for folder in report.folders)
    boxes = (
        ("Errors", str(errors), "a rule broken or a promise not shown"),
        ("Warnings", str(warnings), "legal and paid for; look at them"),
        ("Ledger entries", f"{report.entries:,}", f"{len(runs)} runs, {published} published"),
        ("Release folders", str(len(report.folders)), f"{sound} whole and signed"),
    )
    lede = (
        "No error was found."
        if report.ok
        else "This ledger or its releases are not in order. Spend nothing until it is explained."
    )
    return (
        f'<header><p class="eyebrow">Ledger audit · {escape(report.made_at)}</p>'
        f"<h1>{escape(report.ledger)}</h1>"
        f'<p class="lede">{escape(lede)}</p>{tiles(boxes)}</header>'
    )


def _findings(findings: Sequence[Finding]) -> str:
    grave = [f for f in findings if f.severity is not Severity.NOTE]
    notes = [f for f in findings if f.severity is Severity.NOTE]
    boxes = "".join(
        f'<div class="verdict {_STYLES[f.severity]}">'
        f"<strong>{escape(f.severity.value.capitalize())}: {escape(f.subject)}</strong>"
        f"<p>{escape(f.text)}</p><p>{escape(f.action)} <code>{escape(f.code)}</code></p></div>"
        for f in grave
    )
    if not grave:
        boxes = '<div class="verdict good"><strong>No errors and no warnings</strong></div>'
    rows = [(f.subject, f.text, f.action) for f in notes]
    more = table(("Note", "What", "What to do"), rows) if rows else ""
    return section("Findings", boxes, more)


def _population(population: PopulationTally, counted: Tally, report: AuditReport) -> str:
    runs = counted.runs_of(population.name)
    released = Units()
    for run in runs:
        if run.manifest_digest is not None:
            released = released.plus(run.held)
    terms = (
        f"Registered {population.at} under {population.relation}, at most {population.max_rows} "
        f"row(s) per person, named by "
        f"{population.id_column or 'no column: each row is a person'}, composition "
        f"{population.composition}. Everything not voided is held for ever. Reads of its tables "
        f"without a draw: {counted.unpaid_reads(population.name)} of at most "
        f"{population.max_unpaid_reads} for life."
    )
    head = ("Period", "State", "Attempt", "Charged ε", "Charged δ", "PLD ε", "RDP ε",
            "Audit ε", "Entry · time", "Run", "Spec", "Stages")  # fmt: skip
    rows = [_row(run, attempt, report) for run in runs for attempt in run.attempts]
    known = table(head, rows, numbers=range(11), code=(9, 10)) if rows else paragraph("No runs.")
    return section(
        f"Population {population.name}",
        paragraph(terms),
        _bar(population, released, "epsilon"),
        _bar(population, released, "delta"),
        known,
        paragraph(
            "From the stored events, each alone. PLD: privacy loss distributions, rounded up. RDP: "
            "Renyi accounting. The charge must cover the lesser of both, or the sum of pure "
            "epsilons if that is less still. Audit: the audit's own account, which shares no code "
            "with them; PLD must be that within a hundredth, and RDP what the same account gives "
            "for Renyi accounting.",
            soft=True,
        )
        if rows
        else "",
    )


def _bar(population: PopulationTally, released: Units, name: str) -> str:
    exact = {"epsilon": epsilon_of, "delta": delta_of}[name]
    letter = {"epsilon": "ε", "delta": "δ"}[name]
    totals = (population.budget, *(worth(population, u) for u in (population.spent, released)))
    budget, spent, out = (exact(total) for total in totals)
    if budget == 0 or (name == "delta" and population.composition == "renyi"):
        return ""
    left = max(budget - spent, Decimal(0))
    texts = (
        f"released: {number(float(out))}",
        f"lost, drawn, reserved or recovered: {number(float(spent - out))}",
        f"left: {number(float(left))} of {number(float(budget))}",
    )
    bar = plots.budget_bar(
        float(out / budget), float((spent - out) / budget), texts=texts,
        title=f"Lifetime {name} of population {population.name}",
    )  # fmt: skip
    return figure(bar, f"Lifetime {letter} of population {population.name}, by our own count.")


def _row(run: RunTally, attempt: AttemptTally, report: AuditReport) -> tuple[str, ...]:
    cost = report.costs.get((run.key, attempt.number))
    stages = ", ".join(
        f"{name} {stage.state}" + f" + {stage.conflicts} conflict" * bool(stage.conflicts)
        for name, stage in attempt.stages.items()
    )
    return (
        run.period,
        run.state,
        f"{attempt.number} of {run.max_attempts}",
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


def _releases(report: AuditReport) -> str:
    runs = {} if report.counted is None else report.counted.runs
    rows = []
    for folder in report.folders:
        release, run = folder.release, runs.get(folder.run_key or "")
        rows.append(
            (
                folder.name,
                "whole, signed" if release is not None else "NOT SOUND",
                "–" if release is None else release.key_id,
                (folder.manifest_digest or "–")[:12],
                "–" if run is None else str(run.published),
                "–" if release is None else release.certificate.ledger_head[:12],
            )
        )
    head = ("Folder", "State", "Key id", "Manifest", "Published by entry", "Written behind")
    found = table(head, rows, code=(2, 3, 5)) if rows else paragraph("No folder was given.")
    return section("Published folders", found)


def _scope(report: AuditReport) -> str:
    return section(
        "What was checked, and what was not",
        "<h3>Checked</h3>" + bullets(checked(report)),
        "<h3>Not checked</h3>" + bullets(not_checked()),
        details("How to repeat this", paragraph(
            "python -m flows.audit --ledger URL --releases FOLDER --key curator.pub --out FOLDER. "
            "audit.json, beside this page, holds the same facts in full."
        )),
    )  # fmt: skip


def _footer(report: AuditReport) -> str:
    head = "none" if report.head is None else f"{report.head.seq}:{report.head.hash}"
    return f"<footer>Ledger head {escape(head)} · dpiw {escape(__version__)}</footer>"
