"""What is held of a budget while no release folder shows for it, and why."""

from __future__ import annotations

from dataclasses import dataclass

from dpiw.audit.amounts import Units
from dpiw.audit.auditing import AuditReport
from dpiw.audit.records import AttemptTally, RunTally
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text


@dataclass(frozen=True, kw_only=True)
class Unreleased:
    """One charge with no folder: its entry, run, amount, and in words what became of it."""

    run: RunTally
    entry: int
    amount: Units
    why: str


def unreleased(report: AuditReport, population: str) -> list[Unreleased]:
    """Every charge of a population's runs for which none of the given folders shows."""
    if report.counted is None:
        return []
    seen = {folder.manifest_digest for folder in report.folders}
    return [
        Unreleased(run=run, entry=attempt.seq, amount=amount.amount, why=why)
        for run in report.counted.runs_of(population)
        for attempt in run.attempts
        for amount, why in _parts(run, attempt, shown=run.manifest_digest in seen)
    ]


def _parts(run: RunTally, attempt: AttemptTally, *, shown: bool) -> list[tuple[Units, str]]:
    if attempt.voided:
        return []
    conflicts = sum(stage.conflicts for stage in attempt.stages.values())
    parts = [(attempt.cost.times(conflicts), "further output, charged again")] * bool(conflicts)
    states = {stage.state for stage in attempt.stages.values()}
    if "lost" in states:
        return [*parts, (attempt.cost, "lost: armed, and left no output")]
    if run.manifest_digest is not None:
        return parts if shown else [*parts, (attempt.cost, "published, no such folder")]
    if not attempt.armed:
        return [*parts, (attempt.cost, "reserved, nothing drawn")]
    why = "drawn, not published" if states == {"committed"} else "armed, not all drawn"
    return [*parts, (attempt.cost, why)]


def spent_lines(report: AuditReport) -> list[str]:
    """For each population, what is spent with no folder, in one line; none where all is shown."""
    lines = []
    for name in sorted(report.counted.populations) if report.counted else ():
        rows = unreleased(report, name)
        if rows:
            reasons = ", ".join(dict.fromkeys(row.why for row in rows))
            lines.append(f"spent with no folder: population {name}, {total_text(rows)} ({reasons})")
    return lines


def total_text(rows: list[Unreleased]) -> str:
    """The charged amounts together."""
    total = Units()
    for row in rows:
        total = total.plus(row.amount)
    epsilon = decimal_text(total.epsilon, EPSILON_UNIT)
    return f"epsilon={epsilon}, delta={decimal_text(total.delta, DELTA_UNIT)}"
